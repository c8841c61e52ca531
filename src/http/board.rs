//! What `/status` tells. No IO.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Value, json};

use super::health::Vital;
use crate::{
    election::{
        Event,
        transition::{Anchor, Transition},
    },
    role::Role,
    time::Instant,
};

/// So many transitions are remembered.
const TRANSITIONS: usize = 32;

/// What this replica has seen of its Lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    identity: String,
    namespace: String,
    lease: String,
    /// Who held it last, as far as this replica saw.
    holder: Option<String>,
    /// The latest first.
    transitions: VecDeque<Past>,
}

/// A transition that is over.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Past {
    time: String,
    to: &'static str,
    reason: &'static str,
    slot: u8,
    term: i32,
    fencing_token: String,
    seconds: f64,
    margin_seconds: Option<f64>,
    exit: Option<String>,
}

impl Board {
    pub(super) fn new(identity: &str, namespace: &str, lease: &str) -> Self {
        let (identity, namespace, lease) = (identity.to_owned(), namespace.to_owned(), lease.to_owned());
        Self { identity, namespace, lease, ..Self::default() }
    }

    /// Takes in what the election reported; whether that changed anything.
    pub(super) fn event(&mut self, event: &Event) -> bool {
        match event {
            Event::NewLeader { holder } => self.holder = Some(holder.clone()),
            Event::Transitioned(transition) => {
                match transition.to {
                    Role::Leader => self.holder = Some(self.identity.clone()),
                    Role::Standby => drop(self.holder.take_if(|holder| *holder == self.identity)),
                }
                self.transitions.truncate(TRANSITIONS - 1);
                self.transitions.push_front(past(transition));
            }
            Event::Ready | Event::Renewed { .. } | Event::Stopping { .. } => {}
            Event::HeldByNobody { .. }
            | Event::Campaigning { .. }
            | Event::CampaignLost(_)
            | Event::Failed { .. }
            | Event::Recovered { .. }
            | Event::WithinTerm(_)
            | Event::WaitedInVain { .. }
            | Event::Odd { .. } => return false,
        }
        true
    }

    /// As the old leader-elector sidecar of Kubernetes told it.
    pub(super) fn leader(&self) -> Value {
        json!({ "name": self.holder.as_deref().unwrap_or_default() })
    }

    /// All of it at `now`.
    pub(super) fn status(&self, vital: Vital, now: Instant) -> Value {
        let led = vital.view.leading;
        let left = |deadline: Instant| deadline.since(now).as_secs_f64();
        let latest = self.transitions.front().filter(|latest| led.is_some() && latest.to == Role::Leader.as_str());
        json!({
            "identity": self.identity, "namespace": self.namespace, "lease": self.lease, "ready": vital.view.ready,
            "role": if led.is_some() { Role::Leader } else { Role::Standby }.as_str(),
            "stopping": led.is_some_and(|led| led.ending),
            "holder": self.holder,
            "slot": latest.map(|latest| latest.slot),
            "term": latest.map(|latest| latest.term),
            "fencingToken": latest.map(|latest| &latest.fencing_token),
            "softDeadlineSeconds": led.map(|led| left(led.deadlines.soft)),
            "hardDeadlineSeconds": led.map(|led| left(led.deadlines.hard)),
            "renewedSecondsAgo": led.map(|led| now.since(led.confirmed).as_secs_f64()),
            "transitions": self.transitions,
        })
    }
}

fn past(transition: &Transition) -> Past {
    let Transition { to, reason, slot, term, token, from, until, anchor, margin, exit, .. } = transition;
    Past {
        time: wall(*anchor, *until),
        to: to.as_str(),
        reason: reason.as_str(),
        slot: slot.0,
        term: *term,
        fencing_token: token.clone(),
        seconds: until.since(*from).as_secs_f64(),
        margin_seconds: margin.map(|margin| margin.0),
        exit: exit.map(|exit| exit.to_string()),
    }
}

fn wall(anchor: Anchor, at: Instant) -> String {
    let micros = i64::try_from(anchor.wall(at) / 1_000).unwrap_or_default();
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        election::{
            AcquireReason, Led, View,
            trace::TraceContext,
            transition::{Margin, Origin, Outcome, TransitionReason},
        },
        law::Deadlines,
        link::{Exit, Reason, Slot, Term},
        time::Now,
    };

    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    fn transition(to: Role, reason: TransitionReason, exit: Option<Exit>) -> Event {
        let now = Now { boot: START, wall: 1_800_000_000_000_000 };
        Event::Transitioned(Box::new(Transition {
            to,
            reason,
            slot: Slot(1),
            term: 7,
            token: "42".into(),
            context: TraceContext { trace_id: 1, span_id: 2 },
            origin: Origin::None,
            from: START,
            until: START + Duration::from_millis(1_500),
            anchor: Anchor(now),
            margin: Some(Margin(8.5)),
            phases: Vec::new(),
            exit,
            release: None,
            outcome: Outcome::Complete,
        }))
    }

    fn vital(leading: Option<Led>) -> Vital {
        Vital { duration: Duration::from_secs(15), heard: START, view: View { ready: true, workload: true, leading } }
    }

    fn board(events: &[Event]) -> Board {
        let mut board = Board::new("a_1", "default", "billing");
        for event in events {
            board.event(event);
        }
        board
    }

    #[test]
    fn a_leader_tells_its_term_its_token_and_what_is_left() {
        let leads = transition(Role::Leader, TransitionReason::Acquired(AcquireReason::Released), None);
        let deadlines = Deadlines {
            soft: START + Duration::from_secs(8),
            hard: START + Duration::from_secs(12),
            end: START + Duration::from_secs(13),
        };
        let led = Led { term: Term(1), confirmed: START, deadlines, ending: false };

        let status = board(&[leads]).status(vital(Some(led)), START + Duration::from_secs(2));

        assert_eq!(status["transitions"][0]["time"], "2027-01-15T08:00:01.500Z");
        let expected = json!(["leader", "a_1", 7, "42", 6.0, 10.0, 2.0, false]);
        let keys = [
            "role",
            "holder",
            "term",
            "fencingToken",
            "softDeadlineSeconds",
            "hardDeadlineSeconds",
            "renewedSecondsAgo",
            "stopping",
        ];
        assert_eq!(Value::from(keys.map(|key| status[key].clone()).to_vec()), expected);
    }

    #[test]
    fn a_standby_tells_who_leads_and_how_its_own_term_ended() {
        let leads = transition(Role::Leader, TransitionReason::Resumed, None);
        let stands_by = transition(Role::Standby, TransitionReason::Ended(Reason::Signal), Some(Exit::Code(0)));
        let status = |events: &[Event]| board(events).status(vital(None), START);

        let alone = status(&[leads.clone(), stands_by.clone()]);
        assert_eq!((&alone["role"], &alone["holder"], &alone["term"]), (&json!("standby"), &Value::Null, &Value::Null));
        assert_eq!(
            (&alone["transitions"][0]["reason"], &alone["transitions"][0]["exit"]),
            (&json!("signal"), &json!("exit code 0"))
        );
        let other = Event::NewLeader { holder: "b_2".into() };
        let board = board(&[leads, stands_by, other]);
        assert_eq!(board.leader(), json!({"name": "b_2"}));
    }

    #[test]
    fn only_so_many_transitions_are_remembered_and_the_latest_come_first() {
        let leads = transition(Role::Leader, TransitionReason::Resumed, None);
        let mut events = vec![leads; TRANSITIONS + 5];
        events.push(transition(Role::Standby, TransitionReason::Ended(Reason::Signal), None));
        let board = board(&events);
        assert_eq!((board.transitions.len(), board.transitions[0].to), (TRANSITIONS, "standby"));
    }
}
