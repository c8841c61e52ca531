use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{Cluster, PLUGIN_PATIENCE as PATIENCE, exchange},
    words::one_line,
};

const SERVER: &str = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:";
const P256: &str = "ec:prime256v1";

/// Certificates that openssl made, and its server.
struct Files(PathBuf);

struct Server(Child);

impl Drop for Files {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Files {
    /// With an authority of this kind.
    fn new(name: &str, kind: &str) -> Self {
        let files = Self(std::env::temp_dir().join(format!("tenure-tls-{}-{name}", std::process::id())));
        fs::create_dir_all(&files.0).unwrap();
        files.signs("ca", kind, "basicConstraints=critical,CA:TRUE", "ca", "30");
        files
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let done = command.args(arguments.split(' ')).current_dir(&self.0).output().expect("openssl");
        assert!(done.status.success(), "{arguments}: {done:?}");
    }

    /// A certificate NAME.crt with NAME.key; without extensions it is of X.509 v1.
    fn signs(&self, name: &str, kind: &str, extensions: &str, authority: &str, days: &str) {
        let (algorithm, parameter) = kind.split_once(':').unwrap();
        let option = if algorithm == "rsa" { "rsa_keygen_bits" } else { "ec_paramgen_curve" };
        self.openssl(&format!("genpkey -algorithm {algorithm} -pkeyopt {option}:{parameter} -out {name}.key"));
        self.openssl(&format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        fs::write(self.0.join("extensions"), extensions).unwrap();
        let by = if name == authority {
            format!("-signkey {name}.key")
        } else {
            format!("-CA {authority}.crt -CAkey {authority}.key -CAcreateserial")
        };
        let extensions = if extensions.is_empty() { "" } else { " -extfile extensions" };
        self.openssl(&format!("x509 -req -in {name}.csr {by} -days {days} -out {name}.crt{extensions}"));
    }

    /// What comes of a request to a server with this certificate, which asks for a client's.
    async fn asks(&self, certificate: &str, cluster: Value, user: Value) -> Result<u16, String> {
        let line = format!(
            "s_server -accept 127.0.0.1:0 -www -cipher DEFAULT@SECLEVEL=0 -cert {certificate}.crt -key {certificate}.key -CAfile ca.crt"
        );
        let asked = if user == json!({}) { "" } else { " -Verify 1 -verify_return_error" };
        let mut command = Command::new("openssl");
        command.args(format!("{line}{asked}").split(' ')).current_dir(&self.0);
        let mut server = Server(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();

        let mut cluster = cluster;
        cluster["server"] = format!("https://{address}").into();
        let kubeconfig = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        });
        let file = self.0.join("kubeconfig");
        fs::write(&file, kubeconfig.to_string()).unwrap();
        let cluster = Cluster::from_kubeconfig(&[file]).map_err(|error| one_line(&error))?;
        let client = cluster.dialer(Duration::from_secs(5), PATIENCE).await.map_err(|error| one_line(&error))?.client();
        let request = Request::get("/x").body(Body::empty()).unwrap();
        let reply = exchange(&client, request, Duration::from_secs(20)).await;
        reply.map(|reply| reply.status.as_u16()).map_err(|error| one_line(&error))
    }
}

fn trusts(name: &str) -> Value {
    json!({ "certificate-authority": format!("{name}.crt") })
}

fn shows(name: &str) -> Value {
    json!({ "client-certificate": format!("{name}.crt"), "client-key": format!("{name}.key") })
}

#[tokio::test]
async fn a_client_certificate_of_x509_v1_is_shown_and_one_of_another_key_is_refused() {
    let files = Files::new("client", P256);
    files.signs("server", P256, &format!("{SERVER}FALSE"), "ca", "30");
    files.signs("v1", P256, "", "ca", "30");
    files.signs("v3", P256, "extendedKeyUsage=clientAuth", "ca", "30");

    for name in ["v1", "v3"] {
        assert_eq!(files.asks("server", trusts("ca"), shows(name)).await, Ok(200), "{name}");
    }

    let mixed = json!({ "client-certificate": "v3.crt", "client-key": "v1.key" });
    let said = files.asks("server", trusts("ca"), mixed).await.unwrap_err();
    assert!(said.contains("cannot use the client certificate for "), "{said}");
    let half = json!({ "client-certificate": "v3.crt" });
    let said = files.asks("server", trusts("ca"), half).await.unwrap_err();
    assert!(said.contains("lacks a client-key"), "{said}");
}

#[tokio::test]
async fn a_server_certificate_that_is_itself_the_authority_is_trusted_for_its_name_and_time_alone() {
    let files = Files::new("itself", P256);
    let extensions = |is_authority: &str| format!("{SERVER}{is_authority}");
    files.signs("leaf", P256, &extensions("FALSE"), "ca", "30");
    files.signs("twin", P256, &extensions("FALSE"), "ca", "30");
    files.signs("self", P256, &extensions("TRUE"), "self", "30");
    files.signs("late", P256, &extensions("FALSE"), "ca", "-1");
    files.signs("late-self", P256, &extensions("TRUE"), "late-self", "-1");
    files.signs("elsewhere", P256, &extensions("TRUE").replace("127.0.0.1", "127.0.0.2"), "elsewhere", "30");
    for (server, trusted, said) in [
        ("leaf", "leaf", None),
        ("self", "self", None),
        ("twin", "leaf", Some("UnknownIssuer")),
        ("late", "late", Some("invalid peer certificate: Expired")),
        ("late-self", "late-self", Some("invalid peer certificate: Expired")),
        ("elsewhere", "elsewhere", Some("certificate not valid for name")),
    ] {
        match (files.asks(server, trusts(trusted), json!({})).await, said) {
            (Ok(status), None) => assert_eq!(status, 200),
            (Err(error), Some(said)) => assert!(error.contains(said), "{server}: {error}"),
            (got, _) => panic!("{server}: {got:?}"),
        }
    }
}

#[test]
fn the_authority_of_a_pod_is_read_again_for_each_connection_and_counts_while_its_file_is_gone() {
    let files = Files::new("rotated", P256);
    let at = |name: &str| files.0.join(format!("{name}.crt"));
    let roots = |name: &str| CertificateDer::pem_file_iter(at(name)).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    files.signs("next-ca", P256, "basicConstraints=critical,CA:TRUE", "next-ca", "30");
    files.signs("old", P256, &format!("{SERVER}FALSE"), "ca", "30");
    files.signs("new", P256, &format!("{SERVER}FALSE"), "next-ca", "30");
    let file = at("mounted");
    fs::copy(at("ca"), &file).unwrap();
    let verifier = Verifier { authority: Some(Authority::new(roots("ca")).unwrap()), file: Some(file.clone()) };
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let believes = |server: &str| verifier.verify_server_cert(&roots(server)[0], &[], &name, &[], UnixTime::now()).is_ok();

    assert_eq!([believes("old"), believes("new")], [true, false]);
    fs::copy(at("next-ca"), &file).unwrap();
    assert_eq!([believes("old"), believes("new")], [false, true]);
    for torn in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&file, torn).unwrap();
        assert_eq!([believes("old"), believes("new")], [true, false], "{torn:?}");
    }
}

#[tokio::test]
async fn a_server_is_believed_unseen_only_where_that_is_asked_for() {
    let files = Files::new("unseen", P256);
    files.signs("stranger", "ec:secp521r1", "", "stranger", "30");

    assert_eq!(files.asks("stranger", json!({ "insecure-skip-tls-verify": true }), json!({})).await, Ok(200));
    let said = files.asks("stranger", json!({}), json!({})).await.unwrap_err();
    assert!(said.contains("certificate") || said.contains("TLS"), "{said}");
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_named_with_its_remedy() {
    for (kind, named) in [("ec:secp521r1", "is P-521, which"), ("rsa:1024", "is RSA with fewer than 2048 bits, which")] {
        let files = Files::new(named.split(' ').nth(1).unwrap(), kind);
        files.signs("good-ca", P256, "basicConstraints=critical,CA:TRUE", "good-ca", "30");
        files.signs("server", kind, &format!("{SERVER}FALSE"), "good-ca", "30");
        files.signs("of-weak", P256, &format!("{SERVER}FALSE"), "ca", "30");
        files.signs("client", kind, "", "ca", "30");
        for (server, trusted, user, whose) in [
            ("server", "good-ca", json!({}), "the key of the server's certificate"),
            ("of-weak", "ca", json!({}), "a key of the cluster's certificate authority"),
            ("of-weak", "ca", shows("client"), "the client key for "),
        ] {
            let said = files.asks(server, trusts(trusted), user).await.unwrap_err();
            assert!(said.contains(whose) && said.contains(named) && said.contains("use P-256"), "{said}");
        }
    }
}
