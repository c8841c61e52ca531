//! Judges when a replica takes over from a holder that did not release: not before its hold has ended, and not long after.

use std::time::Duration;

use tenure::time::Instant;

use crate::{
    fault::Group,
    history::History,
    support::stage::timing::RENEW_PERIOD,
    world::{Span, place_of},
    writes::Version,
};

/// The server timestamps an answer a little after it has stored the object, and notifies watches in between.
const SLACK: Duration = Duration::from_millis(250);
/// How long a server stays slow after its own fault.
const TROUBLE: Duration = Duration::from_secs(10);
/// The highest drift in any world, in percent.
const DRIFT: u32 = 3;
/// For an attempt (0.3 s) and the start. The rest is for two processors that other worlds keep busy, and for other programs; less
/// than the shortest D, so that a replica that waits twice is found.
const LATE: Duration = Duration::from_millis(2_500);

pub(crate) fn judge(history: &History, version: &Version<'_>, before: &Version<'_>) -> Result<(), String> {
    judge_beginning(history, version, before)?;
    judge_delay(history, version, before)
}

/// The holder must have been observed for the duration that it wrote.
fn judge_beginning(history: &History, version: &Version<'_>, before: &Version<'_>) -> Result<(), String> {
    let (from, to) = (history.moment(before.since), history.moment(version.record.answered));
    // A server in trouble timestamps its answers late.
    let stamps_late = history.faults_within(from.before(TROUBLE), to).any(|span| span.fault.group() == Group::Server);
    if to.since(from) + SLACK < before.duration() && !stamps_late {
        return Err(format!("takes over after {:?}", to.since(from)));
    }
    Ok(())
}

/// Law 16, where nothing was disturbed but the holder, and the server answered promptly: on a machine that other programs keep
/// busy it may not answer for seconds.
fn judge_delay(history: &History, version: &Version<'_>, before: &Version<'_>) -> Result<(), String> {
    let Some((from, to)) = undisturbed(history, version, before) else { return Ok(()) };
    let limit = before.duration() * (100 + DRIFT) / 100 + RENEW_PERIOD + LATE;
    // A silent server gives it as long again, unless it was late already.
    let from =
        history.silences.iter().fold(from, |from, silence| if *silence <= from + limit { from.max(*silence) } else { from });
    if to.since(from) > limit {
        return Err(format!("takes over late, so that its workload starts after {:?}", to.since(from)));
    }
    Ok(())
}

/// From the moment when the new holder could see the last one's last write, and nothing delayed it any more, to the start of its
/// workload; none if the Lease or the server was disturbed.
fn undisturbed(history: &History, version: &Version<'_>, before: &Version<'_>) -> Option<(Instant, Instant)> {
    let holder = before.by?;
    let is_takers = |name: &str| version.holder().split_once('_').is_some_and(|(taker, _)| taker == name);
    let taker = history.replicas.iter().find(|replica| is_takers(&replica.name) && place_of(&replica.name) != holder)?;
    let first_sight = taker.exchanges.iter().find(|exchange| exchange.succeeded())?.answered_at();
    let taken = taker.exchanges.iter().find(|exchange| exchange.request.spec() == version.spec())?.request.at;
    let since = history.moment(before.since);
    let mut asked = taker.exchanges.iter().filter(|exchange| since <= exchange.request.at && exchange.request.at <= taken);
    if !asked.all(|exchange| exchange.answer.as_ref().is_some_and(|answer| answer.at <= exchange.request.at + SLACK)) {
        return None;
    }
    let to = history.lives.iter().find(|life| life.replica == taker.name && life.first >= taken)?.first;

    let spans = history.spans.iter().filter(|span| span.from <= to);
    let (of_replicas, of_all): (Vec<&Span>, Vec<&Span>) = spans.partition(|span| span.fault.strikes_one_replica_only());
    let of_others = of_replicas.iter().filter(|span| span.place != Some(holder)).map(|span| span.to);
    let from = of_others.chain([first_sight, since]).max()?;
    of_all.iter().all(|span| span.to + TROUBLE < from).then_some((from, to))
}
