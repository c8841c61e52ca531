//! Step by step.

use super::*;

const MARGIN: Duration = Duration::from_secs(1);

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn tick() -> Duration {
    Duration::from_nanos(1)
}

fn left(pids: &[i32]) -> Scan {
    Scan { left: pids.to_vec(), killed: true, ..Scan::default() }
}

fn clean() -> Scan {
    Scan { clean: true, ..Scan::default() }
}

fn asking(pid1: bool, mode: KillMode) -> StopEscalation {
    StopEscalation::asking(pid1, mode, MARGIN, ms(4000))
}

#[test]
fn the_grace_ends_in_a_sweep_and_not_a_tick_earlier() {
    let mut escalation = asking(true, KillMode::Mixed);
    assert_eq!(escalation.step(ms(4000).before(tick())), None);
    assert_eq!(escalation.due(), Some(ms(4000)));
    assert_eq!(escalation.step(ms(4000)), Some(Step::Sweep));
}

#[test]
fn the_end_of_the_main_process_sends_the_rest_to_the_sweep_with_mixed() {
    let mut escalation = asking(true, KillMode::Mixed);
    escalation.main_ended(ms(10));
    assert_eq!(escalation.step(ms(10)), Some(Step::Sweep));
    assert!(escalation.scanned(clean(), ms(10)));
    assert_eq!(escalation.killed(), None, "nobody was there to be killed");
}

#[test]
fn the_rest_of_a_group_keeps_its_grace() {
    let mut escalation = asking(true, KillMode::Group);
    escalation.main_ended(ms(10));
    assert_eq!(escalation.step(ms(10)), Some(Step::Prove));
    assert!(!escalation.scanned(Scan { killed: false, ..left(&[7]) }, ms(10)));
    assert_eq!(escalation.step(ms(20)), None);
    escalation.reaped(ms(30));
    assert_eq!(escalation.step(ms(30)), Some(Step::Prove));
    assert_eq!(escalation.step(ms(4000)), Some(Step::Sweep));
}

#[test]
fn what_comes_and_goes_in_the_grace_of_a_group_is_swept_and_not_killed_with_everything() {
    let mut escalation = asking(true, KillMode::Group);
    escalation.main_ended(ms(10));
    for (pid, at) in (7..47).zip((10..).step_by(50).map(ms)) {
        escalation.reaped(at);
        assert_eq!(escalation.step(at), Some(Step::Prove));
        assert!(!escalation.scanned(Scan { killed: false, ..left(&[pid]) }, at));
    }
    assert_eq!(escalation.step(ms(4000)), Some(Step::Sweep));
}

#[test]
fn who_dies_unseen_of_a_group_is_missed_soon() {
    let mut escalation = asking(true, KillMode::Group);
    escalation.main_ended(ms(10));
    assert_eq!(escalation.step(ms(10)), Some(Step::Prove));
    assert!(!escalation.scanned(Scan { killed: false, ..left(&[7]) }, ms(11)));

    assert_eq!(escalation.due(), Some(ms(111)));
    assert_eq!(escalation.step(ms(111)), Some(Step::Prove));
    assert!(escalation.scanned(clean(), ms(111)));
}

#[test]
fn thousands_that_die_one_after_the_other_converge_and_some_of_them_are_named() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    let many: Vec<i32> = (0..2_000).collect();
    let mut named = None;
    for dead in 1..2_000 {
        let now = ms(u64::try_from(dead).unwrap());
        escalation.reaped(now);
        while let Some(step) = escalation.step(now) {
            match step {
                Step::Sweep => assert!(!escalation.scanned(left(&many[dead..]), now)),
                Step::Unproved(pids) => named = Some(pids),
                Step::Prove | Step::KillAll | Step::Die => panic!("{step:?} after {dead}"),
            }
        }
    }
    assert_eq!(named.map(|pids| pids.len()), Some(NAMED));
}

#[test]
fn sweeps_go_on_until_a_clean_scan_and_at_once_when_something_is_reaped() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    assert_eq!(escalation.step(ms(0)), Some(Step::Sweep));
    assert!(!escalation.scanned(left(&[7]), ms(0)));
    assert_eq!(escalation.step(ms(0)), None);
    escalation.reaped(ms(0) + tick());
    assert_eq!(escalation.step(ms(0) + tick()), Some(Step::Sweep));
    assert!(!escalation.scanned(left(&[7]), ms(1)));
    assert_eq!(escalation.step(escalation.due().unwrap()), Some(Step::Sweep), "and without a reaped child, after a pause");
    assert!(escalation.scanned(clean(), ms(9)));
    assert_eq!(escalation.killed(), Some(ms(0)));
}

#[test]
fn sweeps_that_always_meet_somebody_new_end_in_kill_all_as_pid_1_only() {
    for pid1 in [true, false] {
        let mut escalation = StopEscalation::killing(pid1, MARGIN, ms(0));
        assert_eq!(kills_all(&mut escalation, |sweep| left(&[sweep])), pid1);
        assert_eq!(escalation.kills_everything(), pid1, "until the proof");
    }
}

fn kills_all(escalation: &mut StopEscalation, scan: impl Fn(i32) -> Scan) -> bool {
    (0..200).any(|sweep| {
        let now = escalation.due().unwrap();
        let step = escalation.step(now);
        escalation.scanned(scan(sweep), now);
        step == Some(Step::KillAll)
    })
}

#[test]
fn a_process_that_hangs_in_the_kernel_is_reported_and_costs_no_elector_before_h() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    let mut steps = Vec::new();
    while let Some(now) = escalation.due().filter(|at| *at < ms(5000)) {
        let step = escalation.step(now).unwrap();
        if step == Step::Sweep {
            escalation.scanned(left(&[7]), now);
        }
        steps.push((now, step));
    }
    let unproved: Vec<_> = steps.iter().filter(|(_, step)| *step != Step::Sweep).collect();
    assert_eq!(unproved, [&(ms(1000), Step::Unproved(vec![7]))]);
}

#[test]
fn what_kill_all_does_not_remove_before_h_is_reported_and_costs_no_further_elector() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    assert!(kills_all(&mut escalation, |sweep| left(&[7, 100 + sweep])));
    let mut steps = Vec::new();
    while let Some(now) = escalation.due().filter(|at| *at < ms(5000)) {
        let step = escalation.step(now).unwrap();
        if matches!(step, Step::Sweep | Step::KillAll) {
            escalation.scanned(left(&[7]), now);
        }
        steps.push(step);
    }

    let reported = steps.iter().position(|step| *step == Step::Unproved(vec![7])).expect("it is reported");
    assert!(steps[..reported].contains(&Step::KillAll));
    assert!(!steps[reported..].contains(&Step::KillAll), "{steps:?}");
    assert!(steps[reported..].contains(&Step::Sweep));
    assert!(!escalation.kills_everything());
    escalation.hard(ms(5000), ms(5000));
    assert_eq!(escalation.step(ms(5000)), Some(Step::KillAll), "but H does");
}

#[test]
fn h_waits_for_no_pause_of_a_kill_all_that_began_earlier() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    assert!(kills_all(&mut escalation, |sweep| left(&[sweep])));
    let mut now = ms(2000);
    for _ in 0..8 {
        now = now.max(escalation.due().unwrap());
        while escalation.step(now).is_some() {
            escalation.scanned(left(&[7]), now);
        }
    }
    assert_eq!(escalation.due(), Some(now + LONGEST_PAUSE));
    escalation.hard(now + tick(), now + tick());
    assert_eq!(escalation.step(now + tick()), Some(Step::KillAll));
}

#[test]
fn init_that_wakes_between_h_and_e_has_half_of_what_is_left() {
    for (woken, dies) in [(ms(3600), ms(3800)), (ms(4000).before(tick() * 2), ms(4000).before(tick())), (ms(4000), ms(5000))] {
        let mut escalation = asking(true, KillMode::Mixed);
        escalation.hard(ms(3000), woken);
        assert_eq!(escalation.step(woken), Some(Step::KillAll));
        escalation.scanned(left(&[7]), woken);
        assert_ne!(escalation.step(dies.before(tick())), Some(Step::Die));
        assert!(std::iter::from_fn(|| escalation.step(dies)).any(|step| step == Step::Die));
    }
}

#[test]
fn init_that_wakes_long_after_h_kills_and_tries_a_proof_before_it_gives_up() {
    let mut escalation = asking(true, KillMode::Mixed);
    escalation.hard(ms(3000), ms(60_000));
    assert_eq!(escalation.step(ms(60_000)), Some(Step::KillAll));
    assert!(!escalation.scanned(left(&[7]), ms(60_000)));
    escalation.reaped(ms(60_001));
    assert_eq!(escalation.step(ms(60_001)), Some(Step::KillAll));
    assert!(escalation.scanned(clean(), ms(60_001)));
}

#[test]
fn what_the_sweep_that_is_due_finds_gone_is_not_reported() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    let late = ms(5000);

    assert_eq!(escalation.step(late), Some(Step::Sweep));
    assert_eq!(escalation.step(late), None, "the sweep is awaited");
    let mut unlucky = escalation.clone();

    assert!(escalation.scanned(clean(), late));
    assert!(!unlucky.scanned(left(&[7]), late));
    assert_eq!(unlucky.step(late), Some(Step::Unproved(vec![7])));
}

#[test]
fn survivors_are_reported_before_the_end_of_init_but_not_where_a_kill_that_is_due_may_still_remove_them() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    assert_eq!(escalation.step(ms(0)), Some(Step::Sweep));
    escalation.scanned(left(&[7]), ms(0));
    // After a sweep of 900 ms, survivors are to be reported at 1000 ms, and init ends at 1200 ms.
    escalation.hard(ms(900), ms(900));
    assert_eq!(escalation.step(ms(900)), Some(Step::KillAll));
    escalation.scanned(left(&[7]), ms(900));

    let mut early = escalation.clone();
    assert_eq!(early.step(ms(1399)), Some(Step::KillAll), "it may be the last");
    early.scanned(left(&[7]), ms(1399));
    assert_eq!(early.step(ms(1399)), Some(Step::Unproved(vec![7])));

    assert_eq!(escalation.step(ms(1400)), Some(Step::Unproved(vec![7])));
    assert_eq!(escalation.step(ms(1400)), Some(Step::Die));
}

#[test]
fn survivors_that_may_not_be_killed_end_init_at_h() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(0));
    escalation.step(ms(0));
    escalation.scanned(Scan { denied: true, ..left(&[7]) }, ms(0));
    assert_eq!(escalation.step(ms(900)), Some(Step::Sweep), "before H there is still hope");
    escalation.scanned(Scan { denied: true, ..left(&[7]) }, ms(900));
    escalation.hard(ms(950), ms(950));
    assert_eq!(escalation.step(ms(950)), Some(Step::Die));
}

#[test]
fn survivors_that_turn_out_at_h_not_to_be_killable_end_init_without_a_pause() {
    let mut escalation = asking(true, KillMode::Mixed);
    escalation.hard(ms(3000), ms(3000));
    assert_eq!(escalation.step(ms(3000)), Some(Step::KillAll));
    assert!(!escalation.scanned(Scan { denied: true, ..left(&[7]) }, ms(3000)));
    assert_eq!(escalation.due(), Some(ms(3000)));
    assert_eq!(escalation.step(ms(3000)), Some(Step::Die));
}

#[test]
fn the_kill_is_dated_by_the_beginning_of_its_pass() {
    let mut escalation = StopEscalation::killing(true, MARGIN, ms(10));
    assert_eq!(escalation.step(ms(10)), Some(Step::Sweep));
    assert!(!escalation.scanned(left(&[7]), ms(900)));
    assert_eq!(escalation.killed(), Some(ms(10)));
}
