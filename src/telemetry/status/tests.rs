//! How facts change the status, and what the EndpointSlice should have then.

use super::*;
use crate::{
    config::Config,
    link::{Confirmed, Exit, Reason, Resume},
    slot::Slot,
};

const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// S - T.
const UNTIL: Duration = Duration::from_millis(7_850);

fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

fn config() -> Config {
    Config::default()
}

fn info(token: &str) -> TermInfo {
    let (uid, acquired_at, traceparent) = ("u".into(), String::new(), String::new());
    TermInfo { slot: Slot(0), token: token.into(), uid, transitions: 1, acquired_at, traceparent }
}

fn confirmed(sent: Instant) -> Confirmed {
    let deadlines = config().timing().deadlines(sent);
    Confirmed { resource_version: "7".into(), preferred_holder: None, deadlines }
}

fn lead(token: &str, sent: Instant) -> ToInit {
    ToInit::Lead { term: Term(1), info: info(token), confirmed: confirmed(sent) }
}

fn status(change: impl FnOnce(&mut Config)) -> Status {
    let mut config = config();
    change(&mut config);
    Status::new(&InitialState::first(config, "a_1".into()), START)
}

const STARTED: ToElector = ToElector::Started { term: Term(1), pid: 7, at: START };

fn serves(status: &Status) -> Option<bool> {
    status.wanted().map(|wanted| wanted.serves)
}

fn wanted(token: &str, serves: bool) -> Wanted {
    Wanted { term: Term(1), slot: Slot(0), token: token.into(), serves, ends: !serves, until: START + UNTIL }
}

#[test]
fn a_leader_serves_once_its_workload_runs_until_any_stop_begins() {
    let ends: [fn(&mut Status); 5] = [
        |status| assert!(status.told(&ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: START })),
        |status| {
            status.telling(&ToInit::StepDown { term: Term(1), request: 1, reason: Reason::StepDown, traceparent: String::new() })
        },
        |status| status.telling(&ToInit::Releasing { term: Term(1), serial: 3 }),
        |status| status.telling(&ToInit::Ended { term: Term(1), backoff: None }),
        |status| assert!(status.told(&ToElector::Restarting { term: Term(1), exit: Exit::Code(1), at: START })),
    ];
    for end in ends {
        let mut status = status(|_| {});
        assert_eq!(serves(&status), None, "no term");
        status.telling(&lead("9", START));
        assert_eq!(serves(&status), Some(false), "it does not run yet");
        status.told(&STARTED);
        assert_eq!(status.wanted(), Some(wanted("9", true)));
        end(&mut status);
        assert_eq!(serves(&status), Some(false));
    }
}

#[test]
fn a_leader_that_is_asked_serves_while_it_is_ready() {
    let mut status = status(|config| config.workload.readiness.notify = true);
    status.telling(&lead("9", START));
    status.told(&STARTED);
    assert_eq!(serves(&status), Some(false));
    for (unready, expected) in [(None, true), (Some("no".to_owned()), false)] {
        status.told(&ToElector::Health { unready, status: String::new() });
        assert_eq!(serves(&status), Some(expected));
    }
}

#[test]
fn what_is_said_of_another_term_changes_nothing() {
    let mut status = status(|_| {});
    status.telling(&lead("9", START));
    status.told(&ToElector::Started { term: Term(0), pid: 7, at: START });
    assert_eq!(serves(&status), Some(false));
    status.told(&STARTED);
    status.told(&ToElector::Stopping { term: Term(0), reason: Reason::Signal, at: START });
    assert_eq!(serves(&status), Some(true));
}

#[test]
fn each_renewal_moves_the_end_on_and_none_moves_it_back() {
    let mut status = status(|_| {});
    status.telling(&lead("9", START));
    for (sent, expected) in [(after(3), after(3)), (after(1), after(3))] {
        status.telling(&ToInit::Extend { term: Term(1), serial: 1, confirmed: confirmed(sent) });
        assert_eq!(status.wanted().unwrap().until, expected + UNTIL);
    }
}

#[test]
fn a_new_elector_knows_whether_the_term_serves() {
    let mut initial = InitialState::first(config(), "a_1".into());
    let mut resume = Resume {
        term: Term(1),
        info: info("9"),
        confirmed: confirmed(START),
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: Some(7),
        told: true,
    };
    let (some, none, signal) = (Some(7), None, Some(Reason::Signal));
    for (told, main, stopping, expected) in
        [(true, some, None, true), (false, some, None, false), (true, none, None, false), (true, some, signal, false)]
    {
        (resume.told, resume.main, resume.stopping) = (told, main, stopping);
        initial.resume = Some(resume.clone());
        let wanted = Wanted { ends: stopping.is_some(), ..wanted("9", expected) };
        assert_eq!(Status::new(&initial, START).wanted(), Some(wanted));
    }
}

#[test]
fn readyz_waits_for_the_workload_only_where_that_is_asked_for() {
    let health = |unready: Option<&str>| ToElector::Health { unready: unready.map(str::to_owned), status: String::new() };
    let mut status_of_any = status(|config| config.workload.readiness.notify = true);
    status_of_any.told(&health(Some("x")));
    assert!(status_of_any.is_workload_fit());

    let mut asked = status(|config| config.http.ready = HttpReady::Workload);
    for (unready, fit) in [(Some("x"), false), (None, true), (Some("x"), false)] {
        asked.told(&health(unready));
        assert_eq!(asked.is_workload_fit(), fit);
    }
}
