//! Which URLs name a server that can be connected to.

use http::{Uri, uri::Authority};

/// Accepts a URL of a server. A port that is no number is refused, since the default one would be used in silence.
pub(crate) fn names_a_server(url: &Uri) -> bool {
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    is_http && url.authority().is_some_and(|authority| !authority.host().is_empty() && has_port_or_none(authority))
}

/// The URL of `relative` below the server's; `None` if that would be too long.
pub(crate) fn below(server: &Uri, relative: &Uri) -> Option<Uri> {
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(format!("{}{relative}", server.path().trim_end_matches('/')).parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn has_port_or_none(authority: &Authority) -> bool {
    let address = authority.as_str().rsplit('@').next();
    authority.port_u16().is_some() || address == Some(authority.host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_below_the_path_of_its_server_unless_the_two_are_too_long_for_a_url() {
        for (server, url) in [
            ("https://h", "https://h/apis/x?y=z"),
            ("https://h:1/", "https://h:1/apis/x?y=z"),
            ("https://h/k8s/c/?q", "https://h/k8s/c/apis/x?y=z"),
        ] {
            assert_eq!(below(&server.parse().unwrap(), &"/apis/x?y=z".parse().unwrap()).unwrap(), url);
        }
        let long = format!("/{}", "x".repeat(40_000)).parse::<Uri>().unwrap();
        assert!(below(&format!("https://h{long}").parse().unwrap(), &long).is_none());
    }

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
