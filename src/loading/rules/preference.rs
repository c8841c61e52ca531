//! Gives a replica its priority by a variable, and judges who may preempt.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use super::{Purpose, Validation};
use crate::{
    config::{LeaseConfig, Prefer},
    loading::Origin,
};

/// As many values as there are priorities, but for the last, which any other value gives.
const MOST_VALUES: usize = 10;
const SHORTEST_PREEMPT: Duration = Duration::from_secs(1);

/// Sets `lease.priority` as `lease.prefer` says. A configuration that is only inspected may be another replica's.
pub(in crate::loading) fn prefer(
    lease: &mut LeaseConfig,
    purpose: Purpose,
    variables: &[(OsString, OsString)],
    origins: &mut BTreeMap<String, Origin>,
    validation: &mut Validation,
) {
    if purpose == Purpose::Look || !lease.enabled {
        return;
    }
    let (Prefer { from, order }, preempt) = (&lease.prefer, lease.preempt);
    let has_priority = origins.contains_key("lease.priority");
    refuse! { validation;
        from.is_empty() && !order.is_empty() => ["lease.prefer.from", "lease.prefer.order"] =>
            "name the variable that tells which value of lease.prefer.order this replica has, such as ZONE";
        !from.is_empty() && order.is_empty() => ["lease.prefer.order", "lease.prefer.from"] =>
            format!("write the values of {from}, the preferred first, such as [a, b]");
        order.len() > MOST_VALUES => ["lease.prefer.order"] => format!("{} values are too many: write at most {MOST_VALUES}", order.len());
        preempt.is_some_and(|preempt| preempt < SHORTEST_PREEMPT) => ["lease.preempt"] => "this is below 1s: write 1s or more";
        preempt.is_some() && from.is_empty() && order.is_empty() && !has_priority => ["lease.preempt"] =>
            "without priorities no replica is preferred: set lease.prefer, or lease.priority on each replica";
        preempt.is_some() && lease.slots > 1 => ["lease.preempt", "lease.slots"] =>
            "with several slots a replica would ask several leaders to hand over: remove it";
    }
    if let Some((_, twice)) = order.iter().enumerate().find(|(at, value)| order.iter().take(*at).any(|before| before == *value)) {
        validation.refuse(&["lease.prefer.order"], format!("{twice:?} is there twice: write each value once"));
    }
    let Some(name) = Some(from).filter(|from| !from.is_empty()) else { return };
    match variables.iter().find(|(variable, value)| variable == name.as_str() && !value.is_empty()) {
        Some((_, value)) => {
            let place = order.iter().position(|known| value == known.as_str()).unwrap_or(order.len());
            let priority = i8::try_from(place.min(MOST_VALUES)).map_or(0, i8::wrapping_neg);
            // A file with all keys has the default, or what `tenure config effective` found.
            if ![0, priority].contains(&lease.priority) {
                validation.refuse(&["lease.priority"], "lease.prefer sets the priority: remove one of the two");
            }
            origins.entry("lease.priority".into()).or_insert_with(|| Origin::Variable(name.clone()));
            lease.priority = priority;
        }
        None if purpose == Purpose::Run => validation.refuse(&["lease.prefer.from"], lacks_variable(name)),
        None => {}
    }
}

/// Returns why a replica does not start without a value of the variable that `lease.prefer.from` names.
pub(crate) fn lacks_variable(name: &str) -> String {
    format!("the variable {name} is not set, or is empty: set it in the pod, such as by the downward API")
}
