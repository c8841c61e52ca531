//! Reads what a workload says about itself on NOTIFY_SOCKET, as sd_notify(3) has it.
//!
//! Owns the words and their form. Never decides what follows from one.

use std::time::Duration;

use nix::errno::Errno;

use crate::{role::Role, words::bounded};

/// A single statement of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    /// `X_TENURE_ROLE`: the role that it has taken.
    Role(Role),
    /// `READY`: it is ready, or has reloaded.
    Ready,
    /// `RELOADING`: it is not, until it says so.
    Reloading,
    /// `STOPPING`: it ends.
    Stopping,
    /// `WATCHDOG`: it is live.
    Watchdog,
    /// `WATCHDOG=trigger`: it is not.
    WatchdogTrigger,
    /// `WATCHDOG_USEC`: from now on it says that it is live at least this often.
    WatchdogSpan(Duration),
    /// `STATUS`, and `ERRNO` in words: one line of a bounded length; empty: nothing any more.
    Status(String),
    /// `EXTEND_TIMEOUT_USEC`: what it is about takes this long from now.
    ExtendTimeout(Duration),
    /// A request that systemd grants and tenure refuses, with the reason.
    Refused(&'static str),
}

/// A datagram on NOTIFY_SOCKET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Statements of the workload; none if the datagram was dropped.
    Said(Vec<Notification>),
    /// A mark that tenure sent to itself: everything read later was said later.
    Marked(u64),
}

const MAIN_PID: &str = "MAINPID is refused: the workload's main process is the one that tenure has started";
const FD_STORE: &str = "FDSTORE is refused: tenure keeps no descriptors for its workload";

/// What a datagram says; of several roles and times the last, after what they may be about. Lines without a meaning here are skipped.
pub(crate) fn parse(text: &str) -> Vec<Notification> {
    let mut said = Vec::new();
    let (mut role, mut status, mut error, mut longer) = (None, None, None, None);
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match (name, value) {
            ("READY", "1") => said.push(Notification::Ready),
            ("RELOADING", "1") => said.push(Notification::Reloading),
            ("STOPPING", "1") => said.push(Notification::Stopping),
            ("WATCHDOG", "1") => said.push(Notification::Watchdog),
            ("WATCHDOG", "trigger") => said.push(Notification::WatchdogTrigger),
            ("WATCHDOG_USEC", span) => said.extend(micros(span).map(Notification::WatchdogSpan)),
            ("X_TENURE_ROLE", "leader") => role = Some(Role::Leader),
            ("X_TENURE_ROLE", "standby") => role = Some(Role::Standby),
            ("STATUS", text) => status = Some(text),
            ("ERRNO", number) => error = number.parse().ok().map(Errno::from_raw),
            ("EXTEND_TIMEOUT_USEC", span) => longer = micros(span),
            ("MAINPID" | "MAINPIDFDID", _) => said.push(Notification::Refused(MAIN_PID)),
            ("FDSTORE" | "FDSTOREREMOVE", _) => said.push(Notification::Refused(FD_STORE)),
            _ => {}
        }
    }
    let error = error.map(|error: Errno| error.to_string());
    let words: Vec<_> = status.map(str::to_owned).into_iter().chain(error).collect();
    if !words.is_empty() {
        // What is told of the rest tells it too.
        said.insert(0, Notification::Status(bounded(&words.join(": ")).into_owned()));
    }
    said.extend(longer.map(Notification::ExtendTimeout));
    said.extend(role.map(Notification::Role));
    said
}

fn micros(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|micros| *micros > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_role_of_a_datagram_counts_and_what_means_nothing_here_is_skipped() {
        let role = |text| parse(text).into_iter().rfind(|said| matches!(said, Notification::Role(_)));
        let standby = "X_TENURE_ROLE=leader\nSTATUS=x\nX_TENURE_ROLE=standby\nREADY=1";
        assert_eq!(role(standby), Some(Notification::Role(Role::Standby)));
        assert_eq!(role("X_TENURE_ROLE=standby\nX_TENURE_ROLE=leader"), Some(Notification::Role(Role::Leader)));
        for nothing in
            ["", "BARRIER=1", "X_TENURE_ROLE=", "X_TENURE_ROLE=Leader", " X_TENURE_ROLE=leader", "X_TENURE_ROLE=leader x"]
        {
            assert_eq!(parse(nothing), [], "{nothing:?}");
        }
    }

    #[test]
    fn a_status_is_one_bounded_line_with_its_error_in_words() {
        let status = |text: &str| match &*parse(text) {
            [Notification::Status(status)] => status.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(status("STATUS=a\u{1b}[31mb=c"), "a\u{fffd}[31mb=c");
        assert_eq!(status("STATUS="), "");
        assert_eq!(status("STATUS=cannot start\nERRNO=2"), "cannot start: ENOENT: No such file or directory");
        assert_eq!(status("ERRNO=13"), "EACCES: Permission denied");
        assert!(status(&format!("STATUS={}", "x".repeat(4000))).len() < 1100);
    }

    #[test]
    fn a_time_is_in_microseconds_and_what_tenure_does_not_do_is_refused() {
        assert_eq!(parse("EXTEND_TIMEOUT_USEC=1500000"), [Notification::ExtendTimeout(Duration::from_millis(1500))]);
        let longer = Notification::ExtendTimeout(Duration::from_micros(2));
        assert_eq!(parse("EXTEND_TIMEOUT_USEC=2\nSTOPPING=1"), [Notification::Stopping, longer], "what it is about comes first");
        for nonsense in ["EXTEND_TIMEOUT_USEC=", "EXTEND_TIMEOUT_USEC=-1", "EXTEND_TIMEOUT_USEC=1s", "ERRNO=x"] {
            assert_eq!(parse(nonsense), [], "{nonsense}");
        }
        assert_eq!(parse("MAINPID=7\nFDSTORE=1"), [Notification::Refused(MAIN_PID), Notification::Refused(FD_STORE)]);
    }
}
