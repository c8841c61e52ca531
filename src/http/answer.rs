//! Decides the answers to probes: their status and their words. The server adds the headers, and has the board's words for `/leader`.
//! No IO.

use std::time::Duration;

use http::StatusCode;

use crate::{config::duration, election::LeaderView, telemetry::status::Status, time::Instant};

/// How long a leader may go without a renewal beyond D before `/livez` fails; by then it should long have stopped leading.
pub const TOLERANCE: Duration = Duration::from_secs(5);

/// A status, and why.
pub(super) type Reply = (StatusCode, String);

/// The reply of `/livez` at `now`.
pub(super) fn livez(status: &Status, now: Instant) -> Reply {
    let silent = now.since(status.heard);
    if silent > status.duration {
        return unavailable(format!("init has been silent for {}", duration::measured(silent)));
    }
    if let Some(LeaderView { confirmed, .. }) = status.election.leading {
        let age = now.since(confirmed);
        if age > status.duration + TOLERANCE {
            return unavailable(format!("leads without a renewal for {}", duration::measured(age)));
        }
    }
    (StatusCode::OK, "alive".into())
}

/// The reply of `/readyz`.
pub(super) fn readyz(status: &Status) -> Reply {
    match (status.election.ready, status.is_permitted, status.is_workload_fit()) {
        (true, true, true) => (StatusCode::OK, "ready".into()),
        (_, false, _) => unavailable("this replica may not update the Lease"),
        (false, true, _) => unavailable("the Lease has not been read yet"),
        (true, true, false) => unavailable("the workload is not ready"),
    }
}

/// Returns true if this replica's workload leads at `now`, and no stop of it has begun.
pub(super) fn is_leader(status: &Status, now: Instant) -> bool {
    status.leads()
        && status.election.leading.is_some_and(|led| !led.ending && led.deadlines.is_some_and(|deadlines| now < deadlines.hard))
}

fn unavailable(why: impl Into<String>) -> Reply {
    (StatusCode::SERVICE_UNAVAILABLE, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Config, HttpReady},
        law::Deadlines,
        link::{Confirmed, InitialState, Term, TermInfo, ToElector, ToInit},
        slot::Slot,
        telemetry::status::Fact,
    };

    const D: Duration = Duration::from_secs(15);
    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    fn after(seconds: u64) -> Instant {
        START + Duration::from_secs(seconds)
    }

    fn standby() -> Status {
        let mut config = Config::default();
        (config.lease.duration, config.http.ready) = (D, HttpReady::Workload);
        with(Status::new(&InitialState::first(config, "a_1".into()), START), |status| status.election.ready = true)
    }

    fn with(mut status: Status, change: impl FnOnce(&mut Status)) -> Status {
        change(&mut status);
        status
    }

    fn leading() -> Status {
        let deadlines = Deadlines { soft: after(9), hard: after(13), end: after(14) };
        let led = LeaderView { term: Term(1), confirmed: START, deadlines: Some(deadlines), ending: false };
        with(standby(), |status| {
            status.election.leading = Some(led);
            let empty = String::new;
            let info = TermInfo {
                slot: Slot(0),
                token: empty(),
                uid: empty(),
                transitions: 7,
                acquired_at: empty(),
                traceparent: empty(),
            };
            let confirmed = Confirmed { resource_version: empty(), preferred_holder: None, deadlines };
            status.apply(&Fact::Telling(ToInit::Lead { term: Term(1), info, confirmed }), START);
            status.apply(&Fact::Told(ToElector::Started { term: Term(1), pid: 7, at: START }), START);
        })
    }

    fn alive(status: &Status, now: Instant) -> u16 {
        livez(status, now).0.as_u16()
    }

    fn ready(status: &Status) -> u16 {
        readyz(status).0.as_u16()
    }

    #[test]
    fn a_standby_is_alive_as_long_as_init_answers() {
        let renewed_long_ago = with(standby(), |status| status.heard = after(3600));
        assert_eq!(alive(&renewed_long_ago, after(3600 + 15)), 200);
        assert_eq!(alive(&renewed_long_ago, after(3600 + 15) + Duration::from_nanos(1)), 503);
    }

    #[test]
    fn a_leader_without_a_renewal_for_the_duration_and_the_tolerance_is_not_alive() {
        let led = with(leading(), |status| status.heard = after(20));
        assert_eq!(alive(&led, after(20)), 200);
        let late = livez(&led, after(20) + Duration::from_nanos(1));
        assert_eq!((late.0.as_u16(), late.1.as_str()), (503, "leads without a renewal for 20s"));
    }

    #[test]
    fn ready_comes_with_the_first_read_and_needs_no_leadership() {
        let unread = with(standby(), |status| status.election.ready = false);
        assert_eq!(ready(&unread), 503);
        assert_eq!(ready(&standby()), 200);
    }

    #[test]
    fn a_replica_that_may_not_update_the_lease_is_not_ready() {
        let refused = with(standby(), |status| status.is_permitted = false);
        let reply = readyz(&refused);
        assert_eq!((reply.0.as_u16(), reply.1.as_str()), (503, "this replica may not update the Lease"));
        assert_eq!(alive(&refused, START), 200);
    }

    #[test]
    fn ready_waits_for_a_workload_that_is_not() {
        let unready = with(leading(), |status| status.unready = Some("HTTP 503".into()));
        let reply = readyz(&unready);
        assert_eq!((reply.0.as_u16(), reply.1.as_str()), (503, "the workload is not ready"));
        assert_eq!(alive(&unready, START), 200);
        assert!(is_leader(&unready, START));
    }

    #[test]
    fn only_a_leader_that_goes_on_leading_is_the_leader() {
        assert!(is_leader(&leading(), START));
        assert!(!is_leader(&standby(), START));
        let mut starts = leading();
        starts.term.as_mut().unwrap().is_led = false;
        assert!(!is_leader(&starts, START), "its program does not run yet");
        let mut restarts = leading();
        restarts.role = None;
        assert!(!is_leader(&restarts, START), "its program has ended, and is not started again yet");
        let mut ending = leading();
        ending.election.leading = ending.election.leading.map(|led| LeaderView { ending: true, ..led });
        assert!(!is_leader(&ending, START));
    }

    #[test]
    fn a_leader_past_its_hard_deadline_is_not_the_leader() {
        assert!(is_leader(&leading(), after(13).before(Duration::from_nanos(1))));
        assert!(!is_leader(&leading(), after(13)));
    }
}
