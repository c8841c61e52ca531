//! Proxies that the environment asks for. tenure does not use them, and says so where the server is not reached, because kubectl and
//! most API clients do.

/// The remark about a proxy, if one is asked for.
pub(super) fn remark(variable: impl Fn(&str) -> Option<String>) -> String {
    let is_set = |name: &&str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let name = ["HTTPS_PROXY", "https_proxy"].into_iter().find(is_set);
    name.map(|name| format!(" ({name} is not used: tenure speaks to the API server directly)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_is_asked_for_and_not_used_is_named_by_its_variable() {
        let said = |name: &'static str, value: &'static str| remark(move |asked| (asked == name).then(|| value.into()));
        assert!(said("HTTPS_PROXY", "http://proxy:3128").contains("HTTPS_PROXY is not used"));
        assert!(said("https_proxy", "http://proxy:3128").contains("https_proxy is not used"));
        assert_eq!(said("HTTPS_PROXY", " ") + &said("HTTP_PROXY", "proxy"), "");
    }
}
