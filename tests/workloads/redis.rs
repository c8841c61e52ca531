//! Redis under config/examples/redis.yaml.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use support::{Stage, spec::released};

use super::{
    Debian,
    change::{Change, Client, Moment},
    until,
};

pub(super) async fn redis_is_promoted_and_demoted_by_its_hooks(stage: Stage) {
    let Some(debian) = Debian::package("redis-server") else { return };
    stage.lease.create(released()).await;
    let [one, two] = [stage.free_address(), stage.free_address()].map(|(address, _)| address);
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

    let both = Arc::new(AtomicBool::new(false));
    let seen = both.clone();
    let mut is_promoted = false;
    let client = Client::start(move |number| {
        // In this order: what b has taken once, a takes no more.
        let [new, old] = [two, one].map(|address| redis(address, &format!("SET key-{number} {number}")) == "+OK");
        is_promoted |= new;
        seen.fetch_or(is_promoted && old, Ordering::Relaxed);
        new || old
    });
    until("some writes", async || redis(one, "DBSIZE").trim_start_matches(':').parse::<u64>().is_ok_and(|size| size > 100)).await;
    let safe = redis(one, "SET safe 1") == "+OK" && redis(one, "WAIT 1 1000") == ":1";
    assert!(safe, "a replica has it");
    let since = Moment::now();
    stage.lease.ask_to_step_down().await;

    until("b is the primary", async || redis(two, "ROLE").contains("master")).await;
    until("a follows", async || redis(one, "SET k v").starts_with("-READONLY")).await;
    until("a has all of b's", async || redis(two, "WAIT 1 100") == ":1").await;
    let (written, gap) = client.end();
    assert!(!both.load(Ordering::Relaxed), "a took no write after b's first");
    let kept = written.iter().filter(|number| redis(two, &format!("EXISTS key-{number}")) == ":1").count();
    let what = format!("redis, hand-over, {} of {} writes without WAIT lost", written.len() - kept, written.len());
    debian.tell(&what, Change::HandOver, since, &gap).await;
    assert_eq!(redis(two, "EXISTS safe"), ":1", "what a replica had acknowledged is there");
    for me in [a, b] {
        assert_eq!(me.stop().await, 0);
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
