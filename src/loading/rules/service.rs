//! Judges whether an EndpointSlice can have this name and these ports.

use super::{
    Validation,
    names::{is_label, made_valid},
};
use crate::{
    config::{LONGEST_NAME, Service, ServicePort},
    slot::Slot,
};

pub(super) fn judge(Service { endpoint_slice, ports: all }: &Service, slots: u8, validation: &mut Validation) {
    let slice = endpoint_slice.as_deref();
    let last = Slot(slots.saturating_sub(1));
    refuse! { validation;
        slice.is_some_and(|name| name.is_empty() || made_valid(name) != *name) => ["service.endpointSlice", "service"] =>
            "this is not the name of an object: use a to z and 0 to 9, with hyphens and dots between";
        slice.is_some_and(|name| made_valid(name) == *name && last.of(name).len() > LONGEST_NAME) => ["service.endpointSlice", "lease.slots"] =>
            format!("the last one is called NAME-slot-{}, which would be longer than {LONGEST_NAME} characters: shorten the name", last.0);
        slice.is_some() && all.is_empty() => ["service.ports", "service"] =>
            "a Service sends nothing to an EndpointSlice without ports: write the ports of the workload";
        slice.is_none() && !all.is_empty() => ["service.endpointSlice", "service"] =>
            "the ports are published in an EndpointSlice, and none is named: write its name";
    }
    for (at, ServicePort { name, port, .. }) in all.iter().enumerate() {
        refuse! { validation;
            *port == 0 => ["service.ports", "service"] => "0 is not a port: write the port that the workload listens on";
            all.iter().take(at).any(|other| other.name == *name) => ["service.ports", "service"] =>
                "two ports have the same name: name each as in the Service";
            !name.is_empty() && !is_label(name) => ["service.ports", "service"] =>
                format!("{name:?} is not the name of a port: use a to z and 0 to 9, with hyphens between");
        }
    }
}
