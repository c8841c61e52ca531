//! Access to its own API server that a pod has by its service account.

use std::{env, fs, path::Path};

use http::Uri;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{access::AccessError, cluster::is_there};

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Names the part that this process lacks to be a pod with access.
pub(super) fn missing() -> Option<String> {
    if env::var_os(HOST).is_none_or(|host| host.is_empty()) {
        return Some(format!("this is not a pod ({HOST} is not set)"));
    }
    if !is_there(Path::new(TOKEN)) {
        return Some(format!("this pod has no service account token ({TOKEN}; see automountServiceAccountToken)"));
    }
    None
}

/// The access. kube would ask for the file with the namespace, too, which a pod need not have.
pub(super) fn config() -> Result<kube::Config, AccessError> {
    let mut config = kube::Config::new(server()?);
    let pem = fs::read(AUTHORITY).map_err(|error| unusable(format!("{AUTHORITY} cannot be read: {error}")))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| unusable(format!("{AUTHORITY} is not PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(unusable(format!("{AUTHORITY} holds no PEM certificate")));
    }
    config.root_cert = Some(certificates.into_iter().map(|certificate| certificate.to_vec()).collect());
    config.root_cert_file = Some(AUTHORITY.into());
    config.auth_info.token_file = Some(TOKEN.into());
    Ok(config)
}

fn server() -> Result<Uri, AccessError> {
    let host = env::var(HOST).map_err(|error| unusable(format!("{HOST}: {error}")))?;
    let port = env::var(PORT).map_err(|error| unusable(format!("{PORT}: {error}")))?;
    let port: u16 = port.parse().map_err(|_| unusable(format!("{PORT} is {port:?}, which is not a port")))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url = format!("https://{host}:{port}").parse::<Uri>();
    url.map_err(|error| unusable(format!("{HOST} is {host:?}, which is not a host: {error}")))
}

fn unusable(what: String) -> AccessError {
    AccessError::unusable(format!("cannot use the pod's service account: {what}"))
}
