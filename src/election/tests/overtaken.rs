//! What the watch shows before the reply to an acquiring write comes (law 4, 16).

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    bench::{Bench, TICK, held, lost, seconds},
    campaign_outcome::campaigning,
};
use crate::{
    election::{Answer, Event, Refusal, Request, Watched},
    link::{Reason, Then, ToElector},
};

/// The awaited write is done; then somebody edits the Lease, and the watch shows that before the reply comes.
fn overtaken(bench: &mut Bench, edit: impl FnOnce(&mut Value)) {
    let (_, request) = bench.awaited.clone().expect("a write");
    let answer = bench.register.apply(&request);
    bench.register.edit(edit);
    bench.watch_register();
    bench.answer(answer);
}

#[test]
fn a_takeover_that_was_undone_before_its_reply_came_starts_nothing() {
    let mut bench = campaigning();

    overtaken(&mut bench, |object| object["spec"]["holderIdentity"] = "".into());
    bench.serve();

    assert_eq!(bench.leads(), None);
    assert!(matches!(bench.awaited, Some((_, Request::Replace(_)))), "it is free again, so it is taken again");
}

#[test]
fn a_takeover_after_which_only_others_changed_something_leads_once_it_is_renewed() {
    let mut bench = campaigning();

    overtaken(&mut bench, |object| object["metadata"]["labels"] = json!({"a": "b"}));
    assert_eq!(bench.leads(), None);
    bench.answers = true;
    bench.run(TICK);

    assert!(bench.leads().is_some());
    assert_eq!(bench.body()["metadata"]["labels"]["a"], "b");
}

#[test]
fn a_term_that_was_lost_before_init_was_told_of_it_is_never_told() {
    let mut bench = campaigning();
    overtaken(&mut bench, |object| object["metadata"]["labels"] = json!({"a": "b"}));
    bench.serve();
    assert!(bench.awaits_a_write(), "a renewal is under way");

    overtaken(&mut bench, |object| object["spec"]["holderIdentity"] = "".into());

    assert_eq!(bench.leads(), None);
    bench.answers = true;
    bench.run(seconds(1));
    assert!(bench.leads().is_some(), "it is free again, so it is taken again");
}

#[test]
fn a_campaign_whose_first_write_commits_late_is_not_lost() {
    let mut bench = campaigning();
    let late = bench.awaited.clone().expect("the takeover").1;
    bench.answer(lost());
    bench.run(seconds(1));
    bench.serve();
    bench.run(seconds(1));
    assert!(matches!(bench.awaited, Some((_, Request::Replace(_)))), "another takeover is under way");
    bench.register.apply(&late);
    bench.watch_register();

    bench.serve();
    bench.serve();

    assert!(!bench.events.contains(&Event::CampaignLost));
    assert!(bench.leads().is_some());
}

#[test]
fn a_campaign_whose_write_lands_after_a_read_missed_it_is_not_lost() {
    let mut bench = campaigning();
    let mut takeover = None;
    for _ in 0..2 {
        takeover = bench.awaited.clone().map(|(_, request)| request);
        bench.answer(lost());
        bench.run(Duration::from_millis(260));
        bench.serve();
    }
    assert_eq!(bench.awaited, None, "it pauses");
    bench.register.apply(&takeover.expect("the second takeover"));
    bench.watch_register();
    bench.answers = true;

    bench.run(seconds(4));

    assert!(!bench.events.contains(&Event::CampaignLost));
    assert!(bench.leads().is_some());
}

#[test]
fn a_campaign_is_lost_although_the_watch_showed_the_winner_before_the_conflict() {
    let mut bench = campaigning();
    bench.run(TICK);
    bench.register.edit(|object| object["spec"] = held("y", 15));
    bench.watch_register();

    bench.answer(Answer::Conflict);

    assert!(bench.events.contains(&Event::CampaignLost));
}

#[test]
fn a_campaign_whose_write_was_refused_is_lost_when_the_watch_shows_a_winner_or_a_deletion() {
    for deleted in [false, true] {
        let mut bench = campaigning();
        bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no update".into() });
        bench.run(TICK);
        bench.watch(Watched::Bookmark("10".into()));
        assert!(!bench.events.contains(&Event::CampaignLost), "nobody else has it");

        if deleted {
            let deletion = bench.register.delete();
            bench.watch(deletion);
        } else {
            bench.register.edit(|object| object["spec"] = held("y", 15));
            bench.watch_register();
        }

        assert!(bench.events.contains(&Event::CampaignLost), "deleted: {deleted}");
    }
}

#[test]
fn a_takeover_of_which_init_was_not_told_yet_is_released_by_a_shutdown() {
    let mut bench = campaigning();
    overtaken(&mut bench, |object| object["metadata"]["labels"] = json!({"a": "b"}));
    assert_eq!(bench.leads(), None);

    bench.tell(ToElector::Shutdown);
    assert_eq!((bench.leads().is_some(), bench.step_down_reason()), (true, Some(Reason::Signal)));
    bench.answers = true;
    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!((bench.register.spec()["holderIdentity"].as_str(), bench.is_done()), (Some(""), true));
}
