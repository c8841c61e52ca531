//! Makes kube read a kubeconfig as client-go does, and less literally: an empty value counts as not set, and base64 may be
//! wrapped.

use kube::config::Kubeconfig;
use secrecy::{ExposeSecret as _, SecretString};

/// Applies both rules.
pub(super) fn tidy(kubeconfig: &mut Kubeconfig) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        for text in [&mut cluster.server, &mut cluster.proxy_url, &mut cluster.tls_server_name] {
            unset_empty(text);
        }
        unset_nameless(&mut cluster.certificate_authority);
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
            unset_nameless(file);
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

/// kube has made file names absolute, which turns an empty one into the kubeconfig's directory.
fn unset_nameless(file: &mut Option<String>) {
    file.take_if(|file| file.is_empty() || file.ends_with('/'));
}

fn unwrap(data: &mut Option<String>) {
    if let Some(data) = data {
        data.retain(|symbol| !matches!(symbol, '\r' | '\n'));
    }
    unset_empty(data);
}
