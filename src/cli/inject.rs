//! The flags of `tenure inject`.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Puts tenure into manifests.
#[derive(Args, Clone, Debug)]
pub struct Inject {
    /// Manifests; - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", default_value = "-")]
    pub files: Vec<PathBuf>,
    /// The Lease of the workloads --of; without it only those with the label tenure.dev/lease are wrapped
    #[arg(long, value_name = "NAME", requires = "of")]
    pub lease: Option<String>,
    /// A workload that needs no label, such as deployment/billing
    #[arg(long, value_name = "KIND/NAME", requires = "lease")]
    pub of: Vec<String>,
    /// The image of tenure
    #[arg(long, value_name = "IMAGE", default_value = "tenure")]
    pub image: String,
    /// A variable for each wrapped container that does not have it, such as TENURE_LEASE__DURATION=60s
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Namespace of the Lease and the rights of a workload that names none
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Add the Lease, and a Role and a RoleBinding for the pod's account
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub access: bool,
    /// Let the Service that selects the pods reach the leader only
    #[arg(long)]
    pub service: bool,
    /// Take out again what was put in
    #[arg(long, conflicts_with_all = ["lease", "service"])]
    pub uninject: bool,
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub output: InjectOutput,
}

/// Form of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InjectOutput {
    /// YAML documents
    Yaml,
    /// One JSON document: a List
    Json,
}

fn variable(written: &str) -> Result<(String, String), String> {
    let (name, value) = written.split_once('=').ok_or("write a name, = and a value")?;
    if ["TENURE_LEASE__NAME", "TENURE_LEASE__PREFIX", "TENURE_LEASE__NAMESPACE", "TENURE_CONFIG", "KUBECONFIG"].contains(&name) {
        return Err(format!("{name} is of one workload: set it in the container"));
    }
    Ok((name.into(), value.into()))
}
