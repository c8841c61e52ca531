//! The server's certificate, token and kubeconfig.
//!
//! Owns what is created anew at each start and never written to disk here.

use std::{net::IpAddr, sync::Arc};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::StartError;

/// A certificate authority of its own, and a server certificate signed by it.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The authority's certificate in PEM.
    pub(super) authority: String,
    /// TLS with the server's certificate.
    pub(super) tls: Arc<ServerConfig>,
}

impl Identity {
    /// A fresh one, for the loopback addresses and this one.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub(super) fn new(address: IpAddr) -> Result<Self, StartError> {
        let mut names: Vec<String> = ["localhost", "kubernetes.default.svc", "127.0.0.1", "::1"].map(Into::into).into();
        names.push(address.to_string());
        names.sort();
        names.dedup();

        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "tenure dev-server");
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;

        let key = KeyPair::generate()?;
        let issuer = Issuer::from_params(&authority, &authority_key);
        let mut certificate = CertificateParams::new(names)?;
        certificate.use_authority_key_identifier_extension = true;
        certificate.distinguished_name = DistinguishedName::new();
        certificate.distinguished_name.push(DnType::CommonName, "kubernetes.default.svc");
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = certificate.signed_by(&key, &issuer)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { authority: authority_certificate.pem(), tls: Arc::new(tls) })
    }

    /// A self-contained kubeconfig.
    pub(super) fn kubeconfig(&self, url: &str, token: &str) -> String {
        let authority = BASE64_STANDARD.encode(self.authority.as_bytes());
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: tenure
  cluster:
    server: {url}
    certificate-authority-data: {authority}
users:
- name: tenure
  user:
    token: {token}
contexts:
- name: tenure
  context:
    cluster: tenure
    user: tenure
    namespace: default
current-context: tenure
"
        )
    }
}

/// 128 random bits.
///
/// # Errors
/// The system has none.
pub(super) fn token() -> Result<String, StartError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bits)))
}
