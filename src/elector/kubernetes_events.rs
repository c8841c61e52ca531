//! Publishes transitions as Kubernetes Events about the Lease, for `kubectl describe lease` and `kubectl get events`.
//!
//! Owns their choice, their words and their requests, on a task of its own. The loop never waits for it. An Event that does not
//! fit into the queue, or is not accepted, is dropped.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as KubeEvent},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    api::{Client, Place, Request, Verb},
    clock,
    election::{
        Event,
        writes::{API_VERSION, KIND},
    },
    link::{InitialState, ToElector, ToInit},
    role::Role,
    telemetry::transition::{Outcome, Recorded, Transition, TransitionReason},
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
    queue: mpsc::Sender<KubeEvent>,
    task: JoinHandle<()>,
    /// The Lease of the last term.
    lease: ObjectReference,
    base: String,
    identity: String,
    leads: bool,
    /// The stop of the workload has begun.
    stops: bool,
    /// The last Event, by reason.
    told: BTreeMap<&'static str, (String, Instant)>,
}

impl Events {
    pub(super) fn start(initial: &InitialState, client: Client) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (config, resume) = (&initial.config.lease, initial.resume.as_ref());
        let task = tokio::spawn(send_all(waiting, client, Place::events(&config.namespace)));
        let lease = ObjectReference {
            api_version: Some(API_VERSION.into()),
            kind: Some(KIND.into()),
            namespace: Some(config.namespace.clone()),
            name: resume.map(|resume| resume.info.slot.of(&config.name)),
            uid: resume.map(|resume| resume.info.uid.clone()),
            ..ObjectReference::default()
        };
        let (base, identity) = (config.name.clone(), initial.identity.clone());
        Self {
            queue,
            task,
            lease,
            base,
            identity,
            leads: resume.is_some_and(|resume| resume.told),
            stops: resume.is_some_and(|resume| resume.stopping.is_some()),
            told: BTreeMap::new(),
        }
    }

    /// Takes in a message to init.
    pub(super) fn telling(&mut self, message: &ToInit) {
        if let ToInit::Lead { info, .. } = message {
            (self.lease.name, self.lease.uid) = (Some(info.slot.of(&self.base)), Some(info.uid.clone()));
        }
    }

    /// Takes in a message of init.
    pub(super) fn heard(&mut self, message: &ToElector) {
        self.stops |= matches!(message, ToElector::Stopping { .. });
        if let (true, false, ToElector::Health { unready: Some(why), .. }) = (self.leads, self.stops, message) {
            self.tell(NOT_READY, true, format!("the workload of {} is not ready: {}", self.identity, bounded(why)));
        }
    }

    /// Takes in an event of the election.
    pub(super) fn event(&mut self, event: &Event) {
        if let (true, Event::Stopping { reason, .. }) = (self.leads, event) {
            self.stops = true;
            self.tell("Stopping", !reason.is_asked_for(), format!("{} stops its workload: {}", self.identity, reason.as_str()));
        }
    }

    /// Takes in a part of a term that is over.
    pub(super) fn recorded(&mut self, recorded: &Recorded) {
        if let Recorded::Transitioned(transition) = recorded {
            self.transitioned(transition);
        }
    }

    /// Ends the task once all Events that wait are sent.
    pub(super) fn finish(self) -> JoinHandle<()> {
        self.task
    }

    fn transitioned(&mut self, transition: &Transition) {
        let Transition { to, reason, term, token, outcome, exit, .. } = transition;
        let (identity, why) = (&self.identity, reason.as_str());
        (self.leads, self.stops) = ((*to, *outcome) == (Role::Leader, Outcome::Complete), false);
        if *outcome == Outcome::NeverLed {
            self.tell("NeverLed", true, format!("{identity} held the Lease, and its workload never led in term {term}"));
        } else if *to == Role::Leader {
            self.tell("StartedLeading", false, format!("{identity} leads in term {term}, token {token}: {why}"));
        } else {
            let warns = matches!(reason, TransitionReason::Ended(reason) if !reason.is_asked_for());
            let end = exit.map(|exit| format!("; its workload {}", exit.predicate())).unwrap_or_default();
            self.tell("StoppedLeading", warns, format!("{identity} stands by after term {term}: {why}{end}"));
        }
    }

    fn tell(&mut self, reason: &'static str, warns: bool, note: String) {
        let now = clock::boot();
        // Digits do not count: an age or a duration in the words of a probe is no other cause.
        let gist = if reason == NOT_READY { note.replace(|digit: char| digit.is_ascii_digit(), "") } else { note.clone() };
        if self.told.get(reason).is_some_and(|(last, at)| *last == gist && now.since(*at) < AGAIN) {
            return;
        }
        let mut event = KubeEvent {
            action: Some("LeaderElection".into()),
            event_time: Some(MicroTime(clock::timestamp())),
            note: Some(note),
            reason: Some(reason.into()),
            regarding: Some(self.lease.clone()),
            reporting_controller: Some("tenure.dev/elector".into()),
            // The API server takes 128 characters at most.
            reporting_instance: Some(self.identity.chars().take(128).collect()),
            type_: Some(if warns { "Warning" } else { "Normal" }.into()),
            ..KubeEvent::default()
        };
        // Events get the names that client-go would give them.
        let base = self.base.get(..200).unwrap_or(&self.base).trim_end_matches(['-', '.']);
        event.metadata.name = Some(format!("{base}.{:x}", clock::wall()));
        event.metadata.namespace = self.lease.namespace.clone();
        self.told.insert(reason, (gist, now));
        // The Event is dropped if the queue is full, because the server has not answered for long.
        let _ = self.queue.try_send(event);
    }
}

/// Sends each Event once. A failure is logged once until an Event is accepted again.
async fn send_all(mut waiting: mpsc::Receiver<KubeEvent>, client: Client, place: Place) {
    let mut failing = false;
    while let Some(event) = waiting.recv().await {
        let event = serde_json::to_value(event).unwrap_or_default();
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
        link::{Confirmed, Reason, Term, TermInfo},
        slot::Slot,
        time::Now,
    };
    use std::sync::Arc;

    /// A leader of the second slot, and what the server gets.
    async fn leader() -> (Events, Stub) {
        let stub = Stub::answering(|_| json(201, "{}")).await;
        let cluster: Cluster = stub.cluster();
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), Duration::from_secs(20));
        let mut config = Config::default();
        (config.lease.name, config.lease.namespace) = ("billing".into(), "shop".into());
        config.lease.attempt_timeout = Duration::from_secs(20);
        let timing = config.timing();
        let client = Client::beside(access, config.lease.attempt_timeout);
        let mut events = Events::start(&InitialState::first(config, "a_1".into()), client);
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
        events.telling(&ToInit::Lead { term: Term(1), info, confirmed });
        (events, stub)
    }

    fn transition(to: Role, reason: TransitionReason, outcome: Outcome) -> Recorded {
        use crate::{
            election::trace::TraceContext,
            telemetry::transition::{Anchor, Origin},
        };
        Recorded::Transitioned(Box::new(Transition {
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
            release: None,
            outcome,
        }))
    }

    fn unready(why: &str) -> ToElector {
        ToElector::Health { unready: Some(why.into()), status: String::new() }
    }

    #[tokio::test]
    async fn what_is_told_is_about_the_lease_of_the_slot_and_the_same_is_told_once() {
        let (mut events, mut stub) = leader().await;
        let stopping = Event::Stopping { reason: Reason::NotLive, context: crate::election::trace::TraceContext::UNKNOWN };

        events.heard(&unready("HTTP 503"));
        events.event(&stopping);
        events.recorded(&transition(Role::Leader, TransitionReason::Resumed, Outcome::Complete));
        events.heard(&unready("it was written 31.2s ago"));
        events.heard(&unready("it was written 30.7s ago"));
        // What init says in one turn is heard before the election speaks.
        events.heard(&ToElector::Stopping { term: Term(7), reason: Reason::NotLive, at: Instant::BOOT });
        events.heard(&unready("it is being stopped"));
        events.event(&stopping);
        events.recorded(&transition(Role::Standby, TransitionReason::Ended(Reason::NotLive), Outcome::Complete));
        events.recorded(&transition(Role::Leader, TransitionReason::Resumed, Outcome::NeverLed));
        events.heard(&unready("HTTP 503"));
        events.finish().await.unwrap();

        let mut told = Vec::new();
        while let Ok(seen) = stub.seen.try_recv() {
            assert_eq!(seen.line, "POST /apis/events.k8s.io/v1/namespaces/shop/events");
            let event: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
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
