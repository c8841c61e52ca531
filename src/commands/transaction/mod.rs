//! `tenure apply`, `recover`, `promote` and `demote`: changes to several objects, all made or all undone (docs/transactions.md).
//!
//! Owns the file, discovery, requests, output and exit codes. The room [`crate::transaction`] decides what is sent, and when.
//! `apply` and `recover` become the init of `tenure lock` first, which runs them again: there is no second way to hold a Lease.
//! `promote` and `demote` run as hooks of a replica, which learns their exit code only.

use std::{env, time::Duration};

use self::{discovery::Kinds, file::Wanted, lock::Term, server::ApiServer};
use super::{Ended, access};
use crate::{
    cli::{self, ClusterFlags, ConfigFlags, Lock, Output, Recovery, TransactionFlags},
    clock,
    config::Release,
    console::{complain, refuse},
    exit,
    loading::Purpose,
    telemetry::Observer,
    time::Instant,
    transaction::{self, Change, Event, Job, Kind, Outcome, Place, Settings},
};

mod discovery;
mod file;
mod lock;
mod output;
mod server;

pub(super) use server::discard;

/// How long a transaction may take, unless somebody says so.
const LIMIT: Duration = Duration::from_secs(300);
/// The same for a promotion: a hook has 10 s.
const HOOK_LIMIT: Duration = Duration::from_secs(5);

/// What a command works with.
struct Desk<'a> {
    server: ApiServer<'a>,
    settings: Settings,
}

pub(super) fn apply(asked: &cli::Apply) -> Ended {
    let wanted = Wanted::read(&asked.file, None).map_err(|why| refuse(exit::INVALID, &why))?;
    let (name, limit) = (asked.name.as_ref().or(wanted.name.as_ref()), asked.limit.or(wanted.limit).unwrap_or(LIMIT));
    under_lease(name, &asked.common, asked.dry_run, &wanted.notes, limit, async |mut desk| {
        let changes = desk.judged(Kind::Transaction, &wanted, asked.dry_run).await?;
        Ok(desk.carry_out(Job::Make(Kind::Transaction, &changes), Some(asked.common.output), asked.dry_run).await)
    })
}

pub(super) fn recover(asked: &cli::Recover) -> Ended {
    let (undo, looks) = (Job::Undo { kind: None, force: asked.force }, asked.action == Recovery::Plan);
    let job = if asked.action == Recovery::Forget { Job::Forget } else { undo };
    under_lease(asked.name.as_ref(), &asked.common, looks, &[], asked.limit, async |desk| {
        Ok(desk.carry_out(job, Some(asked.common.output), looks).await)
    })
}

pub(super) fn promote(asked: &cli::Promote) -> Ended {
    let wanted = Wanted::read(&asked.file, Some(|name| env::var(name).ok())).map_err(|why| refuse(exit::INVALID, &why))?;
    in_hook(&asked.flags, asked.limit.or(wanted.limit).unwrap_or(HOOK_LIMIT), async |mut desk| {
        super::warn(&wanted.notes);
        let changes = desk.judged(Kind::Promotion, &wanted, asked.dry_run).await?;
        let table = asked.dry_run.then_some(Output::Table);
        Ok(desk.carry_out(Job::Make(Kind::Promotion, &changes), table, asked.dry_run).await)
    })
}

pub(super) fn demote(asked: &cli::Demote) -> Ended {
    let job = Job::Undo { kind: Some(Kind::Promotion), force: false };
    in_hook(&asked.flags, asked.limit, async |desk| Ok(desk.carry_out(job, None, false).await))
}

impl Desk<'_> {
    /// Turns what was written into changes. If that cannot be, what a killed command has left is undone all the same.
    ///
    /// # Errors
    /// The exit code of the refusal, or of an undo that leaves something.
    async fn judged(&mut self, kind: Kind, wanted: &Wanted, looks: bool) -> Result<Vec<Change>, u8> {
        let refused = match self.changes(wanted).await {
            Err(code) if code != exit::UNAVAILABLE => code,
            changes => return changes,
        };
        let job = Job::Make(kind, &[]);
        let left = if looks {
            transaction::plan(&self.server, self.settings.clone(), job).await.err()
        } else {
            Some(self.drive(job).await.1).filter(|left| *left != Outcome::Nothing)
        };
        Err(left.map_or(refused, |left| output::concluded(&left, &self.settings.flags)))
    }

    /// Turns what was written into changes of objects that the server serves, as the account that it names.
    ///
    /// # Errors
    /// The exit code for the first of them that cannot be one, which is said.
    async fn changes(&mut self, wanted: &Wanted) -> Result<Vec<Change>, u8> {
        let lease = &self.settings.lease;
        let namespace = wanted.namespace.as_deref().unwrap_or(&lease.namespace);
        let mut kinds = Kinds::default();
        let mut changes: Vec<Change> = Vec::new();
        for (place, change) in &wanted.changes {
            let mut change = change.clone();
            let refused = |code, why: &str| refuse(code, &format!("{place}: {why}"));
            let resource = kinds.of(&self.server, &self.settings, &change.target).await;
            let resource = resource.map_err(|(code, why)| refused(code, &why))?;
            let own = change.target.namespace.take();
            if !resource.namespaced && own != wanted.namespace {
                return Err(refused(exit::INVALID, "this kind has no namespaces: remove the target's"));
            }
            change.target.namespace = resource.namespaced.then(|| own.unwrap_or_else(|| namespace.to_owned()));
            change.target.resource = resource.name;
            if changes.iter().any(|other| file::is_same(&other.target, &change.target)) {
                return Err(refused(exit::INVALID, "this object is a target twice"));
            }
            let target = &change.target;
            let is_beside = target.is_secret() && target.namespace.as_ref() == Some(&lease.namespace);
            if is_beside && target.name == lease.journal() {
                return Err(refused(exit::INVALID, "this is the journal of the transaction"));
            }
            changes.push(change);
        }
        let account = wanted.account.as_ref().map(|name| format!("system:serviceaccount:{namespace}:{name}"));
        self.settings.acting_as = self.settings.acting_as.take().or(account);
        Ok(changes)
    }

    /// Does a job, or shows what it would do, in this form; returns the exit code. None: no table.
    async fn carry_out(&self, job: Job<'_>, output: Option<Output>, looks: bool) -> u8 {
        if looks {
            let planned = transaction::plan(&self.server, self.settings.clone(), job).await;
            return output::planned(output, &self.settings.flags, job, planned);
        }
        let (events, outcome) = self.drive(job).await;
        output::ended(output, &self.settings.flags, job, &events, &outcome)
    }

    /// Does a job, and tells telemetry of it.
    async fn drive(&self, job: Job<'_>) -> (Vec<(Instant, Event)>, Outcome) {
        let observer = Observer::start(&self.settings.by, &self.settings.lease, |name| env::var(name).ok());
        let outcome = transaction::drive(&self.server, self.settings.clone(), job).await;
        if matches!(outcome, Outcome::Committed(_)) && self.server.is_interrupted() {
            complain("the signal came too late: the changes were made already");
        }
        let events = self.server.told();
        observer.finish(&events, &outcome).await;
        (events, outcome)
    }
}

/// Does something in the term of the Lease for which this hook runs.
fn in_hook(flags: &ConfigFlags, limit: Duration, act: impl AsyncFnOnce(Desk<'_>) -> Ended) -> Ended {
    let term = lock::term().map_err(|why| refuse(exit::INVALID, &format!("this command runs in a hook: {why}")))?;
    at_desk(&access::on_lease(None, flags), Some(term), limit, act)
}

/// Does something in the term of the Lease of the transaction of this name, unless the flags name a Lease: becomes `tenure lock`, unless
/// this is the command that it runs. Whoever only looks needs no term. The notes are said once.
fn under_lease(
    name: Option<&String>,
    common: &TransactionFlags,
    looks: bool,
    notes: &[String],
    limit: Duration,
    act: impl AsyncFnOnce(Desk<'_>) -> Ended,
) -> Ended {
    let lease = common.flags.lease.clone().or_else(|| name.map(|name| format!("txn-{name}")));
    if lease.is_none() {
        return Err(refuse(exit::USAGE, "name the transaction: tenure apply NAME -f FILE"));
    }
    // A look waits for an answer as the other commands do, and for another transaction as it is told.
    let patience = if common.how.at_once { Duration::ZERO } else { common.how.timeout.unwrap_or(access::TIMEOUT) };
    let limit = if looks { limit.min(patience) } else { limit };
    let request_timeout = (looks && !patience.is_zero()).then_some(patience.min(access::TIMEOUT));
    // The Lease and the journal are tenure's own.
    let cluster = ClusterFlags { user: None, request_timeout, ..common.flags.cluster.clone() };
    let flags = ConfigFlags { lease, cluster, ..common.flags.clone() };
    let config = super::load(&flags, &[], Purpose::Look)?.config;
    let is_inside = !looks && lock::is_inside(&config);
    if !is_inside {
        super::warn(notes);
        if !looks {
            // A Lease that the flags name may be a replica's, whose release others will believe: then an earlier holder is waited for.
            let how = Lock { of_transaction: common.flags.lease.is_none(), ..common.how.clone() };
            let lease_flags = output::lease_flags(&flags, &config.lease.name, &config.lease.namespace);
            return lock::under_lock(&flags, &how, limit, &lease_flags).map_err(|why| refuse(exit::USAGE, &why));
        }
    }
    let term = is_inside.then(lock::term).transpose().map_err(|why| refuse(exit::INVALID, &why))?;
    at_desk(&flags, term, limit, async |mut desk| {
        if is_inside {
            desk.server.access.announce(&format!("transaction of Lease {}", desk.settings.lease));
        }
        desk.settings.acting_as.clone_from(&common.flags.cluster.user);
        act(desk).await
    })
}

/// Does something in this term, if there is one.
fn at_desk(flags: &ConfigFlags, term: Option<Term>, limit: Duration, act: impl AsyncFnOnce(Desk<'_>) -> Ended) -> Ended {
    access::look(flags, true, async |config, access, namespace| {
        if config.lease.release == Release::Delete {
            let why = "lease.release: delete takes what the Lease announces with it: use clear or keep";
            return Err(refuse(exit::INVALID, why));
        }
        // Where the lock is, whatever the context says meanwhile.
        let here = term.as_ref().filter(|_| config.lease.namespace.is_empty());
        let namespace = here.map_or(namespace, |term| &term.namespace);
        let (token, by) = term.as_ref().map(|term| (term.token.clone(), term.identity.clone())).unwrap_or_default();
        let settings = Settings {
            lease: Place { namespace: namespace.into(), name: config.lease.name.clone() },
            token,
            by,
            flags: output::lease_flags(flags, &config.lease.name, namespace),
            acting_as: None,
            limit,
            started: clock::boot(),
            began: clock::timestamp().to_string(),
            seed: getrandom::u64().unwrap_or_else(|_| clock::boot().as_nanos()),
        };
        let server = ApiServer::new(access, term, config.lease.attempt_timeout)
            .map_err(|error| refuse(exit::INTERNAL, &format!("signals cannot be awaited: {error}")))?;
        act(Desk { server, settings }).await
    })
}
