//! Whether an EndpointSlice can have this name and these ports.

use super::{
    Judgement,
    names::{is_label, made_valid},
};
use crate::config::{Service, ServicePort};

pub(super) fn judge(service: &Service, judgement: &mut Judgement) {
    let (slice, all) = ("service.endpointSlice", &service.ports);
    let mut refuse_if = |is_so: bool, about: &str, message: &str| {
        if is_so {
            judgement.refuse(&[about, "service"], message);
        }
    };
    if let Some(name) = &service.endpoint_slice {
        let is_none = name.is_empty() || made_valid(name) != *name;
        refuse_if(is_none, slice, "is not the name of an object: lower case, digits, hyphens and dots within");
        refuse_if(all.is_empty(), "service.ports", "is empty: a Service sends nothing to a slice without ports");
    } else {
        refuse_if(!all.is_empty(), slice, "is missing: the ports are published in an EndpointSlice");
    }
    for (at, ServicePort { name, port, .. }) in all.iter().enumerate() {
        let is_twice = all.iter().take(at).any(|other| other.name == *name);
        refuse_if(*port == 0, "service.ports", "0 is not a port: write the one on which the workload listens");
        refuse_if(is_twice, "service.ports", "two have the same name: name each as in the Service");
        refuse_if(!name.is_empty() && !is_label(name), "service.ports", "a name is not one of a to z, 0 to 9 and hyphens within");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Protocol;

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
