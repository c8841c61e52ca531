//! config/examples with the programs that they are for, from Debian: what their clients see of a hand-over and of a crash.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tenure::clock;

use crate::{
    collector::{Collector, Manner, Seen, Wire},
    conformance::spec::released,
    support::{
        PATIENCE,
        case::{Case, REAL, cases},
        incomplete,
        procfs::{children, command_line, is_dead, parent, state},
        stage::{LEASE, Prepared, Stage},
        within,
    },
};

/// From one run of a job to the next.
const MINUTE: Duration = Duration::from_secs(60);
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn all() -> Vec<Case> {
    let cases = cases![
        nginx_reloads_on_hup_and_finishes_its_requests_in_a_hand_over,
        redis_is_promoted_and_demoted_by_its_hooks,
        postgresql_keeps_each_committed_row_through_a_hand_over_and_a_crash,
        postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had,
        a_jvm_is_warm_before_it_leads_if_it_is_frozen,
        a_job_of_crons_is_dead_before_the_next_cron_starts,
    ];
    cases.into_iter().map(|case| Case { on: REAL, ..case }).collect()
}

/// The environment in which a package's programs run, and what their replicas report of their transitions.
struct Debian {
    path: String,
    libraries: String,
    collector: RefCell<Collector>,
}

impl Debian {
    /// None, and said so, where it cannot be had.
    fn package(name: &str) -> Option<Self> {
        let print = "printf '%s\\n' \"$PATH\" \"$LD_LIBRARY_PATH\"";
        let output = Command::new(format!("{ROOT}/tests/support/debian")).args([name, "sh", "-c", print]).output().expect("bash");
        if !output.status.success() {
            incomplete::not_run(&format!("{name} as a workload"), String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        let text = String::from_utf8(output.stdout).expect("text");
        let (path, libraries) = text.trim_end().split_once('\n').expect("two lines");
        let collector = RefCell::new(Collector::start(Wire::Http, Manner::Obliging));
        Some(Self { path: path.into(), libraries: libraries.into(), collector })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        command.arg(format!("PATH={}", self.path)).arg(format!("LD_LIBRARY_PATH={}", self.libraries)).arg(program);
        command
    }

    /// A replica with an example's configuration, on the case's Lease; `before` launches its workload.
    async fn prepare(&self, stage: &Stage, name: &str, example: &str, before: &[&str], after: &[String]) -> Prepared {
        let text = fs::read_to_string(format!("{ROOT}/config/examples/{example}.yaml")).expect("an example");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        config["lease"] = json!({ "name": LEASE, "namespace": stage.namespace, "identity": name });
        let words = config["workload"]["command"].take();
        config["workload"]["command"] = json!([]);
        let words = words.as_array().expect("a list").iter().map(|word| word.as_str().expect("text").to_owned());
        let mut prepared = stage.prepare(name).await;
        prepared.launch.workload =
            before.iter().map(|word| (*word).to_owned()).chain(words).chain(after.iter().cloned()).collect();
        prepared.launch.config = config;
        prepared.launch.env = vec![("PATH".into(), self.path.clone()), ("LD_LIBRARY_PATH".into(), self.libraries.clone())];
        let export = [("ENDPOINT", self.collector.borrow().endpoint()), ("PROTOCOL", "http/protobuf".into())];
        prepared.launch.env.extend(export.map(|(name, value)| (format!("OTEL_EXPORTER_OTLP_{name}"), value)));
        prepared.launch.env.push(("OTEL_BSP_SCHEDULE_DELAY".into(), "10".into()));
        prepared
    }

    /// Tells how long each step of the change of leader took that began with `since`, and what its client saw. What was told to stop reports
    /// its stop; what crashed does not.
    async fn tell(&self, what: &str, is_told_to_stop: bool, since: Moment, seen: &Gap) {
        let transition = |all: &[Seen], to: &str| {
            let transition =
                all.iter().find(|span| span.begin >= since.0 && span.attributes.get("tenure.to").is_some_and(|it| it == to))?;
            let parts = all.iter().filter(|span| span.parent == transition.span && span.resource == transition.resource);
            Some((transition.clone(), parts.cloned().collect::<Vec<_>>()))
        };
        let mut spans = (None, None);
        until("both sides' spans", async || {
            let all = self.collector.borrow_mut().seen();
            spans = (transition(&all, "standby"), transition(&all, "leader"));
            let has = |side: &Option<(Seen, Vec<Seen>)>, part: &str| {
                side.as_ref().is_some_and(|(_, parts)| find(parts, part).is_some())
            };
            has(&spans.1, "acquire") && (!is_told_to_stop || has(&spans.0, "release"))
        })
        .await;
        let (stopped, led) = spans;
        let (led, parts) = led.expect("waited for");
        let acquire = find(&parts, "acquire").expect("waited for");
        let mut free = since.0;
        if let Some((stopped, parts)) = stopped.filter(|_| is_told_to_stop) {
            let proof = find(&parts, "workload.proof").map_or(stopped.begin, |proof| proof.begin);
            free = find(&parts, "release").expect("waited for").begin;
            row("stop", stopped.begin, proof);
            row("proof", proof, free);
        }
        row("detect", free, acquire.begin);
        row("acquire", acquire.begin, acquire.end);
        row("start", acquire.end, led.end);
        row("ready", led.end, seen.until.0);
        eprintln!("\nworkloads: {what}: its client had no answer for {:.2} s at most", seen.longest.as_secs_f64());
    }
}

fn find<'a>(parts: &'a [Seen], name: &str) -> Option<&'a Seen> {
    parts.iter().find(|part| part.name == name)
}

fn row(step: &str, from: u64, until: u64) {
    eprint!("{step} {:.1} ms  ", until.saturating_sub(from) as f64 / 1e6);
}

/// Nanoseconds since 1970, as spans have them.
#[derive(Clone, Copy)]
struct Moment(u64);

impl Moment {
    fn now() -> Self {
        Self(u64::try_from(clock::timestamp().as_nanosecond()).expect("after 1970"))
    }
}

/// The longest time without an answer.
struct Gap {
    longest: Duration,
    until: Moment,
}

/// Asks again and again; what was answered well, and the longest time without an answer.
struct Client {
    done: Arc<AtomicBool>,
    thread: JoinHandle<(BTreeSet<u64>, Gap)>,
}

impl Client {
    fn start(mut ask: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let thread = std::thread::spawn(move || {
            let (mut well, mut last) = (BTreeSet::new(), clock::boot());
            let mut gap = Gap { longest: Duration::ZERO, until: Moment::now() };
            for number in 0.. {
                if seen.load(Ordering::Relaxed) {
                    break;
                }
                if ask(number) {
                    let silent = clock::boot().since(last);
                    if silent > gap.longest {
                        gap = Gap { longest: silent, until: Moment::now() };
                    }
                    last = clock::boot();
                    well.insert(number);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            (well, gap)
        });
        Self { done, thread }
    }

    fn end(self) -> (BTreeSet<u64>, Gap) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(PATIENCE * 2, what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// It and all that it has started.
fn processes(root: Pid) -> impl Iterator<Item = Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found.into_iter()
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

async fn nginx_reloads_on_hup_and_finishes_its_requests_in_a_hand_over(stage: Stage) {
    let Some(debian) = Debian::package("nginx") else { return };
    stage.lease.create(released()).await;
    let (address, kept) = stage.free_address();
    drop(kept);
    let prepare = async |name: &str| {
        let directory = stage.directory().join(format!("nginx-{name}"));
        fs::create_dir_all(&directory).expect("a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("ours");
        write_page(&directory, address, "first");
        let after = ["-p", &directory.to_string_lossy(), "-c", "nginx.conf"].map(str::to_owned);
        debian.prepare(&stage, name, "nginx", &[], &after).await
    };
    let a = prepare("a").await.start();
    until("nginx serves", async || listens(address)).await;
    assert!(stage.page(address, "/").await.ends_with("first"));
    let b = prepare("b").await.start();
    b.said("another replica leads").await;

    write_page(&stage.directory().join("nginx-a"), address, "second");
    a.signal(Signal::SIGHUP).await;
    until("the reload", async || stage.page(address, "/").await.ends_with("second")).await;

    // As long as this takes, nginx is not done.
    let mut slow = TcpStream::connect(address).expect("nginx listens");
    slow.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("a request");
    let mut first = String::new();
    let mut slow = BufReader::new(slow);
    slow.read_line(&mut first).expect("an answer begins");
    let client = Client::start(move |_| listens(address));
    let since = Moment::now();
    a.signal(Signal::SIGTERM).await;
    let rest = tokio::task::spawn_blocking(move || {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut slow, &mut rest).map(|_| rest)
    });
    let rest = rest.await.expect("no panic").expect("the whole answer");
    assert!(rest.len() >= 60_000, "the answer was cut off after {} bytes", rest.len());
    assert_eq!(a.exit().await, 0);
    until("the other serves", async || listens(address) && stage.page(address, "/").await.ends_with("first")).await;
    debian.tell("nginx, hand-over with a slow request under way", true, since, &client.end().1).await;
    b.signal(Signal::SIGTERM).await;
    assert_eq!(b.exit().await, 0);
}

fn write_page(directory: &Path, address: SocketAddr, text: &str) {
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    let page = format!(
        "pid nginx.pid; error_log stderr; events {{}} http {{ {} access_log off; server {{ listen {address} reuseport; \
         location / {{ return 200 '{text}'; }} location /slow {{ limit_rate 30k; root .; try_files /slow =404; }} }} }}",
        paths.join(" ")
    );
    // With reuseport nothing but the Lease keeps a second one from serving.
    fs::write(directory.join("nginx.conf"), page.replace("root .", &format!("root {}", directory.display()))).expect("a file");
    fs::write(directory.join("slow"), vec![b'x'; 60_000]).expect("a file");
}

async fn redis_is_promoted_and_demoted_by_its_hooks(stage: Stage) {
    let Some(debian) = Debian::package("redis-server") else { return };
    stage.lease.create(released()).await;
    let (addresses, kept): (Vec<_>, Vec<_>) = (0..2).map(|_| stage.free_address()).unzip();
    drop(kept);
    let (one, two) = (addresses[0], addresses[1]);
    let prepare = async |name: &str, own: SocketAddr, other: SocketAddr| {
        let directory = stage.directory().join(format!("redis-{name}"));
        fs::create_dir_all(&directory).expect("a directory");
        let prepared = debian.prepare(&stage, name, "redis", &[], &[]).await;
        prepared
            .set("workload.env.PORT", own.port().to_string())
            .set("workload.env.DATA", directory.to_string_lossy())
            .set("workload.env.PRIMARY", other.ip().to_string())
            .set("workload.env.PRIMARY_PORT", other.port().to_string())
    };
    let a = prepare("a", one, two).await.start();
    until("a is the primary", async || redis(one, "ROLE").contains("master")).await;
    let b = prepare("b", two, one).await.start();
    until("b follows", async || redis(one, "WAIT 1 100") == ":1").await;
    assert!(redis(two, "SET k v").starts_with("-READONLY"));

    let client = Client::start(move |number| {
        let set = format!("SET key-{number} {number}");
        [one, two].into_iter().any(|address| redis(address, &set) == "+OK")
    });
    until("some writes", async || redis(one, "DBSIZE").trim_start_matches(':').parse::<u64>().is_ok_and(|size| size > 100)).await;
    let safe = redis(one, "SET safe 1") == "+OK" && redis(one, "WAIT 1 1000") == ":1";
    assert!(safe, "a replica has it");
    let holder = stage.lease.read().await.expect("the Lease")["spec"]["holderIdentity"].clone();
    let since = Moment::now();
    stage.lease.edit(|lease| lease["metadata"]["annotations"]["tenure.dev/step-down"] = holder.clone()).await;

    until("b is the primary", async || redis(two, "ROLE").contains("master")).await;
    until("a follows", async || redis(one, "SET k v").starts_with("-READONLY")).await;
    until("a has all of b's", async || redis(two, "WAIT 1 100") == ":1").await;
    let (written, gap) = client.end();
    let kept = written.iter().filter(|number| redis(two, &format!("EXISTS key-{number}")) == ":1").count();
    let what = format!("redis, hand-over, {} of {} writes without WAIT lost", written.len() - kept, written.len());
    debian.tell(&what, true, since, &gap).await;
    assert_eq!(redis(two, "EXISTS safe"), ":1", "what a replica had acknowledged is there");
    for me in [a, b] {
        me.signal(Signal::SIGTERM).await;
        assert_eq!(me.exit().await, 0);
    }
}

/// The first line of the answer to an inline command, or why there is none.
fn redis(address: SocketAddr, command: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        // An array, or a bulk string, goes on.
        let more = if first.starts_with('*') { lines.nth(1).transpose()?.unwrap_or_default() } else { String::new() };
        std::io::Result::Ok(first + &more)
    };
    ask().unwrap_or_else(|error| error.to_string())
}

async fn postgresql_keeps_each_committed_row_through_a_hand_over_and_a_crash(stage: Stage) {
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
    a.signal(Signal::SIGTERM).await;
    assert_eq!(a.exit().await, 0);
    b.said("leading").await;
    grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql, hand-over", true, since, &gap).await;

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
    debian.tell("postgresql, crash", false, since, &gap).await;
    rows.extend(more.into_iter().map(|number| 1_000_000 + number));

    let kept = psql("SELECT n FROM t").expect("c serves");
    let kept: BTreeSet<u64> = kept.lines().map(|line| line.parse().expect("a number")).collect();
    let lost: Vec<_> = rows.difference(&kept).collect();
    assert!(lost.is_empty(), "committed, and gone: {lost:?}");
    c.signal(Signal::SIGTERM).await;
    assert_eq!(c.exit().await, 0);
}

async fn postgresql_streams_to_a_standby_that_is_promoted_and_loses_nothing_that_one_had(stage: Stage) {
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
    let holder = stage.lease.read().await.expect("the Lease")["spec"]["holderIdentity"].clone();
    let since = Moment::now();
    stage.lease.edit(|lease| lease["metadata"]["annotations"]["tenure.dev/step-down"] = holder.clone()).await;
    b.said("leading").await;
    streams("a streams from b").await;
    grows("rows by b").await;
    let (mut rows, gap) = client.end();
    debian.tell("postgresql streaming, hand-over until another standby has each row", true, since, &gap).await;

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
    debian.tell("postgresql streaming, crash until another standby has each row", false, since, &gap).await;
    rows.extend(more.into_iter().map(|number| 1_000_000 + number));

    let kept = psql("SELECT n FROM t").expect("a serves");
    let kept: BTreeSet<u64> = kept.lines().map(|line| line.parse().expect("a number")).collect();
    let lost: Vec<_> = rows.difference(&kept).collect();
    assert!(lost.is_empty(), "committed, and gone: {lost:?}");
    for me in [again, a] {
        me.signal(Signal::SIGTERM).await;
        me.exit().await;
    }
}

async fn a_jvm_is_warm_before_it_leads_if_it_is_frozen(stage: Stage) {
    let Some(debian) = Debian::package("openjdk-17-jdk-headless") else { return };
    let (_, program) = include_str!("../../docs/frozen.md").split_once("```java\n").expect("a program");
    let (program, _) = program.split_once("```").expect("its end");
    let classes = stage.directory().join("classes");
    fs::create_dir(&classes).expect("a directory");
    fs::write(classes.join("Worker.java"), program).expect("a file");
    let compiled = debian.command("javac").arg("Worker.java").current_dir(&classes).output().expect("env");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    for runs in ["frozen", "leading"] {
        let stage = stage.beside(runs).await;
        stage.lease.create(released()).await;
        let output = stage.directory().join("output");
        let tokens = || {
            let text = fs::read_to_string(&output).unwrap_or_default();
            let pair =
                |line: &str| line.split_once(' ').map(|(token, at)| (token.to_owned(), at.parse::<u64>().unwrap_or_default()));
            text.lines().filter_map(pair).collect::<Vec<_>>()
        };
        let (addresses, kept): (Vec<_>, Vec<_>) = (0..2).map(|_| stage.free_address()).unzip();
        drop(kept);
        let prepare = async |name: &str, port: u16| {
            let mut prepared = debian.prepare(&stage, name, "jvm", &[], &[]).await;
            prepared
                .launch
                .workload
                .iter_mut()
                .filter(|word| *word == "/app")
                .for_each(|word| *word = classes.display().to_string());
            let prepared = prepared.set("workload.runs", runs).set("workload.readiness.tcp.port", port);
            let prepared = prepared.set("workload.candidate", if runs == "frozen" { "ready" } else { "any" });
            prepared.set("workload.env", json!({ "PORT": port.to_string(), "OUTPUT": output.to_string_lossy() }))
        };
        let a = prepare("a", addresses[0].port()).await.start();
        until("a works", async || !tokens().is_empty()).await;
        let b = prepare("b", addresses[1].port()).await.start();
        b.said("another replica leads").await;
        if runs == "frozen" {
            let init = b.init().await;
            let is_stopped = async || children(init).into_iter().any(|pid| state(pid) == Some('T'));
            until("b is warm, and stopped", is_stopped).await;
        }

        let since = Moment::now();
        a.signal(Signal::SIGTERM).await;

        let first = tokens()[0].0.clone();
        until("b works", async || tokens().iter().any(|(token, _)| *token != first)).await;
        let tokens = tokens();
        let next = tokens.iter().position(|(token, _)| *token != first).expect("b's first line");
        assert!(tokens.iter().skip(next).all(|(token, _)| *token != first), "a wrote after b");
        let longest = Duration::from_millis(tokens[next].1.saturating_sub(tokens[next - 1].1));
        let gap = Gap { longest, until: Moment(tokens[next].1 * 1_000_000) };
        debian.tell(&format!("a JVM, {runs}, hand-over"), true, since, &gap).await;
        b.signal(Signal::SIGTERM).await;
    }
}

async fn a_job_of_crons_is_dead_before_the_next_cron_starts(stage: Stage) {
    let Some(debian) = Debian::package("busybox-static") else { return };
    stage.lease.create(released()).await;
    let tables = stage.directory().join("crontabs");
    fs::create_dir(&tables).expect("a directory");
    fs::write(tables.join("root"), "* * * * * exec sleep 1000\n").expect("a file");
    let prepare = async |name: &str| {
        let mut prepared = debian.prepare(&stage, name, "cron", &[], &[]).await;
        let words = prepared.launch.workload.iter_mut().filter(|word| *word == "/etc/crontabs");
        words.for_each(|word| *word = tables.display().to_string());
        prepared
    };
    let find = |init: Pid, word: &str| processes(init).find(|pid| command_line(*pid).iter().any(|it| it == word));
    let a = prepare("a").await.start();
    a.said("leading").await;
    let init = a.init().await;
    let b = prepare("b").await.start();
    b.said("another replica leads").await;
    let mut job = None;
    within(MINUTE + PATIENCE, "the next minute's job", async {
        while job.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            job = find(init, "sleep");
        }
    })
    .await;
    let since = Moment::now();

    a.signal(Signal::SIGTERM).await;

    b.said("leading").await;
    assert!(is_dead(job.expect("waited for")));
    let next = b.init().await;
    until("b's cron", async || find(next, "crond").is_some()).await;
    let until = Moment::now();
    let gap = Gap { longest: Duration::from_nanos(until.0 - since.0), until };
    debian.tell("cron, hand-over until the next cron", true, since, &gap).await;
    b.signal(Signal::SIGTERM).await;
    b.exit().await;
}
