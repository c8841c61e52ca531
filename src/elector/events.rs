//! Tells the cluster of transitions, as Events about the Lease: for `kubectl describe lease` and `kubectl get events`.
//!
//! Owns which of them, their words and their requests, on a task and a connection of its own. The loop never waits for it: what
//! does not fit into its queue, or is not accepted, is dropped.

use std::{collections::BTreeMap, time::Duration};

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as Told},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::client::Body;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{access::Access, lease::JSON};
use crate::{
    api::call,
    clock,
    election::{
        Event,
        transition::{Outcome, Transition, TransitionReason},
        writes::{API_VERSION, KIND},
    },
    link::{InitialState, Reason, Slot, ToElector, ToInit},
    role::Role,
    time::Instant,
    words::{bounded, one_line},
};

/// What waits to be sent.
const QUEUE: usize = 16;

/// The same is told again after this long.
const AGAIN: Duration = Duration::from_secs(600);

/// The loop's end of it.
pub(super) struct Events {
    queue: mpsc::Sender<Told>,
    task: JoinHandle<()>,
    namespace: String,
    lease: String,
    identity: String,
    /// The Lease of the term, and its uid.
    term: Option<(Slot, String)>,
    leads: bool,
    /// What was told last, by reason.
    told: BTreeMap<&'static str, (String, Instant)>,
}

impl Events {
    pub(super) fn start(initial: &InitialState, access: Access) -> Option<Self> {
        let lease = &initial.config.lease;
        if !initial.config.events.enabled {
            return None;
        }
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = tokio::spawn(send_all(waiting, access, lease.namespace.clone(), lease.attempt_timeout));
        let resume = initial.resume.as_ref();
        Some(Self {
            queue,
            task,
            namespace: lease.namespace.clone(),
            lease: lease.name.clone(),
            identity: initial.identity.clone(),
            term: resume.map(|resume| (resume.info.slot, resume.info.uid.clone())),
            leads: resume.is_some_and(|resume| resume.told),
            told: BTreeMap::new(),
        })
    }

    /// Init is told something.
    pub(super) fn telling(&mut self, message: &ToInit) {
        if let ToInit::Lead { info, .. } = message {
            self.term = Some((info.slot, info.uid.clone()));
        }
    }

    /// Init said something.
    pub(super) fn heard(&mut self, message: &ToElector) {
        if let ToElector::Health { unready: Some(why), .. } = message
            && self.leads
        {
            self.tell("NotReady", true, format!("the workload of {} is not ready: {}", self.identity, bounded(why)));
        }
    }

    /// The election reported something.
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Transitioned(transition) => self.transitioned(transition),
            Event::Stopping { reason, .. } if self.leads => {
                self.tell("Stopping", is_bad(*reason), format!("{} stops its workload: {}", self.identity, reason.as_str()));
            }
            Event::Stopping { .. }
            | Event::Ready
            | Event::NewLeader { .. }
            | Event::Campaigning { .. }
            | Event::CampaignLost(_)
            | Event::HeldByNobody { .. }
            | Event::Renewed { .. }
            | Event::Failed { .. }
            | Event::Recovered { .. }
            | Event::WithinTerm(_)
            | Event::WaitedInVain { .. }
            | Event::Odd { .. } => {}
        }
    }

    /// Nothing more will happen: what waits is sent.
    pub(super) fn finish(self) -> JoinHandle<()> {
        self.task
    }

    fn transitioned(&mut self, transition: &Transition) {
        let Transition { to, reason, term, token, outcome, exit, .. } = transition;
        let (identity, why) = (&self.identity, reason.as_str());
        let bad = matches!(reason, TransitionReason::Ended(reason) if is_bad(*reason));
        let end = exit.map(|exit| format!("; its workload ended with {exit}")).unwrap_or_default();
        self.leads = *to == Role::Leader && *outcome != Outcome::NeverLed;
        match (to, outcome) {
            (_, Outcome::NeverLed) => {
                self.tell("NeverLed", true, format!("{identity} held the Lease, and its workload never led in term {term}"));
            }
            (Role::Leader, Outcome::Complete | Outcome::Demoted) => {
                self.tell("StartedLeading", false, format!("{identity} leads in term {term}, token {token}: {why}"));
            }
            (Role::Standby, Outcome::Complete | Outcome::Demoted) => {
                self.tell("StoppedLeading", bad, format!("{identity} stands by after term {term}: {why}{end}"));
            }
        }
    }

    fn tell(&mut self, reason: &'static str, warns: bool, note: String) {
        let (now, Some((slot, uid))) = (clock::boot(), &self.term) else { return };
        if self.told.get(reason).is_some_and(|(last, at)| *last == note && now.since(*at) < AGAIN) {
            return;
        }
        let lease = slot.of(&self.lease);
        let event = Told {
            metadata: ObjectMeta {
                // As client-go names them.
                name: Some(format!("{}.{:x}", lease.get(..200).unwrap_or(&lease), clock::wall())),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("LeaderElection".into()),
            event_time: Some(MicroTime(clock::timestamp())),
            note: Some(note.clone()),
            reason: Some(reason.into()),
            regarding: Some(ObjectReference {
                api_version: Some(API_VERSION.into()),
                kind: Some(KIND.into()),
                namespace: Some(self.namespace.clone()),
                name: Some(lease),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some("tenure.dev/elector".into()),
            reporting_instance: Some(self.identity.chars().take(128).collect()),
            type_: Some(if warns { "Warning" } else { "Normal" }.into()),
            ..Told::default()
        };
        self.told.insert(reason, (note, now));
        // Dropped where the server has not answered for so long.
        let _ = self.queue.try_send(event);
    }
}

/// Whether somebody should look into it.
const fn is_bad(reason: Reason) -> bool {
    match reason {
        Reason::Signal | Reason::Exited | Reason::StepDown | Reason::PreferredHolder => false,
        Reason::SpawnFailed
        | Reason::Limit
        | Reason::HookFailed
        | Reason::NotAcknowledged
        | Reason::NotReady
        | Reason::NotLive
        | Reason::Expired
        | Reason::LostToHolder
        | Reason::LostCleared
        | Reason::LostDeleted
        | Reason::LostRecreated
        | Reason::LostToCopy => true,
    }
}

/// Sends each once; what failed is said once until it works again.
async fn send_all(mut waiting: mpsc::Receiver<Told>, access: Access, namespace: String, timeout: Duration) {
    let mut complaint = None;
    while let Some(event) = waiting.recv().await {
        let failure = send(&event, &access, &namespace, timeout).await.err();
        if let Some(why) = failure.as_ref().filter(|why| complaint.as_ref() != Some(*why)) {
            tracing::warn!("an Event was not accepted, and is dropped: {}", bounded(why));
        }
        complaint = failure;
    }
}

async fn send(event: &Told, access: &Access, namespace: &str, timeout: Duration) -> Result<(), String> {
    let dialer = access.dialer_of_watch().await.map_err(|error| one_line(&error))?;
    let request = Request::post(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
    let body = serde_json::to_vec(event).map_err(|error| one_line(&error))?;
    let request = request.header(ACCEPT, JSON).header(CONTENT_TYPE, JSON).body(Body::from(body));
    let request = request.map_err(|error| one_line(&error))?;
    call(&dialer.client(), request, timeout).await.map(drop).map_err(|error| one_line(&error))
}
