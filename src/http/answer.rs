//! Decides the answer to a probe: its status and its words. The server adds the headers, and has the board's words for `/leader`.
//! No IO.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::{config::duration, election::LeaderView, telemetry::status::Status, time::Instant};

/// How long a leader may go without a renewal beyond D before `/livez` fails; by then it should long have stopped leading.
pub const TOLERANCE: Duration = Duration::from_secs(5);

/// A status and one line saying why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

/// The reply to `method` on `path` at `now`; pages are answered elsewhere, where the method may be.
pub(crate) fn answer(method: &Method, path: &str, status: &Status, now: Instant) -> Reply {
    let probe = match path {
        "/livez" => livez,
        "/readyz" => readyz,
        "/leader" => leader,
        "/" | "/status" | "/events" | "/metrics" => return not_allowed(),
        _ => {
            return reply(
                StatusCode::NOT_FOUND,
                "no such page: there are /, /livez, /readyz, /leader, /status, /events and /metrics",
            );
        }
    };
    if *method != Method::GET && *method != Method::HEAD {
        return not_allowed();
    }
    probe(status, now)
}

fn not_allowed() -> Reply {
    reply(StatusCode::METHOD_NOT_ALLOWED, "it can only be read")
}

fn livez(status: &Status, now: Instant) -> Reply {
    let silent = now.since(status.heard);
    if silent > status.duration {
        return reply(StatusCode::SERVICE_UNAVAILABLE, format!("init has been silent for {}", duration::measured(silent)));
    }
    if let Some(LeaderView { confirmed, .. }) = status.election.leading {
        let age = now.since(confirmed);
        if age > status.duration + TOLERANCE {
            return reply(StatusCode::SERVICE_UNAVAILABLE, format!("leads without a renewal for {}", duration::measured(age)));
        }
    }
    reply(StatusCode::OK, "alive")
}

fn readyz(status: &Status, _: Instant) -> Reply {
    match (status.election.ready, status.is_permitted, status.is_workload_fit()) {
        (true, true, true) => reply(StatusCode::OK, "ready"),
        (_, false, _) => reply(StatusCode::SERVICE_UNAVAILABLE, "this replica may not update the Lease"),
        (false, true, _) => reply(StatusCode::SERVICE_UNAVAILABLE, "the Lease has not been read yet"),
        (true, true, false) => reply(StatusCode::SERVICE_UNAVAILABLE, "the workload is not ready"),
    }
}

fn leader(status: &Status, now: Instant) -> Reply {
    match status.election.leading {
        Some(led) if led.ending => reply(StatusCode::SERVICE_UNAVAILABLE, "stops leading"),
        Some(led) if now >= led.deadlines.hard => reply(StatusCode::SERVICE_UNAVAILABLE, "the term is over"),
        Some(_) => reply(StatusCode::OK, "leader"),
        None => reply(StatusCode::SERVICE_UNAVAILABLE, "standby"),
    }
}

fn reply(status: StatusCode, text: impl Into<String>) -> Reply {
    Reply { status, text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Config, HttpReady},
        law::Deadlines,
        link::{InitialState, Term},
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
        let led = LeaderView { term: Term(1), confirmed: START, deadlines, ending: false };
        with(standby(), |status| status.election.leading = Some(led))
    }

    fn status(path: &str, status: &Status, now: Instant) -> u16 {
        answer(&Method::GET, path, status, now).status.as_u16()
    }

    #[test]
    fn a_standby_is_alive_as_long_as_init_answers() {
        let renewed_long_ago = with(standby(), |status| status.heard = after(3600));
        assert_eq!(status("/livez", &renewed_long_ago, after(3600 + 15)), 200);
        assert_eq!(status("/livez", &renewed_long_ago, after(3600 + 15) + Duration::from_nanos(1)), 503);
    }

    #[test]
    fn a_leader_without_a_renewal_for_the_duration_and_the_tolerance_is_not_alive() {
        let led = with(leading(), |status| status.heard = after(20));
        assert_eq!(status("/livez", &led, after(20)), 200);
        let late = answer(&Method::GET, "/livez", &led, after(20) + Duration::from_nanos(1));
        assert_eq!((late.status.as_u16(), late.text.as_str()), (503, "leads without a renewal for 20s"));
    }

    #[test]
    fn ready_comes_with_the_first_read_and_needs_no_leadership() {
        let unread = with(standby(), |status| status.election.ready = false);
        assert_eq!(status("/readyz", &unread, START), 503);
        assert_eq!(status("/readyz", &standby(), START), 200);
    }

    #[test]
    fn a_replica_that_may_not_update_the_lease_is_not_ready() {
        let refused = with(standby(), |status| status.is_permitted = false);
        let reply = answer(&Method::GET, "/readyz", &refused, START);
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (503, "this replica may not update the Lease"));
        assert_eq!(status("/livez", &refused, START), 200);
    }

    #[test]
    fn ready_waits_for_a_workload_that_is_not() {
        let unready = with(leading(), |status| status.unready = Some("HTTP 503".into()));
        let reply = answer(&Method::GET, "/readyz", &unready, START);
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (503, "the workload is not ready"));
        assert_eq!(status("/livez", &unready, START), 200);
        assert_eq!(status("/leader", &unready, START), 200);
    }

    #[test]
    fn only_a_leader_that_goes_on_leading_is_the_leader() {
        assert_eq!(status("/leader", &leading(), START), 200);
        assert_eq!(status("/leader", &standby(), START), 503);
        let mut ending = leading();
        ending.election.leading = ending.election.leading.map(|led| LeaderView { ending: true, ..led });
        assert_eq!(status("/leader", &ending, START), 503);
    }

    #[test]
    fn a_leader_past_its_hard_deadline_is_not_the_leader() {
        assert_eq!(status("/leader", &leading(), after(13).before(Duration::from_nanos(1))), 200);
        assert_eq!(status("/leader", &leading(), after(13)), 503);
    }

    #[test]
    fn other_pages_are_not_found_and_other_methods_not_allowed() {
        assert_eq!(status("/nothing", &standby(), START), 404);
        assert_eq!(status("/livez/", &standby(), START), 404);
        assert_eq!(answer(&Method::POST, "/nothing", &standby(), START).status, StatusCode::NOT_FOUND);
        for path in ["/livez", "/", "/status", "/events", "/metrics"] {
            assert_eq!(answer(&Method::POST, path, &standby(), START).status, StatusCode::METHOD_NOT_ALLOWED);
        }
        assert_eq!(answer(&Method::HEAD, "/livez", &standby(), START).status, StatusCode::OK);
    }
}
