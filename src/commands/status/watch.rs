//! `tenure status --watch`: a line for each thing that happens to Leases.
//!
//! Owns the rule by which two versions of a Lease are an event. A list is the truth, and is asked for again whenever the watch
//! ends, whyever: what it missed is a difference then.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    time::Duration,
};

use futures_core::Stream;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    cli::{Output, Status},
    clock,
    commands::{
        access::{Access, Event, TIMEOUT, WATCH},
        interrupts::Interrupts,
        seen::{Document, Seen, State, to_the_second},
    },
    console::{heard, printed, tell},
    words::one_line,
};

/// Before the next list, and from one look for Leases that expired to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until SIGINT or SIGTERM, until nobody reads, or until the first list fails; returns the exit code.
pub(super) async fn run(status: &Status, own: Duration, access: &Access, namespace: &str, selector: &str) -> u8 {
    let mut board = Board { status, own, seen: BTreeMap::new() };
    let ended = async {
        let mut interrupts = Interrupts::catch()?;
        tokio::select! {
            () = interrupts.next() => Ok(0),
            ended = board.keep(access, namespace, selector) => ended,
        }
    };
    ended.await.unwrap_or_else(|error| printed(heard(Err(error)), 0))
}

/// What has happened between two looks at a Lease; before the first it did not exist.
fn event(before: Option<&Seen>, after: &Seen) -> Option<&'static str> {
    let before = before.filter(|before| before.state == after.state);
    match (before, after.state) {
        (Some(before), State::Held | State::Expired) if (&before.holder, before.since) == (&after.holder, after.since) => {
            (before.renewed != after.renewed).then_some("renewed")
        }
        (_, State::Held) => Some("acquired"),
        (_, State::Expired) => Some("expired"),
        (before, State::Nobody | State::Resting | State::Free) => before.is_none().then_some("released"),
    }
}

/// What was last seen of each Lease.
struct Board<'a> {
    status: &'a Status,
    own: Duration,
    seen: BTreeMap<String, Seen>,
}

impl Board<'_> {
    async fn keep(&mut self, access: &Access, namespace: &str, selector: &str) -> io::Result<u8> {
        let mut complaint = None;
        loop {
            match access.leases(namespace, selector).await {
                Ok((leases, version)) => {
                    self.replace(&leases)?;
                    if let Ok(Ok(events)) = timeout(TIMEOUT, access.watch(namespace, selector, &version)).await {
                        self.follow(pin!(events)).await?;
                    }
                    complaint = Some(String::new());
                }
                Err(error) if complaint.is_none() => return Ok(access.complain(&error, true)),
                Err(error) if complaint.replace(one_line(&error)) == Some(one_line(&error)) => {}
                Err(error) => drop(access.complain(&error, true)),
            }
            sleep(PAUSE).await;
        }
    }

    fn replace(&mut self, leases: &[Value]) -> io::Result<()> {
        let listed: Vec<_> = leases.iter().map(|lease| self.look(lease)).collect();
        let is_gone = |name: &String, _: &mut Seen| !listed.iter().any(|lease| lease.name == *name);
        let gone: Vec<_> = self.seen.extract_if(.., is_gone).collect();
        gone.iter().try_for_each(|(_, lease)| self.say("deleted", lease))?;
        listed.into_iter().try_for_each(|lease| self.put(lease))
    }

    async fn follow(&mut self, mut events: Pin<&mut impl Stream<Item = Event>>) -> io::Result<()> {
        let end = clock::boot() + WATCH;
        while clock::boot() < end {
            self.expire()?;
            match timeout(PAUSE, poll_fn(|context| events.as_mut().poll_next(context))).await {
                Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => self.put(self.look(&lease))?,
                Ok(Some(Ok(WatchEvent::Deleted(lease)))) => {
                    let gone = self.seen.remove(&self.look(&lease).name);
                    gone.map_or(Ok(()), |lease| self.say("deleted", &lease))?;
                }
                Ok(None | Some(Err(_) | Ok(WatchEvent::Error(_)))) => break,
                Err(_) | Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
            }
        }
        Ok(())
    }

    fn look(&self, lease: &Value) -> Seen {
        Seen::at(clock::timestamp(), lease, self.own)
    }

    fn put(&mut self, lease: Seen) -> io::Result<()> {
        let event = event(self.seen.get(&lease.name), &lease).filter(|event| *event != "renewed" || self.status.verbose);
        event.map_or(Ok(()), |event| self.say(event, &lease))?;
        self.seen.insert(lease.name.clone(), lease);
        Ok(())
    }

    /// No version of a Lease says that its duration is over.
    fn expire(&mut self) -> io::Result<()> {
        let now = clock::timestamp();
        let is_over = |_: &String, lease: &mut Seen| lease.state == State::Held && lease.until.is_some_and(|until| until < now);
        let over: Vec<_> = self.seen.extract_if(.., is_over).collect();
        over.into_iter().try_for_each(|(_, lease)| self.put(Seen { state: State::Expired, now, ..lease }))
    }

    fn say(&self, event: &str, lease: &Seen) -> io::Result<()> {
        let now = clock::timestamp();
        let mut document = Document(vec![("event", json!(event)), ("at", json!(now.to_string()))]);
        document.0.extend(lease.document().0);
        let json = serde_json::to_string(&document).unwrap_or_default();
        tell(&match self.status.output {
            Output::Table => format!("{}   {event:8}   {}\n", to_the_second(now), lease.row().join("   ").trim_end()),
            Output::Json => format!("{json}\n"),
            Output::Yaml => format!("--- {json}\n"),
        })
    }
}
