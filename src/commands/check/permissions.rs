//! Asks the API server whether it permits what a replica does with its Lease.

use super::Report;
use crate::{
    api::{
        Place,
        review::{Right, in_brackets, verdict},
    },
    commands::access::{Access, exit_code, said},
    config::{Config, Release},
    exit,
    slot::Slot,
};

/// The effect of a missing permission on a replica.
#[derive(Clone, Copy, Debug)]
enum Without {
    /// The replica cannot work.
    Nothing,
    /// The replica works, with this restriction.
    Lesser(&'static str),
}

pub(super) async fn check(access: &Access, namespace: &str, config: &Config, report: &mut Report) {
    report.section("permissions");
    let mut deletes = false;
    for (right, without) in needed(namespace, config) {
        let (Place { kind, resource, name, .. }, verb) = (&right.place, right.verb);
        let what = match &**name {
            "" => format!("{verb} {resource} in {namespace}"),
            name => format!("{verb} {kind} {namespace}/{name}"),
        };
        let (allowed, reason) = match access.send(&right.request()).await.object() {
            Ok(review) => (verdict(&review).is_ok(), in_brackets(&verdict(&review).err().unwrap_or_default())),
            Err(error) if error.status == Some(404) => return report.note("this server does not answer access reviews"),
            Err(error) => return report.bad(exit_code(&error), &format!("permissions cannot be asked for: {}", said(&error))),
        };
        deletes |= allowed && verb == "delete";
        // Where the first release leaves no Lease, nobody could lead after it.
        let creates = (&**resource, verb) == ("leases", "create");
        let without = if creates && deletes { Without::Nothing } else { without };
        match without {
            _ if allowed => report.good(&what),
            Without::Lesser(lesser) => report.note(&format!("{what} is not permitted{reason}: {lesser}")),
            Without::Nothing => {
                let remedy = "add this to the rules of the Role of this service account:";
                report.bad(exit::NOT_PERMITTED, &format!("{what} is not permitted{reason}: {remedy}"));
                report.text(&format!("      {}", right.rule()));
            }
        }
    }
}

/// Returns the rights of a replica to what is there already.
pub(in crate::commands) fn rights(config: &Config) -> Vec<Right> {
    let needed = needed(&config.lease.namespace, config).into_iter().map(|(right, _)| right);
    // After a deletion the Lease is created again.
    let deletes = config.lease.release == Release::Delete;
    needed.filter(|right| deletes || (&*right.place.resource, right.verb) != ("leases", "create")).collect()
}

/// The actions of a replica.
fn needed(namespace: &str, config: &Config) -> Vec<(Right, Without)> {
    let slots = config.lease.slots > 1;
    let of = |name: String, verb, without| (Right::new(&Place::lease(namespace, name), verb), without);
    let lease = |verb, without| {
        // RBAC cannot restrict create by name, nor what several slots share: a rule with resourceNames never matches it.
        let is_shared = verb == "create" || verb == "list" || verb == "watch" && slots;
        of(if is_shared { String::new() } else { config.lease.name.clone() }, verb, without)
    };
    let names = || (0..config.lease.slots).map(|slot| Slot(slot).of(&config.lease.name));
    let mut needed = Vec::new();
    for verb in ["get", "update"] {
        needed.extend(names().map(|name| of(name, verb, Without::Nothing)));
    }
    needed.push(lease("watch", Without::Lesser("standbys poll, and take over up to lease.renewPeriod later")));
    if slots {
        needed.push(lease("list", Without::Lesser("each slot is read by its name, one every lease.renewPeriod")));
    }
    match config.lease.release {
        Release::Delete => {
            let without = Without::Lesser("a released Lease is left, free to be taken");
            needed.extend(names().map(|name| of(name, "delete", without)));
        }
        Release::Clear | Release::Keep => {}
    }
    needed.push(lease("create", Without::Lesser("replicas wait until somebody creates the Lease")));
    if let Some(slice) = &config.service.endpoint_slice {
        let of_slot = |(verb, slot): (&'static str, u8)| {
            (Right::new(&Place::endpoint_slice(namespace, Slot(slot).of(slice)), verb), Without::Nothing)
        };
        needed.extend(
            ["get", "update"].into_iter().flat_map(|verb| (0..config.lease.slots).map(move |slot| of_slot((verb, slot)))),
        );
    }
    if config.events.enabled {
        let events = Right::new(&Place::events(namespace), "create");
        needed.push((events, Without::Lesser("transitions are told in the log only")));
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_follows_from_what_is_configured() {
        let mut config = Config::default();
        let verbs = |config: &Config| {
            let needed = needed("shop", config).into_iter();
            needed.map(|(right, _)| format!("{} {}", right.verb, right.place.resource)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(verbs(&config), "get leases, update leases, watch leases, create leases");
        config.lease.release = Release::Delete;
        assert_eq!(verbs(&config), "get leases, update leases, watch leases, delete leases, create leases");
        config.lease.slots = 2;
        assert!(verbs(&config).contains("list leases"));
        config.lease.name = "billing".into();
        let updates = needed("shop", &config).into_iter().filter(|(right, _)| right.verb == "update");
        let names: Vec<_> = updates.map(|(right, _)| right.place.name).collect();
        assert_eq!(names, ["billing", "billing-slot-1"]);
        config = Config::default();
        config.service.endpoint_slice = Some("billing".into());
        config.events.enabled = true;
        assert!(verbs(&config).ends_with("create leases, get endpointslices, update endpointslices, create events"));
    }

    #[test]
    fn a_right_names_the_object_except_where_that_cannot_be_granted() {
        let mut config = Config::default();
        config.lease.name = "billing".into();
        config.service.endpoint_slice = Some("leader".into());
        let place = |resource: &str, verb: &str| {
            let mut right = needed("shop", &config).into_iter().map(|(right, _)| right);
            right.find(|right| (&*right.place.resource, right.verb) == (resource, verb)).unwrap().place
        };
        assert_eq!(place("leases", "update"), *Place::lease("shop", "billing"));
        assert_eq!(place("leases", "create"), *Place::lease("shop", ""));
        assert_eq!(place("endpointslices", "update"), Place::endpoint_slice("shop", "leader"));
    }
}
