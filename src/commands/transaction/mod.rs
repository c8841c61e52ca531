//! `tenure apply`, `recover`, `promote` and `demote`: changes to several objects, all made or all undone (docs/transactions.md).
//!
//! Owns files, discovery, requests, output and exit codes. The room [`crate::transaction`] decides what is sent, and when. A command
//! that changes something becomes the init of `tenure lock` first, which runs it again: there is no second way to hold a Lease.

use std::{env, time::Duration};

use self::{discovery::Kinds, files::Files, lock::Term, server::ApiServer};
use super::{
    Ended,
    access::{self, Access},
};
use crate::{
    cli::{self, ClusterFlags, ConfigFlags, Lock, Recovery, TransactionFlags},
    clock,
    config::{Config, Release},
    console::complain,
    exit,
    loading::Purpose,
    telemetry::Observer,
    time::Instant,
    transaction::{self, Change, Event, Kind, Outcome, Place, Settings},
};

mod discovery;
mod files;
mod lock;
mod output;
mod server;

pub(super) use files::documents;
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
    let common = &asked.common;
    let files = Files::read(&asked.files, None).map_err(refuse_files)?;
    let (flags, how) = of_transaction(asked.name.as_ref().or(files.name.as_ref()), common);
    if flags.lease.is_none() {
        return Err(refuse(exit::USAGE, "name the transaction: tenure apply NAME -f FILE"));
    }
    let limit = asked.limit.or(files.limit).unwrap_or(LIMIT);
    under_lease(&flags, &how, !asked.dry_run, &files.notes, limit, async |mut desk| {
        let changes = desk.changes(&files).await?;
        if let Some(user) = &common.flags.cluster.user {
            desk.settings.acting_as = Some(user.clone());
        }
        if asked.dry_run {
            return Ok(desk.previewed(common.output, &changes, Kind::Transaction).await);
        }
        let (outcome, events) = desk.driven(transaction::apply(&desk.server, desk.settings.clone(), &changes)).await;
        Ok(output::ended(common.output, &outcome, &desk.settings.lease, &changes, &events))
    })
}

pub(super) fn recover(asked: &cli::Recover) -> Ended {
    let common = &asked.common;
    let (flags, how) = of_transaction(asked.name.as_ref(), common);
    under_lease(&flags, &how, asked.action != Recovery::Plan, &[], asked.limit, async |desk| {
        let settings = Settings { acting_as: common.flags.cluster.user.clone(), ..desk.settings.clone() };
        let (outcome, events) = match asked.action {
            Recovery::Plan => {
                let entries = transaction::survey(&desk.server, settings).await;
                return Ok(output::surveyed(common.output, &desk.settings.lease, entries));
            }
            Recovery::Apply => desk.driven(transaction::recover(&desk.server, settings, asked.force)).await,
            Recovery::Forget => desk.driven(transaction::forget(&desk.server, settings)).await,
        };
        Ok(output::ended(common.output, &outcome, &desk.settings.lease, &[], &events))
    })
}

pub(super) fn promote(asked: &cli::Promote) -> Ended {
    let files = Files::read(&asked.files, Some(|name| env::var(name).ok())).map_err(refuse_files)?;
    in_hook(&asked.flags, asked.limit.or(files.limit).unwrap_or(HOOK_LIMIT), async |mut desk| {
        super::warn(&files.notes);
        let changes = desk.changes(&files).await?;
        if asked.dry_run {
            return Ok(desk.previewed(cli::Output::Table, &changes, Kind::Promotion).await);
        }
        let (outcome, _) = desk.driven(transaction::promote(&desk.server, desk.settings.clone(), &changes)).await;
        Ok(output::concluded(&outcome, &desk.settings.lease))
    })
}

pub(super) fn demote(asked: &cli::Demote) -> Ended {
    in_hook(&asked.flags, asked.limit, async |desk| {
        let (outcome, _) = desk.driven(transaction::demote(&desk.server, desk.settings.clone())).await;
        Ok(output::concluded(&outcome, &desk.settings.lease))
    })
}

impl<'a> Desk<'a> {
    /// Prepares a driver, in this term if there is one. Says why it cannot, and returns the exit code.
    fn open(config: &Config, access: &'a Access, namespace: &'a str, term: Option<Term>, limit: Duration) -> Result<Self, u8> {
        if config.lease.release == Release::Delete {
            let why = "lease.release: delete takes what the Lease announces with it: use clear or keep";
            return Err(refuse(exit::INVALID, why));
        }
        let (token, by) = term.as_ref().map(|term| (term.token.clone(), term.identity.clone())).unwrap_or_default();
        let settings = Settings {
            lease: Place { namespace: namespace.into(), name: config.lease.name.clone() },
            token,
            by,
            acting_as: None,
            limit,
            began: clock::timestamp().to_string(),
            seed: getrandom::u64().unwrap_or_else(|_| clock::boot().as_nanos()),
        };
        match ApiServer::new(access, term, config.lease.attempt_timeout) {
            Ok(server) => Ok(Self { server, settings }),
            Err(error) => Err(refuse(exit::INTERNAL, &format!("signals cannot be awaited: {error}"))),
        }
    }

    /// Turns what was written into changes of objects that the server serves, as the account that it names.
    ///
    /// # Errors
    /// The exit code for the first of them that cannot be one, which is said.
    async fn changes(&mut self, files: &Files) -> Result<Vec<Change>, u8> {
        let lease = &self.settings.lease;
        let namespace = files.namespace.as_deref().unwrap_or(&lease.namespace);
        let mut kinds = Kinds::default();
        let mut changes: Vec<Change> = Vec::new();
        for written in &files.changes {
            let refused = |code, why: &str| refuse(code, &format!("{}: {why}", written.shown()));
            let resource = kinds.of(self.server.access, &written.target).await.map_err(|(code, why)| refused(code, &why))?;
            let change = written.change(resource, namespace);
            if changes.iter().any(|other| files::is_same(&other.target, &change.target)) {
                return Err(refused(exit::INVALID, "this object is a target twice"));
            }
            let target = &change.target;
            let is_beside = target.is_secret() && target.namespace.as_ref() == Some(&lease.namespace);
            if is_beside && target.name == lease.journal() {
                return Err(refused(exit::INVALID, "this is the journal of the transaction"));
            }
            changes.push(change);
        }
        self.settings.acting_as = files.account.as_ref().map(|name| format!("system:serviceaccount:{namespace}:{name}"));
        Ok(changes)
    }

    /// Shows what a driver would change now; returns the exit code.
    async fn previewed(&self, form: cli::Output, changes: &[Change], kind: Kind) -> u8 {
        let planned = transaction::preview(&self.server, self.settings.clone(), changes, kind).await;
        output::previewed(form, &self.settings.lease, planned)
    }

    /// Runs a driver, and exports what it did. Returns its outcome and events.
    async fn driven(&self, driver: impl Future<Output = Outcome>) -> (Outcome, Vec<(Instant, Event)>) {
        let observer = Observer::start(&self.settings.by, &self.settings.lease, |name| env::var(name).ok());
        let outcome = driver.await;
        if matches!(outcome, Outcome::Committed(_)) && self.server.is_interrupted() {
            complain("the signal came too late: the changes were made already");
        }
        let events = self.server.told();
        observer.finish(&events, &outcome).await;
        (outcome, events)
    }
}

/// Does something in the term of the Lease for which this hook runs.
fn in_hook(flags: &ConfigFlags, limit: Duration, act: impl AsyncFnOnce(Desk<'_>) -> Ended) -> Ended {
    let term = lock::term().map_err(|why| refuse(exit::INVALID, &format!("this command runs in a hook: {why}")))?;
    Ok(at_desk(&access::on_lease(None, flags), Some(term), limit, act))
}

/// Does something in the term of the Lease that `flags` name: becomes `tenure lock`, unless this is the command that it runs. The notes
/// are said once.
fn under_lease(
    flags: &ConfigFlags,
    how: &Lock,
    needs_term: bool,
    notes: &[String],
    limit: Duration,
    act: impl AsyncFnOnce(Desk<'_>) -> Ended,
) -> Ended {
    if !needs_term {
        super::warn(notes);
        return Ok(at_desk(flags, None, limit, act));
    }
    if !lock::is_inside(&super::load(flags, &[], Purpose::Look)?.config) {
        super::warn(notes);
        return lock::under_lock(flags, how, limit).map_err(|why| refuse(exit::USAGE, &why));
    }
    let term = lock::term().map_err(|why| refuse(exit::INVALID, &why))?;
    Ok(at_desk(flags, Some(term), limit, async |desk| {
        desk.server.access.announce(&format!("transaction of Lease {}", desk.settings.lease));
        act(desk).await
    }))
}

fn at_desk(flags: &ConfigFlags, term: Option<Term>, limit: Duration, act: impl AsyncFnOnce(Desk<'_>) -> Ended) -> u8 {
    access::look(flags, true, async |config, access, namespace| match Desk::open(config, access, namespace, term, limit) {
        Ok(desk) => act(desk).await.unwrap_or_else(|code| code),
        Err(code) => code,
    })
}

fn refuse_files(reasons: Vec<String>) -> u8 {
    refuse(exit::INVALID, &reasons.join("\ntenure: "))
}

/// The flags for the Lease of the transaction of this name, unless they name it. A Lease that they name may be a replica's, whose release
/// others will believe: then an earlier holder is waited for.
fn of_transaction(name: Option<&String>, common: &TransactionFlags) -> (ConfigFlags, Lock) {
    let flags = &common.flags;
    let lease = flags.lease.clone().or_else(|| name.map(|name| format!("txn-{name}")));
    // The Lease and the journal are tenure's own.
    let cluster = ClusterFlags { user: None, ..flags.cluster.clone() };
    let how = Lock { of_transaction: flags.lease.is_none(), ..common.how.clone() };
    (ConfigFlags { lease, cluster, ..flags.clone() }, how)
}

fn refuse(code: u8, why: &str) -> u8 {
    complain(why);
    code
}
