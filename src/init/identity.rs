//! The identity of this replica in the Lease: a name, and 128 random bits that no other init ever had (law 13).
//!
//! Others rely on its form: the witness on the name of the pod at its beginning, commands and log on the last underscore.

use super::Unprepared;
use crate::{
    config::{Config, can_stand},
    exit,
};

/// The name that the environment gives this replica is not valid in a Lease.
pub(crate) const UNFIT: &str =
    "POD_NAME or the hostname, the default of lease.identity, has more than 253 bytes or control characters: set lease.identity";

/// `BASE_` and 32 hexadecimal digits; constant per init.
///
/// # Errors
/// There is no such name, or no randomness.
pub(super) fn full(config: &Config, pod_name: Option<String>) -> Result<String, Unprepared> {
    let base = base(&config.lease.identity, pod_name);
    if !can_stand(&base) {
        return Err(Unprepared { code: exit::INVALID, why: UNFIT.into() });
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Unprepared::system("there are no random bits for an identity", &error))?;
    let random = u128::from_ne_bytes(random);
    Ok(format!("{base}_{random:032x}"))
}

/// The name that an identity begins with.
pub(crate) fn base(configured: &str, pod_name: Option<String>) -> String {
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
    fn what_cannot_stand_in_a_lease_is_no_name() {
        for name in ["a\nb".into(), "a".repeat(254)] {
            let refused = full(&Config::default(), Some(name)).unwrap_err();
            assert_eq!((refused.code, &*refused.why), (exit::INVALID, UNFIT));
        }
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
