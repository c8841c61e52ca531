//! `tenure prune`: deletes Leases that nobody uses.
//!
//! Owns which Leases are listed, and the wait. [`operator`] says which of them nobody uses. Everything goes only in the version that
//! was listed. With the Lease of a transaction goes its settled journal.

use std::time::Duration;

use serde_json::json;

use super::{
    Ended,
    access::{self, Which},
    interrupts::Interrupts,
    seen::Seen,
    table::{Line, shown},
    transaction,
};
use crate::{
    alarm::sleep_until,
    cli::{self, Output},
    clock,
    config::duration,
    console::{answer, complain, refuse},
    election::{
        record::LeaseRecord,
        writes::{KIND_LABEL, LeaseWrite, MANAGED_BY, TENURE, operator},
    },
    exit,
};

const REFUSED: u8 = 1;
const ABSENT: u8 = 2;
const DELETED: &str = "deleted";

pub(super) fn run(prune: &cli::Prune) -> Ended {
    access::look(&prune.flags, false, async |config, access, namespace| {
        let namespace = if prune.all_namespaces { "" } else { namespace };
        if !prune.dry_run {
            let whose = if prune.all_namespaces { "all namespaces".into() } else { format!("namespace {namespace}") };
            access.announce(&format!("Leases of {whose}"));
        }
        let selector = selector(prune.selector.as_deref().unwrap_or_default());
        let leases = access.leases(namespace, Which::Selected(&selector)).await;
        let (leases, _) = leases.map_err(|error| access.complain(&error, true))?;
        if leases.is_empty()
            && !prune.all_namespaces
            && let Some(why) = access.lacks_namespace(namespace).await
        {
            complain(&why);
            return Ok(answer(&shown(prune.output, true, HEAD, &[]), ABSENT));
        }
        let listed = clock::boot();
        let mut found: Vec<_> = leases.into_iter().filter_map(|lease| Unused::of(lease, prune)).collect();
        found.sort_by_key(|unused| unused.watched);
        if let Some(last) = found.last().filter(|last| !prune.dry_run && !last.watched.is_zero()) {
            complain(&format!("some look expired, and are watched for {}", duration::format(last.watched)));
        }
        let (mut refused, mut is_interrupted) = (None, false);
        let interrupts = Interrupts::catch();
        let mut interrupts = interrupts.map_err(|error| refuse(exit::INTERNAL, &format!("cannot wait for signals: {error}")))?;
        for unused in found.iter_mut().filter(|_| !prune.dry_run) {
            tokio::select! {
                biased;
                () = interrupts.next() => is_interrupted = true,
                () = sleep_until(config.timing().takeable(listed, unused.watched)) => {}
            }
            if is_interrupted {
                break;
            }
            let Seen { namespace, name, .. } = &unused.seen;
            unused.outcome = match access.write(namespace, name, &LeaseWrite::delete(&unused.record)).await {
                Ok(()) => {
                    transaction::discard(access, namespace, name).await;
                    DELETED
                }
                Err(error) if matches!(error.status, Some(404 | 409)) => "in use",
                Err(error) => {
                    refused = Some((access.complain(&error, false), error.status));
                    if error.status.is_some() { "refused" } else { "unknown" }
                }
            };
            if unused.outcome == "unknown" {
                break;
            }
        }
        let code = match refused {
            None if is_interrupted => REFUSED,
            None => 0,
            Some((code, None)) => code,
            Some((code @ exit::NOT_PERMITTED, _)) if found.iter().all(|unused| unused.outcome == "refused") => code,
            Some(_) => REFUSED,
        };
        // A name has no outcome beside it.
        let is_named = |unused: &Unused| prune.dry_run || prune.output != Output::Name || unused.outcome == DELETED;
        let lines: Vec<_> = found.into_iter().filter(is_named).map(|unused| unused.line(prune.all_namespaces)).collect();
        Ok(answer(&shown(prune.output, true, HEAD, &lines), code))
    })
}

/// Selects the Leases that tenure made: those of locks, unless `asked` names a kind. Leases of `run` have no kind, and a replica may
/// lack the right to create its Lease again.
fn selector(asked: &str) -> String {
    let is_kind = |part: &str| {
        let mut words = part.split(|c: char| c.is_whitespace() || "!=<>".contains(c));
        words.find(|word| !word.is_empty()) == Some(KIND_LABEL)
    };
    let kind = if asked.split(',').any(is_kind) { String::new() } else { format!("{KIND_LABEL}=lock") };
    [format!("{MANAGED_BY}={TENURE}").as_str(), &kind, asked]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

/// A Lease that may be deleted as it was listed.
struct Unused {
    seen: Seen,
    record: LeaseRecord,
    /// For how long it has to stay as it is first.
    watched: Duration,
    outcome: &'static str,
}

const HEAD: [&str; 6] = ["NAMESPACE", "LEASE", "STATE", "HOLDER", "RENEWED", "OUTCOME"];

impl Unused {
    fn of(record: LeaseRecord, prune: &cli::Prune) -> Option<Self> {
        let seen = Seen::at(clock::timestamp(), &record, Duration::ZERO);
        let watched = operator::unused_after(&record, prune.older_than, prune.schedules, clock::wall())?;
        Some(Self { seen, record, watched, outcome: "candidate" })
    }

    fn line(self, namespaced: bool) -> Line<6> {
        let namespace = if namespaced { self.seen.namespace.clone() } else { String::new() };
        let ([name, state, holder, _, _, renewed, ..], mut document) = (self.seen.row(), self.seen.document());
        document.0.push(("outcome", json!(self.outcome)));
        ([namespace, name, state, holder, renewed, self.outcome.into()], document)
    }
}
