//! Tokens that expire soon, signed with the server's own key, since the server issues none that live less than ten minutes.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};

use crate::{lease::PATIENCE, support::stage::Stage};

/// How long a token is valid.
pub(crate) const LIVES: Duration = Duration::from_secs(2);
/// The server accepts a token for this long after it has expired.
const LEEWAY: Duration = Duration::from_secs(60);

/// A token of this account that the server accepts for [`LIVES`], signed with its own key; none if the server is in trouble.
pub(crate) async fn short_lived(stage: &Stage, key: &Path, account: &str) -> Option<String> {
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}", stage.namespace);
    let answer = tokio::time::timeout(PATIENCE, stage.api.attempt(Method::GET, &path, None)).await.ok()?.ok()?;
    let uid = answer.1["metadata"]["uid"].as_str()?.to_owned();
    let now = Duration::from_secs(u64::try_from(tenure::clock::timestamp().as_second()).ok()?);
    let claims = json!({
        "iss": ISSUER, "aud": [ISSUER],
        "iat": (now - LEEWAY * 2).as_secs(), "nbf": (now - LEEWAY * 2).as_secs(), "exp": (now - LEEWAY + LIVES).as_secs(),
        "sub": format!("system:serviceaccount:{}:{account}", stage.namespace),
        "kubernetes.io": { "namespace": stage.namespace, "serviceaccount": { "name": account, "uid": uid } },
    });
    let encoded = |value: Value| base64url(value.to_string().as_bytes());
    let text = format!("{}.{}", encoded(json!({ "alg": "ES256", "typ": "JWT" })), encoded(claims));
    let signature = signature(key, text.as_bytes());
    Some(format!("{text}.{}", base64url(&signature)))
}

const ISSUER: &str = "https://kubernetes.default.svc";

/// openssl writes the two numbers in DER; JWT wants each as 32 bytes.
fn signature(key: &Path, text: &[u8]) -> Vec<u8> {
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-sign"]).arg(key).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut openssl = openssl.spawn().expect("openssl");
    openssl.stdin.take().expect("piped").write_all(text).expect("a reader");
    let der = openssl.wait_with_output().expect("openssl").stdout;
    let (r, rest) = number(&der[2..]);
    let (s, _) = number(rest);
    [r, s].concat()
}

/// A DER integer, and the bytes after it.
fn number(der: &[u8]) -> ([u8; 32], &[u8]) {
    let (bytes, rest) = der[2..].split_at(der[1].into());
    let mut number = [0; 32];
    // A leading zero keeps a number with its highest bit set from being negative; other leading zeros are omitted.
    let bytes = &bytes[bytes.len().saturating_sub(32)..];
    number[32 - bytes.len()..].copy_from_slice(bytes);
    (number, rest)
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[bits >> (18 - 6 * place) & 63]));
        }
    }
    text
}
