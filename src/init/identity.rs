//! Who this replica is in the Lease: a name, and 128 random bits that no other init ever had (law 13).

use crate::config::Config;

/// `BASE_` and 32 hexadecimal digits; constant per init.
///
/// # Errors
/// The kernel gives no randomness.
pub(super) fn full(config: &Config, pod_name: Option<String>) -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    let random = u128::from_ne_bytes(random);
    Ok(format!("{}_{random:032x}", base(&config.lease.identity, pod_name)))
}

fn base(configured: &str, pod_name: Option<String>) -> String {
    if !configured.is_empty() {
        return configured.to_owned();
    }
    let host = || nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    pod_name.filter(|name| !name.is_empty()).unwrap_or_else(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_name_goes_before_the_pods_and_that_before_the_hosts() {
        assert_eq!(base("mine", Some("pod".into())), "mine");
        assert_eq!(base("", Some("pod".into())), "pod");
        assert_eq!(base("", Some(String::new())), base("", None));
        assert!(!base("", None).is_empty());
    }

    #[test]
    fn two_inits_of_one_name_are_two() {
        let mut config = Config::default();
        config.lease.identity = "mine".into();
        let [one, other] = [full(&config, None).unwrap(), full(&config, None).unwrap()];
        assert_ne!(one, other);
        let nonce = one.strip_prefix("mine_").unwrap();
        assert!(nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }
}
