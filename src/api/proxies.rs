//! Proxies that the environment asks for. tenure does not use them, and says so, because kubectl, most API clients and most OTLP
//! exporters do.

use std::net::IpAddr;

use http::Uri;

/// The variable that names a proxy for this server, unless `NO_PROXY` exempts it, by the rules of Go's clients.
pub(crate) fn asked_for(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        Some(_) | None => ["HTTPS_PROXY", "https_proxy"],
    };
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let name = names.into_iter().find(|name| set(name).is_some())?;
    let exempt = ["NO_PROXY", "no_proxy"].into_iter().find_map(set).unwrap_or_default();
    let host = server.host()?.trim_matches(['[', ']']);
    (!is_here(host) && !exempt.split(',').any(|entry| covers(entry.trim(), host, server))).then_some(name)
}

/// The local machine is never reached through a proxy.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether an entry of `NO_PROXY` covers this host: `*`, an address, a range of addresses, or a domain with its subdomains.
fn covers(entry: &str, host: &str, server: &Uri) -> bool {
    if entry == "*" || entry == host {
        return true;
    }
    if let Ok(address) = host.parse() {
        return in_range(entry, address) || entry == format!("{host}:{}", port(server));
    }
    let name = entry.strip_suffix(&format!(":{}", port(server))).unwrap_or(entry).trim_start_matches("*.").to_ascii_lowercase();
    let (domain, below_only) = name.strip_prefix('.').map_or((name.as_str(), false), |domain| (domain, true));
    let host = host.to_ascii_lowercase();
    !domain.is_empty() && (!below_only && host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

fn port(server: &Uri) -> u16 {
    server.port_u16().unwrap_or_else(|| if server.scheme_str() == Some("http") { 80 } else { 443 })
}

/// Whether `range`, such as 10.0.0.0/8, contains the address.
fn in_range(range: &str, address: IpAddr) -> bool {
    let Some((base, length)) = range.split_once('/') else { return range.parse() == Ok(address) };
    let (Ok(base), Ok(length)) = (base.parse(), length.parse::<u32>()) else { return false };
    match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            (base.to_bits() ^ address.to_bits()).checked_shr(32_u32.saturating_sub(length)).is_none_or(|rest| rest == 0)
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => {
            (base.to_bits() ^ address.to_bits()).checked_shr(128_u32.saturating_sub(length)).is_none_or(|rest| rest == 0)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(server: &str, set: &[(&str, &str)]) -> Option<&'static str> {
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        asked_for(&server.parse().unwrap(), variable)
    }

    #[test]
    fn a_proxy_is_asked_for_by_the_variable_of_the_scheme() {
        let server = "https://10.96.0.1:443";
        assert_eq!(asked(server, &[("HTTPS_PROXY", "http://proxy:3128")]), Some("HTTPS_PROXY"));
        assert_eq!(asked(server, &[("https_proxy", "http://proxy:3128")]), Some("https_proxy"));
        assert_eq!(asked(server, &[("HTTPS_PROXY", " ")]), None);
        assert_eq!(asked(server, &[("HTTP_PROXY", "http://proxy:3128")]), None);
        assert_eq!(asked("http://10.96.0.1", &[("HTTP_PROXY", "http://proxy:3128")]), Some("HTTP_PROXY"));
        assert_eq!(asked(server, &[]), None);
    }

    #[test]
    fn this_machine_is_asked_through_no_proxy() {
        for server in ["https://localhost:6443", "https://127.0.0.1:6443", "https://[::1]:6443"] {
            assert_eq!(asked(server, &[("HTTPS_PROXY", "proxy")]), None, "{server}");
        }
    }

    #[test]
    fn no_proxy_exempts_hosts_addresses_ranges_and_domains() {
        for (server, exempt, is_exempt) in [
            ("https://10.96.0.1", "*", true),
            ("https://10.96.0.1", "a.example, 10.96.0.1", true),
            ("https://10.96.0.1:6443", "10.96.0.1:6443", true),
            ("https://10.96.0.1:6443", "10.96.0.1:443", false),
            ("https://10.96.0.1", "10.0.0.0/8", true),
            ("https://10.96.0.1", "0.0.0.0/0", true),
            ("https://10.96.0.1", "10.96.0.0/31", true),
            ("https://10.96.0.1", "10.96.0.2/31", false),
            ("https://10.96.0.1", "10.0.0.0/x", false),
            ("https://10.96.0.1", "fd00::/8", false),
            ("https://[fd00::1]", "fd00::/8", true),
            ("https://[fd00::1]", "fd00::1", true),
            ("https://api.cluster.example", "cluster.example", true),
            ("https://api.cluster.example", ".cluster.example", true),
            ("https://api.cluster.example", "*.cluster.example", true),
            ("https://cluster.example", ".cluster.example", false),
            ("https://mycluster.example", "cluster.example", false),
            ("https://API.cluster.example:6443", "Cluster.Example:6443", true),
            ("https://api.cluster.example", "", false),
        ] {
            let expected = (!is_exempt).then_some("HTTPS_PROXY");
            assert_eq!(asked(server, &[("HTTPS_PROXY", "proxy"), ("NO_PROXY", exempt)]), expected, "{server} {exempt}");
        }
    }
}
