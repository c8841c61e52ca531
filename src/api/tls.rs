//! TLS to the API server, as kubectl speaks it: rustls by itself is stricter. And TLS to a probed workload, which verifies nothing.
//!
//! Owns the client certificate, which may be of X.509 v1, and the server's, which may itself be what the kubeconfig names as the
//! certificate authority. Names the keys that rustls' provider cannot use. (kube's own TLS would link its credential plugins, which
//! tenure never runs: half a megabyte of regular expressions.)

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::config::AuthInfo;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
    sign::{CertifiedKey, SingleCertAndKey},
};
use secrecy::ExposeSecret as _;
use tower::BoxError;

use super::access::AccessError;

#[cfg(test)]
mod tests;

/// Object identifiers, as in DER.
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
const P521: &[u8] = b"\x06\x05\x2b\x81\x04\x00\x23";
/// No public key of RSA with 2048 bits is shorter, and no private one.
const RSA_2048_PUBLIC: usize = 270;
const RSA_2048_PRIVATE: usize = 1000;
const SHORT_RSA: &str = "RSA with fewer than 2048 bits";
const REMEDY: &str = "which tenure does not support: use P-256, P-384, Ed25519, or RSA with 2048 bits or more";

/// What the kubeconfig, or the pod, says about TLS. Reads files.
pub(super) fn config(mut config: kube::Config, place: &str) -> Result<ClientConfig, AccessError> {
    let identity = identity(std::mem::take(&mut config.auth_info), place)?;
    let set_up = || -> Result<ClientConfig, BoxError> {
        // Images made from scratch lack the system's certificates.
        if config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http") {
            return Ok(unverified()?);
        }
        let roots = match config.root_cert {
            Some(roots) => roots.into_iter().map(CertificateDer::from).collect(),
            None => rustls_native_certs::load_native_certs().certs,
        };
        if roots.is_empty() {
            return Err("no certificate authority is known here: name one in the kubeconfig, or install the system's".into());
        }
        Ok(verified_by(Verifier { authority: Some(Authority::new(roots)?), file: config.root_cert_file })?)
    };
    let mut tls = set_up().map_err(|error| AccessError::caused(format!("cannot set up TLS for {place}"), error))?;
    if let Some(identity) = identity {
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
    }
    Ok(tls)
}

/// Believes every server.
pub(crate) fn unverified() -> Result<ClientConfig, Error> {
    verified_by(Verifier { authority: None, file: None })
}

fn verified_by(verifier: Verifier) -> Result<ClientConfig, Error> {
    let tls = ClientConfig::builder_with_provider(ring::default_provider().into()).with_safe_default_protocol_versions()?;
    Ok(tls.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The client certificate and its key. No error has a reason that could quote them.
fn identity(user: AuthInfo, place: &str) -> Result<Option<CertifiedKey>, AccessError> {
    let key = user.client_key_data.as_ref().map(|data| data.expose_secret());
    let certificate = load("client-certificate", user.client_certificate_data.as_deref(), user.client_certificate, place)?;
    let (certificate, key) = match (certificate, load("client-key", key, user.client_key, place)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (certificate, _) => {
            let missing = if certificate.is_some() { "client-key" } else { "client-certificate" };
            return Err(AccessError::unusable(format!("the user of {place} lacks a {missing}: it has the other half")));
        }
    };
    let no_pem = |_| AccessError::unusable(format!("the client certificate or the key for {place} is not PEM"));
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&certificate).collect::<Result<_, _>>().map_err(no_pem)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(no_pem)?;
    if certificates.is_empty() {
        return Err(AccessError::unusable(format!("the client certificate for {place} holds no PEM certificate")));
    }
    let is_short_rsa = matches!(key, PrivateKeyDer::Pkcs1(_)) && key.secret_der().len() < RSA_2048_PRIVATE;
    let unsupported = unsupported(key.secret_der(), RSA_2048_PRIVATE).or_else(|| is_short_rsa.then_some(SHORT_RSA));
    let signing = ring::default_provider().key_provider.load_private_key(key).map_err(|error| match unsupported {
        Some(kind) => AccessError::unusable(format!("the client key for {place} is {kind}, {REMEDY}")),
        None => AccessError::caused(format!("cannot use the client key for {place}"), error),
    })?;
    let identity = CertifiedKey::new(certificates, signing);
    match identity.keys_match() {
        // rustls reads X.509 v3 only, but only the server has to read this one.
        Ok(()) | Err(Error::InvalidCertificate(CertificateError::Other(_))) => Ok(Some(identity)),
        Err(error) => Err(AccessError::caused(format!("cannot use the client certificate for {place}"), error)),
    }
}

fn load(what: &str, data: Option<&str>, path: Option<String>, place: &str) -> Result<Option<Vec<u8>>, AccessError> {
    if let Some(data) = data {
        let decoded = BASE64_STANDARD.decode(data);
        return decoded.map(Some).map_err(|_| AccessError::unusable(format!("the {what}-data of {place} is not base64")));
    }
    let path = path.filter(|path| !path.is_empty());
    path.map(fs::read).transpose().map_err(|error| AccessError::caused(format!("the {what} of {place} cannot be read"), error))
}

/// What kind of key this DER holds, if it is one that the provider cannot use.
fn unsupported(der: &[u8], rsa_2048: usize) -> Option<&'static str> {
    let has = |name: &[u8]| der.windows(name.len()).any(|window| window == name);
    match der.len() < rsa_2048 {
        _ if has(P521) => Some("P-521"),
        true if has(RSA) => Some(SHORT_RSA),
        true | false => None,
    }
}

/// Whom a connection believes.
#[derive(Debug)]
struct Verifier {
    /// None: every server.
    authority: Option<Authority>,
    /// Read again for each connection: the roots of a pod rotate.
    file: Option<PathBuf>,
}

/// Accepts what rustls does, and a certificate that is itself a root, whoever has signed it, as Go does.
#[derive(Debug)]
struct Authority {
    roots: Vec<CertificateDer<'static>>,
    keys: Vec<Vec<u8>>,
    inner: Arc<WebPkiServerVerifier>,
}

impl Authority {
    fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, BoxError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let keys = store.roots.iter().map(|root| root.subject_public_key_info.to_vec()).collect();
        Ok(Self { roots, keys, inner: WebPkiServerVerifier::builder(Arc::new(store)).build()? })
    }

    fn of_file(file: &Path) -> Result<Self, BoxError> {
        Self::new(CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?)
    }

    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = |certificate| Some(ParsedCertificate::try_from(certificate).ok()?.subject_public_key_info().to_vec());
        let refuse = |whose: &str, kind: &str| {
            let message = format!("{whose} is {kind}, {REMEDY}");
            Error::InvalidCertificate(CertificateError::Other(OtherError(BoxError::from(message).into())))
        };
        if let Some(kind) = key(end_entity).and_then(|key| unsupported(&key, RSA_2048_PUBLIC)) {
            return Err(refuse("the key of the server's certificate", kind));
        }
        match self.inner.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // Its validity was looked at before its issuer, and before what it may be used for.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)))
                if self.roots.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            Err(error) => {
                let mut keys = intermediates.iter().filter_map(key).chain(self.keys.iter().cloned());
                let kind = if is_of_a_signature(&error) { keys.find_map(|key| unsupported(&key, RSA_2048_PUBLIC)) } else { None };
                Err(kind.map_or(error, |kind| refuse("a key of the cluster's certificate authority", kind)))
            }
            verified => verified,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(first) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        // While the file cannot be read, what it held at first counts.
        let fresh = self.file.as_deref().and_then(|file| Authority::of_file(file).ok());
        fresh.as_ref().unwrap_or(first).judge(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(authority) = &self.authority else { return Ok(HandshakeSignatureValid::assertion()) };
        authority.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(authority) = &self.authority else { return Ok(HandshakeSignatureValid::assertion()) };
        authority.inner.verify_tls13_signature(message, certificate, signed)
    }

    /// With the one of P-521, so that a server shows such a certificate, and an error can name it.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = ring::default_provider().signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

fn is_of_a_signature(error: &Error) -> bool {
    use CertificateError as E;
    let Error::InvalidCertificate(error) = error else { return false };
    matches!(
        error,
        E::BadSignature
            | E::UnsupportedSignatureAlgorithmContext { .. }
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    )
}
