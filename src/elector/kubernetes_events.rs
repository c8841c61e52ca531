//! Publishes transitions as Kubernetes Events about the Lease, for `kubectl describe lease` and `kubectl get events`.
//!
//! Owns their choice, their words and their requests, on a task of its own. The loop never waits for it. An Event that does not
//! fit into the queue, or is not accepted, is dropped.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    api::{Client, Place, Request, Verb},
    clock,
    election::{
        Event,
        writes::{API_VERSION, KIND},
    },
    link::{InitialState, ToElector},
    role::Role,
    telemetry::{
        status::{Change, Fact, ToldTerm},
        transition::{Outcome, Recorded, Transition, TransitionReason},
    },
    time::Instant,
    words::bounded,
};

/// How many Events may wait to be sent.
const QUEUE: usize = 16;

/// The same Event is sent again after this long.
const AGAIN: Duration = Duration::from_secs(600);

const NOT_READY: &str = "NotReady";

/// The loop's handle on the task.
pub(super) struct Events {
    queue: mpsc::Sender<Value>,
    task: JoinHandle<()>,
    namespace: String,
    base: String,
    identity: String,
    /// The last Event, by reason.
    told: BTreeMap<&'static str, (String, Instant)>,
}

impl Events {
    pub(super) fn start(initial: &InitialState, client: Client) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let config = &initial.config.lease;
        let task = tokio::spawn(send_all(waiting, client, Place::events(&config.namespace)));
        let (namespace, base, identity) = (config.namespace.clone(), config.name.clone(), initial.identity.clone());
        Self { queue, task, namespace, base, identity, told: BTreeMap::new() }
    }

    /// Ends the task once all Events that wait are sent.
    pub(super) fn finish(self) -> JoinHandle<()> {
        self.task
    }

    fn transitioned(&mut self, held: &ToldTerm, transition: &Transition, now: Instant) {
        let Transition { to, reason, term, token, outcome, exit, .. } = transition;
        let (identity, why) = (&self.identity, reason.as_str());
        if *outcome == Outcome::NeverLed {
            let note = format!("{identity} held the Lease, and its workload never led in term {term}");
            self.tell(held, "NeverLed", true, note, now);
        } else if *to == Role::Leader {
            self.tell(held, "StartedLeading", false, format!("{identity} leads in term {term}, token {token}: {why}"), now);
        } else {
            let warns = matches!(reason, TransitionReason::Ended(reason) if !reason.is_asked_for());
            let end = exit.map(|exit| format!("; its workload {}", exit.predicate())).unwrap_or_default();
            self.tell(held, "StoppedLeading", warns, format!("{identity} stands by after term {term}: {why}{end}"), now);
        }
    }

    /// Sends an Event about the Lease of this term.
    fn tell(&mut self, held: &ToldTerm, reason: &'static str, warns: bool, note: String, now: Instant) {
        let note = bounded(&note);
        // Digits do not count: an age or a duration in the words of a probe is no other cause.
        let gist = if reason == NOT_READY { note.replace(|digit: char| digit.is_ascii_digit(), "") } else { note.to_string() };
        if self.told.get(reason).is_some_and(|(last, at)| *last == gist && now.since(*at) < AGAIN) {
            return;
        }
        // Events get the names that client-go would give them.
        let base = self.base.get(..200).unwrap_or(&self.base).trim_end_matches(['-', '.']);
        let (namespace, lease, uid) = (&self.namespace, held.info.slot.of(&self.base), &held.info.uid);
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "namespace": namespace, "name": format!("{base}.{:x}", clock::wall()) },
            "action": "LeaderElection",
            "eventTime": MicroTime(clock::timestamp()),
            "note": note,
            "reason": reason,
            "regarding": { "apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": lease, "uid": uid },
            "reportingController": "tenure.dev/elector",
            // The API server takes 128 bytes at most.
            "reportingInstance": self.identity.get(..self.identity.floor_char_boundary(128)),
            "type": if warns { "Warning" } else { "Normal" },
        });
        self.told.insert(reason, (gist, now));
        // The Event is dropped if the queue is full, because the server has not answered for long.
        let _ = self.queue.try_send(event);
    }

    /// Sends an Event for a change, if it is worth one.
    pub(super) fn changed(&mut self, change: &Change<'_>) {
        let (Some(held), now) = (&change.after.term, change.at.boot) else { return };
        match change.fact {
            Fact::Told(ToElector::Health { unready: Some(why), .. })
                if held.is_led && !held.ends && change.before.unready.is_none() =>
            {
                let note = format!("the workload of {} is not ready: {why}", self.identity);
                self.tell(held, NOT_READY, true, note, now);
            }
            Fact::Event(Event::Stopping { reason, .. }) if held.is_led => {
                let note = format!("{} stops its workload: {}", self.identity, reason.as_str());
                self.tell(held, "Stopping", !reason.is_asked_for(), note, now);
            }
            Fact::Recorded(Recorded::Transitioned(transition)) => self.transitioned(held, transition, now),
            Fact::Told(_)
            | Fact::Telling(_)
            | Fact::Event(_)
            | Fact::Recorded(_)
            | Fact::Elects(_)
            | Fact::Requested(_)
            | Fact::WatchesAgain => {}
        }
    }
}

/// Sends each Event once. A failure is logged once until an Event is accepted again.
async fn send_all(mut waiting: mpsc::Receiver<Value>, client: Client, place: Place) {
    let mut failing = false;
    while let Some(event) = waiting.recv().await {
        let failure = client.send(&Request::of(place.clone(), Verb::Create(event.into()))).await.object().err();
        if let (false, Some(why)) = (failing, &failure) {
            tracing::warn!("an Event was not accepted, and is dropped: {}", bounded(&why.to_string()));
        }
        failing = failure.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{
            Access, Cluster,
            stub::{Stub, json},
        },
        config::Config,
        link::{Confirmed, Reason, Stop, Term, TermInfo, Then, ToInit},
        slot::Slot,
        telemetry::status::Status,
        time::Now,
    };
    use std::sync::Arc;

    /// Events, and the status that they are a view of.
    struct Bench {
        events: Events,
        status: Status,
    }

    impl Bench {
        fn take(&mut self, fact: Fact) {
            self.take_at(Instant::BOOT, fact);
        }

        fn take_at(&mut self, now: Instant, fact: Fact) {
            let before = self.status.clone();
            self.status.apply(&fact, now);
            let at = Now { boot: now, wall: 0 };
            self.events.changed(&Change { before: &before, after: &self.status, fact: &fact, at });
        }
    }

    /// A leader of the second slot, and what the server gets.
    async fn leader() -> (Bench, Stub) {
        let stub = Stub::answering(|_| json(201, "{}")).await;
        let cluster: Cluster = stub.cluster();
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(20));
        let mut config = Config::default();
        (config.lease.name, config.lease.namespace) = ("billing".into(), "shop".into());
        config.lease.attempt_timeout = Duration::from_secs(20);
        let timing = config.timing();
        let client = Client::beside(access, config.lease.attempt_timeout);
        let initial = InitialState::first(config, "a_1".into());
        let mut bench = Bench { events: Events::start(&initial, client), status: Status::new(&initial, Instant::BOOT) };
        let info = TermInfo {
            slot: Slot(1),
            token: "9".into(),
            uid: "u".into(),
            transitions: 7,
            acquired_at: String::new(),
            traceparent: String::new(),
        };
        let deadlines = timing.deadlines(Instant::BOOT);
        let confirmed = Confirmed { resource_version: "9".into(), preferred_holder: None, deadlines };
        bench.take(Fact::Telling(ToInit::Lead { term: Term(1), info, confirmed }));
        (bench, stub)
    }

    const STOP: Stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: Instant::BOOT };

    fn transition(to: Role, reason: TransitionReason, outcome: Outcome) -> Fact {
        use crate::{
            election::trace::TraceContext,
            telemetry::transition::{Anchor, Origin},
        };
        Fact::Recorded(Recorded::Transitioned(Box::new(Transition {
            to,
            reason,
            slot: Slot(1),
            term: 7,
            token: "9".into(),
            context: TraceContext { trace_id: 1, span_id: 2 },
            origin: Origin::None,
            from: Instant::BOOT,
            until: Instant::BOOT,
            anchor: Anchor(Now { boot: Instant::BOOT, wall: 0 }),
            margin: None,
            phases: Vec::new(),
            exit: None,
            fused: None,
            release: None,
            outcome,
        })))
    }

    const READY: Fact = Fact::Told(ToElector::Health { unready: None, status: String::new() });

    fn unready(why: &str) -> Fact {
        Fact::Told(ToElector::Health { unready: Some(why.into()), status: String::new() })
    }

    #[tokio::test]
    async fn the_same_is_told_again_after_ten_minutes() {
        let (mut bench, mut stub) = leader().await;
        bench.take(Fact::Told(ToElector::Started { term: Term(1), pid: 7, at: Instant::BOOT }));

        for seconds in [0, 1, 599, 600, 601] {
            let at = Instant::BOOT + Duration::from_secs(seconds);
            bench.take_at(at, READY);
            bench.take_at(at, unready(&format!("HTTP 503 after {seconds} s")));
            bench.take_at(at, unready("HTTP 500"));
        }
        bench.events.finish().await.unwrap();

        let mut told = Vec::new();
        while let Ok(seen) = stub.seen.try_recv() {
            let event: Value = serde_json::from_str(&seen.body).unwrap();
            told.push(event["note"].as_str().unwrap().rsplit(": ").next().unwrap().to_owned());
        }
        assert_eq!(told, ["HTTP 503 after 0 s", "HTTP 503 after 600 s"]);
    }

    #[tokio::test]
    async fn no_note_and_no_instance_is_longer_than_the_api_server_takes() {
        let (mut bench, mut stub) = leader().await;
        bench.take(Fact::Told(ToElector::Started { term: Term(1), pid: 7, at: Instant::BOOT }));
        bench.take(READY);
        bench.events.identity = "ü".repeat(100);

        bench.take(unready(&"ü".repeat(2000)));
        bench.events.finish().await.unwrap();

        let event: Value = serde_json::from_str(&stub.seen.try_recv().unwrap().body).unwrap();
        let lengths = ["note", "reportingInstance"].map(|key| event[key].as_str().unwrap().len());
        assert!((1000..=1024).contains(&lengths[0]) && lengths[1] == 128, "{lengths:?}");
    }

    #[tokio::test]
    async fn what_is_told_is_about_the_lease_of_the_slot_and_the_same_is_told_once() {
        let (mut bench, mut stub) = leader().await;
        let stopping = Event::Stopping { reason: Reason::NotLive, context: crate::election::trace::TraceContext::UNKNOWN };

        bench.take(unready("HTTP 503"));
        bench.take(Fact::Event(stopping.clone()));
        bench.take(Fact::Told(ToElector::Started { term: Term(1), pid: 7, at: Instant::BOOT }));
        bench.take(transition(Role::Leader, TransitionReason::Resumed, Outcome::Complete));
        bench.take(READY);
        bench.take(unready("it was written 31.2s ago"));
        bench.take(READY);
        bench.take(unready("it was written 30.7s ago"));
        bench.take(Fact::Told(ToElector::Stopping { term: Term(1), reason: Reason::NotLive, at: Instant::BOOT }));
        bench.take(unready("it is being stopped"));
        bench.take(Fact::Event(stopping));
        bench.take(Fact::Told(ToElector::Stopped { term: Term(1), request: 1, stop: STOP, then: Then::Follow }));
        bench.take(transition(Role::Standby, TransitionReason::Ended(Reason::NotLive), Outcome::Complete));
        bench.take(transition(Role::Leader, TransitionReason::Resumed, Outcome::NeverLed));
        bench.take(unready("HTTP 503"));
        bench.events.finish().await.unwrap();

        let mut told = Vec::new();
        while let Ok(seen) = stub.seen.try_recv() {
            assert_eq!(seen.line, "POST /apis/events.k8s.io/v1/namespaces/shop/events");
            let event: Value = serde_json::from_str(&seen.body).unwrap();
            assert_eq!((&event["regarding"]["name"], &event["regarding"]["uid"]), (&"billing-slot-1".into(), &"u".into()));
            told.push(["type", "reason", "note"].map(|key| event[key].as_str().unwrap().to_owned()).join(" "));
        }
        assert_eq!(
            told,
            [
                "Normal StartedLeading a_1 leads in term 7, token 9: resumed",
                "Warning NotReady the workload of a_1 is not ready: it was written 31.2s ago",
                "Warning Stopping a_1 stops its workload: not-live",
                "Warning StoppedLeading a_1 stands by after term 7: not-live",
                "Warning NeverLed a_1 held the Lease, and its workload never led in term 7",
            ]
        );
    }
}
