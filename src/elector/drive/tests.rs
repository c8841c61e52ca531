//! The loop against a scripted init and a server of one Lease.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{
    api::{
        Access,
        stub::{Say, Seen, Stub, json as reply},
    },
    config::{Config, ProbeKind},
    elector::lease::Keys,
    link::{MAX_MESSAGE, Reason, Stop, Term, Then, decode, encode},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with one Lease, which serves no watches.
fn one_lease(mut lease: Option<Value>) -> impl FnMut(&Seen) -> Say + Send + 'static {
    let mut version = 100;
    move |seen| {
        let (method, path) = seen.line.split_once(' ').unwrap();
        if path.contains("watch=true") {
            return reply(403, "{}");
        }
        if method != "GET" {
            version += 1;
            let mut object: Value = serde_json::from_str(&seen.body).unwrap();
            let fresh =
                lease.as_ref().is_none_or(|lease| lease["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"]);
            if !fresh {
                return reply(409, "{}");
            }
            object["metadata"]["uid"] = "u".into();
            object["metadata"]["resourceVersion"] = version.to_string().into();
            lease = Some(object);
        }
        match &lease {
            Some(lease) => reply(200, &lease.to_string()),
            None => reply(404, r#"{"details":{"kind":"leases","name":"writer"}}"#),
        }
    }
}

/// The other end of the link, and the loop.
struct Replica {
    socket: AsyncFd<OwnedFd>,
    page: Registry,
    ended: JoinHandle<Broken>,
}

impl Replica {
    fn start(stub: &Stub) -> Self {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (ours, init) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let mut config = Config::default();
        config.lease.name = "writer".into();
        config.lease.namespace = "billing".into();
        config.lease.duration = Duration::from_secs(4);
        config.lease.renew_period = Duration::from_millis(200);
        config.workload.stop.loss_grace = Duration::from_secs(1);
        config.lease.creation_wait = Some(Duration::ZERO);
        config.workload.liveness.file.path = "/proc/self/stat".into();
        config.workload.readiness.file.path = "/proc/self/none".into();
        let initial = InitialState { pid1: false, ..InitialState::first(config, "me_1".into()) };
        let (cluster, page) = (stub.cluster(), Registry::new());
        let access = Access::new(Arc::new(move || Ok(cluster.clone())), PATIENCE);
        let health = Health::new(&initial, clock::boot());
        let edges = Edges {
            link: register(End::of(ours)).unwrap(),
            lease: Lease::new(access, Keys::of(&initial.config.lease), initial.config.lease.attempt_timeout),
            guard: Guard::start(|| ()).unwrap(),
            init: Init::of(&initial),
            telemetry: Telemetry::start(&initial, Some(page.clone()), health.follow(), |_| None),
            health,
            recorder: Recorder::new(&initial, clock::now()),
            traffic: None,
            events: None,
        };
        let start = |initial| Turn::new(initial, 7, clock::now(), Turn::BEATS);
        let drive = EventLoop::new(edges, initial, start).unwrap();
        let ended = spawn(async move { drive.run().await.0 });
        Self { socket: register(init).unwrap(), page, ended }
    }

    fn say(&self, message: &ToElector) {
        send(self.socket.get_ref().as_raw_fd(), &encode(message).unwrap(), MsgFlags::empty()).unwrap();
    }

    /// The next message that is neither a Heartbeat nor for the next elector; Lead, Extend and Releasing are acknowledged at once.
    async fn hears(&self) -> ToInit {
        loop {
            let message = self.hears_all().await;
            match &message {
                ToInit::Heartbeat | ToInit::Observed { .. } | ToInit::Withdrawn { .. } => continue,
                ToInit::Lead { term, .. } => self.say(&ToElector::Acknowledged { term: *term, serial: 0 }),
                ToInit::Extend { term, serial, .. } | ToInit::Releasing { term, serial } => {
                    self.say(&ToElector::Acknowledged { term: *term, serial: *serial });
                }
                ToInit::Hello
                | ToInit::StepDown { .. }
                | ToInit::Ended { .. }
                | ToInit::Probed { .. }
                | ToInit::Done
                | ToInit::GaveUp { .. }
                | ToInit::Failed { .. } => {}
            }
            return message;
        }
    }

    /// The next one that is not an Extend either.
    async fn hears_news(&self) -> ToInit {
        loop {
            let message = self.hears().await;
            if !matches!(message, ToInit::Extend { .. }) {
                return message;
            }
        }
    }

    /// Returns the value of this series on the page; 0 while it is not there.
    fn measured(&self, series: &str) -> f64 {
        let page = TextEncoder::new().encode_to_string(&self.page.gather()).unwrap();
        page.lines().find_map(|line| line.strip_prefix(series)).map_or(0.0, |value| value.trim().parse().unwrap())
    }

    async fn hears_all(&self) -> ToInit {
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            if let Ok(length) = recv(self.socket.get_ref().as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                return decode(&buffer[..length]).unwrap();
            }
            timeout(PATIENCE, self.socket.readable()).await.unwrap().unwrap().clear_ready();
        }
    }
}

fn proof(request: u64) -> ToElector {
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: clock::boot() };
    ToElector::Stopped { term: Term(1), request, stop, then: Then::Exit }
}

#[tokio::test]
async fn a_term_goes_from_its_first_write_to_its_release() {
    let mut stub = Stub::answering(one_lease(None)).await;
    let replica = Replica::start(&stub);

    let before = clock::boot();
    let ToInit::Lead { term: Term(1), info, confirmed, .. } = replica.hears().await else { panic!("no Lead") };
    assert_eq!((info.token.as_str(), info.uid.as_str()), ("102", "u"));
    assert!(confirmed.deadlines.end > before && confirmed.deadlines.end < clock::boot() + Duration::from_secs(4));

    let ToInit::Extend { serial: 1, confirmed: extended, .. } = replica.hears().await else { panic!("no Extend") };
    assert!(extended.deadlines.end > confirmed.deadlines.end);

    replica.say(&ToElector::Shutdown);
    let ToInit::StepDown { request, reason: Reason::Signal, .. } = replica.hears_news().await else { panic!("no StepDown") };
    replica.say(&proof(request));
    assert!(matches!(replica.hears_news().await, ToInit::Releasing { .. }));
    assert!(matches!(replica.hears().await, ToInit::Ended { term: Term(1), .. }));
    assert_eq!(replica.hears().await, ToInit::Done);

    let mut last = stub.seen.try_recv().unwrap();
    while let Ok(seen) = stub.seen.try_recv() {
        last = seen;
    }
    let released: Value = serde_json::from_str(&last.body).unwrap();
    assert_eq!(released["spec"]["holderIdentity"], json!(""));
}

#[tokio::test]
async fn whoever_reads_the_page_sees_what_is_left_and_what_becomes_of_the_watch() {
    let mut lease = one_lease(None);
    let is_watch = |seen: &Seen| seen.line.contains("watch=true");
    let stub = Stub::answering(move |seen| if is_watch(seen) { reply(200, "") } else { lease(seen) }).await;
    let replica = Replica::start(&stub);
    assert!(matches!(replica.hears().await, ToInit::Lead { .. }));

    let restarted = async {
        while replica.measured("tenure_watch_restarts_total") < 1.0 {
            assert!(matches!(replica.hears().await, ToInit::Extend { .. }), "it leads");
        }
    };
    timeout(PATIENCE, restarted).await.unwrap();

    assert!(replica.measured("tenure_request_seconds_count{operation=\"watch\",outcome=\"ok\"}") >= 1.0);
    let left = replica.measured("tenure_margin_seconds");
    assert!(left > 0.0 && left < 4.0, "{left}");
}

#[tokio::test]
async fn it_gives_signs_of_life_while_a_request_hangs() {
    let stub = Stub::start([]).await;
    let replica = Replica::start(&stub);

    for _ in 0..2 {
        assert_eq!(replica.hears_all().await, ToInit::Heartbeat);
    }
}

#[tokio::test]
async fn it_asks_the_workload_and_answers_the_very_question_although_no_request_is_answered() {
    let stub = Stub::start([]).await;
    let replica = Replica::start(&stub);

    for (kind, fails) in [(ProbeKind::Liveness, false), (ProbeKind::Readiness, true)] {
        let began = clock::boot();
        replica.say(&ToElector::Probe { kind, began, since: began });
        let ToInit::Probed { kind: of, began: then, failure } = replica.hears().await else { panic!("no answer") };
        assert_eq!((of, then, failure.is_some()), (kind, began, fails), "{failure:?}");
    }
}

#[tokio::test]
async fn it_ends_with_the_link() {
    let stub = Stub::start([]).await;
    let replica = Replica::start(&stub);
    replica.hears_all().await;

    drop(replica.socket);

    let ended = timeout(PATIENCE, replica.ended).await.unwrap().unwrap();
    assert!(matches!(ended, Broken::Closed), "{ended:?}");
}

#[tokio::test]
async fn without_a_watch_it_follows_by_reading() {
    let held = json!({
        "metadata": {"name": "writer", "uid": "u", "resourceVersion": "100"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15},
    });
    let mut stub = Stub::answering(one_lease(Some(held))).await;
    let _replica = Replica::start(&stub);

    let mut reads = 0;
    while reads < 3 {
        let seen = timeout(PATIENCE, stub.seen.recv()).await.unwrap().unwrap();
        assert!(seen.line.starts_with("GET "), "{}", seen.line);
        reads += usize::from(!seen.line.contains("watch=true"));
    }
}

#[tokio::test]
async fn what_comes_wakes_whoever_waits_and_so_does_room() {
    let (mut init, socket) = End::pair().unwrap();
    let mut link = register(End::of(socket)).unwrap();

    init.send(&ToElector::Heartbeat).unwrap();
    ready(&link).await.unwrap();
    assert_eq!(link.get_mut().receive().unwrap(), Some(ToElector::Heartbeat));

    while !link.get_ref().is_clogged() {
        link.get_mut().send(&ToInit::Heartbeat).unwrap();
    }
    while link.get_ref().is_clogged() {
        while init.receive::<ToInit>().unwrap().is_some() {}
        ready(&link).await.unwrap();
        link.get_mut().flush().unwrap();
    }
}
