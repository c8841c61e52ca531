//! Reads a kubeconfig as client-go does, and less literally: an empty value counts as not set, and base64 may be wrapped.
//!
//! Owns its files and its current context. kube would read a file without an end until there is no memory left, and takes nobody
//! for a user that is missing.

use std::{fs::File, io, io::Read as _, path::Path};

use kube::config::{Cluster, Context, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};

use super::access::AccessError;

/// More than any sensible file, and an end for a device that has none.
const LARGEST_FILE: u64 = 16 << 20;

/// Reads one file. What it names by a relative path is beside it.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = text(path).map_err(|error| KubeconfigError::ReadConfig(error, path.into()))?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text)?;
    tidy(&mut kubeconfig);
    if let Some(directory) = path.parent() {
        make_absolute(&mut kubeconfig, directory);
    }
    Ok(kubeconfig)
}

fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 16 MiB"));
    }
    let wide = |decode: fn([u8; 2]) -> u16, bytes: &[u8]| {
        let (pairs, []) = bytes.as_chunks() else { return None };
        String::from_utf16(&pairs.iter().copied().map(decode).collect::<Vec<_>>()).ok()
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(u16::from_le_bytes, rest),
        [0xfe, 0xff, rest @ ..] => wide(u16::from_be_bytes, rest),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.into()).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is neither UTF-8 nor UTF-16"))
}

/// The name of the context to use, which exists, as do the cluster and the user that it names: `wanted`, which is made the
/// current one again, or the current one.
pub(super) fn choose(kubeconfig: &mut Kubeconfig, wanted: Option<&str>, files: &str) -> Result<String, AccessError> {
    let context = match wanted {
        Some(context) => still(kubeconfig, context, files)?,
        None => chosen(kubeconfig, files)?,
    };
    let Some(Context { cluster, user, .. }) = current(kubeconfig) else { return Ok(context) };
    let dangling =
        |kind, name: &str| AccessError::Dangling { files: files.into(), context: context.clone(), kind, name: name.into() };
    if !kubeconfig.clusters.iter().any(|named| named.name == *cluster) {
        return Err(dangling("cluster", cluster));
    }
    let user = user.as_deref().filter(|user| !user.is_empty());
    if let Some(user) = user.filter(|user| !kubeconfig.auth_infos.iter().any(|named| named.name == *user)) {
        return Err(dangling("user", user));
    }
    Ok(context)
}

/// The cluster of the current context.
pub(super) fn cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let context = current(kubeconfig)?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// The name of the kubeconfig's current context, which must exist.
fn chosen(kubeconfig: &Kubeconfig, files: &str) -> Result<String, AccessError> {
    let choice = match kubeconfig.current_context.as_deref().filter(|name| !name.is_empty()) {
        Some(name) if kubeconfig.contexts.iter().any(|context| context.name == name) => return Ok(name.into()),
        Some(name) => format!("there is no context {name}"),
        None => "no context is chosen".into(),
    };
    if kubeconfig.contexts.is_empty() {
        return Err(AccessError::Empty(files.into()));
    }
    let contexts = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>().join(", ");
    Err(AccessError::Context { files: files.into(), choice, contexts })
}

/// The name of the context that was chosen before, which is made the current one again.
fn still(kubeconfig: &mut Kubeconfig, context: &str, files: &str) -> Result<String, AccessError> {
    if !kubeconfig.contexts.iter().any(|known| known.name == context) {
        return Err(AccessError::Gone { files: files.into(), context: context.into() });
    }
    Ok(kubeconfig.current_context.insert(context.into()).clone())
}

fn current(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let named = |name: &String| kubeconfig.contexts.iter().find(|context| context.name == *name);
    kubeconfig.current_context.as_ref().and_then(named).and_then(|named| named.context.as_ref())
}

/// Unsets what is empty, and unwraps base64.
fn tidy(kubeconfig: &mut Kubeconfig) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        for text in
            [&mut cluster.server, &mut cluster.proxy_url, &mut cluster.tls_server_name, &mut cluster.certificate_authority]
        {
            unset_empty(text);
        }
        unwrap(&mut cluster.certificate_authority_data);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        for text in [&mut user.username, &mut user.impersonate, &mut user.impersonate_uid] {
            unset_empty(text);
        }
        for secret in [&mut user.password, &mut user.token] {
            secret.take_if(|secret| secret.expose_secret().is_empty());
        }
        for file in [&mut user.token_file, &mut user.client_certificate, &mut user.client_key] {
            unset_empty(file);
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

fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) {
    let make = |file: &mut Option<String>| {
        let is_relative = |file: &&mut String| Path::new(file.as_str()).is_relative();
        if let Some(file) = file.as_mut().filter(is_relative)
            && let Some(absolute) = directory.join(file.as_str()).to_str()
        {
            *file = absolute.to_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        make(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        for file in [&mut user.token_file, &mut user.client_certificate, &mut user.client_key] {
            make(file);
        }
        // A bare name is looked up in PATH.
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.as_ref().is_some_and(|name| name.contains('/'))) {
            make(&mut exec.command);
        }
    }
}

fn unwrap(data: &mut Option<String>) {
    if let Some(data) = data {
        data.retain(|symbol| !matches!(symbol, '\r' | '\n'));
    }
    unset_empty(data);
}
