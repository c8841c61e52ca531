//! `tenure status --watch`: a line for each thing that happens to Leases; on a terminal, one screen that is kept current.
//!
//! Owns the rule by which two versions of a Lease are an event. A list is the truth. A watch that the server ends as asked is resumed
//! from its last version. If it ends otherwise, the next list is compared with what was seen last.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    time::Duration,
};

use jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{is_meant, selector};
use crate::{
    alarm::sleep_until,
    api::Watching,
    cli::{Output, Status},
    clock,
    commands::{
        access::{Access, Which, said},
        interrupts::Interrupts,
        seen::{HEAD, Seen, State, ago, to_the_second},
        table::{Document, Line, escaped, shown},
    },
    config::{Config, duration},
    console::{heard, printed, tell},
    election::record::LeaseRecord,
    process::terminal::rows,
    request::{WatchEnd, Watched},
    time::Instant,
    words::bounded,
};

/// Before the next list, from one watch to the next at least, and from one look for Leases that expired to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// A screen is drawn no more often: hundreds of Leases are renewed many times a second.
const REDRAW: Duration = Duration::from_millis(200);
/// So many events stay on a screen.
const RECENT: usize = 12;

/// Runs until SIGINT or SIGTERM, until nobody reads, or until the first list fails; returns the exit code.
pub(super) async fn run(status: &Status, all_slots: bool, config: &Config, access: &Access, namespace: &str) -> u8 {
    // Slots are selected by their names: one may lack the label.
    let slots = config.lease.names().filter(|_| all_slots).collect();
    let selector = selector(status).or_else(|| all_slots.then(String::new));
    let which = selector.as_deref().map_or(Which::Named(&config.lease.name), Which::Selected);
    let is_screen = matches!(status.output, Output::Table | Output::Wide)
        && io::stdout().is_terminal()
        && env::var_os("TERM").is_none_or(|it| it != "dumb");
    let screen = is_screen.then(|| Screen { recent: VecDeque::new(), next: clock::boot() });
    let mut board = Board { status, slots, own: config.lease.duration, seen: BTreeMap::new(), is_known: false, screen };
    let ended = async {
        let mut interrupts = Interrupts::catch()?;
        tokio::select! {
            () = interrupts.next() => Ok(0),
            ended = board.keep(access, namespace, which) => ended,
            () = nobody_reads() => Ok(0),
        }
    };
    ended.await.unwrap_or_else(|error| printed(heard(Err(error)), 0))
}

/// Ends once nobody reads standard output any more: a pipe tells that only to who asks.
async fn nobody_reads() {
    let out = io::stdout();
    let is_read = || {
        let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
        poll(&mut asked, PollTimeout::ZERO).is_err()
            || !asked[0].revents().is_some_and(|told| told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
    };
    while is_read() {
        sleep(PAUSE).await;
    }
}

/// An event between two looks at a Lease. A Lease that was not seen before did not exist.
fn event(before: Option<&Seen>, after: &Seen) -> Option<&'static str> {
    let is_due = |before: &Seen| before.state == State::Resting && after.state == State::Free && before.renewed == after.renewed;
    if before.is_some_and(is_due) {
        return None;
    }
    let before = before.filter(|before| before.state == after.state && before.uid == after.uid);
    match (before, after.state) {
        (Some(before), State::Held | State::Expired) if (&before.holder, before.since) == (&after.holder, after.since) => {
            (before.renewed != after.renewed).then_some("renewed")
        }
        (_, State::Held) => Some("acquired"),
        (_, State::Expired) => Some("expired"),
        (Some(before), State::Nobody | State::Resting | State::Free) if before.transitions >= after.transitions => None,
        // Or a whole term passed unseen.
        (_, State::Nobody | State::Resting | State::Free) => Some("released"),
    }
}

/// The last look at each Lease.
struct Board<'a> {
    status: &'a Status,
    /// If there are any, only these Leases are shown.
    slots: Vec<String>,
    own: Duration,
    /// By namespace and name.
    seen: BTreeMap<(String, String), Seen>,
    /// True if the first list was shown.
    is_known: bool,
    screen: Option<Screen>,
}

/// The lines that a terminal shows beside the Leases.
struct Screen {
    /// The last events.
    recent: VecDeque<String>,
    /// Before that it is not drawn again.
    next: Instant,
}

impl Board<'_> {
    async fn keep(&mut self, access: &Access, namespace: &str, which: Which<'_>) -> io::Result<u8> {
        let (mut complaint, selects) = (None, self.status.selector.is_some());
        loop {
            match access.leases(namespace, which).await {
                Ok((leases, version)) => {
                    self.replace(&leases)?;
                    self.draw()?;
                    let mut next = Some(version);
                    while let Some(version) = next {
                        let soonest = clock::boot() + PAUSE;
                        next = match access.watch(namespace, which, version.clone()).await {
                            // Nobody knows whether a watch that ended at once and brought nothing works at all.
                            Ok(watching) => self
                                .follow(watching, version.clone())
                                .await?
                                .filter(|later| *later != version || clock::boot() >= soonest),
                            Err(_) => None,
                        };
                        if next.is_some() {
                            sleep_until(soonest).await;
                        }
                    }
                    complaint = Some(String::new());
                }
                Err(error) if complaint.is_none() => return Ok(access.complain(&error, selects)),
                // Drawing has erased what was said before.
                Err(error) if complaint.replace(said(&error)) == Some(said(&error)) && self.screen.is_none() => {}
                Err(error) => {
                    self.draw()?;
                    access.complain(&error, selects);
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn is_meant(&self, lease: &LeaseRecord) -> bool {
        let is_named = |name: &String| lease.object()["metadata"]["name"] == **name;
        is_meant(self.status, lease) && (self.slots.is_empty() || self.slots.iter().any(is_named))
    }

    fn replace(&mut self, leases: &[LeaseRecord]) -> io::Result<()> {
        let meant = leases.iter().filter(|lease| self.is_meant(lease));
        let mut listed: Vec<_> = meant.map(|lease| self.look(lease)).collect();
        if self.status.all_namespaces {
            listed.sort_by_key(Seen::rank);
        }
        let is_gone = |known: &(String, String), _: &mut Seen| !listed.iter().any(|lease| key(lease) == *known);
        let gone: Vec<_> = self.seen.extract_if(.., is_gone).collect();
        gone.iter().try_for_each(|(_, lease)| self.say("deleted", lease))?;
        listed.into_iter().try_for_each(|lease| self.put(lease))?;
        self.is_known = true;
        Ok(())
    }

    /// Follows a watch to its end. Returns the version to resume from, if it has missed nothing.
    async fn follow(&mut self, mut watching: Watching, mut version: String) -> io::Result<Option<String>> {
        loop {
            self.expire()?;
            self.draw()?;
            let mut read = |lease| LeaseRecord::read(lease).inspect(|lease| lease.resource_version().clone_into(&mut version));
            match timeout(PAUSE, watching.next()).await {
                Ok(Watched::Changed(lease)) => {
                    let meant = read(lease).filter(|lease| self.is_meant(lease));
                    meant.map_or(Ok(()), |lease| self.put(self.look(&lease)))?;
                }
                Ok(Watched::Deleted(lease)) => {
                    let gone = read(lease).and_then(|lease| self.seen.remove(&key(&self.look(&lease))));
                    gone.map_or(Ok(()), |lease| self.say("deleted", &lease))?;
                }
                Ok(Watched::Bookmark(later)) => version = later,
                Ok(Watched::Ended(WatchEnd::Closed)) => return Ok(Some(version)),
                Ok(Watched::Ended(WatchEnd::Failed(_))) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn look(&self, lease: &LeaseRecord) -> Seen {
        Seen::at(clock::timestamp(), lease, self.own)
    }

    fn put(&mut self, lease: Seen) -> io::Result<()> {
        // The first list shows what was there before.
        let event = if self.is_known { event(self.seen.get(&key(&lease)), &lease) } else { Some("now") };
        let event = event.filter(|event| *event != "renewed" || self.status.verbose);
        event.map_or(Ok(()), |event| self.say(event, &lease))?;
        self.seen.insert(key(&lease), lease);
        Ok(())
    }

    /// No version of a Lease says that its duration is over, or its rest.
    fn expire(&mut self) -> io::Result<()> {
        let now = clock::timestamp();
        let rests =
            self.seen.values_mut().filter(|lease| lease.state == State::Resting && lease.until.is_some_and(|until| until < now));
        rests.for_each(|lease| lease.state = State::Free);
        let is_over =
            |_: &(String, String), lease: &mut Seen| lease.state == State::Held && lease.until.is_some_and(|until| until < now);
        let over: Vec<_> = self.seen.extract_if(.., is_over).collect();
        over.into_iter().try_for_each(|(_, lease)| self.put(Seen { state: State::Expired, now, ..lease }))
    }

    /// Keeps the screen current, if there is one.
    fn draw(&mut self) -> io::Result<()> {
        let (instant, now) = (clock::boot(), clock::timestamp());
        let Some(screen) = self.screen.as_mut().filter(|screen| screen.next <= instant) else { return Ok(()) };
        screen.next = instant + REDRAW;
        let mut leases: Vec<_> = self.seen.values_mut().collect();
        if self.status.all_namespaces {
            leases.sort_by_key(|lease| lease.rank());
        }
        let lines: Vec<_> = leases.into_iter().map(|lease| current(lease, now, self.status)).collect();
        let leases = shown(Output::Table, true, HEAD, &lines);
        let recent: String = screen.recent.iter().map(|line| line.to_owned() + "\n").collect();
        let text = cut(&format!("{}\n\n{leases}\n{recent}", to_the_second(now)), rows());
        // From the top, each line cut off at the edge and to its end, and nothing below.
        tell(&format!("\x1b[H\x1b[?7l{}\x1b[?7h\x1b[J", text.replace('\n', "\x1b[K\n")))
    }

    fn say(&mut self, event: &str, lease: &Seen) -> io::Result<()> {
        let now = clock::timestamp();
        let mut document = Document(vec![("event", json!(event)), ("at", json!(now.to_string()))]);
        document.0.extend(lease.document().0);
        let json = serde_json::to_string(&document).unwrap_or_default();
        let (cells, _) = line(lease, self.status);
        let cells: Vec<_> = cells.iter().filter(|cell| !cell.is_empty()).map(|cell| bounded(cell)).collect();
        let line = format!("{}   {event:8}   {}\n", to_the_second(now), cells.join("   "));
        if let Some(screen) = &mut self.screen {
            screen.recent.push_front(line.trim_end().to_owned());
            screen.recent.truncate(RECENT);
            return Ok(());
        }
        tell(&match self.status.output {
            Output::Table | Output::Wide => line,
            Output::Name => lease.document().name() + "\n",
            Output::Json => escaped(&json, false) + "\n",
            Output::Yaml => format!("--- {}\n", escaped(&json, true)),
        })
    }
}

/// Leaves out the last lines of a text that would not fit on a screen: it would scroll, and the first lines would be gone.
fn cut(text: &str, rows: Option<usize>) -> String {
    let lines: Vec<_> = text.lines().collect();
    match rows {
        Some(rows) if lines.len() >= rows => {
            let (shown, more) = lines.split_at(rows.saturating_sub(2));
            format!("{}\n... {} more lines\n", shown.join("\n"), more.len())
        }
        Some(_) | None => text.to_owned(),
    }
}

fn key(lease: &Seen) -> (String, String) {
    (lease.namespace.clone(), lease.name.clone())
}

fn line(lease: &Seen, status: &Status) -> Line<10> {
    lease.line(status.all_namespaces, status.output == Output::Wide)
}

/// Its line at this moment, with what is left of it.
fn current(lease: &mut Seen, now: Timestamp, status: &Status) -> Line<10> {
    lease.now = now;
    let (mut row, document) = line(lease, status);
    if let (State::Held, Some(until)) = (lease.state, lease.until) {
        let left = u64::try_from(ago(until, now) / 1_000_000_000).unwrap_or(0);
        row[2] += &format!(", {} left", duration::format(Duration::from_secs(left)));
    }
    (row, document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_passed_unseen_is_an_event_although_the_lease_looks_as_before() {
        let look = |uid: &str, transitions: i32, renewed: &str| {
            let metadata = json!({ "name": "a", "uid": uid, "resourceVersion": "7" });
            let spec = json!({ "holderIdentity": "", "leaseTransitions": transitions, "renewTime": renewed });
            let lease = LeaseRecord::read(json!({ "metadata": metadata, "spec": spec }).into()).unwrap();
            Seen::at(clock::timestamp(), &lease, PAUSE)
        };
        let before = look("u", 3, "2027-01-15T08:00:00Z");
        let after =
            [("u", 3), ("u", 4), ("v", 3), ("u", 0)].map(|(uid, transitions)| look(uid, transitions, "2027-01-15T08:00:09Z"));

        assert_eq!(after.each_ref().map(|after| event(Some(&before), after)), [None, Some("released"), Some("released"), None]);
    }

    #[test]
    fn a_screen_that_is_too_low_shows_the_first_lines_and_how_many_are_missing() {
        let text = "now\n\nHEAD\na\nb\nc\n";

        assert_eq!(cut(text, Some(7)), text);
        assert_eq!(cut(text, None), text);
        assert_eq!(cut(text, Some(6)), "now\n\nHEAD\na\n... 2 more lines\n");
        assert_eq!(cut(text, Some(1)), "\n... 6 more lines\n");
    }
}
