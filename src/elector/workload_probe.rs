//! Runs the probes of the workload that use network or disk, because init waits for neither.
//!
//! Sends the request that [`crate::config`] makes of the keys, and owns its timeout. Looks up no names, and does not decide
//! whether the workload is ready or live.

use std::{fs, io, time::Duration};

use bytes::Bytes;
use http::{
    Request, Uri,
    header::{HOST, LOCATION},
    uri::Authority,
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    net::{TcpStream, ToSocketAddrs},
    sync::Semaphore,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    api::{few_heads, unverified},
    clock,
    config::{FileProbe, HttpProbe, Probe, ProbeHandler, ProbeKind, duration},
    time::{Instant, Now},
    words::one_line,
};

/// On a disk that hangs, one thread of each kind waits at most.
static LOOKING: [Semaphore; 2] = [const { Semaphore::const_new(1) }; 2];

/// An answer with more header fields than this is a failure. hyper's own limit is 100.
const FIELDS: usize = 1000;

/// A kubelet reads this much of a body.
const BODY: usize = 10 << 10;

/// A kubelet sends this many requests, of which a redirect asks for each but the first.
const REQUESTS: usize = 10;

const fn looking(kind: ProbeKind) -> &'static Semaphore {
    match kind {
        ProbeKind::Readiness => &LOOKING[0],
        ProbeKind::Liveness => &LOOKING[1],
    }
}

/// The time of a file lags behind the clock by up to one tick of the kernel, of which there are at least 100 a second.
const TICK: SignedDuration = SignedDuration::from_millis(20);

/// The time of the program's start on the wall clock, worked out once a start: no file becomes older by a clock that is set later.
#[derive(Debug, Default)]
pub(super) struct ProgramStart(Option<(Instant, Timestamp)>);

impl ProgramStart {
    pub(super) fn wall(&mut self, since: Instant, now: Now) -> Timestamp {
        if let Some((_, wall)) = self.0.filter(|(known, _)| *known == since) {
            return wall;
        }
        let age = i64::try_from(now.boot.since(since).as_micros()).unwrap_or(i64::MAX);
        let wall = Timestamp::from_microsecond(now.wall.saturating_sub(age)).unwrap_or(Timestamp::MIN);
        self.0 = Some((since, wall));
        wall
    }
}

/// Asks once, about a program that was started at `since`. Returns why the probe failed, if it did.
pub(super) async fn ask(kind: ProbeKind, probe: Probe, since: Timestamp) -> Option<String> {
    let answer = async {
        match probe.handler() {
            Some(ProbeHandler::Tcp) => connect(probe.tcp.address()).await.map_err(words),
            Some(ProbeHandler::Http) => get(&probe.http).await,
            Some(ProbeHandler::File) => look(kind, probe.file.clone(), since).await,
            Some(ProbeHandler::Notify | ProbeHandler::Exec) | None => Err("init asks".into()),
        }
    };
    let late = |_| Err(format!("no answer within {}", duration::format(probe.timeout)));
    timeout(probe.timeout, answer).await.unwrap_or_else(late).err()
}

/// Connects, and hangs up. Where nobody listens, the kernel may take the very port that is asked for as the source. Such a connection is one
/// to itself, and without a reset nobody could bind the port for a minute.
async fn connect(address: impl ToSocketAddrs) -> io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    if stream.local_addr()? == stream.peer_addr()? {
        stream.set_zero_linger()?;
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Sends a GET as a kubelet does: it follows redirects to the same host, and takes one to another host for an answer. Each request
/// has a connection of its own. The certificate is not checked.
async fn get(probe: &HttpProbe) -> Result<(), String> {
    let mut request = probe.request().map_err(words)?.map(|()| Empty::<Bytes>::new());
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(unverified().map_err(words)?).https_or_http().enable_http1().build();
    let client = Client::builder(TokioExecutor::new()).http1_max_headers(FIELDS).build(connector);
    for _ in 0..REQUESTS {
        let answer = few_heads(request.clone(), |request| client.request(request)).await?.map_err(words)?;
        let status = answer.status();
        let is_redirect = [301, 302, 303, 307, 308].contains(&status.as_u16());
        if let Some(location) = answer.headers().get(LOCATION).filter(|location| is_redirect && !location.is_empty())
            && let Some(()) = location.to_str().ok().and_then(|location| follow(&mut request, location))
        {
            continue;
        }
        // It may break off: many a server ends a body by the end of the connection.
        drop(Limited::new(answer.into_body(), BODY).collect().await);
        return if status.is_success() || status.is_redirection() { Ok(()) } else { Err(format!("HTTP {}", status.as_u16())) };
    }
    Err(format!("{REQUESTS} redirects in a row"))
}

/// Changes a request into the one that a redirect asks for. None: that goes to another host.
fn follow<B>(request: &mut Request<B>, location: &str) -> Option<()> {
    let asked = request.uri();
    let location = location.split('#').next()?;
    let is_absolute = location.split_once("://").is_some_and(|(scheme, _)| scheme.bytes().all(|c| c.is_ascii_alphanumeric()));
    let (scheme, path) = (asked.scheme_str().unwrap_or_default(), asked.path());
    let server = format!("{scheme}://{}", asked.authority().map_or("", Authority::as_str));
    let target = match location.as_bytes() {
        _ if is_absolute => location.parse(),
        [b'/', b'/', ..] => format!("{scheme}:{location}").parse(),
        [b'/', ..] => format!("{server}{location}").parse(),
        [b'?', ..] | [] => format!("{server}{path}{location}").parse(),
        [..] => format!("{server}{}/{location}", path.rsplit_once('/').unwrap_or_default().0).parse(),
    }
    .ok()
    .filter(|target: &Uri| target.host() == asked.host())?;
    let query = target.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(format!("{}{query}", without_dots(target.path())).parse().ok()?);
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    if is_absolute {
        request.headers_mut().remove(HOST);
    }
    Some(())
}

/// Resolves the segments `.` and `..` of a path (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let ends = if path.ends_with("/.") || path.ends_with("/..") { "/" } else { "" };
    format!("/{}{}", kept.join("/"), if kept.is_empty() { "" } else { ends })
}

/// Returns true if a file was written before `since`. A file system may keep whole seconds only.
fn is_older(written: Timestamp, since: Timestamp) -> bool {
    let lag = if written.subsec_nanosecond() == 0 { SignedDuration::from_secs(1) } else { TICK };
    since.duration_since(written) > lag
}

async fn look(kind: ProbeKind, probe: FileProbe, since: Timestamp) -> Result<(), String> {
    let permit = looking(kind).try_acquire().map_err(|_| "its file system does not answer")?;
    let path = probe.path.clone();
    let written = spawn_blocking(move || {
        let _permit = permit;
        fs::metadata(path).and_then(|file| file.modified())
    });
    let written = written.await.map_err(words)?.and_then(|at| Timestamp::try_from(at).map_err(io::Error::other));
    let written = written.map_err(words)?;
    let age = Duration::try_from(clock::timestamp().duration_since(written)).unwrap_or_default();
    match kind {
        ProbeKind::Readiness if is_older(written, since) => Err("it was written before this start of the program".into()),
        ProbeKind::Readiness | ProbeKind::Liveness if probe.max_age.is_some_and(|max| age > max) => {
            Err(format!("it was written {} ago", duration::measured(age)))
        }
        ProbeKind::Readiness | ProbeKind::Liveness => Ok(()),
    }
}

fn words(error: impl std::error::Error + 'static) -> String {
    one_line(&error)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::{
        api::stub::{Say, Seen, Stub, json, with_headers},
        apiserver::Server,
        config::Scheme,
    };

    /// For the tests that look at a file: this process has one permit of each kind.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn probe(address: SocketAddr, change: impl FnOnce(&mut Probe)) -> Probe {
        let mut probe = Probe { timeout: Duration::from_secs(20), ..Probe::default() };
        (probe.http.port, probe.http.host) = (address.port(), Some(address.ip()));
        change(&mut probe);
        probe
    }

    /// The answer about a program that runs since the boot.
    async fn asked(kind: ProbeKind, probe: Probe) -> Option<String> {
        ask(kind, probe, Timestamp::UNIX_EPOCH).await
    }

    fn address(stub: &Stub) -> SocketAddr {
        stub.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// An address at which nobody listens.
    async fn nowhere() -> SocketAddr {
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn a_get_is_answered_well_by_200_to_399() {
        let mut stub = Stub::start([json(200, ""), with_headers(302, "location: \r\n", ""), json(404, ""), json(503, "")]).await;
        let healthz = probe(address(&stub), |probe| {
            probe.http.path = "/healthz?full".into();
            probe.http.headers.insert("host".into(), "billing".into());
        });
        let mut answers = Vec::new();
        for _ in 0..4 {
            answers.push(asked(ProbeKind::Readiness, healthz.clone()).await);
        }
        assert_eq!(answers, [None, None, Some("HTTP 404".into()), Some("HTTP 503".into())]);
        let seen = stub.seen.try_recv().unwrap();
        assert_eq!(seen.line, "GET /healthz?full");
        assert!(seen.head.contains("host: billing"), "{}", seen.head);
    }

    #[tokio::test]
    async fn a_get_has_the_headers_of_a_kubelet_unless_the_probe_has_others() {
        let mut stub = Stub::start((0..3).map(|_| json(200, ""))).await;
        for (agent, accept, meant) in [
            (None, None, "accept: */*\r\nconnection: close\r\nhost: h\r\nuser-agent: kube-probe/1.36 (tenure)"),
            (Some("curl"), Some("text/html"), "accept: text/html\r\nconnection: close\r\nhost: h\r\nuser-agent: curl"),
            (Some(""), Some(""), "connection: close\r\nhost: h"),
        ] {
            let own = [("User-Agent", agent), ("accept", accept), ("Host", agent.filter(|agent| agent.is_empty()))];
            let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
            let get = probe(address(&stub), |probe| (probe.http.path, probe.http.headers) = ("/".into(), own.collect()));

            assert_eq!(asked(ProbeKind::Readiness, get).await, None);

            let head = stub.seen.try_recv().unwrap().head.replace(&address(&stub).to_string(), "h");
            let mut headers: Vec<_> = head.lines().skip(1).collect();
            headers.sort_unstable();
            assert_eq!(headers.join("\r\n"), meant);
        }
    }

    #[tokio::test]
    async fn a_redirect_is_followed_on_the_same_host_and_is_an_answer_if_it_goes_to_another() {
        let mut other = Stub::answering(|_| json(503, "")).await;
        let at = address(&other).to_string();
        for (location, followed) in [
            ("/login", "GET /login at billing".to_owned()),
            ("login?to=http://x#top", "GET /app/login?to=http://x at billing".to_owned()),
            ("./login", "GET /app/login at billing".to_owned()),
            ("./", "GET /app/ at billing".to_owned()),
            ("./?full", "GET /app/?full at billing".to_owned()),
            ("/login?next=./x", "GET /login?next=./x at billing".to_owned()),
            ("/a/..", "GET / at billing".to_owned()),
            ("/a/b/../.", "GET /a/ at billing".to_owned()),
            ("/../a/./b/../../c", "GET /c at billing".to_owned()),
            ("?full", "GET /app/health?full at billing".to_owned()),
            (&format!("//{at}/a"), "GET /a at billing".to_owned()),
            (&format!("http://{at}/b"), format!("GET /b at {at}")),
            ("http://example.invalid/", String::new()),
            ("http://example.invalid/a b", String::new()),
            ("../login", "GET /login at billing".to_owned()),
            ("http://example.invalid/../a", String::new()),
            ("//127.0.0.2/", String::new()),
        ] {
            let moved = with_headers(302, &format!("location: {location}\r\n"), "");
            let is_first = |seen: &Seen| seen.line == "GET /app/health";
            let mut stub = Stub::answering(move |seen| if is_first(seen) { moved.clone() } else { json(503, "") }).await;
            let health = probe(address(&stub), |probe| {
                probe.http.path = "/app/health".into();
                probe.http.headers.insert("host".into(), "billing".into());
            });

            let answer = asked(ProbeKind::Readiness, health).await;

            let mut seen = Vec::new();
            while let Ok(Seen { line, head, .. }) = stub.seen.try_recv().or_else(|_| other.seen.try_recv()) {
                let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
                seen.push(format!("{line} at {host}"));
            }
            assert_eq!(seen[0], "GET /app/health at billing");
            assert_eq!(seen[1..].concat(), followed, "{location}");
            assert_eq!(answer, (!followed.is_empty()).then(|| "HTTP 503".to_owned()), "{location}");
        }
    }

    #[tokio::test]
    async fn redirects_without_an_end_are_a_failure() {
        let mut stub = Stub::answering(|_| with_headers(307, "location: /healthz\r\n", "")).await;
        let healthz = probe(address(&stub), |probe| probe.http.path = "/healthz".into());
        let failure = asked(ProbeKind::Liveness, healthz).await;
        assert_eq!(failure, Some("10 redirects in a row".into()));
        assert_eq!(std::iter::from_fn(|| stub.seen.try_recv().ok()).count(), 10);
    }

    #[tokio::test]
    async fn a_body_that_hangs_is_a_failure_and_the_rest_of_a_long_one_is_not_read() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n".to_owned();
        for (say, timeout, why) in [
            (Say::Last(head.clone()), 20_000, None),
            (Say::Bytes(head.clone()), 50, Some("no answer within 50ms")),
            (Say::Endless(head), 20_000, None),
        ] {
            let stub = Stub::start([say]).await;
            let healthz = probe(address(&stub), |probe| {
                (probe.http.path, probe.timeout) = ("/healthz".into(), Duration::from_millis(timeout));
            });
            let failure = asked(ProbeKind::Readiness, healthz).await;
            assert_eq!(failure.is_some(), why.is_some());
            assert!(failure.as_deref().unwrap_or_default().contains(why.unwrap_or_default()), "{failure:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_may_have_hundreds_of_header_fields() {
        let fields: String = (0..300).map(|n| format!("x-field-{n}: {n}\r\n")).collect();
        let stub = Stub::start([with_headers(200, &fields, "")]).await;
        let healthz = probe(address(&stub), |probe| probe.http.path = "/healthz".into());
        assert_eq!(asked(ProbeKind::Readiness, healthz).await, None);
    }

    #[tokio::test]
    async fn a_server_that_takes_the_connection_and_says_nothing_has_failed_when_the_time_is_up() {
        let stub = Stub::start([Say::Silence]).await;
        let hung = probe(address(&stub), |probe| probe.timeout = Duration::from_millis(50));
        assert_eq!(asked(ProbeKind::Readiness, hung).await, Some("no answer within 50ms".into()));
    }

    #[tokio::test]
    async fn over_https_no_certificate_is_checked() {
        let server = Server::start("127.0.0.1:0".parse().unwrap()).unwrap();
        let https = probe(server.address(), |probe| probe.http.scheme = Scheme::Https);
        assert_eq!(asked(ProbeKind::Readiness, https).await, Some("HTTP 401".into()), "its authority is unknown here");
    }

    /// Of so many attempts some have the port of the target as their own. The kernel gives these even ports.
    #[tokio::test]
    async fn nobody_who_listens_is_no_connection_to_itself() {
        let nobody: SocketAddr = (Ipv4Addr::LOCALHOST, 45_678).into();

        for _ in 0..50_000 {
            connect(nobody).await.expect_err("nobody listens");
        }

        tokio::net::TcpListener::bind(nobody).await.expect("the port is free");
    }

    #[tokio::test]
    async fn a_connection_is_enough_for_tcp() {
        let stub = Stub::start([]).await;
        for (address, fails) in [(address(&stub), false), (nowhere().await, true)] {
            let tcp = probe(address, |probe| (probe.http, probe.tcp.port) = (HttpProbe::default(), address.port()));
            assert_eq!(asked(ProbeKind::Readiness, tcp).await.is_some(), fails);
        }
        assert!(asked(ProbeKind::Readiness, probe(nowhere().await, |_| {})).await.is_some());
    }

    #[tokio::test]
    async fn a_file_is_there_and_as_young_as_it_has_to_be() {
        let _alone = ALONE.lock().await;
        let path = std::env::temp_dir().join(format!("tenure-probe-{}", std::process::id()));
        let file = |max_age| Probe {
            file: FileProbe { path: path.display().to_string(), max_age },
            timeout: Duration::from_secs(20),
            ..Probe::default()
        };
        assert!(asked(ProbeKind::Readiness, file(None)).await.is_some_and(|failure| failure.starts_with("No such file")));
        let written = fs::File::create(&path).unwrap();
        assert_eq!(asked(ProbeKind::Readiness, file(Some(Duration::from_secs(3600)))).await, None);
        let now = clock::timestamp();
        assert_eq!(ask(ProbeKind::Readiness, file(None), now).await, None, "it is of this start");
        written.set_modified(std::time::SystemTime::from(clock::timestamp()) - Duration::from_secs(1)).unwrap();
        let stale = Some("it was written before this start of the program".to_owned());
        assert_eq!(ask(ProbeKind::Readiness, file(None), now).await, stale);
        assert_eq!(ask(ProbeKind::Liveness, file(None), now).await, None, "what the program does not write any more has its age");
        written.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(
            asked(ProbeKind::Liveness, file(Some(Duration::from_secs(3600))))
                .await
                .is_some_and(|failure| failure.contains("ago"))
        );
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_system_that_keeps_whole_seconds_makes_no_file_older_than_the_start() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let start = at("2026-01-01T00:00:10.9Z");
        assert!(!is_older(at("2026-01-01T00:00:10Z"), start) && is_older(at("2026-01-01T00:00:09Z"), start));
        assert!(!is_older(at("2026-01-01T00:00:10.89Z"), start) && is_older(at("2026-01-01T00:00:10.5Z"), start));
        assert!(!is_older(Timestamp::MAX, start) && is_older(Timestamp::MIN, start));
    }

    #[test]
    fn a_clock_that_is_set_makes_no_file_older_than_the_start() {
        let now = |seconds, wall| Now { boot: Instant::BOOT + Duration::from_secs(seconds), wall };
        let (mut start, first) = (ProgramStart::default(), Instant::BOOT + Duration::from_secs(5));
        assert_eq!(start.wall(first, now(7, 50_000_000)).as_microsecond(), 48_000_000);
        assert_eq!(start.wall(first, now(8, 3_651_000_000)).as_microsecond(), 48_000_000);
        let second = first + Duration::from_secs(4);
        assert_eq!(start.wall(second, now(9, 3_652_000_000)).as_microsecond(), 3_652_000_000);
    }

    #[tokio::test]
    async fn a_file_system_that_hangs_holds_up_one_thread_and_no_more() {
        let _alone = ALONE.lock().await;
        let file = || Probe { file: FileProbe { path: "/".into(), max_age: None }, ..Probe::default() };
        let hangs = looking(ProbeKind::Liveness).acquire().await.unwrap();
        assert_eq!(asked(ProbeKind::Liveness, file()).await, Some("its file system does not answer".into()));
        drop(hangs);
        let both = tokio::join!(asked(ProbeKind::Readiness, file()), asked(ProbeKind::Liveness, file()));
        assert_eq!(both, (None, None), "neither is in the other's way");
    }
}
