//! From the campaign to the workload that runs.

use super::*;

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
    let other = Earlier { context: OTHER, remote: true };
    assert_eq!(origin(campaigning(Vacancy::Released, Some(OTHER))), Origin::Handover(other));
    assert_eq!(origin(campaigning(Vacancy::Expired, Some(OTHER))), Origin::After(other));
    assert_eq!(origin(campaigning(Vacancy::Released, None)), Origin::None);
}

#[test]
fn what_comes_after_this_replicas_own_transition_is_not_remote() {
    for (own, why) in [(CONTEXT, Vacancy::Expired), (STOP_CONTEXT, Vacancy::Expired), (STOP_CONTEXT, Vacancy::Released)] {
        let mut observer = leading();
        reported(&mut observer, 100, stopping(Reason::StepDown));
        reported(&mut observer, 110, Event::Following);

        let over = lead_from(&mut observer, campaigning(why, Some(own)));

        let earlier = Earlier { context: own, remote: false };
        let expected = if why == Vacancy::Released { Origin::Handover(earlier) } else { Origin::After(earlier) };
        assert_eq!(only(over).origin, expected);
    }
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
fn a_new_campaign_tells_what_was_left_open_before_it() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::LostDeleted));
    let left = only(reported(&mut observer, 500, campaigning(Vacancy::Released, None)));
    assert_eq!((left.to, left.until), (Role::Standby, ms(500)));
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
