//! Events of the watch, and watches that are late, end or fail (law 16).

use std::time::Duration;

use super::bench::{Bench, TICK, held, plus, seconds, takes_exactly_after};
use crate::{
    election::{Event, writes::Sent},
    request::{Answer, Operation, Refusal, RequestError, WatchEnd, Watched},
};

#[test]
fn a_watch_that_falls_silent_delays_a_takeover_by_a_renew_period_at_most() {
    let mut bench = Bench::with(held("x", 15));
    let renew = |bench: &mut Bench, time: &str| bench.register.edit(|object| object["spec"]["renewTime"] = time.into());
    bench.run(seconds(1));
    renew(&mut bench, "2026-01-01T00:00:01.000000Z");
    bench.watch_register();
    bench.run(Duration::from_millis(3_300));
    assert_eq!(bench.gets(), 2, "the first read, and one that has found nothing new");
    renew(&mut bench, "2026-01-01T00:00:04.300000Z");

    bench.run(plus(15) + seconds(3));

    assert!(bench.leads().is_some(), "taken at D(1+rho) + R after the renewal that the watch did not bring");
}

#[test]
fn a_follower_whose_reads_fail_sends_one_in_each_renew_period_nevertheless() {
    let mut bench = Bench::with(held("x", 3_600));
    bench.run(seconds(1));
    bench.answers = false;
    for _ in 0..50 {
        let before = bench.now.boot;
        while bench.awaited.is_none() {
            bench.run(Duration::from_millis(10));
        }
        assert!(bench.now.boot.since(before) <= seconds(3), "{:?}", bench.now.boot.since(before));
        bench.answer(Answer::Unknown { message: "503".into(), retry_after: None });
    }
}

#[test]
fn a_lease_that_the_watch_sees_gone_is_made_anew_however_long_a_read_was_put_off() {
    let mut bench = Bench::with(held("x", 15));
    bench.register.edit(|object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    bench.run(seconds(1));
    bench.answers = false;
    bench.run(seconds(3));
    let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(60)) };
    bench.answer(Answer::Refused { refusal, message: "slow down".into() });
    let deleted = bench.register.delete();
    bench.watch(deleted);

    bench.run(seconds(3));

    assert!(bench.awaits_a_write(), "after R at most");
}

#[test]
fn once_the_watch_let_a_renewal_pass_a_takeover_is_delayed_by_a_renew_period_at_most() {
    let mut bench = Bench::with(held("x", 15));
    let renew = |bench: &mut Bench, number| {
        bench.register.edit(|object| object["spec"]["renewTime"] = format!("r{number}").into());
    };
    bench.run(seconds(1));
    renew(&mut bench, 1);
    bench.run(Duration::from_millis(2_300));
    assert_eq!(bench.gets(), 2, "the first read, and the one that found it");
    renew(&mut bench, 2);

    bench.run(plus(15) + seconds(3));

    assert!(bench.leads().is_some(), "taken at D(1+rho) + R after the renewal that nothing brought");
}

#[test]
fn a_follower_that_hears_renewals_reads_about_once_a_minute() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(2));
    for renewal in 0..200 {
        bench.see(|object| object["spec"]["renewTime"] = format!("r{renewal}").into());
        bench.run(seconds(3));
    }

    assert_eq!(bench.writes(), Vec::<&Sent>::new());
    assert!(bench.gets() <= 12, "{} reads in ten minutes", bench.gets());
    assert_eq!(bench.watches.len(), 1);
}

#[test]
fn a_watch_that_is_always_a_little_slower_than_the_reads_is_not_taken_for_dead() {
    let mut bench = Bench::with(held("x", 15));
    for renewal in 0..200 {
        bench.run(seconds(3) - TICK);
        bench.register.edit(|object| object["spec"]["renewTime"] = format!("r{renewal}").into());
        bench.run(TICK);
        bench.watch_register();
    }

    assert_eq!((bench.gets(), bench.watches.len()), (201, 1), "a read in each period, and one watch");
}

#[test]
fn a_watch_event_older_than_what_was_read_is_ignored() {
    let mut bench = Bench::with(held("x", 15));
    let old = bench.register.object().unwrap();
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "y".into());
    bench.run(seconds(5));
    bench.watch(Watched::Changed(old.into()));

    takes_exactly_after(&mut bench, plus(15) - seconds(5));
}

#[test]
fn a_watch_event_of_an_earlier_lease_shortens_no_wait() {
    let mut bench = Bench::with(held("x", 15));
    let old = bench.register.object().unwrap();
    bench.register.put(held("y", 60));
    bench.run(seconds(5));
    bench.watch(Watched::Changed(old.into()));

    takes_exactly_after(&mut bench, plus(60) - seconds(5));
}

#[test]
fn a_watch_that_brings_only_what_is_old_holds_no_read_off() {
    let mut bench = Bench::with(held("x", 15));
    let old = bench.register.object().unwrap();
    bench.run(seconds(1));
    let gets = bench.gets();

    for _ in 0..10 {
        bench.watch(Watched::Changed(old.clone().into()));
        bench.run(seconds(1));
    }

    assert!(bench.gets() - gets >= 3, "{} reads", bench.gets() - gets);
}

fn expired() -> Watched {
    Watched::Ended(WatchEnd::Failed(RequestError { status: Some(410), words: "too old resource version".into() }))
}

#[test]
fn a_watch_begins_without_a_version_at_first_and_once_its_version_is_forgotten() {
    let mut bench = Bench::with(held("x", 3600));
    bench.run(seconds(2));
    bench.watch(Watched::Bookmark("12".into()));
    let gets = bench.gets();
    bench.watch(expired());

    bench.run(seconds(1));

    assert_eq!(bench.watches, [None, None], "that of the Lease may be older than what the server remembers");
    assert_eq!(bench.gets(), gets + 1, "what was missed is read");
}

#[test]
fn a_version_that_is_forgotten_is_told_only_if_that_goes_on() {
    let mut bench = Bench::with(held("x", 3600));
    let failures = |bench: &Bench| {
        bench.events.iter().filter(|event| matches!(event, Event::Failed { operation: Operation::Watch, .. })).count()
    };
    bench.run(seconds(2));
    bench.watch(expired());
    bench.run(seconds(2));
    assert_eq!((failures(&bench), bench.watches.len()), (0, 2));

    bench.watch(expired());

    assert_eq!(failures(&bench), 1);
}

#[test]
fn a_bookmark_is_not_replaced_by_an_older_version() {
    let mut bench = Bench::with(held("x", 3600));
    let old = bench.register.object().unwrap();
    bench.run(seconds(2));
    bench.watch(Watched::Bookmark("12".into()));
    bench.watch(Watched::Changed(old.into()));
    bench.watch(Watched::Bookmark("9".into()));
    bench.run(seconds(60));
    bench.watch(Watched::Ended(WatchEnd::Closed));

    bench.run(seconds(1));

    assert_eq!(bench.watches.last(), Some(&Some("12".into())));
}

#[test]
fn a_watch_that_ends_in_peace_is_resumed_without_a_read_and_not_more_than_once_a_second() {
    let mut bench = Bench::with(held("x", 3600));
    bench.run(TICK);
    let gets = bench.gets();
    for _ in 0..5 {
        bench.watch(Watched::Bookmark("12".into()));
        bench.watch(Watched::Ended(WatchEnd::Closed));
        bench.run(Duration::from_millis(500));
    }

    assert_eq!(bench.gets(), gets);
    assert!((2..=4).contains(&bench.watches.len()), "{:?}", bench.watches);
    assert_eq!(bench.watches.last(), Some(&Some("12".into())));
}

/// A minute in which each watch ends as soon as it has begun; returns how many there were.
fn a_minute_of_watches_that_end(how: fn() -> WatchEnd) -> (Bench, usize) {
    let mut bench = Bench::with(held("x", 3600));
    let mut ended = 0;
    for _ in 0..600 {
        if bench.watches.len() > ended {
            ended = bench.watches.len();
            bench.watch(Watched::Ended(how()));
        }
        bench.run(Duration::from_millis(100));
    }
    (bench, ended)
}

#[test]
fn a_watch_that_ends_or_fails_each_time_is_tried_more_and_more_rarely_and_leaves_the_reads_their_pace() {
    let ends: [fn() -> WatchEnd; 2] = [|| WatchEnd::Closed, || WatchEnd::Failed("no stream".into())];
    for how in ends {
        let (bench, ended) = a_minute_of_watches_that_end(how);

        assert!(bench.gets() <= 21, "{} reads in a minute, not one for each R", bench.gets());
        assert!((5..=8).contains(&ended), "{ended} watches in a minute");
    }
}

/// A server that has just started has not read its roles.
#[test]
fn a_watch_that_is_refused_once_is_started_again_within_a_second() {
    let mut bench = Bench::with(held("x", 3600));
    bench.run(seconds(1));
    let refused = RequestError { status: Some(403), words: "roles are not read yet".into() };

    bench.watch(Watched::Ended(WatchEnd::Failed(refused)));
    bench.run(seconds(1));

    assert_eq!(bench.watches.len(), 2);
}

#[test]
fn a_watch_that_breaks_after_it_has_worked_for_ten_seconds_is_started_again_soon() {
    let mut bench = Bench::with(held("x", 3600));
    bench.run(seconds(1));
    for _ in 0..5 {
        bench.run(seconds(9));
        let (gets, watches) = (bench.gets(), bench.watches.len());
        bench.watch(Watched::Ended(WatchEnd::Failed("cut".into())));
        bench.run(seconds(1));
        assert_eq!((bench.gets(), bench.watches.len()), (gets + 1, watches + 1));
    }
}

#[test]
fn watches_that_bring_something_and_end_in_peace_are_resumed_at_once_each_time() {
    let mut bench = Bench::with(held("x", 3600));
    for ended in 1..10 {
        bench.run(seconds(1));
        bench.watch(Watched::Bookmark("12".into()));
        bench.watch(Watched::Ended(WatchEnd::Closed));
        assert_eq!(bench.watches.len(), ended + 1);
    }
}

#[test]
fn a_watch_that_brought_nothing_for_ten_seconds_has_worked_too() {
    let mut bench = Bench::with(held("x", 3600));
    bench.run(seconds(10));
    bench.watch(Watched::Ended(WatchEnd::Closed));
    bench.watch(Watched::Ended(WatchEnd::Closed));
    assert_eq!(bench.watches.len(), 2, "the one that ended at once is not resumed at once");

    bench.run(seconds(1));

    assert_eq!(bench.watches.len(), 3);
}

#[test]
fn a_watch_is_started_again_while_a_read_awaits_its_answer() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(seconds(2));
    bench.answers = false;
    bench.run(seconds(2));
    assert!(bench.awaited.is_some());
    bench.watch(Watched::Ended(WatchEnd::Closed));
    bench.watch(Watched::Ended(WatchEnd::Closed));
    let watches = bench.watches.len();

    bench.run(seconds(2));

    assert_eq!((bench.watches.len(), bench.awaited.is_some()), (watches + 1, true));
}

#[test]
fn a_watch_has_recovered_when_it_brings_something_after_a_minute_or_ends_in_peace() {
    let failed = || Watched::Ended(WatchEnd::Failed("cut".into()));
    let recoveries = |bench: &Bench| {
        let recovered = Event::Recovered { operation: Operation::Watch };
        bench.events.iter().filter(|event| **event == recovered).count()
    };
    let mut bench = Bench::with(held("x", 3600));
    bench.run(seconds(1));
    bench.watch(Watched::Bookmark("12".into()));
    bench.watch(failed());
    bench.run(seconds(2));
    for _ in 0..58 {
        bench.watch(Watched::Bookmark("12".into()));
        bench.run(seconds(1));
    }
    assert_eq!(recoveries(&bench), 0);

    bench.run(seconds(1));
    bench.watch(Watched::Bookmark("12".into()));
    bench.watch(Watched::Bookmark("12".into()));
    assert_eq!(recoveries(&bench), 1);

    bench.watch(failed());
    bench.run(seconds(2));
    bench.watch(Watched::Ended(WatchEnd::Failed("410".into())));
    bench.run(seconds(4));
    assert_eq!(recoveries(&bench), 1, "it could not be resumed");
    bench.watch(Watched::Ended(WatchEnd::Closed));
    assert_eq!(recoveries(&bench), 2);
}
