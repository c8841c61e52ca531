use super::*;
use crate::{
    config::HookKind,
    election::{Given, Vacancy},
    law::{Deadlines, Timing},
    link::{Term as LinkTerm, Then},
};

const CONTEXT: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xb };
const STOP_CONTEXT: TraceContext = TraceContext { trace_id: 0xc, span_id: 0xd };
const OTHER: TraceContext = TraceContext { trace_id: 0xa, span_id: 0xe };
const TERM: LinkTerm = LinkTerm(1);
const D: Duration = Duration::from_secs(15);

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
}

fn at(millis: u64) -> Now {
    Now { boot: ms(millis), wall: 1_700_000_000_000_000 + i64::try_from(millis).unwrap() * 1000 }
}

fn timing() -> Timing {
    Timing {
        duration: D,
        renew_period: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        drift: 0,
        loss_grace: Duration::from_secs(4),
        kill_margin: Duration::from_secs(1),
    }
}

fn confirmed(deadlines: Deadlines) -> Confirmed {
    Confirmed { uid: "u".into(), resource_version: "2".into(), spec: "{}".into(), deadlines }
}

fn lead(sent: Instant, not_before: Option<Instant>) -> ToInit {
    let facts = Facts {
        token: "42".into(),
        uid: "u".into(),
        transitions: 7,
        acquired_at: String::new(),
        traceparent: CONTEXT.to_string(),
    };
    ToInit::Lead { term: TERM, facts, timing: timing(), confirmed: confirmed(timing().deadlines(sent)), not_before }
}

fn campaigning(why: Vacancy, other: Option<TraceContext>) -> Event {
    Event::Campaigning { why, context: CONTEXT, other }
}

fn acquired() -> Event {
    Event::Acquired { token: "42".into(), transitions: 7, creation_wait: None }
}

fn started(millis: u64) -> ToElector {
    ToElector::Started { term: TERM, pid: 12, at: ms(millis) }
}

fn stopping(reason: Reason) -> Event {
    Event::Stopping { reason, context: STOP_CONTEXT }
}

fn feed(observer: &mut Observer, facts: &[(u64, Fact<'_>)]) -> Vec<Outcome> {
    facts.iter().flat_map(|(millis, fact)| observer.record(*fact, at(*millis))).collect()
}

fn reported(observer: &mut Observer, millis: u64, event: Event) -> Vec<Outcome> {
    observer.record(Fact::Reported(&event), at(millis))
}

/// A leader since 20 ms, by a write that was sent at 0.
fn leading() -> Observer {
    let mut observer = Observer::default();
    let over = lead_from(&mut observer, campaigning(Vacancy::Released, None));
    assert_eq!(over.len(), 1);
    observer
}

fn lead_from(observer: &mut Observer, campaign: Event) -> Vec<Outcome> {
    feed(
        observer,
        &[
            (0, Fact::Reported(&campaign)),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (25, Fact::Received(&started(20))),
        ],
    )
}

fn only(over: Vec<Outcome>) -> Transition {
    let [outcome] = <[Outcome; 1]>::try_from(over).unwrap();
    transition(outcome)
}

fn transition(outcome: Outcome) -> Transition {
    match outcome {
        Outcome::Transition(transition) => *transition,
        other @ (Outcome::Lost(_) | Outcome::During { .. }) => panic!("{other:?}"),
    }
}

fn spans(transition: &Transition) -> Vec<(&'static str, Instant, Instant)> {
    transition.phases.iter().map(|phase| (phase.name.as_str(), phase.from, phase.until)).collect()
}

#[test]
fn a_transition_to_leader_reaches_from_the_campaign_to_the_running_workload() {
    let mut observer = Observer::default();

    let told = only(lead_from(&mut observer, campaigning(Vacancy::Released, None)));

    assert_eq!(
        (told.to, told.reason.as_str(), told.term, told.token.as_deref()),
        (Role::Leader, "released", Some(7), Some("42"))
    );
    assert_eq!((told.context, told.from, told.until, told.error), (CONTEXT, ms(0), ms(20), None));
    let expected = [("campaign", ms(0), ms(5)), ("acquire", ms(0), ms(5)), ("workload.start", ms(6), ms(20))];
    assert_eq!(spans(&told), expected);
}

#[test]
fn the_margin_of_a_start_counts_from_the_workload_to_the_end_of_validity() {
    let mut observer = Observer::default();
    let told = only(lead_from(&mut observer, campaigning(Vacancy::Released, None)));
    assert_eq!(told.margin, Some(Margin(14.98)));
}

#[test]
fn a_handover_has_the_old_leader_as_its_parent_and_a_takeover_a_link() {
    let origin = |campaign| only(lead_from(&mut Observer::default(), campaign)).origin;
    assert_eq!(origin(campaigning(Vacancy::Released, Some(OTHER))), Origin::Handover(OTHER));
    assert_eq!(origin(campaigning(Vacancy::Expired, Some(OTHER))), Origin::After(OTHER));
    assert_eq!(origin(campaigning(Vacancy::Released, None)), Origin::None);
}

#[test]
fn a_lost_campaign_claims_no_leadership() {
    let mut observer = Observer::default();
    reported(&mut observer, 0, campaigning(Vacancy::Released, None));

    let over = reported(&mut observer, 4, Event::CampaignLost);

    let [Outcome::Lost(campaign)] = &over[..] else { panic!("{over:?}") };
    assert_eq!((campaign.reason.as_str(), campaign.from, campaign.until), ("released", ms(0), ms(4)));
    assert_eq!(observer.finish(at(9)), []);
}

#[test]
fn a_write_that_proved_late_is_told_as_the_write_that_took_the_lease() {
    let mut observer = Observer::default();
    let over = feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (2_900, Fact::Reported(&acquired())),
            (2_900, Fact::Sent(&lead(ms(2_300), None))),
            (2_910, Fact::Received(&started(2_905))),
        ],
    );
    assert_eq!(only(over).phases[1], Phase::new(Name::Acquire, ms(2_300), ms(2_900)));
}

#[test]
fn the_start_of_the_workload_counts_from_the_end_of_the_creation_wait() {
    let mut observer = Observer::default();
    let wait = Event::Acquired { token: "42".into(), transitions: 0, creation_wait: Some(D) };
    let over = feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (5, Fact::Reported(&wait)),
            (6, Fact::Sent(&lead(ms(0), Some(ms(15_000))))),
            (15_010, Fact::Received(&started(15_004))),
        ],
    );
    let told = only(over);
    assert_eq!(told.phases[2].from, ms(15_000));
    assert_eq!(told.facts, [KeyValue::new("tenure.creation_wait", 15.0)]);
}

#[test]
fn a_planned_stop_is_told_with_its_parts_and_the_margin_that_was_left() {
    let mut observer = leading();
    let began = ToElector::Stopping { term: TERM, reason: Reason::Signal, at: ms(1_000) };
    let stop = Stop {
        began: Some(ms(1_000)),
        killed: Some(ms(1_300)),
        exited: Some(ms(1_302)),
        exit: Some(Exit::Signal(9)),
        proved: ms(1_305),
    };
    let over = feed(
        &mut observer,
        &[
            (1_001, Fact::Received(&began)),
            (1_001, Fact::Reported(&stopping(Reason::Signal))),
            (1_306, Fact::Reported(&Event::Proved(stop))),
            (1_309, Fact::Reported(&Event::Released { how: Given::Clear })),
            (1_309, Fact::Reported(&Event::Following)),
        ],
    );

    let told = only(over);

    assert_eq!((told.to, told.reason.as_str(), told.term), (Role::Standby, "signal", Some(7)));
    assert_eq!((told.context, told.origin), (STOP_CONTEXT, Origin::After(CONTEXT)));
    assert_eq!((told.from, told.until), (ms(1_000), ms(1_309)));
    let parts = [
        ("workload.stop", ms(1_000), ms(1_302)),
        ("workload.kill", ms(1_300), ms(1_302)),
        ("workload.proof", ms(1_302), ms(1_305)),
        ("release", ms(1_306), ms(1_309)),
    ];
    assert_eq!(spans(&told), parts);
    assert_eq!(told.margin, Some(Margin(13.695)));
    assert_eq!(told.exit, Some(Exit::Signal(9)));
    assert_eq!(told.facts, [KeyValue::new("tenure.release", "clear")]);
}

#[test]
fn a_lease_that_is_kept_has_no_span_of_a_release() {
    let mut observer = leading();
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(150) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 151, Event::Proved(stop));
    reported(&mut observer, 152, Event::Released { how: Given::Keep });

    let told = only(reported(&mut observer, 152, Event::Following));

    assert_eq!(spans(&told).iter().filter(|(name, ..)| *name == "release").count(), 0);
    assert_eq!(told.facts, [KeyValue::new("tenure.release", "keep")]);
}

#[test]
fn processes_that_outlive_the_main_one_are_killed_until_the_proof() {
    let mut observer = leading();
    let stop =
        Stop { began: Some(ms(100)), killed: Some(ms(140)), exited: Some(ms(130)), exit: Some(Exit::Code(0)), proved: ms(150) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 151, Event::Proved(stop));

    let told = only(reported(&mut observer, 160, Event::Following));

    let parts = [("workload.stop", ms(100), ms(130)), ("workload.kill", ms(140), ms(150)), ("workload.proof", ms(130), ms(150))];
    assert_eq!(spans(&told), parts);
}

#[test]
fn a_demotion_that_was_acknowledged_has_no_proof_of_death() {
    let mut observer = leading();
    let stop = Stop { began: Some(ms(100)), killed: None, exited: None, exit: None, proved: ms(110) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 111, Event::Proved(stop));
    let told = only(reported(&mut observer, 111, Event::Following));
    assert_eq!(spans(&told), [("workload.stop", ms(100), ms(110))]);
}

#[test]
fn a_planned_stop_that_becomes_a_loss_is_told_as_the_loss_it_is() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 200, stopping(Reason::LostToHolder));
    let told = only(reported(&mut observer, 300, Event::Following));
    assert_eq!((told.reason.as_str(), told.from), ("lost-to-holder", ms(100)));
}

#[test]
fn a_margin_is_negative_where_the_proof_came_too_late() {
    let mut observer = leading();
    let stop = Stop { began: Some(ms(14_000)), killed: None, exited: None, exit: None, proved: ms(15_500) };
    reported(&mut observer, 14_000, stopping(Reason::Expired));
    reported(&mut observer, 15_500, Event::Proved(stop));
    let told = only(reported(&mut observer, 15_500, Event::Following));
    assert_eq!(told.margin, Some(Margin(-0.5)));
}

#[test]
fn the_margin_counts_from_the_last_extension_and_from_a_shortened_wait() {
    let mut observer = leading();
    let extend = ToInit::Extend { term: TERM, serial: 1, confirmed: confirmed(timing().deadlines(ms(3_000))) };
    let shorten = ToInit::Shorten { term: TERM, serial: 2, timing: timing(), deadlines: timing().deadlines(ms(1_000)) };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(4_000) };
    feed(&mut observer, &[(3_000, Fact::Sent(&extend)), (3_500, Fact::Sent(&shorten))]);
    reported(&mut observer, 4_000, stopping(Reason::Signal));
    reported(&mut observer, 4_000, Event::Proved(stop));
    let told = only(reported(&mut observer, 4_000, Event::Following));
    assert_eq!(told.margin, Some(Margin(12.0)));
}

#[test]
fn a_term_that_ends_before_its_workload_ran_says_so() {
    let mut observer = Observer::default();
    let over = feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (8, Fact::Reported(&stopping(Reason::Signal))),
        ],
    );
    let rise = only(over);
    assert_eq!((rise.to, rise.error, rise.margin), (Role::Leader, Some("the term ended before the workload led"), None));
    let fall = only(reported(&mut observer, 9, Event::Following));
    assert_eq!((fall.to, fall.error), (Role::Standby, None));
}

#[test]
fn a_term_that_init_was_never_told_of_ends_at_once() {
    let mut observer = Observer::default();
    reported(&mut observer, 0, campaigning(Vacancy::Released, None));
    reported(&mut observer, 5, acquired());
    let over = reported(&mut observer, 6, stopping(Reason::LostDeleted));
    let roles: Vec<_> = over.into_iter().map(|outcome| transition(outcome).to).collect();
    assert_eq!(roles, [Role::Leader, Role::Standby]);
    assert_eq!(observer.finish(at(9)), []);
}

#[test]
fn a_failed_renewal_is_told_within_the_term_and_failures_of_a_standby_are_not() {
    let failed = || Event::Failed { operation: Operation::Update, sent: ms(0), message: "timed out".into() };
    assert_eq!(reported(&mut Observer::default(), 1, failed()), []);
    let over = reported(&mut leading(), 3_000, failed());
    let [Outcome::During { parent, term: 7, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((*parent, phase.name, phase.error.as_deref()), (CONTEXT, Name::Renew, Some("timed out")));
    assert_eq!((phase.from, phase.until), (ms(0), ms(3_000)));
    assert!(phase.facts.iter().any(|fact| fact.key.as_str() == "tenure.margin_left"), "{:?}", phase.facts);
    let watch = Event::Failed { operation: Operation::Watch, sent: ms(0), message: "forbidden".into() };
    assert_eq!(reported(&mut leading(), 3_000, watch), []);
}

#[test]
fn a_renewal_may_fail_during_a_stop_and_what_fails_after_the_proof_is_none() {
    let failed = || Event::Failed { operation: Operation::Update, sent: ms(0), message: "timed out".into() };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(200) };
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::Signal));
    assert_eq!(reported(&mut observer, 110, failed()).len(), 1);
    reported(&mut observer, 200, Event::Proved(stop));
    assert_eq!(reported(&mut observer, 210, failed()), []);
}

#[test]
fn a_new_campaign_tells_what_was_left_open_before_it() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::LostDeleted));
    let left = only(reported(&mut observer, 500, campaigning(Vacancy::Released, None)));
    assert_eq!((left.to, left.until), (Role::Standby, ms(500)));
}

#[test]
fn a_workload_that_is_started_again_is_told_within_the_term() {
    let mut observer = leading();
    let restarting = ToElector::Restarting { term: TERM, exit: Exit::Code(3), at: ms(500) };
    let over = feed(&mut observer, &[(501, Fact::Received(&restarting)), (1_510, Fact::Received(&started(1_500)))]);
    let [Outcome::During { parent, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((*parent, phase.name, phase.from, phase.until), (CONTEXT, Name::WorkloadStart, ms(500), ms(1_500)));
}

fn hooked(hook: HookKind, began: u64, ended: u64, exit: Exit) -> ToElector {
    ToElector::Hooked { hook, began: ms(began), ended: ms(ended), exit }
}

#[test]
fn a_hook_that_a_promotion_waited_for_is_a_part_of_it_and_one_that_it_did_not_of_the_term() {
    let mut observer = Observer::default();
    let hook = hooked(HookKind::AfterLead, 8, 15, Exit::Code(0));
    feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (15, Fact::Received(&hook)),
        ],
    );
    let told = only(feed(&mut observer, &[(25, Fact::Received(&started(20)))]));
    assert_eq!(spans(&told).last(), Some(&("hook", ms(8), ms(15))));

    let late = hooked(HookKind::AfterLead, 8, 40, Exit::Code(3));
    let over = feed(&mut observer, &[(40, Fact::Received(&late))]);
    let [Outcome::During { parent: CONTEXT, term: 7, phase, .. }] = &over[..] else { panic!("{over:?}") };
    assert_eq!((phase.name, phase.error.as_deref()), (Name::Hook, Some("the hook failed")));
}

#[test]
fn the_hook_of_a_demotion_is_a_part_of_it() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::StepDown));
    let hook = hooked(HookKind::BeforeFollow, 105, 120, Exit::Code(0));
    assert_eq!(feed(&mut observer, &[(120, Fact::Received(&hook))]), []);
    let stop = Stop { began: Some(ms(100)), killed: None, exited: None, exit: None, proved: ms(121) };
    reported(&mut observer, 121, Event::Proved(stop));
    let told = only(reported(&mut observer, 130, Event::Following));
    assert_eq!(spans(&told).first(), Some(&("hook", ms(105), ms(120))));
    assert_eq!(told.phases[0].facts[0], KeyValue::new("tenure.hook", "beforeFollow"));
}

#[test]
fn the_hook_of_a_promotion_that_ends_during_a_stop_is_a_part_of_the_term() {
    let mut observer = leading();
    reported(&mut observer, 1000, stopping(Reason::StepDown));

    let ended = hooked(HookKind::AfterLead, 500, 1010, Exit::Signal(libc::SIGKILL));
    let told = observer.record(Fact::Received(&ended), at(1011));

    assert!(matches!(told[..], [Outcome::During { .. }]), "{told:?}");
}

#[test]
fn a_stop_that_both_sides_began_leaves_nothing_to_the_next_one() {
    let mut observer = leading();
    reported(&mut observer, 9000, stopping(Reason::Expired));
    let by_init = ToElector::Stopping { term: TERM, reason: Reason::Expired, at: ms(8990) };
    observer.record(Fact::Received(&by_init), at(9001));
    reported(&mut observer, 9100, Event::Proved(Stop { began: None, killed: None, exited: None, exit: None, proved: ms(9099) }));
    assert_eq!(only(reported(&mut observer, 9101, Event::Following)).from, ms(8990));
    lead_from(&mut observer, campaigning(Vacancy::Expired, None));

    reported(&mut observer, 100_000, stopping(Reason::Signal));

    assert_eq!(only(reported(&mut observer, 100_001, Event::Following)).from, ms(100_000));
}

#[test]
fn a_stop_while_a_restart_is_awaited_tells_of_no_earlier_end() {
    let mut observer = leading();
    let restarting = ToElector::Restarting { term: TERM, exit: Exit::Code(1), at: ms(1000) };
    observer.record(Fact::Received(&restarting), at(1001));
    let extend = ToInit::Extend { term: TERM, serial: 1, confirmed: confirmed(timing().deadlines(ms(60_000))) };
    observer.record(Fact::Sent(&extend), at(60_000));
    reported(&mut observer, 61_000, stopping(Reason::StepDown));
    let crashed =
        Stop { began: Some(ms(1000)), killed: None, exited: Some(ms(1000)), exit: Some(Exit::Code(1)), proved: ms(1000) };

    reported(&mut observer, 61_001, Event::Proved(crashed));

    let told = only(reported(&mut observer, 61_002, Event::Following));
    assert_eq!((told.from, told.margin), (ms(61_000), Some(Margin(14.0))));
}

fn resume(told: bool) -> Resume {
    let facts = Facts {
        token: "42".into(),
        uid: "u".into(),
        transitions: 7,
        acquired_at: String::new(),
        traceparent: CONTEXT.to_string(),
    };
    Resume {
        term: TERM,
        facts,
        timing: timing(),
        confirmed: confirmed(timing().deadlines(ms(0))),
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: Some(12),
        told,
    }
}

#[test]
fn a_restarted_elector_tells_the_end_of_the_term_that_it_took_over() {
    let mut observer = Observer::new(Some(&resume(true)), at(1_000));
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(5_000) };
    let stopped = ToElector::Stopped { term: TERM, request: 1, stop, then: Then::Follow };
    reported(&mut observer, 4_000, stopping(Reason::Signal));
    observer.record(Fact::Received(&stopped), at(5_000));
    reported(&mut observer, 5_000, Event::Proved(stop));
    let told = only(reported(&mut observer, 5_000, Event::Following));
    assert_eq!((told.term, told.origin, told.margin), (Some(7), Origin::After(CONTEXT), Some(Margin(10.0))));
}

#[test]
fn a_restarted_elector_tells_the_start_that_the_one_before_it_did_not_see() {
    let mut observer = Observer::new(Some(&resume(false)), at(1_000));

    let over = only(observer.record(Fact::Received(&started(9_000)), at(9_001)));

    assert_eq!((over.to, over.reason.as_str(), over.term, over.context), (Role::Leader, "resumed", Some(7), CONTEXT));
    assert_eq!((over.from, over.until, over.margin), (ms(1_000), ms(9_000), Some(Margin(6.0))));
    let phases: Vec<_> = over.phases.iter().map(|phase| phase.name).collect();
    assert_eq!(phases, [Name::WorkloadStart]);
}

#[test]
fn a_restarted_elector_takes_a_crash_that_the_one_before_it_saw_for_no_transition() {
    let mut observer = Observer::new(Some(&Resume { main: None, ..resume(true) }), at(1_000));

    let over = observer.record(Fact::Received(&started(9_000)), at(9_001));

    assert!(over.is_empty(), "{over:?}");
}

#[test]
fn what_is_under_way_when_the_process_ends_is_told_as_unfinished() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::Signal));
    let told = only(observer.finish(at(200)));
    assert_eq!((told.until, told.error), (ms(200), Some("the elector ended before it was over")));
}

#[test]
fn one_anchor_ties_a_whole_transition_to_the_wall_clock() {
    let mut observer = Observer::default();
    reported(&mut observer, 0, campaigning(Vacancy::Released, None));
    reported(&mut observer, 5, acquired());
    let stepped = Now { wall: 0, ..at(25) };
    let told = only(observer.record(Fact::Received(&started(20)), stepped));
    let walls = [told.from, told.until].map(|at| told.anchor.wall(at));
    assert_eq!(walls, [1_700_000_000_000_000_000, 1_700_000_000_020_000_000]);
}
