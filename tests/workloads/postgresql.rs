//! PostgreSQL under config/examples/postgresql.yaml and config/examples/postgresql-streaming.yaml.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Stage,
    procfs::{command_line, parent},
    safe,
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
    let settings = format!("\nlisten_addresses = ''\nunix_socket_directories = '{}'\n", data.display());
    initdb(&debian, &data.to_string_lossy(), &settings);

    let prepare = async |name: &str| {
        let prepared = debian.prepare(&stage, name, "postgresql", &USER, &[]).await;
        prepared
            .set(
                "workload.env",
                json!({ "PGDATA": data.to_string_lossy(), "PGHOST": data.to_string_lossy(), "PGUSER": "postgres" }),
            )
            .set("lease.identity", name)
    };
    let psql = Psql::of(&debian, format!("host={} user=postgres connect_timeout=2 dbname=postgres", data.display()));
    let a = prepare("a").await.start();
    until("a serves", async || psql.ask("CREATE TABLE IF NOT EXISTS t (n bigint)").is_some()).await;
    let b = prepare("b").await.start();
    b.said("another replica holds the Lease").await;

    let client = psql.inserts_from(0);
    psql.grows("rows by a").await;
    let since = Moment::now();
    assert_eq!(a.stop().await, 0);
    b.said("leading").await;
    psql.grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql, hand-over", Change::HandOver, since, &gap).await;

    let c = prepare("c").await.start();
    c.said("another replica holds the Lease").await;
    let client = psql.inserts_from(MORE);
    psql.grows("more rows by b").await;
    let since = Moment::now();
    kill(b.init().await, Signal::SIGKILL).expect("init lives");
    b.exit().await;
    c.said("leading").await;
    psql.grows("rows by c").await;
    let (more, gap) = client.end();
    debian.tell("postgresql, crash", Change::Crash, since, &gap).await;
    rows.extend(more.into_iter().map(|number| MORE + number));

    psql.assert_keeps(&rows);
    assert_eq!(c.stop().await, 0);
}

pub(super) async fn postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had(stage: Stage) {
    let Some(debian) = Debian::package("postgresql-15") else { return };
    stage.lease.create(released()).await;
    let data = |name: &str| stage.directory().join(format!("pg-{name}")).to_string_lossy().into_owned();
    initdb(&debian, &data("a"), "\nlisten_addresses = ''\nwal_log_hints = on\nsynchronous_standby_names = '*'\n");
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
        let prepared = debian.prepare(&stage, name, "postgresql-streaming", &USER, &[]).await;
        let env = json!({
            "PGDATA": data(of), "PGHOST": socket(of), "PGUSER": "postgres", "PRIMARY": primary,
            "OPTIONS": format!("-c unix_socket_directories={}", socket(of).display()),
        });
        prepared.set("workload.env", env)
    };
    let psql = Psql::of(&debian, conninfo);
    let streams = async |what: &str| {
        until(what, async || {
            psql.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND application_name = 'walreceiver'")
                .is_some_and(|n| n == "1")
        })
        .await;
    };
    let a = prepare("a", "a").await.start();
    until("a is the primary", async || psql.ask("SELECT 1").is_some()).await;
    let b = prepare("b", "b").await.start();
    streams("b is cloned, and streams").await;
    // It waits for the standby, and this thread has the proxies.
    let create = psql.clone();
    let created = tokio::task::spawn_blocking(move || create.ask("CREATE TABLE t (n bigint)").is_some());
    assert!(created.await.expect("no panic"));
    b.said("another replica holds the Lease").await;

    let client = psql.inserts_from(0);
    psql.grows("rows by a").await;
    let since = Moment::now();
    stage.lease.ask_to_step_down().await;
    b.said("leading").await;
    streams("a streams from b").await;
    psql.grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql streaming, hand-over until another standby has each row", Change::HandOver, since, &gap).await;

    let client = psql.inserts_from(MORE);
    psql.grows("more rows by b").await;
    // A row that b has and a has not, so that b must be rewound. What is stopped starts no other receiver.
    let receiver = processes(a.init().await).find(|pid| command_line(*pid).concat().contains("walreceiver")).expect("it streams");
    let postmaster = parent(receiver).expect("its parent");
    kill(postmaster, Signal::SIGSTOP).expect("it lives");
    kill(receiver, Signal::SIGTERM).expect("it lives");
    until("a write waits for a standby", async || {
        psql.ask(
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
    psql.grows("rows by a").await;
    let (more, gap) = client.end();
    debian.tell("postgresql streaming, crash until another standby has each row", Change::Crash, since, &gap).await;
    rows.extend(more.into_iter().map(|number| MORE + number));

    psql.assert_keeps(&rows);
    for me in [again, a] {
        me.stop().await;
    }
}

/// To itself the database is not root, and yet may read what root has unpacked.
pub(super) const USER: [&str; 5] = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"];

/// The first row of a second client.
const MORE: u64 = 1_000_000;

/// Makes a database with these settings in a new directory.
pub(super) fn initdb(debian: &Debian, data: &str, settings: &str) {
    let made = debian.command(USER[0]).args(&USER[1..]).args(["initdb", "-U", "postgres", "-A", "trust", "-D", data]).output();
    let made = made.expect("initdb");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = fs::OpenOptions::new().append(true).open(format!("{data}/postgresql.conf"));
    file.expect("it").write_all(settings.as_bytes()).expect("room");
}

/// A connection of its own.
pub(super) struct Session(Child);

impl Session {
    pub(super) fn tell(&self, statements: &str) {
        self.0.stdin.as_ref().expect("a pipe").write_all(statements.as_bytes()).expect("psql reads");
    }

    /// Ends it after what it was told, and returns what it complained of.
    pub(super) fn end(self) -> String {
        String::from_utf8(self.0.wait_with_output().expect("psql ends").stderr).expect("text")
    }
}

/// A client of the database.
#[derive(Clone)]
pub(super) struct Psql {
    path: String,
    libraries: String,
    conninfo: String,
}

impl Psql {
    pub(super) fn of(debian: &Debian, conninfo: String) -> Self {
        Self { path: debian.path.clone(), libraries: debian.libraries.clone(), conninfo }
    }

    /// The output of a statement; none if it fails.
    pub(super) fn ask(&self, statement: &str) -> Option<String> {
        let mut psql = Command::new("env");
        psql.args([format!("PATH={}", self.path), format!("LD_LIBRARY_PATH={}", self.libraries)]);
        psql.args(["psql", "-XqtA", "-d", &self.conninfo, "-c", statement]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = psql.output().expect("env");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A connection that stays, for statements that wait.
    pub(super) fn session(&self) -> Session {
        let mut psql = Command::new("env");
        psql.args([format!("PATH={}", self.path), format!("LD_LIBRARY_PATH={}", self.libraries)]);
        psql.args(["psql", "-XqtA", "-d", &self.conninfo]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        Session(psql.spawn().expect("psql"))
    }

    /// Inserts one row after the other, from this one on.
    fn inserts_from(&self, first: u64) -> Client {
        let psql = self.clone();
        Client::start(move |number| psql.ask(&format!("INSERT INTO t VALUES ({})", first + number)).is_some())
    }

    async fn grows(&self, what: &str) {
        let before = self.ask("SELECT count(*) FROM t");
        until(what, async || self.ask("SELECT count(*) FROM t").is_some_and(|now| Some(now) != before)).await;
    }

    fn assert_keeps(&self, rows: &BTreeSet<u64>) {
        let kept = self.ask("SELECT n FROM t").expect("somebody serves");
        let kept: BTreeSet<u64> = kept.lines().map(|line| line.parse().expect("a number")).collect();
        let lost: Vec<_> = rows.difference(&kept).collect();
        safe(lost.is_empty(), || format!("committed, and gone: {lost:?}"));
    }
}
