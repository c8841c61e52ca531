//! Access to the API server, for the elector and the commands.
//!
//! Owns where the server is and who we are there ([`Cluster`]), connections to it ([`Dialer`]), and single requests on them
//! ([`exchange()`], [`call`]). Never retries, adds or repeats a request, and never waits without a deadline.
//!
//! kube reads the configuration, authenticates and speaks TLS. The connector is our own, because kube's sets no TCP_NODELAY;
//! so is the stack of layers, because kube's retries what a deciding room has long given up, and so are credential plugins, because
//! kube's errors show their secrets, and token files, because kube sends whatever it finds in one.

use std::{error::Error, fmt::Write as _};

pub use self::{
    access::AccessError,
    cluster::Cluster,
    dial::Dialer,
    exchange::{CallError, ExchangeError, MAX_BODY, Reply, call, exchange, send},
    plugin::PluginError,
};

mod access;
mod cluster;
mod dial;
mod exchange;
mod kubeconfig;
mod plugin;
pub(crate) mod proxies;
#[cfg(test)]
pub(crate) mod stub;
mod token;

/// An error and its causes on one line. What a cause repeats of the text before it is left out: kube's errors often do.
#[must_use]
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = squeezed(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = squeezed(&error.to_string());
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        cause = error.source();
    }
    line
}

/// On one line, and [`visible`].
fn squeezed(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What another wrote, without what would move, colour or turn round the text of a terminal.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Whether this character moves, colours or turns round what stands around it.
pub(crate) fn is_unseen(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Names(#[source] Repeats);

    #[test]
    fn nobody_else_writes_on_the_terminal() {
        let error = Names(Repeats(std::io::Error::other("\u{1b}[31mred\u{7}\n\u{202e}der")));

        assert_eq!(one_line(&error), "cannot start: cannot open: \u{fffd}[31mred\u{fffd} \u{fffd}der");
    }

    #[test]
    fn causes_are_named_once_and_on_one_line() {
        let error = Names(Repeats(std::io::Error::other("line one\n  line two")));

        assert_eq!(one_line(&error), "cannot start: cannot open: line one line two");
    }
}
