//! Rung by rung.

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

fn asking(pid1: bool, mode: KillMode) -> Ladder {
    Ladder::asking(pid1, mode, MARGIN, ms(4000))
}

#[test]
fn the_grace_ends_in_a_walk_and_not_a_tick_earlier() {
    let mut ladder = asking(true, KillMode::Mixed);
    assert_eq!(ladder.step(ms(4000).before(tick())), None);
    assert_eq!(ladder.due(), Some(ms(4000)));
    assert_eq!(ladder.step(ms(4000)), Some(Step::Walk));
}

#[test]
fn the_end_of_the_main_process_sends_the_rest_to_the_walk_with_mixed() {
    let mut ladder = asking(true, KillMode::Mixed);
    ladder.main_ended(ms(10));
    assert_eq!(ladder.step(ms(10)), Some(Step::Walk));
    assert!(ladder.scanned(clean(), ms(10)));
    assert_eq!(ladder.killed(), None, "nobody was there to be killed");
}

#[test]
fn the_rest_of_a_group_keeps_its_grace() {
    let mut ladder = asking(true, KillMode::Group);
    ladder.main_ended(ms(10));
    assert_eq!(ladder.step(ms(10)), Some(Step::Prove));
    assert!(!ladder.scanned(Scan { killed: false, ..left(&[7]) }, ms(10)));
    assert_eq!(ladder.step(ms(20)), None);
    ladder.reaped(ms(30));
    assert_eq!(ladder.step(ms(30)), Some(Step::Prove));
    assert_eq!(ladder.step(ms(4000)), Some(Step::Walk));
}

#[test]
fn what_comes_and_goes_in_the_grace_of_a_group_is_walked_and_not_killed_with_everything() {
    let mut ladder = asking(true, KillMode::Group);
    ladder.main_ended(ms(10));
    for (pid, at) in (7..47).zip((10..).step_by(50).map(ms)) {
        ladder.reaped(at);
        assert_eq!(ladder.step(at), Some(Step::Prove));
        assert!(!ladder.scanned(Scan { killed: false, ..left(&[pid]) }, at));
    }
    assert_eq!(ladder.step(ms(4000)), Some(Step::Walk));
}

#[test]
fn who_dies_unseen_of_a_group_is_missed_soon() {
    let mut ladder = asking(true, KillMode::Group);
    ladder.main_ended(ms(10));
    assert_eq!(ladder.step(ms(10)), Some(Step::Prove));
    assert!(!ladder.scanned(Scan { killed: false, ..left(&[7]) }, ms(11)));

    assert_eq!(ladder.due(), Some(ms(111)));
    assert_eq!(ladder.step(ms(111)), Some(Step::Prove));
    assert!(ladder.scanned(clean(), ms(111)));
}

#[test]
fn thousands_that_die_one_after_the_other_converge_and_some_of_them_are_named() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    let many: Vec<i32> = (0..2_000).collect();
    let mut named = None;
    for dead in 1..2_000 {
        let now = ms(u64::try_from(dead).unwrap());
        ladder.reaped(now);
        while let Some(step) = ladder.step(now) {
            match step {
                Step::Walk => assert!(!ladder.scanned(left(&many[dead..]), now)),
                Step::Unproved(pids) => named = Some(pids),
                Step::Prove | Step::KillAll | Step::Die => panic!("{step:?} after {dead}"),
            }
        }
    }
    assert_eq!(named.map(|pids| pids.len()), Some(NAMED));
}

#[test]
fn walks_go_on_until_a_clean_scan_and_at_once_when_something_is_reaped() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    assert_eq!(ladder.step(ms(0)), Some(Step::Walk));
    assert!(!ladder.scanned(left(&[7]), ms(0)));
    assert_eq!(ladder.step(ms(0)), None);
    ladder.reaped(ms(0) + tick());
    assert_eq!(ladder.step(ms(0) + tick()), Some(Step::Walk));
    assert!(!ladder.scanned(left(&[7]), ms(1)));
    assert_eq!(ladder.step(ladder.due().unwrap()), Some(Step::Walk), "and without a reaped child, after a pause");
    assert!(ladder.scanned(clean(), ms(9)));
    assert_eq!(ladder.killed(), Some(ms(0)));
}

#[test]
fn walks_that_always_meet_somebody_new_end_in_kill_all_as_pid_1_only() {
    for pid1 in [true, false] {
        let mut ladder = Ladder::killing(pid1, MARGIN, ms(0));
        assert_eq!(kills_all(&mut ladder, |walk| left(&[walk])), pid1);
        assert_eq!(ladder.kills_everything(), pid1, "until the proof");
    }
}

#[test]
fn walks_that_meet_nobody_and_prove_nothing_end_in_kill_all_as_pid_1_only() {
    for pid1 in [true, false] {
        let mut ladder = Ladder::killing(pid1, MARGIN, ms(0));
        assert_eq!(kills_all(&mut ladder, |_| Scan::default()), pid1);
    }
}

fn kills_all(ladder: &mut Ladder, scan: impl Fn(i32) -> Scan) -> bool {
    (0..200).any(|walk| {
        let now = ladder.due().unwrap();
        let step = ladder.step(now);
        ladder.scanned(scan(walk), now);
        step == Some(Step::KillAll)
    })
}

#[test]
fn a_process_that_hangs_in_the_kernel_is_reported_and_costs_no_elector_before_h() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    let mut steps = Vec::new();
    while let Some(now) = ladder.due().filter(|at| *at < ms(5000)) {
        let step = ladder.step(now).unwrap();
        if step == Step::Walk {
            ladder.scanned(left(&[7]), now);
        }
        steps.push((now, step));
    }
    let unproved: Vec<_> = steps.iter().filter(|(_, step)| *step != Step::Walk).collect();
    assert_eq!(unproved, [&(ms(1000), Step::Unproved(vec![7]))]);
}

#[test]
fn what_kill_all_does_not_remove_before_h_is_reported_and_costs_no_further_elector() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    assert!(kills_all(&mut ladder, |walk| left(&[7, 100 + walk])));
    let mut steps = Vec::new();
    while let Some(now) = ladder.due().filter(|at| *at < ms(5000)) {
        let step = ladder.step(now).unwrap();
        if matches!(step, Step::Walk | Step::KillAll) {
            ladder.scanned(left(&[7]), now);
        }
        steps.push(step);
    }

    let reported = steps.iter().position(|step| *step == Step::Unproved(vec![7])).expect("it is reported");
    assert!(steps[..reported].contains(&Step::KillAll));
    assert!(!steps[reported..].contains(&Step::KillAll), "{steps:?}");
    assert!(steps[reported..].contains(&Step::Walk));
    assert!(!ladder.kills_everything());
    ladder.hard(ms(5000), ms(5000));
    assert_eq!(ladder.step(ms(5000)), Some(Step::KillAll), "but H does");
}

#[test]
fn what_proves_nothing_after_kill_all_either_costs_no_elector_a_second_time_before_h() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    assert!(kills_all(&mut ladder, |_| Scan::default()));
    let began = ladder.due().unwrap();
    let mut killed = began;
    while let Some(now) = ladder.due().filter(|at| *at < ms(20_000)) {
        if ladder.step(now) == Some(Step::KillAll) {
            killed = now;
        }
        ladder.scanned(Scan::default(), now);
    }

    assert!(killed <= began + MARGIN && !ladder.kills_everything(), "{began:?} {killed:?}");
}

#[test]
fn at_h_everything_is_killed_and_half_a_margin_later_init_ends_unless_proved() {
    let mut ladder = asking(true, KillMode::Mixed);
    ladder.hard(ms(3000), ms(3000));
    assert_eq!(ladder.step(ms(3000)), Some(Step::KillAll));
    ladder.scanned(left(&[7]), ms(3000));
    let mut last = ms(3000);
    while last < ms(3500) {
        last = ladder.due().unwrap();
        match ladder.step(last).unwrap() {
            Step::KillAll => assert!(!ladder.scanned(left(&[7]), last)),
            Step::Unproved(_) => {}
            Step::Die => break,
            step @ (Step::Prove | Step::Walk) => panic!("{step:?}"),
        }
    }
    assert_eq!(last, ms(3500));
}

#[test]
fn h_waits_for_no_pause_of_a_kill_all_that_began_earlier() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    assert!(kills_all(&mut ladder, |walk| left(&[walk])));
    let mut now = ms(2000);
    for _ in 0..8 {
        now = now.max(ladder.due().unwrap());
        while ladder.step(now).is_some() {
            ladder.scanned(left(&[7]), now);
        }
    }
    assert_eq!(ladder.due(), Some(now + LONGEST_PAUSE));
    ladder.hard(now + tick(), now + tick());
    assert_eq!(ladder.step(now + tick()), Some(Step::KillAll));
}

#[test]
fn init_that_wakes_between_h_and_e_has_half_of_what_is_left() {
    for (woken, dies) in [(ms(3600), ms(3800)), (ms(4000).before(tick() * 2), ms(4000).before(tick())), (ms(4000), ms(5000))] {
        let mut ladder = asking(true, KillMode::Mixed);
        ladder.hard(ms(3000), woken);
        assert_eq!(ladder.step(woken), Some(Step::KillAll));
        ladder.scanned(left(&[7]), woken);
        assert_ne!(ladder.step(dies.before(tick())), Some(Step::Die));
        assert!(std::iter::from_fn(|| ladder.step(dies)).any(|step| step == Step::Die));
    }
}

#[test]
fn init_that_wakes_long_after_h_kills_and_tries_a_proof_before_it_gives_up() {
    let mut ladder = asking(true, KillMode::Mixed);
    ladder.hard(ms(3000), ms(60_000));
    assert_eq!(ladder.step(ms(60_000)), Some(Step::KillAll));
    assert!(!ladder.scanned(left(&[7]), ms(60_000)));
    ladder.reaped(ms(60_001));
    assert_eq!(ladder.step(ms(60_001)), Some(Step::KillAll));
    assert!(ladder.scanned(clean(), ms(60_001)));
}

#[test]
fn what_the_walk_that_is_due_finds_gone_is_not_reported() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    let late = ms(5000);

    assert_eq!(ladder.step(late), Some(Step::Walk));
    assert_eq!(ladder.step(late), None, "the walk is awaited");
    let mut unlucky = ladder.clone();

    assert!(ladder.scanned(clean(), late));
    assert!(!unlucky.scanned(left(&[7]), late));
    assert_eq!(unlucky.step(late), Some(Step::Unproved(vec![7])));
}

#[test]
fn survivors_are_reported_before_the_end_of_init_but_not_where_a_kill_that_is_due_may_still_remove_them() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    assert_eq!(ladder.step(ms(0)), Some(Step::Walk));
    ladder.scanned(left(&[7]), ms(0));
    // After a walk of 900 ms, survivors are to be reported at 1000 ms, and init ends at 1200 ms.
    ladder.hard(ms(900), ms(900));
    assert_eq!(ladder.step(ms(900)), Some(Step::KillAll));
    ladder.scanned(left(&[7]), ms(900));

    let mut early = ladder.clone();
    assert_eq!(early.step(ms(1399)), Some(Step::KillAll), "it may be the last");
    early.scanned(left(&[7]), ms(1399));
    assert_eq!(early.step(ms(1399)), Some(Step::Unproved(vec![7])));

    assert_eq!(ladder.step(ms(1400)), Some(Step::Unproved(vec![7])));
    assert_eq!(ladder.step(ms(1400)), Some(Step::Die));
}

#[test]
fn survivors_that_may_not_be_killed_end_init_at_h() {
    let mut ladder = Ladder::killing(true, MARGIN, ms(0));
    ladder.step(ms(0));
    ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(0));
    assert_eq!(ladder.step(ms(900)), Some(Step::Walk), "before H there is still hope");
    ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(900));
    ladder.hard(ms(950), ms(950));
    assert_eq!(ladder.step(ms(950)), Some(Step::Die));
}

#[test]
fn survivors_that_turn_out_at_h_not_to_be_killable_end_init_without_a_pause() {
    let mut ladder = asking(true, KillMode::Mixed);
    ladder.hard(ms(3000), ms(3000));
    assert_eq!(ladder.step(ms(3000)), Some(Step::KillAll));
    assert!(!ladder.scanned(Scan { denied: true, ..left(&[7]) }, ms(3000)));
    assert_eq!(ladder.due(), Some(ms(3000)));
    assert_eq!(ladder.step(ms(3000)), Some(Step::Die));
}

#[test]
fn not_pid_1_there_is_neither_kill_all_nor_the_end_of_init() {
    let mut ladder = asking(false, KillMode::Mixed);
    ladder.hard(ms(3000), ms(3000));
    for _ in 0..100 {
        let now = ladder.due().unwrap();
        match ladder.step(now).unwrap() {
            Step::Walk => assert!(!ladder.scanned(Scan { denied: true, ..left(&[7]) }, now)),
            Step::Unproved(pids) => assert_eq!((pids, now), (vec![7], ms(3500))),
            step @ (Step::Prove | Step::KillAll | Step::Die) => panic!("{step:?}"),
        }
    }
}
