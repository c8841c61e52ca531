//! A Lease as it looked at one moment, as a row of a table and as fields.
//!
//! Shows what stands on the Lease, and nothing else. Calls a Lease expired by the wall clock. That is for people: no decision rests
//! on it. `status::watch` and `prune` rely on the order of the columns.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::table::{Document, Line};
use crate::{
    config::duration,
    election::{
        record::{LeaseRecord, LeaseState},
        writes::{CANDIDATE, FIRE, KIND_LABEL, MANAGED_BY, NEXT_FIRE, OBITUARY, STATUS, TENURE, base_of},
    },
    words::worded,
};

worded! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum State {
        Held = "held",
        Expired = "expired",
        /// No holder has released it, and replicas wait before they acquire it.
        Nobody = "nobody",
        /// A task has run, and is not due yet.
        Resting = "resting",
        Free = "free",
    }
}

/// A Lease as it looked at one moment.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Of a lock or a task.
    pub(super) kind: Option<String>,
    pub(super) state: State,
    pub(super) holder: Option<String>,
    pub(super) paused: bool,
    pub(super) since: Option<Timestamp>,
    pub(super) transitions: i32,
    pub(super) renewed: Option<Timestamp>,
    pub(super) duration: Option<Duration>,
    /// When its duration is over.
    pub(super) until: Option<Timestamp>,
    /// Of a task with a schedule: the fire that the last run was for, and the next one.
    pub(super) fires: [Option<Timestamp>; 2],
    /// The dead holder whose witness gave it back.
    pub(super) obituary: Option<String>,
    /// The health that the leader's workload reports.
    pub(super) status: Option<String>,
    /// Who would lead next, as they say themselves.
    pub(super) candidates: Vec<Value>,
    pub(super) now: Timestamp,
}

/// The head of a table of them.
pub(super) const HEAD: [&str; 10] =
    ["NAMESPACE", "LEASE", "STATE", "HOLDER", "SINCE", "TRANSITIONS", "RENEWED", "DURATION", "STATUS", "CANDIDATES"];

impl Seen {
    /// `own` is the duration of a record that names a holder but no duration.
    pub(super) fn at(now: Timestamp, record: &LeaseRecord, own: Duration) -> Self {
        let metadata = &record.object()["metadata"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let annotation = |name| record.annotation(name).map(str::to_owned);
        let (renewed, duration) = (record.renew_time().and_then(moment), record.duration());
        let until = renewed.map(|renewed| renewed.saturating_add(duration.unwrap_or(own)).unwrap_or(Timestamp::MAX));
        let state = match record.state() {
            LeaseState::Resting if until.is_some_and(|until| now <= until) => State::Resting,
            LeaseState::Held if until.is_some_and(|until| now <= until) => State::Held,
            LeaseState::Held => State::Expired,
            LeaseState::Nobody => State::Nobody,
            LeaseState::Resting | LeaseState::Released | LeaseState::Free => State::Free,
        };
        Self {
            namespace: text(&metadata["namespace"]).unwrap_or_default(),
            name: text(&metadata["name"]).unwrap_or_default(),
            uid: record.uid().to_owned(),
            kind: text(&metadata["labels"][KIND_LABEL]),
            state,
            holder: if state == State::Nobody { None } else { record.holder().map(str::to_owned) },
            paused: record.is_paused(),
            since: record.acquire_time().and_then(moment),
            transitions: record.transitions(),
            renewed,
            duration,
            until,
            fires: [FIRE, NEXT_FIRE].map(|name| record.annotation(name).and_then(moment)),
            obituary: if state == State::Free { annotation(OBITUARY) } else { None },
            status: if state == State::Held { annotation(STATUS) } else { None },
            candidates: candidates(record.object()),
            now,
        }
    }

    pub(super) fn row(&self) -> [String; 8] {
        let moment = |time: Option<Timestamp>| time.map_or_else(|| "-".into(), to_the_second);
        // After a handover the time on the Lease is ahead, because each is a second later than the one before.
        let is_step = |since: &Timestamp| *since > self.now && since.duration_since(self.now).unsigned_abs() < AHEAD;
        let since = self.since.map(|since| if is_step(&since) { self.now } else { since });
        let ends = matches!(self.state, State::Nobody | State::Resting);
        let until = match self.fires[1] {
            Some(fire) => format!(", next fire {}", to_the_second(fire)),
            None if ends => format!(", until {}", moment(self.until)),
            None => self.why_free(),
        };
        [
            self.name.clone(),
            format!("{}{until}{}", self.state.as_str(), if self.paused { ", paused" } else { "" }),
            self.holder.clone().unwrap_or_else(|| "-".into()),
            moment(since),
            self.transitions.to_string(),
            self.renewed.map_or_else(|| "-".into(), |renewed| spoken(ago(self.now, renewed))),
            self.status.clone().unwrap_or_default(),
            self.candidates.iter().filter_map(|one| named(one, self.now)).collect::<Vec<_>>().join(", "),
        ]
    }

    /// Returns why no candidate acquires a free Lease, as the end of its state, if they say so.
    fn why_free(&self) -> String {
        if self.state != State::Free || self.candidates.is_empty() {
            return String::new();
        }
        let ready = self.candidates.iter().filter(|candidate| candidate["ready"] == true);
        match ready.map(|candidate| backoff(candidate, self.now)).min() {
            None => ", no candidate is ready".into(),
            Some(Some(first)) => format!(", every candidate backs off until {} or later", to_the_second(first)),
            Some(None) => String::new(),
        }
    }

    /// Returns its line in a table; `namespaced` and `wide` fill columns that others leave out.
    pub(super) fn line(&self, namespaced: bool, wide: bool) -> Line<10> {
        let shown = |is_shown: bool, cell: &str| if is_shown { cell.to_owned() } else { String::new() };
        let span = self.duration.map_or_else(|| "-".into(), duration::format);
        let [name, state, holder, since, transitions, renewed, status, candidates] = self.row();
        let (namespace, span) = (shown(namespaced || wide, &self.namespace), shown(wide, &span));
        ([namespace, name, state, holder, since, transitions, renewed, span, status, candidates], self.document())
    }

    /// Returns how soon somebody should look at it: 0 first.
    pub(super) fn rank(&self) -> u8 {
        match self.state {
            State::Expired => 0,
            State::Nobody => 1,
            State::Free if self.kind.is_none() => 2,
            State::Held | State::Resting | State::Free if self.paused => 3,
            State::Held => 4,
            State::Resting => 5,
            State::Free => 6,
        }
    }

    pub(super) fn document(&self) -> Document {
        let seconds = self.renewed.map(|renewed| ago(self.now, renewed) / 1_000_000).map(|millis| {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of a few centuries are exact in an f64")]
            let millis = millis as f64;
            millis / 1000.0
        });
        Document(vec![
            ("namespace", json!(self.namespace)),
            ("name", json!(self.name)),
            ("state", json!(self.state.as_str())),
            ("holder", json!(self.holder)),
            ("paused", json!(self.paused)),
            ("since", json!(self.since.map(|time| time.to_string()))),
            ("transitions", json!(self.transitions)),
            ("renewed", json!(self.renewed.map(|time| time.to_string()))),
            ("renewedSecondsAgo", json!(seconds)),
            ("durationSeconds", json!(self.duration.map(|duration| duration.as_secs()))),
            ("until", json!(self.until.map(|time| time.to_string()))),
            ("fire", json!(self.fires[0].map(|time| time.to_string()))),
            ("nextFire", json!(self.fires[1].map(|time| time.to_string()))),
            ("obituary", json!(self.obituary)),
            ("status", json!(self.status)),
            ("candidates", json!(self.candidates)),
        ])
    }
}

/// Returns true if tenure made this Lease, or wrote to it.
pub(super) fn is_ours(lease: &LeaseRecord) -> bool {
    let metadata = &lease.object()["metadata"];
    let annotations = metadata["annotations"].as_object();
    let is_annotated = annotations.is_some_and(|all| all.keys().any(|name| name.starts_with("tenure.dev/")));
    is_annotated || metadata["labels"][MANAGED_BY] == TENURE
}

/// The annotations of candidates, without that of whoever leads.
pub(super) fn candidates(object: &Value) -> Vec<Value> {
    let holder = object.pointer("/spec/holderIdentity");
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    let texts = annotations.filter(|(name, _)| name.starts_with(CANDIDATE)).filter_map(|(_, text)| text.as_str());
    let entries = texts.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    entries.filter(|entry| entry["identity"].is_string() && entry.get("identity") != holder).collect()
}

/// A candidate in a table.
fn named(candidate: &Value, now: Timestamp) -> Option<String> {
    let identity = candidate["identity"].as_str()?;
    let name = base_of(identity);
    let state = match (&candidate["ready"], backoff(candidate, now)) {
        (Value::Bool(true), Some(until)) => format!(" (backs off until {})", to_the_second(until)),
        (Value::Bool(true), None) => String::new(),
        _ => " (not ready)".into(),
    };
    Some(format!("{name}{state}"))
}

/// The end of a candidate's backoff. The annotation may be older than that.
fn backoff(candidate: &Value, now: Timestamp) -> Option<Timestamp> {
    candidate["backoffUntil"].as_str()?.parse().ok().filter(|until| *until > now)
}

/// jiff cannot represent the API's last day, because it leaves room for other time zones.
fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| text.starts_with("9999-12-31T").then_some(Timestamp::MAX))
}

/// As tables have it.
pub(super) fn to_the_second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Nanoseconds from `then` to `now`; negative if `then` is in the future.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> i128 {
    now.as_nanosecond() - then.as_nanosecond()
}

/// After a renewal, a release and an acquisition in a row the time on a Lease is two seconds ahead of a right clock, because each is at
/// least a second later than the one before.
const AHEAD: Duration = Duration::from_secs(3);

fn spoken(ago: i128) -> String {
    let span = Duration::from_secs(u64::try_from(ago.unsigned_abs() / 1_000_000_000).unwrap_or(u64::MAX));
    if ago < 0 && span < AHEAD {
        return "0s ago".into();
    }
    let (ahead, span) = (ago < 0, duration::format(span));
    if ahead { format!("{span} ahead of this clock") } else { format!("{span} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Output, commands::table::shown};

    const OWN: Duration = Duration::from_secs(15);

    fn lease(spec: Value) -> Value {
        let metadata = json!({ "namespace": "shop", "name": "billing", "uid": "u", "resourceVersion": "7" });
        json!({ "metadata": metadata, "spec": spec })
    }

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn said(output: Output, seen: &Seen, many: bool) -> String {
        shown(output, many, HEAD, &[seen.line(false, false)])
    }

    fn look(lease: Value) -> Seen {
        Seen::at("2026-01-01T00:00:10Z".parse().unwrap(), &LeaseRecord::read(lease.into()).unwrap(), OWN)
    }

    fn seen(spec: Value) -> Seen {
        look(lease(spec))
    }

    fn held(renewed: &str, duration: Value) -> State {
        seen(json!({ "holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": duration })).state
    }

    #[test]
    fn a_lease_is_held_until_its_duration_after_the_renewal_is_over() {
        assert_eq!(held("2026-01-01T00:00:07.000000Z", json!(3)), State::Held);
        assert_eq!(held("2026-01-01T00:00:06.999999Z", json!(3)), State::Expired);
        assert_eq!(held("2026-01-01T01:00:00.000000Z", json!(3)), State::Held);
    }

    #[test]
    fn without_a_duration_the_own_one_counts_and_without_a_renewal_none() {
        assert_eq!(held("2025-12-31T23:59:55.000000Z", Value::Null), State::Held);
        assert_eq!(held("2025-12-31T23:59:54.000000Z", Value::Null), State::Expired);
        assert_eq!(held("yesterday", json!(3)), State::Expired);
    }

    #[test]
    fn without_a_holder_it_is_free() {
        for spec in [json!({ "holderIdentity": "", "leaseDurationSeconds": 1 }), json!({}), Value::Null] {
            assert_eq!(seen(spec).state, State::Free);
        }
    }

    #[test]
    fn what_nobody_holds_is_nobodys_until_its_duration_is_over_and_after() {
        for (renewed, until) in
            [("2026-01-01T00:00:07Z", "2026-01-01T00:00:22Z"), ("2025-12-31T00:00:00Z", "2025-12-31T00:00:15Z")]
        {
            let seen = seen(json!({ "holderIdentity": "tenure.dev/nobody", "renewTime": renewed, "leaseDurationSeconds": 15 }));
            assert_eq!(seen.row()[1..3], [format!("nobody, until {until}"), "-".into()]);
            let said = read(&said(Output::Json, &seen, false));
            assert_eq!((&said["state"], &said["holder"], &said["until"]), (&json!("nobody"), &Value::Null, &json!(until)));
        }
    }

    #[test]
    fn a_lease_rests_until_its_next_run_is_due_and_is_free_then() {
        for (renewed, state) in
            [("2026-01-01T00:00:07Z", "resting, until 2026-01-01T00:00:22Z"), ("2025-12-31T00:00:00Z", "free")]
        {
            let mut lease = lease(json!({ "holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 15 }));
            lease["metadata"]["annotations"] = json!({ "tenure.dev/rests": format!("{renewed} a") });
            let seen = look(lease);
            assert_eq!(seen.row()[1..3], [state.to_owned(), "a".into()]);
        }
    }

    #[test]
    fn the_fire_of_the_last_run_and_the_next_one_are_shown_while_the_task_runs_and_rests() {
        let mut lease = lease(json!({ "holderIdentity": "a", "renewTime": "2026-01-01T00:00:07Z", "leaseDurationSeconds": 15 }));
        let [fire, next] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
        lease["metadata"]["annotations"] = json!({ "tenure.dev/fire": fire, "tenure.dev/next-fire": next });
        for (rests, state) in [("", "held"), ("2026-01-01T00:00:07Z a", "resting")] {
            lease["metadata"]["annotations"]["tenure.dev/rests"] = rests.into();
            let seen = look(lease.clone());
            assert_eq!(seen.row()[1], format!("{state}, next fire {next}"));
            let said = read(&said(Output::Json, &seen, false));
            assert_eq!([&said["fire"], &said["nextFire"]], [&json!(fire), &json!(next)]);
        }
    }

    #[test]
    fn that_nobody_may_take_it_is_shown() {
        for (value, paused) in [("true", true), ("yes", true), ("false", false)] {
            let mut lease = lease(json!({}));
            lease["metadata"]["annotations"] = json!({ "tenure.dev/paused": value });
            let seen = look(lease);
            assert_eq!(seen.row()[1], if paused { "free, paused" } else { "free" }, "{value}");
            assert_eq!(read(&said(Output::Json, &seen, false))["paused"], paused);
        }
    }

    #[test]
    fn nonsense_is_shown_as_far_as_it_goes() {
        let nonsense = seen(json!({ "holderIdentity": 7, "renewTime": [], "leaseTransitions": -1, "leaseDurationSeconds": "x" }));
        assert_eq!(nonsense.row(), ["billing", "free", "-", "-", "0", "-", "", ""]);
    }

    #[test]
    fn a_renewal_is_spoken_of_in_whole_seconds_and_the_step_of_a_release_is_no_skew() {
        let spoken: Vec<_> = [999, -999, -2_500, 61_500, -3_500].map(|millis: i128| spoken(millis * 1_000_000)).into();
        assert_eq!(spoken, ["0s ago", "0s ago", "0s ago", "1m1s ago", "3s ahead of this clock"]);
    }

    #[test]
    fn a_term_that_begins_a_moment_ahead_is_shown_as_begun_now() {
        let since = |acquired: &str| seen(json!({ "holderIdentity": "a", "acquireTime": acquired })).row()[3].clone();
        assert_eq!(since("2026-01-01T00:00:09.500000Z"), "2026-01-01T00:00:09Z");
        assert_eq!(since("2026-01-01T00:00:11.500000Z"), "2026-01-01T00:00:10Z");
        assert_eq!(since("2026-01-01T00:00:13.500000Z"), "2026-01-01T00:00:13Z", "by a clock that is ahead");
    }

    #[test]
    fn a_holder_cannot_write_on_the_terminal() {
        let text = said(Output::Table, &seen(json!({ "holderIdentity": "a\u{1b}[2Jb\nc", "leaseDurationSeconds": 15 })), false);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("a\u{fffd}[2Jb c"), "{text}");
    }

    #[test]
    fn no_form_holds_characters_that_a_terminal_obeys_or_hides() {
        let seen = seen(json!({ "holderIdentity": "a\u{9b}2J\u{202e}b\u{2028}c\u{e0041}", "leaseDurationSeconds": 15 }));
        let [table, json, yaml] = [Output::Table, Output::Json, Output::Yaml].map(|output| said(output, &seen, false));

        assert!(table.contains("a\u{fffd}2J\u{fffd}b c\u{fffd}"), "{table}");
        assert!(json.contains(r#""a\u009b2J\u202eb\u2028c\udb40\udc41""#), "{json}");
        assert!(yaml.contains(r#""a\U0000009b2J\U0000202eb\U00002028c\U000e0041""#), "{yaml}");
        assert_eq!(read(&json)["holder"], *seen.holder.as_ref().unwrap());
    }

    #[test]
    fn what_the_leader_says_of_itself_is_shown_while_it_holds() {
        let status = |renewed: &str| {
            let mut lease = lease(json!({ "holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 3 }));
            lease["metadata"]["annotations"] = json!({ "tenure.dev/status": "7 of 9\u{1b} done" });
            look(lease)
        };
        let held = status("2026-01-01T00:00:09Z");
        let text = said(Output::Table, &held, false);
        assert!(text.contains("RENEWED   STATUS\n") && text.contains("1s ago    7 of 9\u{fffd} done\n"), "{text}");
        assert_eq!(read(&said(Output::Json, &held, false))["status"], "7 of 9\u{1b} done");
        let expired = status("2026-01-01T00:00:06Z");
        let text = said(Output::Table, &expired, false);
        assert!(!text.contains("7 of 9") && !text.contains("STATUS"), "{text}");
        assert_eq!(read(&said(Output::Json, &expired, false))["status"], Value::Null);
    }

    #[test]
    fn candidates_are_shown_without_the_leader() {
        let entry = |identity: &str, ready: bool| json!({ "identity": identity, "ready": ready, "version": "1" }).to_string();
        let mut lease = lease(json!({ "holderIdentity": "a_1", "renewTime": "2026-01-01T00:00:09Z", "leaseDurationSeconds": 3 }));
        lease["metadata"]["annotations"] = json!({
            "candidate.tenure.dev/1": entry("a_1", true), "candidate.tenure.dev/2": entry("b_2", true),
            "candidate.tenure.dev/3": entry("c\u{1b}_3", false), "candidate.tenure.dev/4": "nonsense",
            "candidate.tenure.dev/5": json!({ "identity": "d_5", "ready": true, "backoffUntil": "2026-01-01T00:00:30.250000Z" }).to_string(),
            "candidate.tenure.dev/6": json!({ "identity": "e_6", "ready": true, "backoffUntil": "2026-01-01T00:00:09Z" }).to_string(),
        });
        let seen = look(lease);
        let text = said(Output::Table, &seen, false);
        assert!(
            text.contains("CANDIDATES\n")
                && text.contains("   b, c\u{fffd} (not ready), d (backs off until 2026-01-01T00:00:30Z), e\n"),
            "{text}"
        );
        let identities: Vec<_> = seen.candidates.iter().map(|candidate| &candidate["identity"]).collect();
        assert_eq!(identities, ["b_2", "c\u{1b}_3", "d_5", "e_6"]);
    }

    #[test]
    fn a_free_lease_says_why_no_candidate_acquires_it() {
        let said_of = |spec: &Value, candidates: &[Value]| {
            let mut lease = lease(spec.clone());
            let texts = candidates.iter().enumerate().map(|(at, one)| (format!("{CANDIDATE}{at}"), json!(one.to_string())));
            lease["metadata"]["annotations"] = texts.collect();
            said(Output::Table, &look(lease), false)
        };
        let candidate = |ready: bool, until: &str| json!({ "identity": "a_1", "ready": ready, "backoffUntil": until });
        let (early, late) = (candidate(true, "2026-01-01T00:00:30Z"), candidate(true, "2026-01-01T00:01:00Z"));
        let (free, held) =
            (json!({ "holderIdentity": "" }), json!({ "holderIdentity": "b_2", "renewTime": "2026-01-01T00:00:09Z" }));

        let all = said_of(&free, &[late.clone(), early.clone(), candidate(false, "")]);
        let unfit = said_of(&free, &[candidate(false, "2026-01-01T00:00:30Z")]);
        let others = [
            said_of(&free, &[]),
            said_of(&free, &[early.clone(), candidate(true, "2026-01-01T00:00:09Z")]),
            said_of(&held, &[early, late]),
        ];

        assert!(all.contains("   free, every candidate backs off until 2026-01-01T00:00:30Z or later   "), "{all}");
        assert!(unfit.contains("   free, no candidate is ready   "), "{unfit}");
        assert!(others.iter().all(|text| !text.contains("candidate")), "{others:?}");
    }

    #[test]
    fn a_holder_of_any_length_leaves_a_table() {
        let text = said(Output::Table, &seen(json!({ "holderIdentity": "a".repeat(70_000), "leaseDurationSeconds": 15 })), false);
        assert!(text.lines().count() == 2 && text.len() < 4_000 && text.contains("aaa…   -"), "{text}");
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let seen = seen(json!({
            "holderIdentity": "pod-1_ab", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.999999Z", "renewTime": "2026-01-01T00:00:08.500000Z",
        }));
        assert_eq!(
            said(Output::Table, &seen, false),
            "LEASE     STATE   HOLDER     SINCE                  TRANSITIONS   RENEWED\n\
             billing   held    pod-1_ab   2026-01-01T00:00:00Z   3             1s ago\n"
        );
        let object = read(&said(Output::Json, &seen, false));
        assert_eq!((&object["renewedSecondsAgo"], &object["state"]), (&json!(1.5), &json!("held")));
        assert_eq!(read(&said(Output::Json, &seen, true)), json!([object]));
        assert!(said(Output::Json, &seen, false).starts_with("{\n  \"namespace\": \"shop\",\n  \"name\": \"billing\",\n"));
        assert!(said(Output::Yaml, &seen, false).contains("\nholder: \"pod-1_ab\"\n"));
        assert!(said(Output::Yaml, &seen, true).starts_with("- namespace: \"shop\"\n  name: \"billing\"\n"));
    }
}
