//! PostgreSQL under config/examples/postgresql.yaml and config/examples/postgresql-streaming.yaml.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Stage,
    procfs::{command_line, parent},
    spec::released,
};

use super::{
    Debian,
    change::{Change, Client, Moment},
    processes, until,
};

pub(super) async fn postgresql_keeps_each_committed_row_through_a_hand_over_and_a_crash(stage: Stage) {
    let Some(debian) = Debian::package("postgresql-15") else { return };
    stage.lease.create(released()).await;
    let data = stage.directory().join("pgdata");
    fs::create_dir(&data).expect("a directory");
    // To itself it is not root, and yet may read what root has unpacked.
    let user = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"];
    let made =
        debian.command(user[0]).args(&user[1..]).args(["initdb", "-U", "postgres", "-A", "trust", "-D"]).arg(&data).output();
    let made = made.expect("initdb");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let settings = format!("\nlisten_addresses = ''\nunix_socket_directories = '{}'\n", data.display());
    fs::OpenOptions::new()
        .append(true)
        .open(data.join("postgresql.conf"))
        .expect("it")
        .write_all(settings.as_bytes())
        .expect("room");

    let prepare = async |name: &str| {
        let prepared = debian.prepare(&stage, name, "postgresql", &user, &[]).await;
        prepared
            .set(
                "workload.env",
                json!({ "PGDATA": data.to_string_lossy(), "PGHOST": data.to_string_lossy(), "PGUSER": "postgres" }),
            )
            .set("lease.identity", name)
    };
    let socket = data.to_string_lossy().into_owned();
    let (path, libraries) = (debian.path.clone(), debian.libraries.clone());
    let psql = move |statement: &str| {
        let mut psql = Command::new("env");
        psql.args([
            format!("PATH={path}"),
            format!("LD_LIBRARY_PATH={libraries}"),
            format!("PGHOST={socket}"),
            "PGUSER=postgres".into(),
        ]);
        psql.args(["PGCONNECT_TIMEOUT=2", "psql", "-XqtA", "-d", "postgres", "-c", statement]).stdin(Stdio::null());
        let output = psql.output().expect("env");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let a = prepare("a").await.start();
    until("a serves", async || psql("CREATE TABLE IF NOT EXISTS t (n bigint)").is_some()).await;
    let b = prepare("b").await.start();
    b.said("another replica leads").await;

    let write = psql.clone();
    let client = Client::start(move |number| write(&format!("INSERT INTO t VALUES ({number})")).is_some());
    let grows = async |what: &str| {
        let before = psql("SELECT count(*) FROM t");
        until(what, async || psql("SELECT count(*) FROM t").is_some_and(|now| Some(now) != before)).await;
    };
    grows("rows by a").await;
    let since = Moment::now();
    assert_eq!(a.stop().await, 0);
    b.said("leading").await;
    grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql, hand-over", Change::HandOver, since, &gap).await;

    let c = prepare("c").await.start();
    c.said("another replica leads").await;
    let write = psql.clone();
    let client = Client::start(move |number| write(&format!("INSERT INTO t VALUES ({})", 1_000_000 + number)).is_some());
    grows("more rows by b").await;
    let since = Moment::now();
    kill(b.init().await, Signal::SIGKILL).expect("init lives");
    b.exit().await;
    c.said("leading").await;
    grows("rows by c").await;
    let (more, gap) = client.end();
    debian.tell("postgresql, crash", Change::Crash, since, &gap).await;
    rows.extend(more.into_iter().map(|number| 1_000_000 + number));

    let kept = psql("SELECT n FROM t").expect("c serves");
    let kept: BTreeSet<u64> = kept.lines().map(|line| line.parse().expect("a number")).collect();
    let lost: Vec<_> = rows.difference(&kept).collect();
    assert!(lost.is_empty(), "committed, and gone: {lost:?}");
    assert_eq!(c.stop().await, 0);
}

pub(super) async fn postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had(stage: Stage) {
    let Some(debian) = Debian::package("postgresql-15") else { return };
    stage.lease.create(released()).await;
    let data = |name: &str| stage.directory().join(format!("pg-{name}")).to_string_lossy().into_owned();
    let user = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"];
    let made =
        debian.command(user[0]).args(&user[1..]).args(["initdb", "-U", "postgres", "-A", "trust", "-D", &data("a")]).output();
    assert!(made.is_ok_and(|made| made.status.success()), "initdb");
    let settings = "\nlisten_addresses = ''\nwal_log_hints = on\nsynchronous_standby_names = '*'\n";
    let file = fs::OpenOptions::new().append(true).open(format!("{}/postgresql.conf", data("a")));
    file.expect("it").write_all(settings.as_bytes()).expect("room");
    // Not in the data directory: a clone of that would begin with the lock of the other's socket.
    let socket = |name: &str| stage.directory().join(format!("socket-{name}"));
    for name in ["a", "b"] {
        fs::create_dir(socket(name)).expect("a directory");
        fs::set_permissions(socket(name), fs::Permissions::from_mode(0o777)).expect("ours");
    }
    let [a, b] = ["a", "b"].map(|name| socket(name).display().to_string());
    let primary_at = |hosts: &str| format!("host={hosts} user=postgres connect_timeout=2 target_session_attrs=read-write");
    let primary = primary_at(&format!("{a},{b}"));
    // Its clients ask b first: a is stopped for a moment.
    let conninfo = format!("{} dbname=postgres", primary_at(&format!("{b},{a}")));
    let prepare = async |name: &str, of: &str| {
        let prepared = debian.prepare(&stage, name, "postgresql-streaming", &user, &[]).await;
        let env = json!({
            "PGDATA": data(of), "PGHOST": socket(of), "PGUSER": "postgres", "PRIMARY": primary,
            "OPTIONS": format!("-c unix_socket_directories={}", socket(of).display()),
        });
        prepared.set("workload.env", env)
    };
    let (path, libraries) = (debian.path.clone(), debian.libraries.clone());
    let psql = move |statement: &str| {
        let mut psql = Command::new("env");
        psql.args([format!("PATH={path}"), format!("LD_LIBRARY_PATH={libraries}")]);
        psql.args(["psql", "-XqtA", "-d", &conninfo, "-c", statement]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = psql.output().expect("env");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let streams = async |what: &str| {
        until(what, async || {
            psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND application_name = 'walreceiver'")
                .is_some_and(|n| n == "1")
        })
        .await;
    };
    let a = prepare("a", "a").await.start();
    until("a is the primary", async || psql("SELECT 1").is_some()).await;
    let b = prepare("b", "b").await.start();
    streams("b is cloned, and streams").await;
    // It waits for the standby, and this thread has the proxies.
    let create = psql.clone();
    let created = tokio::task::spawn_blocking(move || create("CREATE TABLE t (n bigint)").is_some());
    assert!(created.await.expect("no panic"));
    b.said("another replica leads").await;

    let write = psql.clone();
    let client = Client::start(move |number| write(&format!("INSERT INTO t VALUES ({number})")).is_some());
    let grows = async |what: &str| {
        let before = psql("SELECT count(*) FROM t");
        until(what, async || psql("SELECT count(*) FROM t").is_some_and(|now| Some(now) != before)).await;
    };
    grows("rows by a").await;
    let since = Moment::now();
    stage.lease.ask_to_step_down().await;
    b.said("leading").await;
    streams("a streams from b").await;
    grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql streaming, hand-over until another standby has each row", Change::HandOver, since, &gap).await;

    let write = psql.clone();
    let client = Client::start(move |number| write(&format!("INSERT INTO t VALUES ({})", 1_000_000 + number)).is_some());
    grows("more rows by b").await;
    // A row that b has and a has not, so that b must be rewound. What is stopped starts no other receiver.
    let receiver = processes(a.init().await).find(|pid| command_line(*pid).concat().contains("walreceiver")).expect("it streams");
    let postmaster = parent(receiver).expect("its parent");
    kill(postmaster, Signal::SIGSTOP).expect("it lives");
    kill(receiver, Signal::SIGTERM).expect("it lives");
    until("a write waits for a standby", async || {
        psql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND NOT EXISTS (SELECT FROM pg_stat_replication)",
        )
        .is_some_and(|n| n == "1")
    })
    .await;
    let since = Moment::now();
    kill(b.init().await, Signal::SIGKILL).expect("init lives");
    kill(postmaster, Signal::SIGCONT).expect("it lives");
    b.exit().await;
    let again = prepare("b-again", "b").await.start();
    streams("b streams from a").await;
    grows("rows by a").await;
    let (more, gap) = client.end();
    debian.tell("postgresql streaming, crash until another standby has each row", Change::Crash, since, &gap).await;
    rows.extend(more.into_iter().map(|number| 1_000_000 + number));

    let kept = psql("SELECT n FROM t").expect("a serves");
    let kept: BTreeSet<u64> = kept.lines().map(|line| line.parse().expect("a number")).collect();
    let lost: Vec<_> = rows.difference(&kept).collect();
    assert!(lost.is_empty(), "committed, and gone: {lost:?}");
    for me in [again, a] {
        me.stop().await;
    }
}
