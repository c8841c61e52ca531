//! Base64 as kubeconfigs carry their certificates in it (RFC 4648, with padding). Encodes only: kube decodes.

/// `bytes` in base64.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [0, 1, 2].map(|place| chunk.get(place).copied().unwrap_or_default());
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) & 0x3f;
            let letter = ALPHABET.get(six as usize).copied().unwrap_or(b'=');
            text.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in pairs {
            assert_eq!(encode(plain.as_bytes()), encoded);
        }
    }
}
