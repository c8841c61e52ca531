//! `tenure status`: who holds a Lease, as it looks from here.
//!
//! Owns its exit codes. `observe` asks no wall clock, `watch` goes on.

use super::{
    access::{self, Access, Which, on_lease},
    seen::{self, Seen, State},
};
use crate::{cli, clock, config::Config, console};

mod observe;
mod watch;

const HELD: u8 = 0;
const FREE: u8 = 1;
const ABSENT: u8 = 2;

pub(super) fn run(status: &cli::Status) -> u8 {
    let flags = match status.selector {
        None => on_lease(status.name.clone(), &status.flags),
        Some(_) => status.flags.clone(),
    };
    access::look(&flags, status.selector.is_none(), async |config, access, namespace| {
        if status.watch {
            watch::run(status, config, access, namespace).await
        } else {
            ask(status, config, access, namespace).await
        }
    })
}

async fn ask(status: &cli::Status, config: &Config, access: &Access, namespace: &str) -> u8 {
    let name = &config.lease.name;
    let seen = |lease| Seen::at(clock::timestamp(), &lease, config.lease.duration);
    let found = match &status.selector {
        Some(selector) => {
            access.leases(namespace, Which::Selected(selector)).await.map(|(leases, _)| leases.into_iter().map(seen).collect())
        }
        None if status.observe => observe::observe(status, config, access, namespace).await,
        None => access.lease(namespace, name).await.map(|lease| lease.into_iter().map(seen).collect()),
    };
    let leases: Vec<Seen> = match found {
        Ok(leases) => leases,
        Err(error) => return access.complain(&error, status.selector.is_some()),
    };
    let shown = || {
        let lines: Vec<_> = leases.iter().map(|lease| (lease.row(), lease.document())).collect();
        seen::shown(status.output, status.selector.is_some(), seen::HEAD, &lines)
    };
    if leases.is_empty() {
        let which = status.selector.as_ref().map_or_else(|| name.clone(), |selector| format!("with {selector}"));
        console::complain(&match access.lacks_namespace(namespace).await {
            true => format!("there is no namespace {namespace}"),
            false => format!("there is no Lease {which} in namespace {namespace}"),
        });
        for (kind, command) in [("lock", "lock"), ("tasklock", "task")].into_iter().filter(|_| status.selector.is_none()) {
            if let Ok(Some(_)) = access.lease(namespace, &format!("{kind}-{name}")).await {
                console::complain(&format!("there is {kind}-{name}: write {command}:{name}"));
            }
        }
        // For programs that read it, a list of none is a list.
        return console::answer(&if status.selector.is_some() { shown() } else { String::new() }, ABSENT);
    }
    let is_wanted = |lease: &Seen| status.holder.is_none() || lease.holder == status.holder;
    let held = leases.iter().all(|lease| lease.state == State::Held && is_wanted(lease));
    console::answer(&shown(), if held { HELD } else { FREE })
}
