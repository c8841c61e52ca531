//! Requests for the Lease of each slot, and for all of them, and the watch.
//!
//! Owns the places of the Leases. Sends exactly what the election asked for.

use std::{sync::Arc, time::Duration};

use crate::{
    api::{self, Access, Client, LeasePlace, Place, Watch, Watching},
    config::LeaseConfig,
    election::{Request, writes::SLOTS},
    request::{Answer, Refusal, WatchEnd},
    slot::Slot,
};

/// The server is asked to end a watch after about ten minutes, so that a dead one is replaced by then. The time differs between
/// replicas.
const LEAST_SECONDS: u64 = 540;
const SPREAD_SECONDS: u64 = 120;

/// The places of the Leases of all slots, one at least.
#[derive(Clone)]
pub(crate) struct Keys(Arc<[LeasePlace]>);

impl Keys {
    pub(super) fn of(config: &LeaseConfig) -> Self {
        Self::named(&config.namespace, config.names())
    }

    /// Those of these names: one at least.
    pub(crate) fn named(namespace: &str, names: impl Iterator<Item = String>) -> Self {
        Self(names.map(|name| Place::lease(namespace, name)).collect())
    }

    /// Returns the place of a slot.
    fn of_slot(&self, slot: Slot) -> &LeasePlace {
        &self.0[usize::from(slot.0).min(self.0.len() - 1)]
    }

    /// Selects exactly this Lease, or those of all slots by their label.
    fn selector(&self) -> (&'static str, String) {
        let name = &self.0[0].name;
        match &*self.0 {
            [_] => ("fieldSelector", format!("metadata.name={name}")),
            _ => ("labelSelector", format!("{SLOTS}={name}")),
        }
    }
}

/// The Leases on the API server. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Lease {
    client: Client,
    keys: Keys,
}

impl Lease {
    /// `timeout` is that of each request.
    pub(crate) fn new(access: Access, keys: Keys, timeout: Duration) -> Self {
        Self { client: Client::new(access, timeout), keys }
    }

    /// On a connection of its own, for what nothing waits for.
    pub(super) fn beside(access: Access, keys: Keys, timeout: Duration) -> Self {
        Self { client: Client::beside(access, timeout), keys }
    }

    /// Sends `request` once.
    pub(crate) async fn send(&self, slot: Slot, request: &Request) -> Answer {
        let (place, (key, selected)) = (self.keys.of_slot(slot), self.keys.selector());
        let sent = match request {
            Request::Get => api::Request::get(place),
            Request::List => api::Request::list(place).with(&[(key, &selected)]),
            Request::Write(write) => api::Request::lease(place, write),
        };
        let mut answer = self.client.send(&sent).await.answer;
        if let Answer::Refused { refusal: Refusal::NotServed, message } = &mut answer {
            message.words.push_str(" (is this the API server? it serves no coordination.k8s.io/v1 at this address)");
        }
        answer
    }

    /// Watches from this version on.
    ///
    /// # Errors
    /// The watch could not start.
    pub(super) async fn watch(&self, resource_version: Option<String>) -> Result<Watching, WatchEnd> {
        let span = Duration::from_secs(LEAST_SECONDS + fastrand::u64(..SPREAD_SECONDS));
        let (places, selector) = (Arc::clone(&self.keys.0), self.keys.selector());
        self.client.watch(Watch { places, selector, resource_version, span }).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::{
            Cluster,
            stub::{Say, Seen, Stub, json},
        },
        election::writes::{self, LeaseWrite},
    };

    const LEASE: &str = r#"{"metadata":{"name":"writer","resourceVersion":"7"},"spec":{}}"#;

    fn keys() -> Keys {
        Keys::of(&LeaseConfig { namespace: "billing".into(), name: "writer".into(), ..LeaseConfig::default() })
    }

    fn access(stub: &Stub, timeout: Duration) -> (Access, Arc<AtomicUsize>) {
        let (cluster, discovered) = (stub.cluster(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&discovered);
        let discover = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(cluster.clone())
        };
        (Access::new(Arc::new(discover), timeout), discovered)
    }

    fn lease(stub: &Stub, timeout: Duration) -> (Lease, Arc<AtomicUsize>) {
        let (access, discovered) = access(stub, timeout);
        (Lease::new(access, keys(), timeout), discovered)
    }

    const fn write(sent: writes::Sent) -> Request {
        Request::Write(LeaseWrite::of(sent))
    }

    async fn line_and_body(request: Request) -> (String, String) {
        let mut stub = Stub::start([json(200, LEASE)]).await;
        lease(&stub, Duration::from_secs(20)).0.send(Slot::default(), &request).await;
        let seen = stub.seen.recv().await.unwrap();
        (seen.line, seen.body)
    }

    #[tokio::test]
    async fn each_request_is_what_was_asked_for() {
        let path = "/apis/coordination.k8s.io/v1/namespaces/billing/leases";
        let object = json!({"metadata": {"name": "writer"}, "spec": {"futureField": 1}});

        assert_eq!(line_and_body(Request::Get).await, (format!("GET {path}/writer"), String::new()));
        assert_eq!(
            line_and_body(write(writes::Sent::Create(object.clone().into()))).await,
            (format!("POST {path}"), object.to_string())
        );
        assert_eq!(
            line_and_body(write(writes::Sent::Replace(object.clone().into()))).await,
            (format!("PUT {path}/writer"), object.to_string())
        );

        let (line, body) = line_and_body(write(writes::Sent::Delete { uid: "u".into(), resource_version: "7".into() })).await;
        let options: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(line, format!("DELETE {path}/writer"));
        assert_eq!(options["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[tokio::test]
    async fn the_server_is_asked_to_end_a_watch_after_about_ten_minutes() {
        let mut stub = Stub::start([json(403, "{}")]).await;
        let (lease, _) = lease(&stub, Duration::from_secs(20));

        assert!(lease.watch(None).await.is_err());

        let line = stub.seen.recv().await.unwrap().line;
        let seconds = line.split('&').find_map(|part| part.strip_prefix("timeoutSeconds=")).unwrap();
        assert!((540..660).contains(&seconds.parse::<u64>().unwrap()), "{line}");
    }

    #[tokio::test]
    async fn the_connection_is_kept_until_an_answer_is_unknown() {
        let script = [json(200, LEASE), json(409, "{}"), json(200, "broken"), json(200, LEASE)];
        let mut stub = Stub::start(script).await;
        let (lease, discovered) = lease(&stub, Duration::from_secs(20));

        let mut connections = Vec::new();
        for _ in 0..4 {
            lease.send(Slot::default(), &Request::Get).await;
            connections.push(stub.seen.recv().await.unwrap().connection);
        }

        assert_eq!(connections, [0, 0, 0, 1]);
        assert_eq!(discovered.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn each_refusal_but_that_of_the_content_is_followed_by_a_new_connection() {
        for (status, connections) in [(400, [0, 1]), (403, [0, 1]), (404, [0, 1]), (429, [0, 1]), (409, [0, 0]), (422, [0, 0])] {
            let mut stub = Stub::start([json(status, "{}"), json(200, LEASE)]).await;
            let (lease, _) = lease(&stub, Duration::from_secs(20));

            lease.send(Slot::default(), &Request::Get).await;
            lease.send(Slot::default(), &Request::Get).await;

            let seen = [stub.seen.recv().await.unwrap().connection, stub.seen.recv().await.unwrap().connection];
            assert_eq!(seen, connections, "{status}");
        }
    }

    #[tokio::test]
    async fn an_end_of_the_watch_leaves_the_connection_alone_but_those_beside_take_up_new_credentials() {
        let timeout = Duration::from_secs(20);
        for (client, connections) in [(Lease::new as fn(_, _, _) -> _, [0, 0]), (Lease::beside, [0, 1])] {
            let mut stub = Stub::answering(|_| json(200, LEASE)).await;
            let (access, discovered) = access(&stub, timeout);
            let lease = client(access.clone(), keys(), timeout);
            lease.send(Slot::default(), &Request::Get).await;

            // As a watch does whose server is gone, more than the pause after the last time.
            access.refused();
            let before = access.dial(false).await.unwrap();
            while discovered.load(Ordering::Relaxed) < 2 {
                tokio::task::yield_now().await;
            }
            while access.dial(false).await.unwrap().is(&before) {
                tokio::task::yield_now().await;
            }
            lease.send(Slot::default(), &Request::Get).await;

            assert_eq!([stub.seen.recv().await.unwrap().connection, stub.seen.recv().await.unwrap().connection], connections);
        }
    }

    #[tokio::test]
    async fn silence_is_cut_off_and_followed_by_a_new_connection() {
        let mut stub = Stub::start([Say::Silence, json(200, LEASE)]).await;
        let (lease, _) = lease(&stub, Duration::from_secs(2));

        let first = lease.send(Slot::default(), &Request::Get).await;
        let second = lease.send(Slot::default(), &Request::Get).await;

        assert!(matches!(first, Answer::Unknown { .. }), "{first:?}");
        assert!(matches!(second, Answer::Object(_)), "{second:?}");
        assert_eq!(stub.seen.recv().await.unwrap().connection, 0);
        assert_eq!(stub.seen.recv().await.unwrap().connection, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_count_towards_the_attempt() {
        let stub = Stub::start([Say::Silence]).await;
        let (cluster, (release, held)) = (stub.cluster(), std::sync::mpsc::channel::<()>());
        let held = std::sync::Mutex::new(held);
        let discover = move || {
            let _ = held.lock().unwrap().recv();
            Ok(cluster.clone())
        };
        let (key, timeout) = (keys(), Duration::from_secs(2));
        let lease = Lease::new(Access::new(Arc::new(discover), timeout), key, timeout);
        let began = Instant::now();

        let credentials = async {
            tokio::time::advance(timeout - Duration::from_millis(500)).await;
            drop(release);
        };
        let (answer, ()) = tokio::join!(lease.send(Slot::default(), &Request::Get), credentials);

        assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
        assert!(began.elapsed() < timeout + Duration::from_millis(100), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn refused_credentials_are_read_again() {
        let mut stub = Stub::start([json(401, "{}"), json(200, LEASE)]).await;
        let (lease, discovered) = lease(&stub, Duration::from_secs(20));

        let first = lease.send(Slot::default(), &Request::Get).await;
        let second = lease.send(Slot::default(), &Request::Get).await;

        assert!(matches!(first, Answer::Refused { refusal: Refusal::Unauthorized, .. }), "{first:?}");
        assert!(matches!(second, Answer::Object(_)), "{second:?}");
        assert_eq!(discovered.load(Ordering::Relaxed), 2);
        assert_eq!(stub.seen.recv().await.unwrap().connection, 0);
        assert_eq!(stub.seen.recv().await.unwrap().connection, 1);
    }

    #[tokio::test]
    async fn refused_credentials_serve_on_where_new_ones_are_long_in_coming() {
        let stub = Stub::start([json(401, "{}"), json(200, LEASE), json(200, LEASE)]).await;
        let (cluster, made, (release, held)) = (stub.cluster(), AtomicUsize::new(0), std::sync::mpsc::channel::<()>());
        let held = std::sync::Mutex::new(held);
        let discover = move || {
            if made.fetch_add(1, Ordering::Relaxed) > 0 {
                let _ = held.lock().unwrap().recv();
            }
            Ok(cluster.clone())
        };
        let (key, timeout) = (keys(), Duration::from_millis(500));
        let lease = Lease::new(Access::new(Arc::new(discover), timeout), key, timeout);

        let mut answers = Vec::new();
        for _ in 0..4 {
            answers.push(matches!(lease.send(Slot::default(), &Request::Get).await, Answer::Object(_)));
        }

        drop(release);
        assert_eq!(answers, [false, false, true, true], "refused, waits for new ones, goes on with the old ones");
    }

    #[tokio::test]
    async fn without_credentials_nothing_is_sent_and_nothing_is_unknown() {
        let discover = || Cluster::from_kubeconfig(&["/nonexistent/config".into()]);
        let key = keys();
        let timeout = Duration::from_secs(20);
        let lease = Lease::new(Access::new(Arc::new(discover), timeout), key, timeout);

        let answer = lease.send(Slot::default(), &write(writes::Sent::Create(json!({}).into()))).await;

        let Answer::Refused { refusal: Refusal::Unauthorized, message } = answer else { panic!("{answer:?}") };
        assert!(message.words.contains("/nonexistent/config"), "{message}");
    }

    /// Sends requests, none of which is refused after the first, until one shows that what this plugin gave was renewed. `identity`
    /// is for the plugin, and its `runs` are counted.
    async fn renews(name: &str, given: &str, identity: &str, is_renewed: impl Fn(&Seen, usize) -> bool) {
        let directory = std::env::temp_dir().join(format!("tenure-lease-plugin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("identity"), identity).unwrap();
        let end = r#"expirationTimestamp: '$(date -u -d "@$(($(date +%s) + 6))" +%FT%TZ)'"#;
        let script = format!(r#"echo >>"$0/runs"; sleep 0.5; printf %s "{{status: {{{given}, {end}}}}}""#);
        let mut stub = Stub::answering(|_| json(200, LEASE)).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": stub.url}}],
            "users": [{"name": "u", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script, directory],
            }}}],
        });
        let path = directory.join("config");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let key = keys();
        let timeout = Duration::from_millis(300);
        let discover = move || Cluster::from_kubeconfig(std::slice::from_ref(&path));
        let lease = Lease::new(Access::new(Arc::new(discover), timeout), key, timeout);

        let mut has_credentials = false;
        let later = async {
            loop {
                let answer = lease.send(Slot::default(), &Request::Get).await;
                // A slow machine makes some unknown, which is no refusal.
                assert!(!has_credentials || !matches!(answer, Answer::Refused { .. }), "{answer:?}");
                has_credentials |= matches!(answer, Answer::Object(_));
                while let Ok(seen) = stub.seen.try_recv() {
                    if is_renewed(&seen, std::fs::read(directory.join("runs")).unwrap().len()) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), later).await.expect("what was renewed is used");

        let _ = std::fs::remove_dir_all(&directory);
    }

    #[tokio::test]
    async fn a_plugin_slower_than_the_timeout_is_run_ahead_and_renews_what_ends() {
        let given = r#"token: t$(grep -c '' "$0/runs")"#;
        renews("token", given, "", |seen, _| seen.head.contains("authorization: bearer t3\r\n")).await;
    }

    #[tokio::test]
    async fn a_certificate_of_a_slow_plugin_is_renewed_ahead_with_its_connections() {
        let own = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        let (certificate, key) = (json!(own.cert.pem()), json!(own.signing_key.serialize_pem()));
        let identity = format!("clientCertificateData: {certificate}, clientKeyData: {key}");
        renews("certificate", r#"$(cat "$0/identity")"#, &identity, |seen, runs| runs > 2 && seen.connection > 1).await;
    }

    #[tokio::test]
    async fn credentials_that_hang_are_waited_for_once() {
        let stub = Stub::start([json(200, LEASE)]).await;
        let (cluster, started) = (stub.cluster(), Arc::new(AtomicUsize::new(0)));
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (count, gate) = (Arc::clone(&started), std::sync::Mutex::new(gate));
        let discover = move || {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = gate.lock().unwrap().recv();
            Ok(cluster.clone())
        };
        let key = keys();
        let timeout = Duration::from_secs(2);
        let lease = Lease::new(Access::new(Arc::new(discover), timeout), key, timeout);

        let first = lease.send(Slot::default(), &Request::Get).await;
        let second = lease.send(Slot::default(), &Request::Get).await;
        go.send(()).unwrap();
        let third = lease.send(Slot::default(), &Request::Get).await;

        assert!(matches!(first, Answer::Refused { .. }), "{first:?}");
        assert!(matches!(second, Answer::Refused { .. }), "{second:?}");
        assert!(matches!(third, Answer::Object(_)), "{third:?}");
        assert_eq!(started.load(Ordering::Relaxed), 1);
    }
}
