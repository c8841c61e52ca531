//! `tenure status`: who holds a Lease, as it looks from here.
//!
//! Owns its exit codes, and which Leases are meant. `observe` asks no wall clock, `watch` goes on. Both sort by
//! `Seen::rank`.

use super::{
    Ended,
    access::{self, Access, Which, on_lease},
    seen::{HEAD, Seen, State, is_ours},
    table,
};
use crate::{
    cli::{self, Output},
    clock,
    config::Config,
    console,
    election::record::LeaseRecord,
    request::RequestError,
};

mod observe;
mod watch;

const HELD: u8 = 0;
const FREE: u8 = 1;
const ABSENT: u8 = 2;

pub(super) fn run(status: &cli::Status) -> Ended {
    let is_selection = status.selector.is_some() || status.all_namespaces;
    let flags = if is_selection { status.flags.clone() } else { on_lease(status.name.clone(), &status.flags) };
    // A name that is typed is that of one Lease, whatever the configuration says of another one.
    let is_typed = flags.lease.is_some() || flags.lease_argument.is_some() || status.holder.is_some() || status.observe;
    let all_slots = !is_selection && (status.flags.slots.is_some() || !is_typed);
    access::look(&flags, !is_selection, async |config, access, namespace| {
        let namespace = if status.all_namespaces { "" } else { namespace };
        let all_slots = all_slots && config.lease.slots > 1;
        if status.watch {
            Ok(watch::run(status, all_slots, config, access, namespace).await)
        } else {
            ask(status, all_slots, config, access, namespace).await
        }
    })
}

/// The labels that the Leases have which are meant; none: one Lease is meant by its name.
fn selector(status: &cli::Status) -> Option<String> {
    status.selector.clone().or_else(|| status.all_namespaces.then(String::new))
}

/// Returns true if a listed Lease is meant.
fn is_meant(status: &cli::Status, lease: &LeaseRecord) -> bool {
    !status.all_namespaces || status.selector.is_some() || is_ours(lease)
}

async fn ask(status: &cli::Status, all_slots: bool, config: &Config, access: &Access, namespace: &str) -> Ended {
    let name = &config.lease.name;
    let selector = selector(status);
    let is_list = all_slots || selector.is_some();
    let seen = |record: LeaseRecord| Seen::at(clock::timestamp(), &record, config.lease.duration);
    let mut absent = Vec::new();
    let found = match &selector {
        Some(selector) => access
            .leases(namespace, Which::Selected(selector))
            .await
            .map(|(leases, _)| leases.into_iter().filter(|lease| is_meant(status, lease)).map(seen).collect()),
        None if status.observe => observe::observe(status, config, access, namespace).await,
        None if all_slots => slots(config, access, namespace).await.map(|(leases, missing)| {
            absent = missing;
            leases.into_iter().map(seen).collect()
        }),
        None => access.lease(namespace, name).await.map(|lease| lease.into_iter().map(seen).collect()),
    };
    let mut leases: Vec<Seen> = found.map_err(|error| access.complain(&error, status.selector.is_some()))?;
    if status.all_namespaces {
        leases.sort_by_key(Seen::rank);
    }
    let shown = || {
        let line = |lease: &Seen| lease.line(status.all_namespaces, status.output == Output::Wide);
        let lines: Vec<_> = leases.iter().map(line).collect();
        table::shown(status.output, is_list, HEAD, &lines)
    };
    if leases.is_empty() && status.all_namespaces {
        console::complain("there is no such Lease in the cluster");
    } else if leases.is_empty()
        && let Some(why) = access.lacks_namespace(namespace).await
    {
        console::complain(&why);
    } else if all_slots {
        absent.iter().for_each(|name| console::complain(&format!("there is no Lease {name} in namespace {namespace}")));
    } else if leases.is_empty() {
        let which = status.selector.as_ref().map_or_else(|| name.clone(), |selector| format!("with {selector}"));
        console::complain(&format!("there is no Lease {which} in namespace {namespace}"));
        for (kind, command) in [("lock", "lock"), ("tasklock", "task")].into_iter().filter(|_| status.selector.is_none()) {
            if let Ok(Some(_)) = access.lease(namespace, &format!("{kind}-{name}")).await {
                console::complain(&format!("there is {kind}-{name}: write {command}:{name}"));
            }
        }
    }
    if leases.is_empty() {
        // For programs that read it, a list of none is a list.
        return Ok(console::answer(&if is_list { shown() } else { String::new() }, ABSENT));
    }
    let is_wanted = |lease: &Seen| status.holder.is_none() || lease.holder == status.holder;
    let held = absent.is_empty() && leases.iter().all(|lease| lease.state == State::Held && is_wanted(lease));
    Ok(console::answer(&shown(), if held { HELD } else { FREE }))
}

/// The Leases of all slots, and the names of those that are not there. The right to read each by its name suffices.
async fn slots(config: &Config, access: &Access, namespace: &str) -> Result<(Vec<LeaseRecord>, Vec<String>), RequestError> {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for name in config.lease.names() {
        match access.lease(namespace, &name).await? {
            Some(lease) => found.push(lease),
            None => absent.push(name),
        }
    }
    Ok((found, absent))
}
