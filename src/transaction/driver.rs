//! One process's driver of a transaction, and the order of its steps.
//!
//! Owns the journal as this driver stored or read it last. A driver that finds a later claim writes nothing more.

use std::mem;

use serde_json::Value;

use super::{
    Change, Entry, EntryType, Event, Field, Journal, Kind, Outcome, Phase, Request, Server, Settings, Target, Verb,
    journal::{fingerprint, owned, parse},
    requests::uid,
};
use crate::{request::Answer, time::Instant};

/// What a command is to do.
#[derive(Clone, Copy, Debug)]
pub enum Job<'a> {
    /// Make all changes, or none. Those of a promotion are all [`Patch`](super::ChangeType::Patch), and take the place of those of the
    /// term before.
    Make(Kind, &'a [Change]),
    /// Undo the last transaction or promotion of this kind, or of any: an unfinished or a committed one.
    Undo {
        /// None: of any kind.
        kind: Option<Kind>,
        /// Overwrites what somebody else has changed.
        force: bool,
    },
    /// Drop the journal and its marks, and restore nothing.
    Forget,
}

/// Does a job. Whoever is overtaken at the journal begins anew.
pub async fn drive<S: Server>(server: &S, settings: Settings, job: Job<'_>) -> Outcome {
    let mut driver = Driver::new(server, settings, job);
    let mut misses = 0;
    loop {
        let ended = match job {
            Job::Make(_, changes) => driver.make(changes).await,
            Job::Undo { force, .. } => driver.recover(force).await,
            Job::Forget => driver.forget().await,
        };
        match ended {
            // After the limit or a signal, the job itself says what is left.
            Err(Outcome::Overtaken) => drop(driver.missed(&mut misses).await),
            Ok(outcome) | Err(outcome) => return outcome,
        }
    }
}

/// Reads what a job depends on, as tenure's own user. Asks again within the limit, as a job does.
pub async fn read<S: Server>(server: &S, settings: Settings, target: Target) -> Answer {
    let driver = Driver::new(server, Settings { acting_as: None, ..settings }, Job::Forget);
    let request = Request::Look(target);
    loop {
        let answer = driver.send(&request).await;
        if !request.is_sent_again(&answer) || driver.object(answer.clone(), &request).await.is_err() {
            return answer;
        }
    }
}

/// Returns the entries that a job would make or undo now, and writes nothing.
///
/// # Errors
/// The outcome that it would have now.
pub async fn plan<S: Server>(server: &S, settings: Settings, job: Job<'_>) -> Result<Vec<Entry>, Outcome> {
    let mut driver = Driver { looks: true, ..Driver::new(server, settings, job) };
    match job {
        Job::Make(_, changes) => {
            let (_, mut entries) = driver.begin(changes).await?;
            entries.retain(Entry::differs);
            entries.iter_mut().for_each(|entry| entry.fields.retain(Field::differs));
            Ok(entries)
        }
        Job::Undo { force, .. } => driver.survey(force).await,
        Job::Forget => driver.survey(false).await,
    }
}

pub(super) struct Driver<'a, S> {
    pub(super) server: &'a S,
    pub(super) settings: Settings,
    /// None in a recovery: that of the journal.
    pub(super) kind: Option<Kind>,
    /// Takes any announcement off the Lease.
    pub(super) forgets: bool,
    /// Writes nothing: what a write would be follows from what is read.
    pub(super) looks: bool,
    /// The Secret as it was read or written last.
    pub(super) secret: Value,
    /// Its journal, without the entries.
    pub(super) journal: Journal,
    /// Until when the driver that stored it before this one may have sent anything.
    pub(super) sent_until: String,
    /// The claim of this driver, from its first write of the journal on.
    pub(super) claim: u64,
    /// No retry after this, and no change.
    pub(super) deadline: Instant,
    /// The same for an undo that is under way, and for what follows a commit.
    pub(super) undoing_until: Option<Instant>,
    /// What is undone was announced until now: nobody else has changed an object with a mark of it.
    pub(super) was_announced: bool,
    /// A request that fails is not sent again at once: another object comes first.
    pub(super) defers: bool,
    pub(super) random: fastrand::Rng,
}

impl<'a, S: Server> Driver<'a, S> {
    fn new(server: &'a S, settings: Settings, job: Job<'_>) -> Self {
        let kind = match job {
            Job::Make(kind, _) => Some(kind),
            Job::Undo { kind, .. } => kind,
            Job::Forget => None,
        };
        Self {
            server,
            kind,
            forgets: false,
            looks: false,
            secret: Value::Null,
            journal: Journal::default(),
            sent_until: String::new(),
            claim: 1,
            deadline: settings.started + settings.limit,
            undoing_until: None,
            was_announced: false,
            defers: false,
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
        }
    }

    /// Returns the user that changes the targets: the one who began what is in the journal, unless a recovery is to act as another.
    pub(super) fn user(&self) -> Option<&str> {
        let asked = self.settings.acting_as.as_deref().filter(|_| self.kind.is_none());
        asked.or(self.journal.acting_as.as_deref())
    }

    /// Makes the changes: rules 1 to 6, and 7 if they cannot all be made.
    async fn make(&mut self, changes: &[Change]) -> Result<Outcome, Outcome> {
        let (mut entries, planned) = self.begin(changes).await?;
        if !planned.iter().any(Entry::differs) {
            return Ok(Outcome::Nothing);
        }
        // What stays from before is stored before the rest, and so undone after it.
        entries.extend(planned);
        self.prepare(&entries, fingerprint(changes)).await?;
        self.server.report(Event::Prepared);
        match self.commit(&mut entries).await {
            Ok(changed) => {
                if self.journal.kind == Kind::Transaction {
                    self.unmark(&entries).await;
                }
                Ok(Outcome::Committed(changed))
            }
            Err(why) if why.is_final() => Err(why),
            Err(why) => {
                let undone = self.undo(entries, false).await.and_then(|entries| all_back(&entries));
                if matches!(undone, Err(Outcome::Stuck(_))) {
                    self.server.report(Event::Said(format!("the changes cannot all be made: {why}")));
                }
                undone?;
                Ok(Outcome::Undone(Box::new(why)))
            }
        }
    }

    /// Ends the last transaction, and plans the changes. Returns what stays from before, and the plan.
    async fn begin(&mut self, changes: &[Change]) -> Result<(Vec<Entry>, Vec<Entry>), Outcome> {
        let left = self.predecessor(changes).await?.ok_or(Outcome::Already)?;
        self.journal.acting_as.clone_from(&self.settings.acting_as);
        let planned = self.plan(changes, &left).await?;
        Ok((left, planned))
    }

    /// Stores what undoes the changes, once their marks would be live (rule 5).
    async fn prepare(&mut self, entries: &[Entry], intent: String) -> Result<(), Outcome> {
        self.make_secret().await?;
        self.journal.intent = intent;
        let announced = self.announce(true).await;
        let stored = if announced.is_ok() { self.store(Phase::Prepared, entries, true).await } else { announced.map(drop) };
        if stored.is_err() {
            self.settled().await;
        }
        stored
    }

    /// Returns true if what the journal holds is undone before anything else: what is unsettled, and a promotion.
    fn undone_first(&self, entries: &[Entry]) -> bool {
        let is_first = self.journal.is_unsettled() || self.journal.kind == Kind::Promotion && !entries.is_empty();
        if is_first {
            self.server.report(Event::Said(format!("what {} has changed is undone first", self.journal.by)));
        }
        is_first
    }

    /// Ends the last transaction (rule 3). Returns the entries that stay in the journal: those in conflict of a promotion, and those in
    /// doubt. None: it is the same one, and stands. In a look the entries have the state that an undo would give them.
    async fn predecessor(&mut self, changes: &[Change]) -> Result<Option<Vec<Entry>>, Outcome> {
        let intent = fingerprint(changes);
        let mut entries = self.read().await?;
        if self.undone_first(&entries) {
            self.begin_undo(&entries).await?;
            entries = self.undo(entries, false).await?;
            self.deadline = self.server.now() + self.settings.limit;
            if self.journal.kind == Kind::Transaction {
                all_back(&entries)?;
            }
            return Ok(Some(entries));
        }
        self.settled().await;
        if self.journal.phase == Phase::Undone {
            all_back(&entries)?;
            return Ok(Some(self.doubtful(entries)));
        }
        let mut stands = self.journal.intent == intent;
        // The driver that committed them may have died before it took its marks off. What may still come was undone before.
        let is_made = |entry: &&Entry| !entry.may_come() && (entry.kind != EntryType::Delete || self.journal.intent == intent);
        // Of another transaction, an object that cannot be read keeps a mark that is not live.
        self.defers = !stands;
        for entry in entries.iter().filter(is_made) {
            let target = &entry.target;
            if self.looks && !stands {
                break;
            }
            let object = match self.erase(target, None, self.journal.claim).await {
                Err(why @ Outcome::Unavailable(_)) if self.looks => return Err(why),
                object => object,
            };
            let content = changes.iter().find(|change| change.target == *target).map(|change| &change.content);
            stands = stands && object.is_ok_and(|object| entry.stands(object.as_ref(), content));
        }
        self.defers = false;
        Ok(if stands { None } else { Some(self.doubtful(entries)) })
    }

    /// Returns the entries that may still come.
    fn doubtful(&self, entries: Vec<Entry>) -> Vec<Entry> {
        entries.into_iter().filter(|entry| entry.may_come() && !self.is_late()).collect()
    }

    /// Rule 8.
    async fn recover(&mut self, force: bool) -> Result<Outcome, Outcome> {
        let entries = self.read().await?;
        if !self.is_open(&entries).await? {
            self.settled().await;
            return Ok(Outcome::Nothing);
        }
        self.begin_undo(&entries).await?;
        let undone = entries.len();
        all_back(&self.undo(entries, force).await?)?;
        Ok(Outcome::Recovered(undone))
    }

    /// Returns true if there is something to undo, and says so if no journal can tell. A creation that has not come is no reason to write
    /// while it may.
    async fn is_open(&self, entries: &[Entry]) -> Result<bool, Outcome> {
        if uid(&self.secret).is_empty() {
            let journal = Request::Journal(self.settings.lease.clone(), Verb::Get);
            self.server.report(Event::Said(format!("{journal} is not there: nothing can be undone")));
        }
        let mut is_open = self.journal.is_unsettled() || entries.iter().any(|entry| !entry.may_come() || self.is_late());
        for entry in entries {
            is_open = is_open
                || match self.get(&entry.target).await {
                    // Its kind is no longer served.
                    Err(Outcome::Refused(_)) => false,
                    // The undo names it.
                    Err(Outcome::NotPermitted(_)) => true,
                    object => object?.is_some_and(|object| self.mine(&object).is_some()),
                };
        }
        Ok(is_open)
    }

    async fn forget(&mut self) -> Result<Outcome, Outcome> {
        self.forgets = true;
        let Some(secret) = self.stored().await? else {
            self.announce(false).await?;
            return Ok(Outcome::Nothing);
        };
        owned(&secret)?;
        let journal = parse(&secret);
        let changes = journal.as_ref().ok().map(|journal| journal.entries.len());
        self.secret = secret;
        // What cannot be read is replaced.
        self.journal = self.known(journal.unwrap_or_default());
        self.claim = self.journal.claim + 1;
        let entries = mem::take(&mut self.journal.entries);
        self.store(Phase::Undone, &entries, true).await?;
        for entry in &entries {
            let object = self.erase(&entry.target, None, u64::MAX).await;
            if !object.is_ok_and(|object| object.is_none_or(|object| self.mine(&object).is_none())) {
                self.server.report(Event::Said(format!("{}: its mark stays, and keeps nobody away", entry.target)));
            }
        }
        self.store(Phase::Undone, &[], false).await?;
        Ok(if changes == Some(0) { Outcome::Nothing } else { Outcome::Forgotten { changes } })
    }

    /// Returns what an undo would do now: the state of each entry, and the present value of each field as `after`.
    async fn survey(&mut self, force: bool) -> Result<Vec<Entry>, Outcome> {
        let entries = self.read().await?;
        match self.journal.phase {
            Phase::Committed => self.server.report(Event::Said(format!("committed by {}", self.journal.by))),
            Phase::Prepared | Phase::Undoing => {
                self.server.report(Event::Said(format!("not finished by {}: the next command undoes it", self.journal.by)));
            }
            Phase::Undone => {}
        }
        if self.is_open(&entries).await? { self.undo(entries, force).await } else { Ok(Vec::new()) }
    }
}

/// Checks that nothing is in conflict.
fn all_back(entries: &[Entry]) -> Result<(), Outcome> {
    let left = entries.iter().filter_map(|entry| Some((entry.target.clone(), entry.conflict()?.clone())));
    let left: Vec<_> = left.collect();
    if left.is_empty() { Ok(()) } else { Err(Outcome::Stuck(left)) }
}
