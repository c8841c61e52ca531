//! The recipes of docs/fencing.md: a store refuses a writer with an older token, also in the middle of its write.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use support::{Ended as _, Kept, Stage, fences::file, programs};

use super::{
    Debian,
    postgresql::{Psql, USER, initdb},
    until,
};

const PAGE: &str = include_str!("../../docs/fencing.md");

const OLD: &str = "9";
const NEW: &str = "10";

pub(super) async fn postgresql_refuses_an_old_leader_in_an_open_transaction_too(stage: Stage) {
    let Some(debian) = Debian::package("postgresql-15") else { return };
    let data = stage.directory().join("pgfence");
    let settings = format!("\nlisten_addresses = ''\nunix_socket_directories = '{}'\n", data.display());
    initdb(&debian, &data.to_string_lossy(), &settings);
    let mut server = debian.command(USER[0]);
    server.args(&USER[1..]).args(["setpriv", "--pdeathsig", "KILL", "postgres", "-D"]).arg(&data).stderr(Stdio::null());
    let _server = Kept(server.spawn().expect("postgres"));
    let of = |user: &str| Psql::of(&debian, format!("host={} user={user} connect_timeout=2 dbname=postgres", data.display()));
    let (owner, billing) = (of("postgres"), of("billing"));
    until("it serves", async || owner.ask("SELECT 1").is_some()).await;
    owner.ask("CREATE ROLE billing LOGIN; CREATE TABLE invoices (n bigint)").expect("a table");
    owner.ask(file_of("-- fence.sql")).expect("the recipe");
    let writes = |token: &str, n: u64| format!("SELECT take_over({token}); INSERT INTO invoices VALUES ({n})");

    billing.ask(&writes(OLD, 1)).expect("the leader writes");
    // In the middle of its statement: it waits for what another session has.
    let gate = owner.session();
    gate.tell("SELECT pg_advisory_lock(1);\n");
    until("the gate is closed", async || owner.ask("SELECT pg_try_advisory_lock(1)").as_deref() == Some("f")).await;
    let held = billing.session();
    held.tell(&format!("SELECT take_over({OLD}); INSERT INTO invoices SELECT 2 FROM (SELECT pg_advisory_lock(1)) gate;\n"));
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until("the old leader's statement is under way", async || owner.ask(waits).as_deref() == Some("1")).await;
    billing.ask(&writes(NEW, 3)).expect("the new leader is not kept waiting");
    gate.end();

    let said = held.end();

    assert!(said.contains(&format!("fenced: this connection has the token {OLD}, and the leader {NEW}")), "{said}");
    for refused in [&writes(OLD, 4), "INSERT INTO invoices VALUES (5)", "UPDATE fence SET token = 0", "TRUNCATE invoices"] {
        assert_eq!(billing.ask(refused), None, "{refused}");
    }
    // A pooler gives the transactions of both leaders to one connection.
    let shared = billing.session();
    let take_over = |token| format!("SELECT take_over({token}, true);");
    for (first, n) in [(take_over(NEW), 6), (String::new(), 7), (take_over(OLD), 8)] {
        shared.tell(&format!("BEGIN; {first} INSERT INTO invoices VALUES ({n}); COMMIT;\n"));
    }
    let said = shared.end();
    assert!(said.contains(&format!("fenced: this connection has the token , and the leader {NEW}")), "{said}");
    assert!(said.contains(&format!("fenced: token {OLD} is older than that of the leader")), "{said}");
    assert_eq!(owner.ask("SELECT string_agg(n::text, ' ' ORDER BY n) FROM invoices").as_deref(), Some("1 3 6"));
}

pub(super) async fn redis_refuses_an_old_leader(stage: Stage) {
    let Some(debian) = Debian::package("redis-server") else { return };
    let socket = stage.directory().join("fence.sock");
    let mut server = debian.command("setpriv");
    server.args(["--pdeathsig", "KILL", "redis-server", "--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let _server = Kept(server.stdout(Stdio::null()).spawn().expect("redis-server"));
    let script = write(&stage, "fenced.lua", file_of("-- fenced.lua"));
    let redis = |words: &[&str]| {
        let output = debian.command("redis-cli").arg("-s").arg(&socket).args(words).output().expect("redis-cli");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let writes = |token: &str, value: &str| redis(&["--eval", &script.to_string_lossy(), "fence", "k", ",", token, value]);
    until("it serves", async || redis(&["PING"]) == "PONG").await;

    // These differ by less than a double shows.
    let (old, new) = ("9007199254740992", "9007199254740993");
    let said = [(OLD, "a"), (NEW, "b"), (OLD, "c"), (old, "d"), (new, "e"), (old, "f"), (new, "g")]
        .map(|(token, value)| writes(token, value));

    let refused = |token, newest| format!("FENCED token {token} is older than {newest}");
    let ok = || "OK".to_owned();
    assert_eq!(said, [ok(), ok(), refused(OLD, NEW), ok(), ok(), refused(old, new), ok()]);
    assert_eq!(redis(&["GET", "k"]), "g");
}

pub(super) async fn an_object_with_a_version_refuses_an_old_leader_between_its_read_and_its_write(stage: Stage) {
    let script = write(&stage, "fenced-object.sh", file(PAGE, "fenced-object.sh"));
    let (real, slow) = (programs::path("kubectl"), stage.directory().join("slow"));
    fs::create_dir(&slow).expect("a directory");
    let kubectl = |words: &[&str]| {
        let mut kubectl = Command::new(&real);
        kubectl.arg("--kubeconfig").arg(stage.kubeconfig()).args(["--namespace", &stage.namespace]).args(words);
        String::from_utf8(kubectl.output().expect("kubectl").success().stdout).expect("text")
    };
    // kubectl as the script calls it; a file beside it holds up what comes after the first call.
    let wrapper = format!(
        "#!/bin/sh\n[ -z \"$GATE\" ] || [ \"$1\" = get ] || {{ : >\"$GATE.reached\"; while [ ! -e \"$GATE\" ]; do sleep 0.05; done; }}\n\
         exec {} --kubeconfig {} --namespace {} \"$@\"\n",
        real.display(),
        stage.kubeconfig().display(),
        stage.namespace
    );
    write(&stage, "slow/kubectl", &wrapper);
    let writes = |token: &str, value: &str, gate: &str| {
        let path = format!("{}:{}", slow.display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(&script);
        command.args(["state", value]).env("PATH", path).env("TENURE_FENCING_TOKEN", token).env("GATE", gate);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh")
    };
    kubectl(&["create", "configmap", "state"]);
    ended(writes(OLD, "a", "")).success();
    let gate = stage.directory().join("gate");
    let held = writes(OLD, "b", &gate.to_string_lossy());
    until("the old leader has read", async || gate.with_extension("reached").exists()).await;
    ended(writes(NEW, "c", "")).success();
    fs::write(&gate, "").expect("a file");

    let said = ended(held).failure();

    assert!(said.contains("Conflict") || said.contains("the object has been modified"), "{said}");
    let said = ended(writes(OLD, "d", "")).failure();
    assert!(said.contains(&format!("fenced: token {OLD}, and the newest is '{NEW}'")), "{said}");
    assert_eq!(kubectl(&["get", "configmap", "state", "--output=jsonpath={.data.value}"]), "c");
}

pub(super) async fn an_object_that_cannot_be_read_is_not_written(stage: Stage) {
    let script = write(&stage, "fenced-object.sh", file(PAGE, "fenced-object.sh"));
    let (fake, sent) = (stage.directory().join("fake"), stage.directory().join("sent"));
    fs::create_dir(&fake).expect("a directory");
    let run = |read: &str, value: &str| {
        let kubectl = format!("#!/bin/sh\nif [ \"$1\" = get ]; then {read}; else echo \"$*\" >{}; fi\n", sent.display());
        write(&stage, "fake/kubectl", &kubectl);
        let path = format!("{}:{}", fake.display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(&script);
        command.args(["state", value]).env("PATH", path).env("TENURE_FENCING_TOKEN", NEW).output().expect("sh")
    };

    for read in ["exit 1", "printf '7 9'; exit 1", "exit 0", "printf ' '", "printf ' 9'", "printf '7 x'", "printf '7 9 9'"] {
        let said = run(read, "a").failure();
        assert!(!sent.exists(), "{read}: {said}");
    }
    for value in ["a\",\"token\":\"0", "a\\", "a\nb"] {
        let said = run("printf '7 9'", value).failure();
        assert!(!sent.exists(), "{value}: {said}");
    }
    for (read, version) in [("printf '7 9'", 7), ("printf '8 '", 8)] {
        run(read, "an 'a', {b}: ü").success();
        let sent = fs::read_to_string(&sent).expect("a patch");
        let patch =
            format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"data":{{"token":"{NEW}","value":"an 'a', {{b}}: ü"}}}}"#);
        assert!(sent.contains(&patch), "{sent}");
    }
}

pub(super) async fn a_file_whose_token_cannot_be_read_is_not_written(stage: Stage) {
    let script = write(&stage, "fenced-file.sh", file(PAGE, "fenced-file.sh"));
    let (target, token) = (stage.directory().join("state"), stage.directory().join("state.token"));
    let run = || {
        let mut command = Command::new(&script);
        command.arg(&target).env("TENURE_FENCING_TOKEN", NEW).stdin(Stdio::null()).output().expect("sh")
    };
    fs::write(&target, "kept").expect("a file");

    for garbled in ["", "\n", "x", "9x", "9\n9\n"] {
        fs::write(&token, garbled).expect("a file");
        let said = run().failure();
        assert_eq!(fs::read_to_string(&token).expect("a file"), garbled, "{said}");
    }
    fs::remove_file(&token).expect("a file");
    fs::create_dir(&token).expect("a directory");
    run().failure();

    assert_eq!(fs::read_to_string(&target).expect("a file"), "kept");
    let left = fs::read_dir(stage.directory()).expect("a directory").filter_map(Result::ok);
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with("state.")).collect();
    assert_eq!(left.len(), 2, "the lock and the token: {left:?}");
}

pub(super) async fn a_file_refuses_an_old_leader_that_is_still_writing(stage: Stage) {
    let script = write(&stage, "fenced-file.sh", file(PAGE, "fenced-file.sh"));
    let target = stage.directory().join("state");
    let begin = |token: &str| {
        let mut command = Command::new(&script);
        command.arg(&target).env("TENURE_FENCING_TOKEN", token).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh")
    };
    let end = |mut writer: Child, text: &str| {
        writer.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        ended(writer)
    };
    end(begin(OLD), "a").success();
    let held = begin(OLD);
    end(begin(NEW), "b").success();

    let said = end(held, "c").failure();

    assert!(said.contains(&format!("fenced: token {OLD}, and the newest is '{NEW}'")), "{said}");
    assert_eq!(fs::read_to_string(&target).expect("a file"), "b");
    let left = fs::read_dir(stage.directory()).expect("a directory").filter_map(Result::ok);
    let left: Vec<_> =
        left.map(|entry| entry.file_name().into_string().expect("text")).filter(|name| name.starts_with("state.")).collect();
    assert!(left.iter().all(|name| ["state.lock", "state.token"].contains(&&**name)), "{left:?}");
}

fn ended(child: Child) -> std::process::Output {
    child.wait_with_output().expect("it ends")
}

/// A block of the page whose comment at the top is not that of a shell.
fn file_of(head: &str) -> &'static str {
    let blocks = PAGE.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks
        .map(|(_, text)| text)
        .find(|text| text.lines().next() == Some(head))
        .unwrap_or_else(|| panic!("the page has no {head}"))
}

/// A program of this case.
fn write(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let file = stage.directory().join(name);
    fs::write(&file, text).expect("a file");
    fs::set_permissions(Path::new(&file), fs::Permissions::from_mode(0o755)).expect("ours");
    file
}
