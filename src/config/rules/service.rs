//! Whether an EndpointSlice can have this name and these ports.

use super::{
    Judgement,
    names::{is_label, made_valid},
};
use crate::config::Service;

pub(super) fn judge(service: &Service, judgement: &mut Judgement) {
    let (slice, ports) = ("service.endpointSlice", "service.ports");
    match &service.endpoint_slice {
        None if service.ports.is_empty() => return,
        None => judgement.refuse(&[slice, ports], "is missing: the ports are published in an EndpointSlice"),
        Some(name) if name.is_empty() || made_valid(name) != *name => {
            judgement
                .refuse(&[slice], format!("{name:?} is not the name of an object: lower case, digits, hyphens and dots within"));
        }
        Some(_) if service.ports.is_empty() => {
            judgement.refuse(&[ports, slice], "is empty: a Service sends nothing to a slice without ports");
        }
        Some(_) => {}
    }
    for (at, port) in service.ports.iter().enumerate() {
        if port.port == 0 {
            judgement.refuse(&[ports], "0 is not a port: write the one on which the workload listens");
        }
        if !port.name.is_empty() && !is_label(&port.name) {
            judgement.refuse(&[ports], format!("{:?} is not the name of a port: a to z, 0 to 9 and hyphens within", port.name));
        }
        if service.ports.iter().take(at).any(|other| other.name == port.name) {
            judgement.refuse(&[ports], format!("two are called {:?}: name each as in the Service", port.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Protocol, ServicePort};

    fn refused(slice: Option<&str>, ports: &[(&str, u16)]) -> Vec<String> {
        let port = |&(name, port): &(&str, u16)| ServicePort { name: name.into(), port, protocol: Protocol::Tcp };
        let service = Service { endpoint_slice: slice.map(str::to_owned), ports: ports.iter().map(port).collect() };
        let mut judgement = Judgement::default();
        judge(&service, &mut judgement);
        judgement.violations.into_iter().map(|violation| violation.about[0].clone()).collect()
    }

    #[test]
    fn a_slice_has_a_name_and_ports_which_differ_in_theirs() {
        let none: [&str; 0] = [];
        assert_eq!(refused(None, &[]), none);
        assert_eq!(refused(Some("billing"), &[("", 80)]), none);
        assert_eq!(refused(Some("billing"), &[("http", 80), ("grpc", 81)]), none);
        for (slice, ports, about) in [
            (None, &[("", 80)][..], "service.endpointSlice"),
            (Some(""), &[("", 80)], "service.endpointSlice"),
            (Some("Billing"), &[("", 80)], "service.endpointSlice"),
            (Some("billing"), &[], "service.ports"),
            (Some("billing"), &[("", 0)], "service.ports"),
            (Some("billing"), &[("a b", 80)], "service.ports"),
            (Some("billing"), &[("a", 80), ("a", 81)], "service.ports"),
        ] {
            assert_eq!(refused(slice, ports), [about], "{slice:?} {ports:?}");
        }
    }
}
