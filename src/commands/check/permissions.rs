//! Asks the API server whether it permits what a replica does with its Lease.

use http::StatusCode;

use super::Report;
use crate::{
    api::{
        CallError,
        review::{REVIEWS, Right, verdict},
    },
    commands::access::Access,
    config::{Config, Release},
    exit,
    slot::Slot,
    words::one_line,
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
    for (right, without) in needed(config) {
        let Right { resource, verb, name, .. } = &right;
        let kind = if *resource == "leases" { "Lease" } else { "EndpointSlice" };
        let all = || format!("{verb} {resource} in {namespace}");
        let what = name.as_ref().map_or_else(all, |name| format!("{verb} {kind} {namespace}/{name}"));
        let answer = access.review(REVIEWS, &right.question(namespace)).await;
        let (allowed, reason) = match &answer {
            Ok(review) => verdict(review),
            Err(CallError::Refused(reply)) if reply.status == StatusCode::NOT_FOUND => {
                return report.note("this server does not answer access reviews");
            }
            Err(error) => return report.bad(error.exit_code(), &format!("permissions cannot be asked for: {}", one_line(error))),
        };
        deletes |= allowed && *verb == "delete";
        // Where the first release leaves no Lease, nobody could lead after it.
        let creates = (*resource, *verb) == ("leases", "create");
        let without = if creates && deletes { Without::Nothing } else { without };
        match without {
            _ if allowed => report.good(&what),
            Without::Lesser(lesser) => report.note(&format!("{what} is not permitted{reason}: {lesser}")),
            Without::Nothing => report.bad(
                exit::NOT_PERMITTED,
                &format!(
                    "{what} is not permitted{reason}: add this to the rules of the Role of this service account:\n        {}",
                    right.rule()
                ),
            ),
        }
    }
}

/// The actions of a replica.
fn needed(config: &Config) -> Vec<(Right, Without)> {
    let slots = config.lease.slots > 1;
    let of =
        |name: Option<String>, verb, without| (Right { group: "coordination.k8s.io", resource: "leases", verb, name }, without);
    let lease = |verb, without| {
        // RBAC cannot restrict create by name, nor what several slots share: a rule with resourceNames never matches it.
        let is_shared = verb == "create" || verb == "list" || verb == "watch" && slots;
        of(if is_shared { None } else { Some(config.lease.name.clone()) }, verb, without)
    };
    let names = || (0..config.lease.slots).map(|slot| Slot(slot).of(&config.lease.name));
    let mut needed = Vec::new();
    for verb in ["get", "update"] {
        needed.extend(names().map(|name| of(Some(name), verb, Without::Nothing)));
    }
    needed.push(lease("watch", Without::Lesser("standbys poll, and take over up to lease.renewPeriod later")));
    if slots {
        needed.push(lease("list", Without::Lesser("each slot is read by its name, one every lease.renewPeriod")));
    }
    match config.lease.release {
        Release::Delete => {
            let without = Without::Lesser("a released Lease is left, free to be taken");
            needed.extend(names().map(|name| of(Some(name), "delete", without)));
        }
        Release::Clear | Release::Keep => {}
    }
    needed.push(lease("create", Without::Lesser("replicas wait until somebody creates the Lease")));
    if let Some(slice) = &config.service.endpoint_slice {
        let of_slot = |(verb, slot): (&'static str, u8)| {
            let name = Some(Slot(slot).of(slice));
            (Right { group: "discovery.k8s.io", resource: "endpointslices", verb, name }, Without::Nothing)
        };
        needed.extend(
            ["get", "update"].into_iter().flat_map(|verb| (0..config.lease.slots).map(move |slot| of_slot((verb, slot)))),
        );
    }
    if config.events.enabled {
        let events = Right { group: "events.k8s.io", resource: "events", verb: "create", name: None };
        needed.push((events, Without::Lesser("transitions are told in the log only")));
    }
    needed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_needed_follows_from_what_is_configured() {
        let mut config = Config::default();
        let verbs = |config: &Config| {
            let words = needed(config).into_iter().map(|(right, _)| (right.resource, right.verb));
            words.map(|(resource, verb)| format!("{} {resource}", verb)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(verbs(&config), "get leases, update leases, watch leases, create leases");
        config.lease.release = Release::Delete;
        assert_eq!(verbs(&config), "get leases, update leases, watch leases, delete leases, create leases");
        config.lease.slots = 2;
        assert!(verbs(&config).contains("list leases"));
        config.lease.name = "billing".into();
        let updates = needed(&config).into_iter().filter(|(right, _)| right.verb == "update");
        let names: Vec<_> = updates.filter_map(|(right, _)| right.name).collect();
        assert_eq!(names, ["billing", "billing-slot-1"]);
        config = Config::default();
        config.service.endpoint_slice = Some("billing".into());
        config.events.enabled = true;
        assert!(verbs(&config).ends_with("create leases, get endpointslices, update endpointslices, create events"));
    }

    #[test]
    fn a_question_names_the_object_except_where_that_cannot_be_granted() {
        let mut config = Config::default();
        config.lease.name = "billing".into();
        config.service.endpoint_slice = Some("leader".into());
        let asked = |resource: &str, verb: &str| {
            let right = needed(&config).into_iter().map(|(right, _)| right);
            let right = right.into_iter().find(|right| (right.resource, right.verb) == (resource, verb)).unwrap();
            right.question("shop")["spec"]["resourceAttributes"].clone()
        };
        let of = |group: &str, resource: &str, verb: &str, name: &str| json!({ "group": group, "resource": resource, "namespace": "shop", "verb": verb, "name": name });
        assert_eq!(asked("leases", "update"), of("coordination.k8s.io", "leases", "update", "billing"));
        assert_eq!(asked("leases", "create"), of("coordination.k8s.io", "leases", "create", ""));
        assert_eq!(asked("endpointslices", "update"), of("discovery.k8s.io", "endpointslices", "update", "leader"));
    }
}
