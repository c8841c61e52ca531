//! The fuzz targets: the parsers of credentials, Leases, replies, watches, configuration, notifications, the link and the datagram of
//! the witness.
//!
//! A module of the crate, so that it reaches what is private, compiled only for tests and for cargo-fuzz. Each target takes any bytes,
//! and panics where a parser breaks a promise, not only where the parser panics. `run` runs every target briefly on its corpus and on
//! mutations of it, as a part of `cargo test`.

#![allow(clippy::expect_used, reason = "a target fails by panicking")]

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    api,
    config::{self, Config, OnExit, Preset, Runs},
    election::{
        Action as Wish, Elector, Input as WatchEvent, Request,
        obituary::{Action as Obituary, Input as Told, Witness},
        record::{LeaseRecord, LeaseState},
        trace::TraceContext,
        writes::Sent,
    },
    elector::witness,
    law::longer,
    link::{Exit, InitialState, Term, ToElector, ToInit, decode, encode},
    loading,
    notification::{self, Notification},
    request::{Answer, Refusal},
    supervision::{Action, Agent, AgentConfig, Input, NotSpawned, RoleInput, Scan},
    time::{Instant, Now},
};

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also its corpus's.
pub const TARGETS: [(&str, Target); 9] = [
    ("annotation", annotation),
    ("config", config),
    ("credential", api::fuzz::credential),
    ("datagram", datagram),
    ("lease", lease),
    ("link", link),
    ("notify", notify),
    ("reply", api::fuzz::reply),
    ("watch", api::fuzz::watch),
];

/// Runs the target of this name on `bytes`.
///
/// # Panics
/// A promise is broken, or there is no such target.
pub fn hold(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target");
    target(bytes);
}

const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);

/// `tenure.dev/traceparent`: what parses as a context stays the same when it is written again.
pub fn annotation(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(context) = TraceContext::parse(text) {
        assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
    }
}

/// A configuration file; then, after a NUL, variables, one per line. What is accepted survives the way to the elector.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (file, variables) = text.split_once('\0').unwrap_or((text, ""));
    let variables: Vec<_> = variables.lines().filter_map(|line| line.split_once('=')).collect();
    match loading::fuzz::load_text(file, &variables) {
        Ok(loaded) => {
            let sent = encode(&loaded.config).expect("it encodes");
            assert_eq!(decode::<Config>(&sent).expect("it decodes"), loaded.config);
        }
        Err(invalid) => assert!(!invalid.problems.is_empty()),
    }
}

/// What an elector tells the witness: what is understood can be a replica, and never makes the witness ask without a pause.
pub fn datagram(bytes: &[u8]) {
    let Ok(replica) = witness::read(bytes) else { return };
    assert!(!replica.identity.is_empty() && (1..=64).contains(&replica.leases.len()), "{replica:?}");
    let mut dead = Witness::new(7);
    dead.handle(Told::Told(replica.clone()), 0);
    dead.handle(Told::Died { identity: replica.identity.clone() }, 0);
    let (mut asked, mut paused) = (0, Duration::ZERO);
    while let Some(action) = dead.poll_action() {
        let Obituary::Request { id, pause, .. } = action else { continue };
        (asked, paused) = (asked + 1, paused + pause);
        if asked < replica.leases.len() * 20 {
            let (refusal, message) = (Refusal::Forbidden, "no".into());
            dead.handle(Told::Answered { id, answer: Answer::Refused { refusal, message } }, 0);
        }
    }
    assert!(paused >= Duration::from_millis(100) * 19, "{asked} requests with pauses of {paused:?} together");
}

/// A Lease that a follower reads again and again: it never writes to a held one before its duration has passed, or to one that is
/// being deleted, and keeps what others put into the spec.
pub fn lease(bytes: &[u8]) {
    let Ok(object @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else { return };
    let object = Arc::new(object);
    let mut now = Now { boot: BEGIN, wall: 1_800_000_000_000_000 };
    let mut follower = Elector::new(initial_state(), 7, now);
    for _ in 0..64 {
        while let Some(wish) = follower.poll_action() {
            let Wish::Request { id, request, .. } = wish else { continue };
            let answer = match request {
                Request::Get => Answer::Object(Arc::clone(&object)),
                Request::List => panic!("it is the only one"),
                Request::Write(write) => match write.sent() {
                    Sent::Create(_) | Sent::Delete { .. } => panic!("it is there, and not ours: {write:?}"),
                    Sent::Replace(written) => return judge(&object, written, now.boot.since(BEGIN)),
                },
            };
            follower.handle(WatchEvent::Answered { id, answer }, now);
        }
        let Some(due) = follower.poll_timeout() else { return };
        now.wall += i64::try_from(due.since(now.boot).as_micros()).unwrap_or_default();
        now.boot = now.boot.max(due);
        follower.handle_timeout(now);
    }
}

/// A write to a Lease that was in sight for `seen`.
fn judge(before: &Arc<Value>, written: &Arc<Value>, seen: Duration) {
    let record = LeaseRecord::read(Arc::clone(before)).expect("what has no uid or version is not written to");
    assert!(!record.is_being_deleted(), "it waits for its end only");
    if record.state() == LeaseState::Held {
        let own = Config::default().lease;
        assert!(seen >= longer(record.duration().unwrap_or(own.duration), own.clock_drift.0), "taken after {seen:?}");
    }
    let after = LeaseRecord::read(Arc::clone(written)).expect("with uid and version");
    assert_eq!((after.uid(), after.resource_version()), (record.uid(), record.resource_version()));
    let ours = ["holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions", "preferredHolder"];
    for (field, value) in record.spec().iter().filter(|(field, _)| !ours.contains(&field.as_str())) {
        assert_eq!(after.spec().get(field), Some(value), "{field} is somebody else's");
    }
}

fn initial_state() -> InitialState {
    let mut config = Config::default();
    (config.lease.name, config.lease.namespace) = ("lease".into(), "default".into());
    InitialState::first(config, "me".into())
}

/// Messages to init, each after its length and a delay in tenths of a second; without a length the workload ends by itself. Whatever
/// an elector says, init goes on, and nobody leads without an H that is still to come.
pub fn link(bytes: &[u8]) {
    if let Ok(message) = decode::<ToElector>(bytes) {
        let again = encode(&message).expect("it was no longer");
        assert_eq!(decode::<ToElector>(&again).expect("its own bytes"), message);
    }
    let mut config = Config::default();
    config.workload.command = vec!["work".into()];
    if bytes.first().is_some_and(|byte| byte & 1 == 1) {
        (config.workload.runs, config.workload.acknowledge) = (Runs::Always, Some(config::Acknowledge::Notify));
    }
    if bytes.first().is_some_and(|byte| byte & 2 == 2) {
        config.workload.on_exit = OnExit::Restart;
    }
    let mut agent = Agent::new(AgentConfig {
        config: config.into(),
        preset: Preset::Run,
        began: Instant::BOOT,
        identity: "me".into(),
        context: None,
        pid1: true,
        terminal: false,
    });
    let mut now = BEGIN;
    let mut rest = bytes.get(1..).unwrap_or_default();
    while let Some(([length, tenths], more)) = rest.split_first_chunk() {
        let (message, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        wake(&mut agent, &mut now, Duration::from_millis(u64::from(*tenths) * 100));
        if *length == 0 {
            agent.handle(Input::Reaped { pid: MAIN, exit: Exit::Code(1) }, now);
        } else if let Ok(message) = decode::<ToInit>(message) {
            agent.handle(Input::Told(message), now);
        }
        obey(&mut agent, now);
        wake(&mut agent, &mut now, Duration::ZERO);
        assert!(!agent.leads() || agent.hard().is_some_and(|hard| hard > now), "it leads at {now:?}, H is {:?}", agent.hard());
    }
    wake(&mut agent, &mut now, Duration::from_secs(3600));
    assert!(!agent.leads() || agent.hard().is_some_and(|hard| hard > now), "it leads at {now:?}, H is {:?}", agent.hard());
}

/// The workload's main process.
const MAIN: i32 = 100;

/// Lets time pass, waking the agent when it asks for it.
fn wake(agent: &mut Agent, now: &mut Instant, span: Duration) {
    let end = *now + span;
    for _ in 0..1000 {
        let Some(due) = agent.poll_timeout().filter(|due| *due <= end) else { break };
        *now = due.max(*now);
        agent.handle_timeout(*now);
        obey(agent, *now);
    }
    *now = end;
}

/// Plays a kernel that does at once what init wants.
fn obey(agent: &mut Agent, now: Instant) {
    for _ in 0..1000 {
        let Some(action) = agent.poll_action() else { return };
        match action {
            Action::Spawn { launch: Some(launch), .. } if launch.not_after <= now => {
                agent.handle(Input::NotSpawned(NotSpawned::Late), now);
            }
            Action::Spawn { .. } => {
                agent.handle(Input::Forked { pid: MAIN }, now);
                agent.handle(Input::Spawned, now);
            }
            Action::StartElector => agent.handle(Input::ElectorStarted, now),
            Action::KillElector => agent.handle(Input::ElectorEnded, now),
            Action::TellRole { not_after, .. } => {
                let late = not_after.is_some_and(|at| at <= now);
                agent.handle(Input::Role(if late { RoleInput::NotSignalled } else { RoleInput::Signalled }), now);
            }
            Action::Freeze | Action::LookFrozen => agent.handle(Input::Role(RoleInput::Looked { frozen: true }), now),
            Action::Resume { not_after } => {
                let late = not_after <= now;
                agent.handle(Input::Role(if late { RoleInput::NotSignalled } else { RoleInput::Signalled }), now);
            }
            Action::MarkNotify => agent.handle(Input::Role(RoleInput::Signalled), now),
            Action::Hook { .. } => agent.handle(Input::Role(RoleInput::HookNotForked), now),
            Action::Sweep | Action::KillAll => {
                agent.handle(Input::Reaped { pid: MAIN, exit: Exit::Signal(libc::SIGKILL) }, now);
                agent.handle(Input::Scanned(Scan { clean: true, ..Scan::default() }), now);
            }
            Action::Prove => agent.handle(Input::Scanned(Scan { clean: true, ..Scan::default() }), now),
            Action::Probe { kind, began, .. } => agent.handle(Input::Probed { kind, began, failure: None }, now),
            Action::KillTeller
            | Action::KillProbe(_)
            | Action::Exit(_)
            | Action::Die
            | Action::Tell(_)
            | Action::Signal { .. }
            | Action::Continue { .. }
            | Action::KillHook { .. }
            | Action::Warn(_)
            | Action::TerminationMessage(..) => {}
        }
    }
    panic!("init never rests");
}

/// NOTIFY_SOCKET.
pub fn notify(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for said in notification::parse(text) {
        match said {
            Notification::Role(_) => assert!(text.contains("X_TENURE_ROLE=")),
            Notification::Status(status) => assert!(status.len() < 1100 && !status.contains(char::is_control), "{status:?}"),
            Notification::WatchdogSpan(span) | Notification::ExtendTimeout(span) => assert!(!span.is_zero()),
            Notification::Ready
            | Notification::Reloading
            | Notification::Stopping
            | Notification::Watchdog
            | Notification::WatchdogTrigger
            | Notification::Refused(_) => {}
        }
    }
}

#[cfg(test)]
mod run;
