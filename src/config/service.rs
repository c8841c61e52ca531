//! The keys of what the cluster is told about the leader, beside the Lease.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traffic to the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Service {
    /// The EndpointSlice in which the leader publishes its own address, in the Lease's namespace. It has to exist. With several
    /// slots, that of the second is called NAME-slot-1. Null: none.
    pub endpoint_slice: Option<String>,
    /// The ports of the workload that are published.
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
    /// Transitions are told as Events about the Lease; needs the right to create them.
    pub enabled: bool,
}
