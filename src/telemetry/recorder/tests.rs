//! How transitions are recorded, in virtual time.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use super::*;
use crate::{
    config::{Config, Preset},
    law::Deadlines,
    link::{Confirmed, Resume, Term},
    slot::Slot,
    telemetry::status::Status,
};

const CONTEXT: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xb };
const STOP_CONTEXT: TraceContext = TraceContext { trace_id: 0xc, span_id: 0xd };
const OTHER: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xe };
const TERM: Term = Term(1);
const SLOT: Slot = Slot(0);
const NOTHING: Stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: Instant::BOOT };

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
}

fn at(millis: u64) -> Now {
    Now { boot: ms(millis), wall: 1_700_000_000_000_000 + i64::try_from(millis).unwrap() * 1000 }
}

fn info() -> TermInfo {
    TermInfo {
        slot: Slot::default(),
        token: "42".into(),
        uid: "u".into(),
        transitions: 7,
        acquired_at: String::new(),
        traceparent: CONTEXT.to_string(),
    }
}

fn started(millis: u64) -> ToElector {
    ToElector::Started { term: TERM, pid: 12, at: ms(millis) }
}

fn health(ready: bool) -> ToElector {
    let unready = (!ready).then(|| "no answer yet".to_owned());
    ToElector::Health { unready, status: String::new() }
}

fn hooked(hook: HookKind, began: u64, ended: u64) -> ToElector {
    ToElector::Hooked { hook, began: ms(began), ended: ms(ended), exit: Exit::Code(0) }
}

/// A recorder, and the status that it looks at.
struct Bench {
    recorder: Recorder,
    status: Status,
}

impl Deref for Bench {
    type Target = Recorder;

    fn deref(&self) -> &Recorder {
        &self.recorder
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Recorder {
        &mut self.recorder
    }
}

impl Bench {
    fn start(initial: &InitialState, now: Now) -> Self {
        Self { recorder: Recorder::new(initial, now), status: Status::new(initial, now.boot) }
    }

    fn at(&mut self, millis: u64) -> &mut Self {
        self.now = at(millis);
        self
    }

    fn heard(&mut self, message: &ToElector) -> Option<Recorded> {
        let (before, fact, at) = (self.status.clone(), Fact::Told(message.clone()), self.now);
        self.status.apply(&fact, at.boot);
        self.recorder.changed(&Change { before: &before, after: &self.status, fact: &fact, at })
    }
}

fn initial() -> InitialState {
    InitialState::first(Config::default(), "a_1".into())
}

fn follower() -> Bench {
    Bench::start(&initial(), at(0))
}

/// Acquired at 5 ms by a write that was sent at 0, valid until 15 s; the workload runs since 20 ms.
fn lead(recorder: &mut Bench, reason: AcquireReason, other: Option<TraceContext>) -> Transition {
    recorder.at(0).campaigning(SLOT, reason, CONTEXT, other);
    recorder.at(5).acquired(&info(), ms(0), ms(15_000));
    transition(recorder.at(25).heard(&started(20)))
}

fn leader() -> Bench {
    let mut recorder = follower();
    lead(&mut recorder, AcquireReason::Released, None);
    recorder
}

/// Asked to stop at 100 ms.
fn stopping(reason: Reason) -> Bench {
    let mut recorder = leader();
    assert_eq!(recorder.at(100).stopping(reason, STOP_CONTEXT), None);
    recorder
}

fn transition(event: Option<Recorded>) -> Transition {
    let Some(Recorded::Transitioned(transition)) = event else { panic!("{event:?}") };
    *transition
}

fn within(event: Option<Recorded>) -> TermPhase {
    let Some(Recorded::WithinTerm(within)) = event else { panic!("{event:?}") };
    *within
}

fn parts(transition: &Transition) -> Vec<(&'static str, Instant, Instant)> {
    transition.phases.iter().map(|phase| (phase.kind.as_str(), phase.from, phase.until)).collect()
}

#[test]
fn a_transition_to_leader_reaches_from_the_campaign_to_the_running_workload() {
    let led = lead(&mut follower(), AcquireReason::Released, None);

    assert_eq!((led.to, led.reason.as_str(), led.term, &*led.token), (Role::Leader, "released", 7, "42"));
    assert_eq!((led.context, led.from, led.until, led.outcome), (CONTEXT, ms(0), ms(20), Outcome::Complete));
    let expected = [("campaign", ms(0), ms(5)), ("acquire", ms(0), ms(5)), ("workload.start", ms(5), ms(20))];
    assert_eq!(parts(&led), expected);
    assert_eq!(led.margin, Some(Margin(14.98)));
}

#[test]
fn the_first_readiness_of_a_term_belongs_to_its_beginning() {
    let mut recorder = follower();
    recorder.heard(&health(false));
    lead(&mut recorder, AcquireReason::Released, None);
    // The workload crashes before it was ready.
    recorder.heard(&ToElector::Restarting { term: TERM, exit: Exit::Code(1), at: ms(40) });
    recorder.heard(&health(false));
    within(recorder.heard(&started(60)));

    let ready = within(recorder.at(90).heard(&health(true)));

    assert_eq!((ready.context, ready.term), (CONTEXT, 7));
    assert_eq!(ready.phase, Phase { kind: PhaseKind::WorkloadReady, from: ms(20), until: ms(90) });
    for later in [false, true] {
        assert_eq!(recorder.at(100).heard(&health(later)), None, "it is told once a term");
    }
}

#[test]
fn nothing_is_told_of_a_readiness_that_nobody_waits_for() {
    // No probe asks it, or it was ready as a standby already.
    assert_eq!(leader().at(30).heard(&health(true)), None);

    let mut ending = follower();
    ending.heard(&health(false));
    lead(&mut ending, AcquireReason::Released, None);
    ending.at(100).stopping(Reason::Signal, STOP_CONTEXT);
    assert_eq!(ending.at(110).heard(&health(true)), None, "the term ends");
}

#[test]
fn a_new_elector_that_was_not_told_of_the_start_waits_for_the_readiness_too() {
    let mut recorder = resumed(false, false);
    transition(recorder.heard(&started(1_010)));

    let ready = within(recorder.at(1_500).heard(&health(true)));

    assert_eq!((ready.phase.from, ready.phase.until), (ms(1_010), ms(1_500)));
}

#[test]
fn a_write_that_proved_late_is_told_as_the_write_that_took_the_lease() {
    let mut recorder = follower();
    recorder.at(0).campaigning(SLOT, AcquireReason::Expired, CONTEXT, None);
    recorder.at(2_900).acquired(&info(), ms(2_300), ms(17_300));
    let led = transition(recorder.at(2_910).heard(&started(2_905)));
    assert_eq!(parts(&led)[1], ("acquire", ms(2_300), ms(2_900)));
}

#[test]
fn a_handover_has_the_old_leader_as_its_parent_and_a_takeover_a_link() {
    let origin = |reason, other| lead(&mut follower(), reason, other).origin;
    let other = Earlier { context: OTHER, remote: true };
    assert_eq!(origin(AcquireReason::Released, Some(OTHER)), Origin::Handover(other));
    assert_eq!(origin(AcquireReason::Expired, Some(OTHER)), Origin::After(other));
    assert_eq!(origin(AcquireReason::Released, None), Origin::None);
}

#[test]
fn what_comes_after_this_replicas_own_transition_is_not_remote() {
    for own in [CONTEXT, STOP_CONTEXT] {
        let mut recorder = stopping(Reason::StepDown);
        recorder.at(110).ended();
        let origin = lead(&mut recorder, AcquireReason::Expired, Some(own)).origin;
        assert_eq!(origin, Origin::After(Earlier { context: own, remote: false }));
    }
}

#[test]
fn a_lost_campaign_claims_no_leadership() {
    let mut recorder = follower();
    recorder.at(0).campaigning(SLOT, AcquireReason::Released, CONTEXT, None);
    let Some(Recorded::CampaignLost(lost)) = recorder.at(4).lost(SLOT) else { panic!("it is told") };
    assert_eq!((lost.reason, lost.context, lost.anchor.0.boot, lost.until), (AcquireReason::Released, CONTEXT, ms(0), ms(4)));
    assert_eq!((recorder.lost(SLOT), recorder.ended()), (None, None));
}

#[test]
fn a_step_of_the_wall_clock_does_not_disorder_a_transition() {
    let mut recorder = follower();
    recorder.campaigning(SLOT, AcquireReason::Released, CONTEXT, None);
    recorder.acquired(&info(), ms(0), ms(15_000));
    recorder.now = Now { wall: 0, ..at(25) };
    let led = transition(recorder.heard(&started(20)));
    let walls = [led.from, led.until].map(|at| led.anchor.wall(at));
    assert_eq!(walls, [1_700_000_000_000_000_000, 1_700_000_000_020_000_000]);
}

#[test]
fn a_term_that_ends_before_its_workload_led_says_so() {
    let mut recorder = follower();
    recorder.at(0).campaigning(SLOT, AcquireReason::Released, CONTEXT, None);
    recorder.at(5).acquired(&info(), ms(0), ms(15_000));
    let never = transition(recorder.at(8).stopping(Reason::Signal, STOP_CONTEXT));
    assert_eq!((never.to, never.outcome, never.until, never.margin), (Role::Leader, Outcome::NeverLed, ms(8), None));
    let stopped = transition(recorder.at(9).ended());
    assert_eq!((stopped.to, stopped.outcome), (Role::Standby, Outcome::Complete));
}

#[test]
fn a_planned_stop_is_told_with_its_parts_and_the_margin_that_was_left() {
    let mut recorder = leader();
    let began = ToElector::Stopping { term: TERM, reason: Reason::Signal, at: ms(1_000) };
    let (killed, exited, exit) = (Some(ms(1_300)), Some(ms(1_302)), Some(Exit::Signal(9)));
    recorder.at(1_001).heard(&began);
    recorder.stopping(Reason::Signal, STOP_CONTEXT);
    recorder.at(1_306).proved(Stop { began: Some(ms(1_000)), killed, exited, exit, fused: None, proved: ms(1_305) });
    recorder.at(1_309).released(ReleaseResult::Clear);

    let stopped = transition(recorder.ended());

    assert_eq!((stopped.to, stopped.reason.as_str(), stopped.term), (Role::Standby, "signal", 7));
    assert_eq!(stopped.context, STOP_CONTEXT);
    assert_eq!(stopped.origin, Origin::After(Earlier { context: CONTEXT, remote: false }));
    assert_eq!((stopped.from, stopped.until), (ms(1_000), ms(1_309)));
    let expected = [
        ("workload.stop", ms(1_000), ms(1_302)),
        ("workload.kill", ms(1_300), ms(1_302)),
        ("workload.proof", ms(1_302), ms(1_305)),
        ("release", ms(1_306), ms(1_309)),
    ];
    assert_eq!(parts(&stopped), expected);
    assert_eq!((stopped.margin, stopped.exit, stopped.release), (Some(Margin(13.695)), exit, Some(ReleaseResult::Clear)));
}

#[test]
fn a_lease_that_is_kept_has_no_release_among_its_parts() {
    let mut recorder = stopping(Reason::StepDown);
    recorder.at(151).proved(Stop { proved: ms(150), ..NOTHING });
    recorder.released(ReleaseResult::Keep);
    let stopped = transition(recorder.ended());
    assert_eq!(parts(&stopped), [("workload.proof", ms(100), ms(150))]);
    assert_eq!(stopped.release, Some(ReleaseResult::Keep));
}

#[test]
fn processes_that_outlive_the_main_one_are_killed_until_the_proof() {
    let mut recorder = stopping(Reason::StepDown);
    let exit = Some(Exit::Code(0));
    recorder.proved(Stop {
        began: Some(ms(100)),
        killed: Some(ms(140)),
        exited: Some(ms(130)),
        exit,
        fused: None,
        proved: ms(150),
    });
    let expected =
        [("workload.stop", ms(100), ms(130)), ("workload.kill", ms(140), ms(150)), ("workload.proof", ms(130), ms(150))];
    assert_eq!(parts(&transition(recorder.ended())), expected);
}

#[test]
fn a_demotion_that_was_acknowledged_has_no_proof_of_death() {
    let mut recorder = stopping(Reason::StepDown);
    recorder.proved(Stop { began: Some(ms(100)), fused: None, proved: ms(110), ..NOTHING });
    let stopped = transition(recorder.ended());
    assert_eq!((parts(&stopped), stopped.outcome), (vec![("workload.stop", ms(100), ms(110))], Outcome::Demoted));
}

#[test]
fn a_planned_stop_that_becomes_a_loss_is_told_as_the_loss_it_is() {
    let mut recorder = stopping(Reason::StepDown);
    assert_eq!(recorder.at(200).stopping(Reason::LostToHolder, STOP_CONTEXT), None);
    let stopped = transition(recorder.at(300).ended());
    assert_eq!((stopped.reason.as_str(), stopped.from), ("lost-to-holder", ms(100)));
}

#[test]
fn a_margin_counts_from_the_last_renewal_and_is_negative_where_the_proof_came_too_late() {
    let mut recorder = stopping(Reason::Expired);
    recorder.extended(ms(18_000));
    recorder.proved(Stop { proved: ms(18_500), ..NOTHING });
    assert_eq!(transition(recorder.ended()).margin, Some(Margin(-0.5)));
}

#[test]
fn the_margin_of_a_program_that_the_fuse_killed_counts_from_its_death_not_from_when_that_was_noticed() {
    let mut recorder = stopping(Reason::Expired);
    recorder.at(23_500).proved(Stop { fused: Some(ms(14_607)), proved: ms(23_500), ..NOTHING });
    let stopped = transition(recorder.ended());
    assert_eq!((stopped.margin, stopped.fused), (Some(Margin(0.393)), Some((ms(14_607), ms(23_500)))));
}

#[test]
fn a_stop_that_both_sides_began_leaves_nothing_to_the_next_one() {
    let mut recorder = leader();
    recorder.at(9_000).stopping(Reason::Expired, STOP_CONTEXT);
    recorder.at(9_001).heard(&ToElector::Stopping { term: TERM, reason: Reason::Expired, at: ms(8_990) });
    recorder.at(9_100).proved(Stop { proved: ms(9_099), ..NOTHING });
    assert_eq!(transition(recorder.at(9_101).ended()).from, ms(8_990));
    lead(&mut recorder, AcquireReason::Expired, None);
    recorder.at(100_000).stopping(Reason::Signal, STOP_CONTEXT);
    assert_eq!(transition(recorder.at(100_001).ended()).from, ms(100_000));
}

#[test]
fn a_stop_while_a_restart_is_awaited_tells_of_no_earlier_end() {
    let mut recorder = leader();
    recorder.heard(&ToElector::Restarting { term: TERM, exit: Exit::Code(1), at: ms(1_000) });
    recorder.extended(ms(75_000));
    recorder.at(61_000).stopping(Reason::StepDown, STOP_CONTEXT);
    let exit = Some(Exit::Code(1));
    recorder.proved(Stop { began: Some(ms(1_000)), killed: None, exited: Some(ms(1_000)), exit, fused: None, proved: ms(1_000) });
    let stopped = transition(recorder.ended());
    assert_eq!((stopped.from, stopped.margin), (ms(61_000), Some(Margin(14.0))));
}

#[test]
fn a_failed_renewal_is_told_within_the_term_until_the_proof_and_failures_of_a_standby_are_not() {
    let error = RequestError::from("timed out");
    let failed = |recorder: &mut Bench| recorder.at(3_000).failed(Operation::Update, ms(0), &error);
    assert_eq!(failed(&mut follower()), None);
    let TermPhase { context, term, phase, .. } = within(failed(&mut leader()));
    let kind = PhaseKind::Renew { operation: Operation::Update, margin: Margin(12.0), error: error.clone() };
    assert_eq!((context, term, phase), (CONTEXT, 7, Phase { kind, from: ms(0), until: ms(3_000) }));
    assert_eq!(leader().failed(Operation::Watch, ms(0), &error), None);
    let mut recorder = stopping(Reason::Signal);
    within(failed(&mut recorder));
    recorder.proved(NOTHING);
    assert_eq!(failed(&mut recorder), None);
}

#[test]
fn a_workload_that_is_started_again_is_told_within_the_term() {
    let mut recorder = leader();
    let exit = Exit::Code(3);
    assert_eq!(recorder.heard(&ToElector::Restarting { term: TERM, exit, at: ms(500) }), None);
    let phase = within(recorder.heard(&started(1_500))).phase;
    let kind = PhaseKind::WorkloadStart { pid: 12, after: Some(exit) };
    assert_eq!(phase, Phase { kind, from: ms(500), until: ms(1_500) });
}

#[test]
fn a_hook_that_a_promotion_waited_for_is_a_part_of_it_and_one_that_it_did_not_of_the_term() {
    let mut recorder = follower();
    recorder.campaigning(SLOT, AcquireReason::Released, CONTEXT, None);
    recorder.at(5).acquired(&info(), ms(0), ms(15_000));
    assert_eq!(recorder.heard(&hooked(HookKind::AfterLead, 8, 15)), None);
    let led = transition(recorder.heard(&started(20)));
    assert_eq!(parts(&led).last(), Some(&("hook", ms(8), ms(15))));

    recorder.at(30).stopping(Reason::StepDown, STOP_CONTEXT);
    assert_eq!(within(recorder.heard(&hooked(HookKind::AfterLead, 8, 40))).phase.until, ms(40));
    assert_eq!(recorder.heard(&hooked(HookKind::BeforeFollow, 35, 50)), None);
    recorder.proved(Stop { began: Some(ms(30)), fused: None, proved: ms(51), ..NOTHING });
    assert_eq!(parts(&transition(recorder.ended()))[0], ("hook", ms(35), ms(50)));
}

#[test]
fn a_hook_after_the_end_is_a_part_of_that_end_even_if_the_next_term_has_begun() {
    let mut recorder = leader();
    recorder.at(30).stopping(Reason::StepDown, STOP_CONTEXT);
    recorder.proved(Stop { began: Some(ms(30)), fused: None, proved: ms(40), ..NOTHING });
    transition(recorder.at(50).ended());

    let soon = within(recorder.heard(&hooked(HookKind::AfterFollow, 41, 60)));
    recorder.at(70).campaigning(SLOT, AcquireReason::Released, CONTEXT, None);
    recorder.at(75).acquired(&info(), ms(70), ms(15_000));
    let late = within(recorder.heard(&hooked(HookKind::AfterFollow, 41, 80)));

    assert_eq!([soon.context, late.context], [STOP_CONTEXT; 2]);
    assert_eq!([soon.phase.until, late.phase.until], [60, 80].map(ms));
    let led = transition(recorder.at(90).heard(&started(85)));
    assert!(parts(&led).iter().all(|(name, ..)| *name != "hook"), "{:?}", parts(&led));
}

fn resumed(told: bool, ready: bool) -> Bench {
    let deadlines = Deadlines { soft: ms(10_000), hard: ms(14_000), end: ms(15_000) };
    let resume = Resume {
        term: TERM,
        info: info(),
        confirmed: Confirmed { resource_version: "2".into(), preferred_holder: None, deadlines },
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: Some(12),
        told,
    };
    let mut initial = InitialState { resume: Some(resume), ..initial() };
    if !ready {
        initial.config.workload.readiness.tcp.port = 1;
    }
    Bench::start(&initial, at(1_000))
}

#[test]
fn a_restarted_elector_tells_the_end_of_the_term_that_it_took_over() {
    let mut recorder = resumed(true, true);
    recorder.at(4_000).stopping(Reason::Signal, STOP_CONTEXT);
    recorder.at(5_000).proved(Stop { proved: ms(5_000), ..NOTHING });
    let stopped = transition(recorder.ended());
    assert_eq!((stopped.term, stopped.margin), (7, Some(Margin(10.0))));
    assert_eq!(stopped.origin, Origin::After(Earlier { context: CONTEXT, remote: false }));
}

#[test]
fn a_restarted_elector_tells_the_start_that_the_one_before_it_did_not_see_and_no_other() {
    assert_eq!(resumed(true, true).at(9_001).heard(&started(9_000)), None);
    let led = transition(resumed(false, true).at(9_001).heard(&started(9_000)));
    assert_eq!((led.to, led.reason.as_str(), led.term, led.context), (Role::Leader, "resumed", 7, CONTEXT));
    assert_eq!((led.from, led.until, led.margin), (ms(1_000), ms(9_000), Some(Margin(6.0))));
    assert_eq!(parts(&led), [("workload.start", ms(1_000), ms(9_000))]);
}

#[test]
fn a_wait_is_told_with_whom_it_was_for_whether_it_was_in_vain_or_not() {
    let wait = |from, until| Phase::new(PhaseKind::Wait { holder: Some("b".into()) }, ms(from), ms(until));
    let waiting = || {
        let preset = Preset::Lock { wait_limit: None };
        let mut recorder = Bench::start(&InitialState { preset, ..initial() }, at(0));
        recorder.at(1).led_by("a");
        recorder.at(2).led_by("b");
        recorder
    };
    let mut recorder = waiting();
    recorder.at(10).campaigning(SLOT, AcquireReason::Expired, CONTEXT, None);
    recorder.at(15).acquired(&info(), ms(12), ms(15_000));
    assert_eq!(transition(recorder.at(25).heard(&started(20))).phases[0], wait(0, 10));

    let in_vain = Recorded::WaitedInVain { context: CONTEXT, anchor: Anchor(at(30)), wait: wait(0, 30) };
    assert_eq!(waiting().at(30).waited_in_vain(CONTEXT), Some(in_vain));
    assert_eq!(follower().at(30).waited_in_vain(CONTEXT), None, "a replica that stands by waits for nothing");
}
