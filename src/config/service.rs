//! The keys of what the cluster is told about the leader, beside the Lease.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traffic to the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Service {
    /// The name of the EndpointSlice in which the leader publishes its address (POD_IPS, else POD_IP). It has to exist. With
    /// several slots, that of the second is called `NAME-slot-1`. null: none.
    pub endpoint_slice: Option<String>,
    /// The ports of the workload, named as in the Service: `[{ name: http, port: 8080, protocol: TCP }]`. If there is only one,
    /// it may have no name. The protocol is TCP unless it is UDP or SCTP.
    pub ports: Vec<ServicePort>,
}

/// A port of the workload, named as in the Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServicePort {
    /// As in the Service; empty if it has one port without a name.
    #[serde(default)]
    pub name: String,
    /// Where the workload listens.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// How.
    #[serde(default)]
    pub protocol: Protocol,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Kubernetes Events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Events {
    /// true reports transitions as Events about the Lease. This needs the right to create Events.
    pub enabled: bool,
}
