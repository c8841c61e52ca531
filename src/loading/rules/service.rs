//! Judges whether an EndpointSlice can have this name and these ports.

use super::{
    Validation,
    names::{is_label, made_valid},
};
use crate::config::{Service, ServicePort};

pub(super) fn judge(service: &Service, validation: &mut Validation) {
    let (slice, all) = (service.endpoint_slice.as_deref(), &service.ports);
    refuse! { validation;
        slice.is_some_and(|name| name.is_empty() || made_valid(name) != *name) => ["service.endpointSlice", "service"] =>
            "this is not the name of an object: use a to z and 0 to 9, with hyphens and dots between";
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
