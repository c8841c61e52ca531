use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::*;
use crate::words::one_line;

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

fn refused(file: &File) -> AccessError {
    let cluster = match Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never) {
        Ok(cluster) => cluster,
        Err(error) => return error,
    };
    cluster.dialer(Duration::from_secs(1)).unwrap_err()
}

#[test]
fn the_context_gives_the_namespace() {
    let file = File::new("namespace", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
    assert!(cluster.source().ends_with(", context here"), "{}", cluster.source());
}

#[test]
fn a_replica_stays_in_its_context_whichever_becomes_the_current_one() {
    let text = kubeconfig("", "token: x");
    let other = "contexts: [{name: there, context: {cluster: d, user: u, namespace: other}}, ";
    let file = File::new("again", &text.replace("current-context: here", "current-context: there").replace("contexts: [", other));
    let again = |context| Cluster::of_context(std::slice::from_ref(&file.0), Some(context), Prompt::Never);

    let cluster = again("here").unwrap();

    assert_eq!((cluster.context(), cluster.namespace().unwrap()), (Some("here"), "billing"));
    assert!(one_line(&again("gone").unwrap_err()).contains("no longer has the context gone"));
}

#[test]
fn a_kubeconfig_that_may_not_be_looked_at_is_not_passed_over() {
    let file = File::new("passed-over", &kubeconfig("", "token: x"));
    let hidden = File(file.0.with_extension("loop"));
    std::os::unix::fs::symlink(&hidden.0, &hidden.0).unwrap();

    let error = Cluster::from_kubeconfig(&[hidden.0.clone(), file.0.clone()], Prompt::Never).unwrap_err();

    assert!(matches!(error, AccessError::Unreadable { .. }), "{error:?}");
}

#[test]
fn half_a_character_at_the_end_of_a_kubeconfig_is_an_error() {
    let file = File::new("half", "");
    std::fs::write(&file.0, b"\xff\xfea\0b").unwrap();

    let error = refused(&file);

    assert_eq!((error.exit_code(), matches!(error, AccessError::Unreadable { .. })), (78, true), "{error:?}");
}

#[test]
fn of_several_kubeconfigs_some_may_be_missing() {
    let file = File::new("several", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config"), file.0.clone()], Prompt::Never).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let error = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config")], Prompt::Never).unwrap_err();

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("/nonexistent/config"), "{}", one_line(&error));
    assert!(one_line(&error).contains("No such file"), "{}", one_line(&error));
}

#[test]
fn a_broken_kubeconfig_is_named() {
    let file = File::new("broken", "clusters: [{");

    let error = refused(&file);

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("broken"), "{}", one_line(&error));
}

#[test]
fn a_context_that_does_not_exist_is_named() {
    let file = File::new("context", &kubeconfig("", "").replace("current-context: here", "current-context: there"));

    let error = refused(&file);

    assert_eq!(error.exit_code(), 78);
    let said = one_line(&error);
    assert!(said.ends_with("there is no context there; `kubectl config use-context NAME` chooses one of here"), "{said}");
}

#[test]
fn where_no_context_is_chosen_it_says_which_there_are() {
    let many = kubeconfig("", "").replace("current-context: here\n", "").replace("contexts: [", "contexts: [{name: also}, ");
    let file = File::new("no-context", &many);
    let said = one_line(&refused(&file));
    assert!(said.ends_with("no context is chosen; `kubectl config use-context NAME` chooses one of also, here"), "{said}");

    let empty = File::new("empty", "");
    assert!(one_line(&refused(&empty)).ends_with("has no contexts, so it names no cluster"));
}

#[test]
fn a_namespace_that_is_none_is_refused_to_who_asks_for_it_and_an_empty_one_is_default() {
    let with = |name: &str| File::new("namespaces", &kubeconfig("", "token: x").replace("billing", name));

    let file = with("'A b'");
    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();
    let error = cluster.namespace().unwrap_err();
    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("context here is \"A b\", which is not a valid namespace"), "{}", one_line(&error));

    for empty in ["''", "' '"] {
        let file = with(empty);
        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();
        assert_eq!(cluster.namespace().unwrap(), "default");
    }
}

#[test]
fn a_context_whose_user_or_cluster_is_missing_is_refused_and_one_without_a_user_is_nobody() {
    let text = kubeconfig("", "token: x");
    for (wrong, said) in [
        ("cluster: c, user: v", "the context here names the user v, which is not in "),
        ("cluster: d, user: u", "the context here names the cluster d, which is not in "),
    ] {
        let file = File::new("dangling", &text.replace("cluster: c, user: u", wrong));

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        let place = format!("{said}{}: ", file.0.display());
        assert!(one_line(&error).contains(&place), "{}", one_line(&error));
    }
    for nobody in ["cluster: c", "cluster: c, user: ''"] {
        let file = File::new("nobody", &text.replace("cluster: c, user: u", nobody));
        Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();
    }
}

#[test]
fn a_kubeconfig_without_an_end_is_not_read_to_it() {
    let error = Cluster::from_kubeconfig(&["/dev/zero".into()], Prompt::Never).unwrap_err();

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).ends_with("cannot be read: it is longer than 16 MiB"), "{}", one_line(&error));
}

#[test]
fn a_kubeconfig_may_be_of_wide_characters_or_begin_with_a_mark() {
    let text = kubeconfig("", "token: x");
    let wide =
        |mark: [u8; 2], encode: fn(u16) -> [u8; 2]| [mark.to_vec(), text.encode_utf16().flat_map(encode).collect()].concat();
    for bytes in [
        wide([0xff, 0xfe], u16::to_le_bytes),
        wide([0xfe, 0xff], u16::to_be_bytes),
        [&[0xef, 0xbb, 0xbf], text.as_bytes()].concat(),
    ] {
        let file = File::new("encoded", "");
        std::fs::write(&file.0, bytes).unwrap();

        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

        assert_eq!(cluster.context(), Some("here"));
    }
}

#[test]
fn what_a_kubeconfig_names_by_a_relative_path_is_beside_it() {
    let token = File::new("beside", "open-sesame");
    let name = token.0.file_name().unwrap().to_str().unwrap();
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./no-such-plugin}";
    for (user, said) in [(format!("tokenFile: {name}"), None), (exec.to_owned(), Some(env::temp_dir().join("./no-such-plugin")))]
    {
        let file = File::new("relative", &kubeconfig("", &user));
        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

        let refused = cluster.dialer(Duration::from_secs(1)).err().map(|error| one_line(&error));

        let plugin = said.map(|path| format!("the credential plugin {} cannot be run", path.display()));
        assert_eq!(refused.is_some(), plugin.is_some(), "{refused:?}");
        assert!(refused.unwrap_or_default().contains(&plugin.unwrap_or_default()));
    }
}

#[test]
fn certificates_and_keys_that_a_kubeconfig_names_by_a_relative_path_are_beside_it() {
    let issued = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
    let (certificate, key) = (File::new("me.crt", &issued.cert.pem()), File::new("me.key", &issued.signing_key.serialize_pem()));
    let name = |file: &File| file.0.file_name().unwrap().to_str().unwrap().to_owned();
    let cluster = format!("certificate-authority: {}", name(&certificate));
    let user = format!("client-certificate: {}, client-key: {}", name(&certificate), name(&key));
    let file = File::new("identity", &kubeconfig(&cluster, &user));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

    let refused = cluster.dialer(Duration::from_secs(1)).err().map(|error| one_line(&error));
    assert_eq!(refused, None);
}

#[test]
fn a_server_that_is_no_url_is_refused() {
    for server in ["localhost", "localhost:8080", "ftp://localhost", "https://127.0.0.1:99999", "https://[::1]:", "https://h:-1"]
    {
        let file = File::new("server", &kubeconfig("", "").replace("https://127.0.0.1:1", server));

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains("which is not a URL: write https://HOST:PORT"), "{}", one_line(&error));
    }
}

#[test]
fn a_server_that_names_a_user_is_refused_and_not_shown() {
    for server in ["https://admin:hunter2@127.0.0.1:1", "ftp://admin:hunter2@x", "admin:hunter2@x", "//admin:hunter2@x"] {
        let text = kubeconfig("", "").replace("https://127.0.0.1:1", server);

        let error = refused(&File::new("server-user", &text));

        assert!(matches!(error, AccessError::UserInServer(_)), "{server}: {error:?}");
        assert_eq!(error.exit_code(), 78);
        assert!(!format!("{} {error:?}", one_line(&error)).contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_cluster_shows_no_secret_of_its_plugin() {
    let variable = "[{name: KEY, value: hunter2}]";
    let exec = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: x, args: [hunter2], env: {variable}}}");
    let file = File::new("debug", &kubeconfig("", &exec));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

    let shown = format!("{cluster:?}");
    assert!(shown.contains("context: \"here\"") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_missing_certificate_authority_is_named() {
    let file = File::new("ca-missing", &kubeconfig("certificate-authority: /nonexistent/ca.crt", ""));

    let error = refused(&file);

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("/nonexistent/ca.crt"), "{}", one_line(&error));
}

#[test]
fn a_certificate_authority_without_a_certificate_is_refused() {
    let authority = File::new("ca-empty", "no certificate");
    let file = File::new("ca", &kubeconfig(&format!("certificate-authority: {}", authority.0.display()), ""));

    let error = refused(&file);

    assert!(matches!(error, AccessError::NoCertificate(_)), "{error:?}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn an_authority_beside_the_word_that_nothing_is_verified_is_refused() {
    let both = "insecure-skip-tls-verify: true, certificate-authority-data: eA==";
    let file = File::new("unverified", &kubeconfig(both, "token: x"));

    let error = refused(&file);

    assert!(matches!(error, AccessError::Unverified(_)), "{error:?}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn a_certificate_that_is_none_is_refused() {
    let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let authority = File::new("ca-garbage", pem);
    let file = File::new("ca-bad", &kubeconfig(&format!("certificate-authority: {}", authority.0.display()), ""));

    let error = refused(&file);

    assert!(matches!(error, AccessError::Tls { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn a_proxy_is_refused() {
    let file = File::new("proxy", &kubeconfig("proxy-url: 'http://127.0.0.1:2'", "token: x"));

    let error = refused(&file);

    assert!(matches!(error, AccessError::Proxy(_)), "{error:?}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn a_missing_token_file_is_named() {
    let file = File::new("token", &kubeconfig("", "tokenFile: /nonexistent/token"));

    let error = refused(&file);

    assert_eq!(error.exit_code(), 78);
    assert!(one_line(&error).contains("/nonexistent/token"), "{}", one_line(&error));
}

#[test]
fn a_missing_credential_plugin_is_configuration() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nonexistent/plugin}";
    let file = File::new("plugin-missing", &kubeconfig("", exec));

    let error = refused(&file);

    assert!(!error.may_pass(), "{error:?}");
    assert_eq!(error.exit_code(), 78);
}

#[test]
fn a_credential_plugin_that_fails_may_pass() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false'}";
    let file = File::new("plugin-fails", &kubeconfig("", exec));

    let error = refused(&file);

    assert!(error.may_pass(), "{error:?}");
    assert_eq!(error.exit_code(), 77);
}

#[test]
fn what_is_empty_of_a_cluster_is_not_set() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let authority = File::new("authority", &authority);
    let empty = format!(
        "tls-server-name: '', proxy-url: '', certificate-authority-data: '', certificate-authority: {}",
        authority.0.display()
    );
    let file = File::new("empty-cluster", &kubeconfig(&empty, "token: x"));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

    cluster.dialer(Duration::from_secs(1)).unwrap();
}

#[test]
fn base64_in_a_kubeconfig_may_be_wrapped() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let mut data = BASE64_STANDARD.encode(authority.as_bytes());
    data.insert_str(64, "\\n");
    let file = File::new("wrapped", &kubeconfig(&format!("certificate-authority-data: \"{data}\\n\""), "token: x"));

    let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), Prompt::Never).unwrap();

    cluster.dialer(Duration::from_secs(1)).unwrap();
}

#[test]
fn an_empty_current_context_leaves_the_choice_to_the_next_file() {
    let first = File::new("first", "{apiVersion: v1, kind: Config, current-context: '', contexts: [], clusters: [], users: []}");
    let second = File::new("second", &kubeconfig("", "token: x"));

    let cluster = Cluster::from_kubeconfig(&[first.0.clone(), second.0.clone()], Prompt::Never).unwrap();

    assert_eq!(cluster.namespace().unwrap(), "billing");
}
