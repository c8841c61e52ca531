use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::*;
use crate::{api::PLUGIN_PATIENCE as PATIENCE, words::one_line};

impl Cluster {
    /// The server at `url`, without credentials.
    pub(crate) fn without_credentials(url: &str) -> Self {
        let config = kube::Config::new(url.parse().unwrap());
        Self::new(config, Source::Kubeconfig { files: vec!["of a test".into()], context: "test".into() }, None).unwrap()
    }

    /// Does what [`Self::dialer`] does where there is no plugin.
    pub(crate) fn dialer_now(&self, connect_timeout: Duration) -> Dialer {
        Dialer::new(self.config.clone(), None, "of a test", connect_timeout).unwrap()
    }
}

/// A file of this test process, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = env::temp_dir().join(format!("tenure-cluster-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         contexts: [{{name: here, context: {{cluster: c, user: u, namespace: billing}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

async fn refused(file: &File) -> AccessError {
    let cluster = match Cluster::from_kubeconfig(std::slice::from_ref(&file.0)) {
        Ok(cluster) => cluster,
        Err(error) => return error,
    };
    cluster.dialer(Duration::from_secs(1), PATIENCE).await.err().unwrap()
}

#[test]
fn the_context_gives_the_namespace() {
    let file = File::new("namespace", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
    assert!(cluster.source().ends_with(", context here"), "{}", cluster.source());
}

#[test]
fn a_replica_stays_in_its_context_whichever_becomes_the_current_one() {
    let text = kubeconfig("", "token: x");
    let file = File::new("again", &text);
    let again = |began: &KubeContext| Cluster::of_context(std::slice::from_ref(&file.0), Some(&began.name), Some(began));
    let began = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap().context().unwrap();
    let other = "contexts: [{name: there, context: {cluster: d, user: u, namespace: other}}, ";
    let switched = text.replace("current-context: here", "current-context: there").replace("contexts: [", other);
    std::fs::write(&file.0, switched.replace("token: x", "token: y")).unwrap();

    let cluster = again(&began).unwrap();

    assert_eq!((cluster.context().as_ref(), cluster.namespace().unwrap()), (Some(&began), "billing"));
    let gone = KubeContext { name: "gone".into(), ..began };
    assert!(one_line(&again(&gone).unwrap_err()).contains("no longer has the context gone"));
}

#[test]
fn who_acts_as_another_user_does_so_with_new_credentials_too() {
    let file = File::new("user", &kubeconfig("", "token: x"));
    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

    let users = [Some("ann"), None].map(|user| {
        let anew = cluster.clone().acting_as(user.map(str::to_owned), user.map(|_| vec!["ops".to_owned()])).anew().unwrap();
        (anew.config.auth_info.impersonate, anew.config.auth_info.impersonate_groups)
    });

    assert_eq!(users, [(Some("ann".to_owned()), Some(vec!["ops".to_owned()])), (None, None)]);
}

#[test]
fn a_replica_stays_in_its_cluster_whatever_its_context_names() {
    let authority = || BASE64_STANDARD.encode(rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem());
    let (first, second) = (authority(), authority());
    let text = |authority: &str| kubeconfig(&format!("certificate-authority-data: {authority}"), "token: x");
    let file = File::new("moved", &text(&first));
    let began = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap().context().unwrap();
    for (now, said) in [
        (
            text(&first).replace("127.0.0.1:1", "127.0.0.1:2"),
            "another server (https://127.0.0.1:2/ in place of https://127.0.0.1:1/)",
        ),
        (text(&second), "another certificate authority"),
        (kubeconfig("insecure-skip-tls-verify: true", "token: x"), "another way to verify the server"),
        (text(&first).replace("cluster: {", "cluster: {tls-server-name: y, "), "another way to verify the server"),
    ] {
        std::fs::write(&file.0, now).unwrap();

        let error = Cluster::of_context(std::slice::from_ref(&file.0), Some(&began.name), Some(&began)).unwrap_err();

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains(said), "{}", one_line(&error));
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_kubeconfig_is_named() {
    let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let (no_authority, garbage) = (File::new("ca-empty", "no certificate"), File::new("ca-garbage", pem));
    let authority = |file: &File| kubeconfig(&format!("certificate-authority: {}", file.0.display()), "");
    let exec =
        |command: &str| kubeconfig("", &format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}}}"));
    let good = kubeconfig("", "token: x");
    let unchosen = good.replace("current-context: here\n", "").replace("contexts: [", "contexts: [{name: also}, ");
    let server = |url: &str| good.replace("https://127.0.0.1:1", url);
    let no_url = "which is not a URL: write https://HOST:PORT";
    for (text, code, said) in [
        ("clusters: [{".into(), 78, "line 1 cannot be parsed"),
        (String::new(), 78, "has no contexts, so it names no cluster"),
        (
            good.replace("current-context: here", "current-context: there"),
            78,
            "there is no context there; `kubectl config use-context",
        ),
        (unchosen, 78, "no context is chosen; `kubectl config use-context NAME` or --context chooses one of also, here"),
        (good.replace("cluster: c, user: u", "cluster: c, user: v"), 78, "the context here names the user v, which is not in"),
        (good.replace("cluster: c, user: u", "cluster: d, user: u"), 78, "the context here names the cluster d, which is not in"),
        (server("localhost:8080"), 78, no_url),
        (server("ftp://localhost"), 78, no_url),
        (server("https://[::1]:99999"), 78, no_url),
        (kubeconfig("certificate-authority: /nonexistent/ca.crt", ""), 78, "/nonexistent/ca.crt"),
        (authority(&no_authority), 78, "holds no PEM certificate"),
        (authority(&garbage), 78, "cannot set up TLS"),
        (kubeconfig("insecure-skip-tls-verify: true, certificate-authority-data: eA==", ""), 78, "insecure-skip-tls-verify"),
        (kubeconfig("proxy-url: 'http://127.0.0.1:2'", ""), 78, "sets proxy-url"),
        (kubeconfig("", "tokenFile: /nonexistent/token"), 78, "/nonexistent/token"),
        (exec("/nonexistent/plugin"), 78, "the credential plugin /nonexistent/plugin cannot be run"),
        (exec("'false'"), 77, "the credential plugin false failed (exit status: 1)"),
    ] {
        let file = File::new("wrong", &text);

        let error = refused(&file).await;

        assert_eq!(error.exit_code(), code, "{error:?}");
        assert!(one_line(&error).contains(said), "{said}: {}", one_line(&error));
    }
    for nobody in ["cluster: c", "cluster: c, user: ''"] {
        let file = File::new("nobody", &good.replace("cluster: c, user: u", nobody));
        Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();
    }
}

#[test]
fn a_kubeconfig_that_may_not_be_looked_at_is_not_passed_over() {
    let file = File::new("passed-over", &kubeconfig("", "token: x"));
    let hidden = File(file.0.with_extension("loop"));
    std::os::unix::fs::symlink(&hidden.0, &hidden.0).unwrap();

    let error = Cluster::from_kubeconfig(&[hidden.0.clone(), file.0.clone()]).unwrap_err();

    assert!(one_line(&error).contains(" (name another with --kubeconfig or KUBECONFIG): it cannot be read"), "{error:?}");
}

#[test]
fn a_kubeconfig_that_is_just_being_rewritten_is_looked_at_again_for_a_second_and_then_refused() {
    let whole = kubeconfig("", "token: x");
    let file = File::new("rewritten", &whole);
    let began = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap().context().unwrap();
    let find = || Cluster::of_context(std::slice::from_ref(&file.0), Some(&began.name), Some(&began));
    for cut in [0, 40, whole.find("users:").unwrap()] {
        std::fs::write(&file.0, &whole[..cut]).unwrap();
        let looks = std::cell::Cell::new(0);
        let found = patiently(|| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                std::fs::write(&file.0, &whole).unwrap();
            }
            find()
        });
        assert_eq!(found.unwrap().context().as_ref(), Some(&began), "cut after {cut} bytes");
    }
    std::fs::write(&file.0, "").unwrap();
    let start = clock::boot();

    assert_eq!(patiently(find).unwrap_err().exit_code(), 78);

    assert!(clock::boot().since(start) >= REWRITING);
}

#[test]
fn of_several_kubeconfigs_some_may_be_missing() {
    let file = File::new("several", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config"), file.0.clone()]).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let error = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config")]).unwrap_err();

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("/nonexistent/config"), "{}", one_line(&error));
    assert!(one_line(&error).contains("No such file"), "{}", one_line(&error));
}

#[test]
fn a_namespace_that_is_none_is_refused_to_who_asks_for_it_and_an_empty_one_is_default() {
    let with = |name: &str| File::new("namespaces", &kubeconfig("", "token: x").replace("billing", name));

    let file = with("'A b'");
    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();
    let error = cluster.namespace().unwrap_err();
    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("context here is \"A b\", which is not a valid namespace"), "{}", one_line(&error));

    for empty in ["''", "' '"] {
        let file = with(empty);
        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();
        assert_eq!(cluster.namespace().unwrap(), "default");
    }
}

#[tokio::test]
async fn what_a_kubeconfig_names_by_a_relative_path_is_beside_it() {
    let token = File::new("beside", "open-sesame");
    let name = token.0.file_name().unwrap().to_str().unwrap();
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./no-such-plugin}";
    for (user, said) in [(format!("tokenFile: {name}"), None), (exec.to_owned(), Some(env::temp_dir().join("./no-such-plugin")))]
    {
        let file = File::new("relative", &kubeconfig("", &user));
        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

        let refused = cluster.dialer(Duration::from_secs(1), PATIENCE).await.err().map(|error| one_line(&error));

        let plugin = said.map(|path| format!("the credential plugin {} cannot be run", path.display()));
        assert_eq!(refused.is_some(), plugin.is_some(), "{refused:?}");
        assert!(refused.unwrap_or_default().contains(&plugin.unwrap_or_default()));
    }
}

#[tokio::test]
async fn a_server_that_names_a_user_is_refused_and_not_shown() {
    for server in ["https://admin:hunter2@127.0.0.1:1", "ftp://admin:hunter2@x", "admin:hunter2@x", "//admin:hunter2@x"] {
        let text = kubeconfig("", "").replace("https://127.0.0.1:1", server);

        let error = refused(&File::new("server-user", &text)).await;

        assert!(one_line(&error).contains(" names a user: "), "{server}: {error:?}");
        assert_eq!(error.exit_code(), 78);
        assert!(!format!("{} {error:?}", one_line(&error)).contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_cluster_shows_no_secret_of_its_plugin() {
    let variable = "[{name: KEY, value: hunter2}]";
    let exec = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: x, args: [hunter2], env: {variable}}}");
    let file = File::new("debug", &kubeconfig("", &exec));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

    let shown = format!("{cluster:?}");
    assert!(shown.contains("context: \"here\"") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn what_is_empty_of_a_cluster_is_not_set() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let authority = File::new("authority", &authority);
    let empty = format!(
        "tls-server-name: '', proxy-url: '', certificate-authority-data: '', certificate-authority: {}",
        authority.0.display()
    );
    let file = File::new("empty-cluster", &kubeconfig(&empty, "token: x"));
    let paths = "tokenFile: '', client-certificate: '', client-key: '', token: x";
    let no_paths = File::new("empty-paths", &kubeconfig("certificate-authority: ''", paths));

    for file in [file, no_paths] {
        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

        cluster.dialer(Duration::from_secs(1), PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn base64_in_a_kubeconfig_may_be_wrapped() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let mut data = BASE64_STANDARD.encode(authority.as_bytes());
    data.insert_str(64, "\\n");
    let file = File::new("wrapped", &kubeconfig(&format!("certificate-authority-data: \"{data}\\n\""), "token: x"));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0)).unwrap();

    cluster.dialer(Duration::from_secs(1), PATIENCE).await.unwrap();
}

#[test]
fn an_empty_current_context_leaves_the_choice_to_the_next_file() {
    let first = File::new("first", "{apiVersion: v1, kind: Config, current-context: '', contexts: [], clusters: [], users: []}");
    let second = File::new("second", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(&[first.0.clone(), second.0.clone()]).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
}
