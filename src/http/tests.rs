//! The probes as kubelet makes them, over a real connection.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::{
    clock,
    config::Config,
    election::{LeaderView, View},
    http::{Health, serve},
    law::Deadlines,
    link::{Confirmed, InitialState, LeaseBackoff, Term, TermInfo, ToElector, ToInit},
    slot::Slot,
    telemetry::{status::Fact, transition::Recorded},
    time::Instant,
    words::one_line,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(30);
const D: Duration = Duration::from_secs(3600);

fn served(health: &Health) -> SocketAddr {
    serve("127.0.0.1:0".parse().unwrap(), health.clone()).unwrap()
}

/// The state of a replica that has not read its Lease, whose init was heard from then.
fn new(duration: Duration, heard: Instant) -> Health {
    let mut config = Config::default();
    (config.lease.name, config.lease.namespace, config.lease.duration) = ("billing".into(), "default".into(), duration);
    Health::new(&InitialState::first(config, "a_1".into()), heard)
}

fn takes(health: &Health, fact: Fact) {
    health.apply(&fact, clock::boot());
}

fn elects(leading: Option<LeaderView>) -> Fact {
    Fact::Elects(View { ready: true, leading, backoff: LeaseBackoff::default(), next_fire: None, renewed: None, free: None })
}

fn standby() -> Health {
    let health = new(D, clock::boot());
    takes(&health, elects(None));
    health
}

/// The complete response to these bytes.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut reply)).await.expect("the connection ends").unwrap();
    reply
}

async fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n")).await
}

/// `tenure inject` writes `[::]`, whatever the node is.
#[test]
fn a_node_without_ipv6_listens_on_all_addresses_of_ipv4() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The filter stays with its thread, which another test may use after this one.
    let alone = std::thread::spawn(move || {
        support::denied::without_ipv6();
        runtime.block_on(listens_by_ipv4());
    });
    alone.join().unwrap();
}

async fn listens_by_ipv4() {
    let address = serve("[::]:0".parse().unwrap(), standby()).unwrap();

    assert!(
        exchange((Ipv4Addr::LOCALHOST, address.port()).into(), "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let refused = serve("[::1]:0".parse().unwrap(), standby()).unwrap_err();
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("Address family not supported"), "{refused}");
}

#[tokio::test]
async fn each_probe_follows_what_the_loop_last_wrote() {
    let health = new(D, clock::boot());
    let address = served(&health);
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/leader").await.starts_with("HTTP/1.1 503 "));

    let now = clock::boot();
    let deadlines = Deadlines { soft: now + D, hard: now + D, end: now + D };
    let leading = Some(LeaderView { term: Term(1), confirmed: now, deadlines: Some(deadlines), ending: false });
    takes(&health, elects(leading));
    let empty = String::new;
    let info =
        TermInfo { slot: Slot(0), token: empty(), uid: empty(), transitions: 7, acquired_at: empty(), traceparent: empty() };
    let confirmed = Confirmed { resource_version: empty(), preferred_holder: None, deadlines };
    takes(&health, Fact::Telling(ToInit::Lead { term: Term(1), info, confirmed }));
    assert!(get(address, "/leader").await.starts_with("HTTP/1.1 503 "), "its workload does not run yet");
    takes(&health, Fact::Told(ToElector::Started { term: Term(1), pid: 7, at: now }));

    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
    assert!(get(address, "/leader").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_probe_that_fails_says_why_in_one_line() {
    let reply = get(served(&new(D, clock::boot())), "/readyz").await;
    assert!(reply.ends_with("\r\n\r\nthe Lease has not been read yet\n"), "{reply}");
}

#[tokio::test]
async fn init_that_is_silent_for_the_duration_makes_it_unhealthy() {
    let health = new(Duration::from_secs(15), clock::boot().before(Duration::from_secs(16)));
    let address = served(&health);
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 503 "));
    takes(&health, Fact::Told(ToElector::Heartbeat));
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_query_changes_nothing_and_other_pages_do_not_exist() {
    let address = served(&standby());
    assert!(get(address, "/readyz?verbose").await.starts_with("HTTP/1.1 200 "));
    for other in ["GET /healthz", "GET /livez/", "POST /nothing"] {
        let answer = exchange(address, &format!("{other} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{other}: {answer}");
    }
}

#[tokio::test]
async fn an_answer_is_text_that_nobody_keeps_on_a_connection_that_ends() {
    let answer = get(served(&standby()), "/readyz").await.to_ascii_lowercase();
    for header in ["content-type: text/plain", "cache-control: no-store", "connection: close"] {
        assert!(answer.contains(header), "{header} in {answer}");
    }
}

#[tokio::test]
async fn a_page_without_an_end_is_answered_to_get_alone_and_the_others_to_head_too() {
    let address = served(&standby());
    let ask = async |method: &str, path: &str| {
        let answer = exchange(address, &format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    };
    for path in ["/", "/livez", "/status", "/metrics"] {
        let ((got, _), (head, body)) = (ask("GET", path).await, ask("HEAD", path).await);
        let header = |head: &str, name: &str| head.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        assert!(head.starts_with("http/1.1 200 ") && body.is_empty(), "{path}: {head} {body}");
        assert!(
            header(&head, "content-type").is_some() && header(&head, "content-type") == header(&got, "content-type"),
            "{head}"
        );
    }
    for (method, path, allowed) in [
        ("POST", "/livez", "get, head"),
        ("POST", "/status", "get, head"),
        ("DELETE", "/", "get, head"),
        ("PUT", "/metrics", "get, head"),
        ("POST", "/events", "get"),
        ("HEAD", "/events", "get"),
    ] {
        let (head, _) = ask(method, path).await;
        assert!(head.starts_with("http/1.1 405 "), "{method} {path}: {head}");
        assert!(head.lines().any(|line| line == format!("allow: {allowed}")), "{method} {path}: {head}");
    }
}

#[tokio::test]
async fn what_is_no_http_or_too_long_is_refused_and_the_probes_go_on() {
    let address = served(&standby());
    assert!(exchange(address, "\u{16}\u{3}\u{1} not http\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let long = format!("GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(16 * 1024));
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut reply = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut reply)).await.expect("the connection ends");
    assert!(!String::from_utf8_lossy(&reply).contains("200 OK"));
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut_off_and_holds_nobody_up() {
    let address = served(&standby());
    let mut mute = Vec::new();
    for _ in 0..200 {
        mute.push(TcpStream::connect(address).await.unwrap());
    }
    let answered = timeout(PATIENCE, get(address, "/livez")).await.expect("an answer behind the mute ones");
    assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
    let mut nothing = String::new();
    let closed = timeout(PATIENCE, mute.swap_remove(0).read_to_string(&mut nothing)).await.expect("the mute one is cut off");
    assert_eq!((closed.unwrap_or(0), nothing.as_str()), (0, ""));
}

#[tokio::test(start_paused = true)]
async fn one_client_too_many_closes_the_oldest_at_once() {
    const MOST: usize = 64;
    let address = served(&standby());

    // As long as this runs, the paused clock stands still: nothing is cut off for its age.
    let connecting = tokio::task::spawn_blocking(move || {
        let connect = |_| std::net::TcpStream::connect(address).unwrap();
        let mut mute: Vec<_> = (0..=MOST).map(connect).collect();
        mute[0].set_read_timeout(Some(PATIENCE)).unwrap();
        let oldest = mute[0].read(&mut [0]);
        let others = mute[1..].iter_mut().map(|stream| {
            stream.set_nonblocking(true).unwrap();
            stream.read(&mut [0])
        });
        (oldest.map_err(|error| error.kind()), others.filter(|read| !is_open(read)).count())
    });

    assert_eq!(connecting.await.unwrap(), (Ok(0), 0), "end of the oldest, and how many others are closed");
}

/// The runtime runs on this thread: the connections wait until it looks, all at once.
#[tokio::test]
async fn a_burst_of_more_clients_than_that_is_answered_whole() {
    let address = served(&standby());
    let connect = |_| {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: probe\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        TcpStream::from_std(client).unwrap()
    };
    // The kernel queues 128.
    let clients: Vec<_> = (0..120).map(connect).collect();

    for (number, mut client) in clients.into_iter().enumerate() {
        let mut reply = String::new();
        let end = timeout(PATIENCE, client.read_to_string(&mut reply)).await.expect("the connection ends");
        assert!(end.is_ok() && reply.starts_with("HTTP/1.1 200 "), "{number}: {end:?} {reply}");
    }
}

fn is_open(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_with_its_key() {
    let address = served(&standby());
    let error = one_line(&serve(address, standby()).unwrap_err());
    assert!(error.starts_with(&format!("cannot listen on {address} (http.listen): ")), "{error}");
}

#[tokio::test]
async fn the_page_reads_nothing_but_events_and_the_metrics_are_text() {
    let address = served(&standby());
    let page = get(address, "/").await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("connect-src 'self'") && page.contains("EventSource"), "{page}");
    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.contains("text/plain; version=0.0.4"), "{metrics}");
}

#[tokio::test]
async fn events_tell_the_status_and_again_when_it_changes() {
    let health = standby();
    let address = served(&health);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    read_until(&mut stream, &mut said, "\"holder\":null").await;

    let (slot, holder, before) = (Slot(0), Some("b_2".to_owned()), None);
    let nobody = None;
    takes(&health, Fact::Recorded(Recorded::HolderChanged { slot, holder, term: 7, at: 1_800_000_000_000_000, before, nobody }));

    read_until(&mut stream, &mut said, "\"holder\":\"b_2\",\"identity\"").await;
    takes(&health, Fact::Told(ToElector::Health { unready: None, status: "half done".into() }));
    read_until(&mut stream, &mut said, "\"status\":\"half done\"").await;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("text/event-stream"), "{said}");
    let leader = get(address, "/leader").await;
    assert!(leader.starts_with("HTTP/1.1 503 ") && leader.ends_with("{\"name\":\"b_2\"}\n"), "{leader}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_after_ten_minutes() {
    let address = served(&standby());
    // As long as this runs, the paused clock stands still.
    let connecting = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        io::Write::write_all(&mut stream, b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.set_nonblocking(true).unwrap();
        stream
    });
    let mut stream = TcpStream::from_std(connecting.await.unwrap()).unwrap();
    let begin = tokio::time::Instant::now();

    let mut said = Vec::new();
    let ended = timeout(Duration::from_secs(3600), stream.read_to_end(&mut said)).await;

    assert!(ended.is_ok_and(|read| read.is_ok()));
    assert!(said.ends_with(b"0\r\n\r\n"), "the last chunk is sent: it ends as a whole");
    assert!((590..=605).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

async fn read_until(stream: &mut TcpStream, said: &mut Vec<u8>, words: &str) {
    timeout(PATIENCE, async {
        while !String::from_utf8_lossy(said).contains(words) {
            assert!(stream.read_buf(said).await.unwrap() > 0, "it goes on");
        }
    })
    .await
    .expect(words);
}
