//! Reads a kubeconfig as kube does, and less literally, as client-go does: an empty value counts as not set, and base64 may be wrapped.
//!
//! Owns its current context. kube takes nobody for a user that is missing.

use std::path::Path;

use kube::config::{Cluster, Context, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};

use super::access::AccessError;

/// Reads one file. What it names by a relative path is beside it.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    tidy(&mut kubeconfig);
    Ok(kubeconfig)
}

/// The name of the context to use, which exists, as do the cluster and the user that it names: `wanted`, which is made the current one
/// again, or the current one. `is_again`: the Lease of this replica is in that context.
pub(super) fn choose(
    kubeconfig: &mut Kubeconfig,
    wanted: Option<&str>,
    is_again: bool,
    files: &str,
) -> Result<String, AccessError> {
    let chosen = wanted.map(str::to_owned).or_else(|| kubeconfig.current_context.take()).filter(|name| !name.is_empty());
    let is_known = |name: &&String| kubeconfig.contexts.iter().any(|context| context.name == **name);
    let Some(name) = chosen.as_ref().filter(is_known) else {
        if let Some(context) = wanted.filter(|_| is_again) {
            return Err(AccessError::unusable(format!(
                "the kubeconfig {files} no longer has the context {context}, where the Lease of this replica is: restore it, \
                 or restart"
            )));
        }
        if kubeconfig.contexts.is_empty() {
            return Err(AccessError::unusable(format!(
                "cannot use the kubeconfig {files}: it has no contexts, so it names no cluster"
            )));
        }
        let choice = chosen.map_or_else(|| "no context is chosen".into(), |name| format!("there is no context {name}"));
        let contexts = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(AccessError::unusable(format!(
            "cannot use the kubeconfig {files}: {choice}; `kubectl config use-context NAME` or --context chooses one of {contexts}"
        )));
    };
    kubeconfig.current_context = Some(name.clone());
    let Some(Context { cluster, user, .. }) = current(kubeconfig) else { return Ok(name.clone()) };
    let dangling = |kind, missing: &str| {
        AccessError::unusable(format!(
            "cannot use the kubeconfig: the context {name} names the {kind} {missing}, which is not in {files}: correct the \
             name, or add it"
        ))
    };
    if !kubeconfig.clusters.iter().any(|named| named.name == *cluster) {
        return Err(dangling("cluster", cluster));
    }
    let user = user.as_deref().filter(|user| !user.is_empty());
    if let Some(user) = user.filter(|user| !kubeconfig.auth_infos.iter().any(|named| named.name == *user)) {
        return Err(dangling("user", user));
    }
    Ok(name.clone())
}

/// The cluster of the current context.
pub(super) fn cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let context = current(kubeconfig)?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

fn current(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let name = kubeconfig.current_context.as_ref()?;
    kubeconfig.contexts.iter().find(|context| context.name == *name)?.context.as_ref()
}

/// Unsets what is empty, and unwraps base64.
fn tidy(kubeconfig: &mut Kubeconfig) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        for text in [&mut cluster.server, &mut cluster.proxy_url, &mut cluster.tls_server_name] {
            unset_empty(text);
        }
        unset_directory(&mut cluster.certificate_authority);
        unwrap(&mut cluster.certificate_authority_data);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        for text in [&mut user.username, &mut user.impersonate, &mut user.impersonate_uid] {
            unset_empty(text);
        }
        for path in [&mut user.token_file, &mut user.client_certificate, &mut user.client_key] {
            unset_directory(path);
        }
        for secret in [&mut user.password, &mut user.token] {
            secret.take_if(|secret| secret.expose_secret().is_empty());
        }
        unwrap(&mut user.client_certificate_data);
        let mut key = user.client_key_data.take().map(|key| key.expose_secret().to_owned());
        unwrap(&mut key);
        user.client_key_data = key.map(SecretString::from);
    }
}

fn unset_empty(text: &mut Option<String>) {
    text.take_if(|text| text.is_empty());
}

/// An empty path is by now that of the kubeconfig's directory.
fn unset_directory(path: &mut Option<String>) {
    path.take_if(|path| path.is_empty() || path.ends_with('/'));
}

fn unwrap(data: &mut Option<String>) {
    if let Some(data) = data {
        data.retain(|symbol| !matches!(symbol, '\r' | '\n'));
    }
    unset_empty(data);
}
