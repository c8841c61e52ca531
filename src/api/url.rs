//! Which URLs name a server that can be connected to.

use http::{Uri, uri::Authority};

/// Whether this is a URL of a server. A port that is none would silently be the default one.
pub(crate) fn names_a_server(url: &Uri) -> bool {
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    is_http && url.authority().is_some_and(|authority| !authority.host().is_empty() && has_port_or_none(authority))
}

fn has_port_or_none(authority: &Authority) -> bool {
    let address = authority.as_str().rsplit('@').next();
    authority.port_u16().is_some() || address == Some(authority.host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_host_and_a_port_or_none() {
        for (url, names_one) in [
            ("https://h", true),
            ("https://h:1/x", true),
            ("http://u:p@[::1]", true),
            ("http://[::1]:65535", true),
            ("https://h:", false),
            ("https://h:-1", false),
            ("https://h:h", false),
            ("https://127.0.0.1:99999", false),
            ("https://[::1]:99999", false),
            ("ftp://h", false),
            ("h:1", false),
            ("/x", false),
        ] {
            assert_eq!(names_a_server(&url.parse().unwrap()), names_one, "{url}");
        }
    }
}
