//! `tenure apply`, `recover`, `promote` and `demote`: changes to several objects, all made or all undone (docs/transactions.md).
//!
//! Owns files, discovery, requests, output and exit codes. The room [`crate::transaction`] decides what is sent, and when. A command
//! that changes something becomes `tenure lock` first, which runs it again: there is no second way to hold a Lease.

use std::{env, time::Duration};

use self::{
    discovery::{Kinds, Unserved},
    files::Files,
    lock::Term,
    server::ApiServer,
};
use super::access::{self, Access};
use crate::{
    cli::{self, ConfigFlags, Lock, Recovery},
    clock,
    config::{self, Config, Purpose},
    console::complain,
    exit,
    telemetry::Observer,
    time::Instant,
    transaction::{self, Change, Event, Outcome, Place, Settings},
};

mod discovery;
mod files;
mod lock;
mod output;
mod server;

/// How long a transaction may take, unless somebody says so.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) fn apply(asked: &cli::Apply) -> u8 {
    let mut standard_input = String::new();
    match asked.files.iter().filter(|file| file.as_os_str() == "-").count() {
        0 => {}
        1 => match lock::standard_input() {
            Ok(text) => standard_input = text,
            Err(error) => return refuse(exit::INVALID, &format!("standard input: {error}")),
        },
        _ => return refuse(exit::INVALID, "standard input can be read only once: write -f - only once"),
    }
    let files = match Files::read(&asked.files, &standard_input) {
        Ok(files) => files,
        Err(refused) => return refuse(exit::INVALID, &refused.join("\ntenure: ")),
    };
    let flags = match (asked.name.as_ref().or(files.name.as_ref()), &asked.flags.lease) {
        (_, Some(_)) => asked.flags.clone(),
        (Some(name), None) => of_transaction(name, &asked.flags),
        (None, None) => return refuse(exit::USAGE, "name the transaction: tenure apply NAME -f FILE"),
    };
    let limit = asked.limit.or(files.limit).unwrap_or(LIMIT);
    under_lease(&flags, &asked.how, !asked.dry_run, &files.notes, async |config, access, namespace, term| {
        let place = journal(config, namespace);
        let namespace = files.namespace.as_deref().unwrap_or(namespace);
        let changes = match changes(&files, access, namespace, &place).await {
            Ok(changes) => changes,
            Err(Unserved { code, why }) => return refuse(code, &why),
        };
        let account = files.account.as_ref().map(|name| format!("system:serviceaccount:{namespace}:{name}"));
        let settings = settings(place, term.as_ref(), asked.user.clone().or(account), limit);
        let server = match ApiServer::new(access, term, config.lease.attempt_timeout) {
            Ok(server) => server,
            Err(error) => return refuse(exit::INTERNAL, &format!("signals cannot be awaited: {error}")),
        };
        if asked.dry_run {
            return output::previewed(asked.output, transaction::preview(&server, settings, &changes).await);
        }
        let apply = async |settings| transaction::apply(&server, settings, &changes).await;
        let (outcome, events) = driven(&server, settings, apply).await;
        output::ended(asked.output, &outcome, &changes, &events)
    })
}

pub(super) fn recover(asked: &cli::Recover) -> u8 {
    let flags = asked.name.as_ref().map_or_else(|| asked.flags.clone(), |name| of_transaction(name, &asked.flags));
    under_lease(&flags, &asked.how, asked.action != Recovery::Plan, &[], async |config, access, namespace, term| {
        let settings = settings(journal(config, namespace), term.as_ref(), asked.user.clone(), asked.limit);
        let server = match ApiServer::new(access, term, config.lease.attempt_timeout) {
            Ok(server) => server,
            Err(error) => return refuse(exit::INTERNAL, &format!("signals cannot be awaited: {error}")),
        };
        let (outcome, events) = match asked.action {
            Recovery::Plan => return output::surveyed(asked.output, transaction::survey(&server, settings).await),
            Recovery::Apply => {
                driven(&server, settings, async |settings| transaction::recover(&server, settings, asked.force).await).await
            }
            Recovery::Forget => (transaction::forget(&server, settings).await, Vec::new()),
        };
        output::ended(asked.output, &outcome, &[], &events)
    })
}

pub(super) fn promote(asked: &cli::Promote) -> u8 {
    let files = match Files::promotion(&asked.files, |name| env::var(name).ok()) {
        Ok(files) => files,
        Err(refused) => return refuse(exit::INVALID, &refused.join("\ntenure: ")),
    };
    in_hook(&asked.flags, asked.limit, async |access, namespace, server, settings| {
        super::warn(&files.notes);
        let changes = match changes(&files, access, files.namespace.as_deref().unwrap_or(namespace), &settings.journal).await {
            Ok(changes) => changes,
            Err(Unserved { code, why }) => return refuse(code, &why),
        };
        if asked.dry_run {
            return output::previewed(cli::Output::Table, transaction::preview(server, settings, &changes).await);
        }
        let promote = async |settings| transaction::promote(server, settings, &changes).await;
        output::concluded(&driven(server, settings, promote).await.0)
    })
}

pub(super) fn demote(asked: &cli::Demote) -> u8 {
    in_hook(&asked.flags, asked.limit, async |_, _, server, settings| {
        output::concluded(&driven(server, settings, async |settings| transaction::demote(server, settings).await).await.0)
    })
}

/// Runs a driver, and exports what it did. Returns its outcome and events.
async fn driven(
    server: &ApiServer<'_>,
    settings: Settings,
    drive: impl AsyncFnOnce(Settings) -> Outcome,
) -> (Outcome, Vec<(Instant, Event)>) {
    let observer = Observer::start(&settings.by, &settings.journal, |name| env::var(name).ok());
    let outcome = drive(settings).await;
    let events = server.told();
    observer.finish(&events, &outcome).await;
    (outcome, events)
}

/// Does something in the term of the Lease for which this hook runs.
fn in_hook(flags: &ConfigFlags, limit: Duration, act: impl AsyncFnOnce(&Access, &str, &ApiServer<'_>, Settings) -> u8) -> u8 {
    let term = match lock::term() {
        Ok(term) => term,
        Err(why) => return refuse(exit::INVALID, &format!("this command runs in a hook: {why}")),
    };
    access::look(&access::on_lease(None, flags), true, async |config, access, namespace| {
        let settings = settings(journal(config, namespace), Some(&term), None, limit);
        match ApiServer::new(access, Some(term), config.lease.attempt_timeout) {
            Ok(server) => act(access, namespace, &server, settings).await,
            Err(error) => refuse(exit::INTERNAL, &format!("signals cannot be awaited: {error}")),
        }
    })
}

/// Does something in the term of the Lease that `flags` name: becomes `tenure lock`, unless this is the command that it runs. The notes
/// are said once.
fn under_lease(
    flags: &ConfigFlags,
    how: &Lock,
    needs_term: bool,
    notes: &[String],
    act: impl AsyncFnOnce(&Config, &Access, &str, Option<Term>) -> u8,
) -> u8 {
    let mut term = None;
    if needs_term {
        let config = match config::load(flags, &[], Purpose::Look) {
            Ok(loaded) => loaded.config,
            Err(invalid) => return super::refuse(&invalid),
        };
        if !lock::is_inside(&config) {
            super::warn(notes);
            let error = lock::become_lock(flags, how);
            return refuse(exit::INTERNAL, &format!("tenure lock cannot be started: {error}"));
        }
        match lock::term() {
            Ok(inside) => term = Some(inside),
            Err(why) => return refuse(exit::INVALID, &why),
        }
    } else {
        super::warn(notes);
    }
    access::look(flags, true, async |config, access, namespace| act(config, access, namespace, term).await)
}

/// Turns what was written into changes of objects that the server serves.
///
/// # Errors
/// The first of them that cannot be one.
async fn changes(files: &Files, access: &Access, namespace: &str, journal: &Place) -> Result<Vec<Change>, Unserved> {
    let mut kinds = Kinds::default();
    let mut changes: Vec<Change> = Vec::new();
    for written in &files.changes {
        let located = |why: &str| format!("{} ({}): {why}", written.place, written.target.shown());
        let resource = kinds.of(access, &written.target).await;
        let resource = resource.map_err(|Unserved { code, why }| Unserved { code, why: located(&why) })?;
        let change = written.change(resource, namespace);
        let names = |target: &transaction::Target| (target.resource.clone(), target.namespace.clone(), target.name.clone());
        let is_same = |other: &transaction::Target| {
            names(other) == names(&change.target) && files::group(&other.api_version) == written.target.group()
        };
        let why = if changes.iter().any(|other| is_same(&other.target)) {
            "this object is a target twice"
        } else if server::is_secret(&change.target)
            && change.target.namespace.as_ref() == Some(&journal.namespace)
            && change.target.name == journal.name
        {
            "this is the journal of the transaction"
        } else {
            changes.push(change);
            continue;
        };
        return Err(Unserved { code: exit::INVALID, why: located(why) });
    }
    Ok(changes)
}

fn journal(config: &Config, namespace: &str) -> Place {
    Place { namespace: namespace.into(), name: format!("{}-journal", config.lease.name) }
}

fn settings(journal: Place, term: Option<&Term>, acting_as: Option<String>, limit: Duration) -> Settings {
    Settings {
        journal,
        token: term.map(|term| term.token.clone()).unwrap_or_default(),
        by: term.map(|term| term.identity.clone()).unwrap_or_default(),
        acting_as,
        limit,
        began: clock::timestamp().to_string(),
        seed: getrandom::u64().unwrap_or_else(|_| clock::boot().as_nanos()),
    }
}

/// The flags for the Lease of the transaction of this name.
fn of_transaction(name: &str, flags: &ConfigFlags) -> ConfigFlags {
    ConfigFlags { lease: Some(format!("txn-{name}")), ..flags.clone() }
}

fn refuse(code: u8, why: &str) -> u8 {
    complain(why);
    code
}
