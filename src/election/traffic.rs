//! Decides what the EndpointSlice of a leader's Service says.
//!
//! Owns two things: [`Standing`], what the messages between init and elector make of the slice (whose it is, whether it has an
//! endpoint), and [`Publisher`], which request brings it about. No deadline, proof or release waits for any of it.
//!
//! Each write is a PUT with the uid and resourceVersion that were read, so one that comes late is refused where anybody has written
//! since. It carries the fencing token of its term, and none replaces that of a later term. As a term begins the slice becomes its
//! own and is emptied, whoever stood in it, and what the last leader may still have under way is void.

use std::{mem, time::Duration};

use serde_json::{Map, Value};

use super::{
    RequestError,
    record::{is_number, later, metadata_of},
};
use crate::{
    config::Config,
    law::Timing,
    link::{Confirmed, InitialState, Slot, Term, TermInfo, ToElector, ToInit},
    time::Instant,
};

/// Annotation of the EndpointSlice: the fencing token of the term that wrote it.
pub const TOKEN: &str = "tenure.dev/fencing-token";

/// After a conflict.
pub const PAUSE: Duration = Duration::from_millis(200);

/// What a term wants of the slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which term.
    pub term: Term,
    /// Of which slot's.
    pub slot: Slot,
    /// Its fencing token.
    pub token: String,
    /// Whether there is an endpoint: the workload leads, is ready, and no stop has begun.
    pub serves: bool,
    /// Whether a stop has begun.
    pub ends: bool,
    /// S - T: nothing is sent from then on.
    pub until: Instant,
}

/// Where the term stands, as the messages between init and elector tell it.
pub struct Standing {
    attempt_timeout: Duration,
    /// The workload is ready, or nothing is asked of it.
    fit: bool,
    term: Option<Led>,
}

struct Led {
    term: Term,
    slot: Slot,
    token: String,
    soft: Instant,
    runs: bool,
    ends: bool,
}

impl Standing {
    /// As init hands it to a new elector.
    #[must_use]
    pub fn new(initial: &InitialState) -> Self {
        let Config { lease, workload, .. } = &initial.config;
        let mut term = initial.resume.as_ref().map(|resume| Led::new(resume.term, &resume.info, &resume.confirmed));
        if let (Some(led), Some(resume)) = (&mut term, &initial.resume) {
            (led.runs, led.ends) = (resume.told && resume.main.is_some(), resume.stopping.is_some());
        }
        Self { attempt_timeout: lease.attempt_timeout, fit: workload.readiness.means().is_none(), term }
    }

    /// Init said something.
    pub fn told(&mut self, message: &ToElector) {
        if let ToElector::Health { unready, .. } = message {
            self.fit = unready.is_none();
        }
        if let (
            Some(led),
            ToElector::Started { term, .. } | ToElector::Restarting { term, .. } | ToElector::Stopping { term, .. },
        ) = (&mut self.term, message)
            && *term == led.term
        {
            led.ends |= matches!(message, ToElector::Stopping { .. });
            led.runs = matches!(message, ToElector::Started { .. });
        }
    }

    /// Init is told something.
    pub fn telling(&mut self, message: &ToInit) {
        if let ToInit::Lead { term, info, confirmed, .. } = message {
            self.term = Some(Led::new(*term, info, confirmed));
        }
        let Some(led) = &mut self.term else { return };
        if let ToInit::Extend { confirmed, .. } = message {
            led.soft = led.soft.max(confirmed.deadlines.soft);
        }
        led.ends |= matches!(message, ToInit::StepDown { .. } | ToInit::Releasing { .. } | ToInit::Ended { .. });
    }

    /// What is wanted; none before the first term. That a term which is over wants its endpoint gone lasts until S - T: where
    /// nobody follows, nobody else removes it.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        let led = self.term.as_ref()?;
        let &Led { term, slot, ref token, soft, runs, ends } = led;
        let serves = self.fit && runs && !ends;
        Some(Wanted { term, slot, token: token.clone(), serves, ends, until: soft.before(self.attempt_timeout) })
    }
}

impl Led {
    fn new(term: Term, info: &TermInfo, confirmed: &Confirmed) -> Self {
        let (slot, token, soft) = (info.slot, info.token.clone(), confirmed.deadlines.soft);
        Self { term, slot, token, soft, runs: false, ends: false }
    }
}

/// What the slice is to hold while this replica serves.
#[derive(Debug)]
pub struct Endpoints {
    /// By the slice's addressType.
    pub of: Map<String, Value>,
    /// Its ports.
    pub ports: Vec<Value>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// GET the slice.
    Get,
    /// PUT this.
    Replace(Value),
    /// Nothing before this instant, unless something else is wanted.
    Wait(Instant),
}

/// What the log says, once per state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has this replica's endpoint.
    Published,
    /// It has none.
    Withdrawn,
    /// It does not say what it should, and why.
    Failed(String),
}

/// Brings the slice to what is wanted, one request at a time.
pub struct Publisher {
    endpoints: Endpoints,
    timing: Timing,
    wanted: Option<Wanted>,
    /// As last read or written.
    seen: Option<Value>,
    /// It is as wanted, or was written so.
    settled: bool,
    due: Instant,
    state: Option<State>,
    /// Nobody was told of the state.
    is_new: bool,
}

impl Publisher {
    /// Nothing is wanted yet.
    #[must_use]
    pub const fn new(endpoints: Endpoints, timing: Timing) -> Self {
        let (wanted, seen, state) = (None, None, None);
        Self { endpoints, timing, wanted, seen, settled: false, due: Instant::BOOT, state, is_new: false }
    }

    /// What to do at `now` so that the slice is as wanted.
    pub fn step(&mut self, wanted: &Wanted, now: Instant) -> Step {
        let before = self.wanted.replace(wanted.clone());
        if before.as_ref().is_some_and(|before| before.slot != wanted.slot) {
            self.seen = None;
        }
        if !before.is_some_and(|before| before.is_same_as(wanted)) {
            (self.settled, self.due) = (false, now);
        }
        // What moves it on comes with the next renewal.
        if now >= wanted.until {
            return Step::Wait(Instant::NEVER);
        }
        if now < self.due {
            return Step::Wait(self.due);
        }
        // It is not watched, and somebody may have changed it.
        if mem::take(&mut self.settled) {
            self.seen = None;
        }
        let Some(seen) = &self.seen else { return Step::Get };
        match changed(seen, wanted, &self.endpoints) {
            // Stored in another form, it is not written again at once.
            Ok(Some(next)) => {
                self.settled = true;
                return Step::Replace(next);
            }
            Ok(None) => self.settle(),
            Err(why) => {
                self.seen = None;
                self.enter(State::Failed(why));
            }
        }
        self.due = now + self.timing.duration;
        Step::Wait(self.due)
    }

    /// The outcome of the last request.
    pub fn answered(&mut self, answer: Result<Value, RequestError>, now: Instant) {
        let written = mem::take(&mut self.settled);
        self.seen = None;
        match answer {
            Ok(object) => {
                self.seen = Some(object);
                if written {
                    self.settle();
                    self.due = now + self.timing.duration;
                }
            }
            Err(error) if error.status == Some(409) => self.due = now + PAUSE,
            Err(error) => {
                self.due = now + self.timing.renew_period;
                self.enter(State::Failed(error.to_string()));
            }
        }
    }

    /// What is to be said.
    pub fn news(&mut self) -> Option<&State> {
        self.state.as_ref().filter(|_| mem::take(&mut self.is_new))
    }

    fn settle(&mut self) {
        self.settled = true;
        let serves = self.wanted.as_ref().is_some_and(|wanted| wanted.serves);
        self.enter(if serves { State::Published } else { State::Withdrawn });
    }

    fn enter(&mut self, state: State) {
        self.is_new |= self.state.as_ref() != Some(&state);
        self.state = Some(state);
    }
}

impl Wanted {
    fn is_same_as(&self, other: &Self) -> bool {
        (self.slot, &self.token, self.serves) == (other.slot, &other.token, other.serves)
    }
}

/// The slice as it is to be written; none: it is as wanted.
fn changed(seen: &Value, wanted: &Wanted, endpoints: &Endpoints) -> Result<Option<Value>, String> {
    let text = |name| metadata_of(seen, name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Without them the server would write unconditionally, or create it.
    if text("uid").is_none() || text("resourceVersion").is_none() {
        return Err("the answer is not an EndpointSlice".into());
    }
    let token = metadata_of(seen, "annotations").and_then(|all| all.get(TOKEN)).and_then(Value::as_str);
    if let Some(token) = token.filter(|token| is_number(token) && later(token, &wanted.token)) {
        return Err(format!(
            "its annotation {TOKEN} is {token}, of a later term than this one ({}); where etcd was restored, remove the annotation",
            wanted.token
        ));
    }
    let kind = seen.get("addressType").and_then(Value::as_str).unwrap_or_default();
    let own = endpoints.of.get(kind);
    if wanted.serves && own.is_none() {
        return Err(format!("its addressType is {kind:?}, and POD_IPS, or POD_IP, names no such address"));
    }
    let list = own.filter(|_| wanted.serves).into_iter().cloned().collect::<Vec<_>>();
    // The server stores an empty list as null.
    let as_it_is = |name: &str| seen.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if token == Some(&wanted.token) && as_it_is("endpoints") == list && as_it_is("ports") == endpoints.ports {
        return Ok(None);
    }
    let mut next = seen.clone();
    next["metadata"]["annotations"][TOKEN] = wanted.token.clone().into();
    next["endpoints"] = list.into();
    next["ports"] = endpoints.ports.clone().into();
    Ok(Some(next))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::link::{Reason, Resume};

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
        let (uid, resource_version, spec) = ("u".into(), "7".into(), String::new());
        Confirmed { uid, resource_version, spec, deadlines: config().timing().deadlines(sent) }
    }

    fn lead(token: &str, sent: Instant) -> ToInit {
        ToInit::Lead { term: Term(1), info: info(token), confirmed: confirmed(sent) }
    }

    fn standing(change: impl FnOnce(&mut Config)) -> Standing {
        let mut config = config();
        change(&mut config);
        Standing::new(&InitialState::first(config, "a_1".into()))
    }

    const STARTED: ToElector = ToElector::Started { term: Term(1), pid: 7, at: START };

    fn serves(standing: &Standing) -> Option<bool> {
        standing.wanted().map(|wanted| wanted.serves)
    }

    fn wanted(token: &str, serves: bool) -> Wanted {
        Wanted { term: Term(1), slot: Slot(0), token: token.into(), serves, ends: !serves, until: START + UNTIL }
    }

    fn slice(version: &str, token: Option<&str>, endpoints: Value) -> Value {
        let mut slice = json!({
            "metadata": { "name": "s", "uid": "u", "resourceVersion": version, "labels": { "of": "others" } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "port": 80 }], "futureField": 1,
        });
        if let Some(token) = token {
            slice["metadata"]["annotations"] = json!({ TOKEN: token });
        }
        slice
    }

    fn mine() -> Value {
        json!({ "addresses": ["10.0.0.1"] })
    }

    fn publisher() -> Publisher {
        let of = [("IPv4".to_owned(), mine())].into_iter().collect();
        Publisher::new(Endpoints { of, ports: vec![json!({ "port": 80 })] }, config().timing())
    }

    /// What it writes on what it read.
    fn written(seen: &Value, wanted: &Wanted) -> Step {
        let mut publisher = publisher();
        assert_eq!(publisher.step(wanted, START), Step::Get);
        publisher.answered(Ok(seen.clone()), START);
        publisher.step(wanted, START)
    }

    fn error(status: u16) -> RequestError {
        RequestError { status: Some(status), words: "no".into() }
    }

    #[test]
    fn a_leader_serves_once_its_workload_runs_until_any_stop_begins() {
        let ends: [fn(&mut Standing); 5] = [
            |standing| standing.told(&ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: START }),
            |standing| {
                standing.telling(&ToInit::StepDown {
                    term: Term(1),
                    request: 1,
                    reason: Reason::StepDown,
                    traceparent: String::new(),
                })
            },
            |standing| standing.telling(&ToInit::Releasing { term: Term(1), serial: 3 }),
            |standing| standing.telling(&ToInit::Ended { term: Term(1), backoff: None }),
            |standing| standing.told(&ToElector::Restarting { term: Term(1), exit: crate::link::Exit::Code(1), at: START }),
        ];
        for end in ends {
            let mut standing = standing(|_| {});
            assert_eq!(serves(&standing), None, "no term");
            standing.telling(&lead("9", START));
            assert_eq!(serves(&standing), Some(false), "it does not run yet");
            standing.told(&STARTED);
            assert_eq!(standing.wanted(), Some(wanted("9", true)));
            end(&mut standing);
            assert_eq!(serves(&standing), Some(false));
        }
    }

    #[test]
    fn a_leader_that_is_asked_serves_while_it_is_ready() {
        let mut standing = standing(|config| config.workload.readiness.notify = true);
        standing.telling(&lead("9", START));
        standing.told(&STARTED);
        assert_eq!(serves(&standing), Some(false));
        for (unready, expected) in [(None, true), (Some("no".to_owned()), false)] {
            standing.told(&ToElector::Health { unready, status: String::new() });
            assert_eq!(serves(&standing), Some(expected));
        }
    }

    #[test]
    fn what_is_said_of_another_term_changes_nothing() {
        let mut standing = standing(|_| {});
        standing.telling(&lead("9", START));
        standing.told(&ToElector::Started { term: Term(0), pid: 7, at: START });
        assert_eq!(serves(&standing), Some(false));
        standing.told(&STARTED);
        standing.told(&ToElector::Stopping { term: Term(0), reason: Reason::Signal, at: START });
        assert_eq!(serves(&standing), Some(true));
    }

    #[test]
    fn each_renewal_moves_the_end_on_and_none_moves_it_back() {
        let mut standing = standing(|_| {});
        standing.telling(&lead("9", START));
        for (sent, expected) in [(after(3), after(3)), (after(1), after(3))] {
            standing.telling(&ToInit::Extend { term: Term(1), serial: 1, confirmed: confirmed(sent) });
            assert_eq!(standing.wanted().unwrap().until, expected + UNTIL);
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
            assert_eq!(Standing::new(&initial).wanted(), Some(wanted));
        }
    }

    #[test]
    fn the_slice_of_one_slot_is_not_written_to_that_of_another() {
        let mut publisher = publisher();
        let first = Wanted { slot: Slot(1), ..wanted("9", false) };
        assert_eq!(publisher.step(&first, START), Step::Get);
        publisher.answered(Ok(slice("7", Some("9"), json!([]))), START);
        assert!(matches!(publisher.step(&first, START), Step::Wait(_)));

        assert_eq!(publisher.step(&wanted("12", false), START), Step::Get);
    }

    #[test]
    fn a_write_carries_uid_version_and_token_and_keeps_what_is_others() {
        let read = slice("7", Some("8"), json!([{ "addresses": ["10.0.0.2"] }]));

        let Step::Replace(write) = written(&read, &wanted("9", true)) else { panic!("no write") };

        assert_eq!(write, slice("7", Some("9"), json!([mine()])));
        assert_eq!(written(&slice("7", None, json!(null)), &wanted("9", true)), Step::Replace(write));
    }

    #[test]
    fn a_lower_token_never_replaces_a_higher_one_and_tokens_are_numbers_of_any_length() {
        for (stored, own, may) in [
            ("9", "10", true),
            ("10", "9", false),
            ("9", "9", true),
            ("99999999999999999999998", "99999999999999999999999", true),
            ("99999999999999999999999", "99999999999999999999998", false),
            ("010", "9", false),
            ("x", "9", true),
        ] {
            let step = written(&slice("7", Some(stored), json!([])), &wanted(own, true));
            assert_eq!(matches!(step, Step::Replace(_)), may, "{own} onto {stored}: {step:?}");
        }
    }

    #[test]
    fn a_term_begins_by_emptying_the_slice_whoever_stands_in_it() {
        let read = slice("7", Some("8"), json!([mine()]));
        assert_eq!(written(&read, &wanted("9", false)), Step::Replace(slice("7", Some("9"), json!([]))));
    }

    #[test]
    fn nothing_is_sent_from_s_minus_t_on_until_a_renewal_moves_that() {
        let mut publisher = publisher();
        let mut wanted = wanted("9", true);
        assert_eq!(publisher.step(&wanted, wanted.until), Step::Wait(Instant::NEVER));
        let late = wanted.until;
        wanted.until = after(60);
        assert_eq!(publisher.step(&wanted, late), Step::Get);
        publisher.answered(Ok(slice("7", None, json!([]))), late);
        assert_eq!(publisher.step(&wanted, after(60)), Step::Wait(Instant::NEVER));
    }

    #[test]
    fn what_is_as_wanted_is_looked_at_again_once_per_duration_and_withdrawn_without_another_read() {
        let mut publisher = publisher();
        let mut wanted = Wanted { until: after(1000), ..wanted("9", true) };
        publisher.step(&wanted, START);
        publisher.answered(Ok(slice("7", Some("9"), json!([mine()]))), START);
        assert_eq!(publisher.step(&wanted, START), Step::Wait(after(15)));
        assert_eq!(publisher.step(&wanted, after(14)), Step::Wait(after(15)));
        assert_eq!(publisher.step(&wanted, after(15)), Step::Get);
        publisher.answered(Ok(slice("8", Some("9"), json!([mine()]))), after(15));
        assert_eq!(publisher.step(&wanted, after(15)), Step::Wait(after(30)));

        wanted.serves = false;
        assert_eq!(publisher.step(&wanted, after(16)), Step::Replace(slice("8", Some("9"), json!([]))));
        publisher.answered(Ok(slice("9", Some("9"), json!(null))), after(16));
        assert_eq!(publisher.step(&wanted, after(16)), Step::Wait(after(31)));
    }

    #[test]
    fn after_a_conflict_it_reads_anew_and_other_failures_wait_for_the_renew_period_and_are_said_once() {
        let mut publisher = publisher();
        let wanted = wanted("9", true);
        publisher.step(&wanted, START);
        publisher.answered(Ok(slice("7", None, json!([]))), START);
        assert!(matches!(publisher.step(&wanted, START), Step::Replace(_)));
        publisher.answered(Err(error(409)), START);
        assert_eq!(publisher.step(&wanted, START), Step::Wait(START + PAUSE));
        assert_eq!(publisher.step(&wanted, START + PAUSE), Step::Get);
        assert_eq!(publisher.news(), None);

        publisher.answered(Err(error(404)), START);
        assert_eq!(publisher.news(), Some(&State::Failed("the API server answered 404: no".into())));
        assert_eq!(publisher.step(&wanted, START), Step::Wait(after(3)));
        assert_eq!(publisher.step(&wanted, after(3)), Step::Get);
        publisher.answered(Err(error(404)), after(3));
        assert_eq!(publisher.news(), None);
        publisher.step(&wanted, after(6));
        publisher.answered(Ok(slice("7", Some("9"), json!([mine()]))), after(6));
        publisher.step(&wanted, after(6));
        assert_eq!(publisher.news(), Some(&State::Published));
        assert_eq!(publisher.news(), None);
    }

    #[test]
    fn what_cannot_be_published_is_not_written_and_said() {
        let mut odd = slice("7", None, json!([]));
        odd["addressType"] = "IPv6".into();
        let mut nobodys = slice("7", None, json!([]));
        nobodys["metadata"]["uid"] = "".into();
        for (read, words) in [(odd, "addressType is \"IPv6\""), (nobodys, "not an EndpointSlice")] {
            let mut publisher = publisher();
            publisher.step(&wanted("9", true), START);
            publisher.answered(Ok(read), START);
            assert_eq!(publisher.step(&wanted("9", true), START), Step::Wait(after(15)));
            let Some(State::Failed(why)) = publisher.news() else { panic!("nothing was said") };
            assert!(why.contains(words), "{why}");
        }
    }
}
