//! Runs the acts of the demo one after the other, and tells what came of each.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::{Instant as Deadline, sleep, timeout};

use super::{
    Stuck, picture,
    replica::{NAMES, Replica},
    timeline::{self, Drawn, Mark, span},
    workload::{self, Run},
};
use crate::{console::say, time::Instant, words::worded};

/// How long a leader leads before something is done to it.
const TERM: Duration = Duration::from_millis(1_300);
/// Longest wait for the next leader: several times what the law allows.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at the stamps.
const GLANCE: Duration = Duration::from_millis(4);
/// A run whose last stamp is older than this is over.
const FRESH: Duration = Duration::from_millis(100);

worded! {
    /// The act that hits a leader.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Handover = "is told to stop (SIGTERM)",
        Kill = "is killed (SIGKILL to its init)",
        FreezeElector = "no longer renews (SIGSTOP to its elector)",
        FreezeInit = "has its guard frozen (SIGSTOP to its init)",
        Cut = "is cut off from the API server, both ways",
    }
}

const ACTS: [Act; 6] = [Act::Handover, Act::Kill, Act::FreezeElector, Act::FreezeInit, Act::Cut, Act::Handover];

#[derive(Debug)]
pub(super) struct Script {
    replicas: Vec<Replica>,
    kind: String,
    stamps: PathBuf,
    begin: Instant,
    marks: Vec<Mark>,
}

impl Script {
    /// `kind` tells what the replicas are.
    pub(super) fn new(replicas: Vec<Replica>, kind: String, directory: &Path, begin: Instant) -> Self {
        Self { replicas, kind, stamps: directory.join("stamps"), begin, marks: Vec::new() }
    }

    /// Runs the script, from the first start to the last end.
    ///
    /// # Errors
    /// Nobody leads, a replica does not end, or the system refuses something.
    pub(super) async fn play(&mut self) -> Result<(), Stuck> {
        say(&format!(
            "Three replicas of one workload, {}.\nAn API server in this process; a Lease of 3 s.\n\
             The workload stamps the time every millisecond: that is what the demo judges by.\n\n",
            self.kind
        ))?;
        for replica in &mut self.replicas {
            replica.start()?;
        }
        let first = self.leader_after(self.begin).await?;
        self.tell(first.first, &format!("{} leads: nobody knows who held a new Lease before, so it waited 3 s", first.replica))?;
        for act in ACTS {
            sleep(TERM).await;
            self.perform(act).await?;
        }
        sleep(TERM).await;
        self.end().await
    }

    /// Draws what the stamps prove.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn verdict(&self) -> io::Result<Drawn> {
        Ok(timeline::draw(&NAMES, &workload::runs(&self.stamps)?, &self.marks, self.begin))
    }

    /// Draws the same as a picture.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn picture(&self) -> io::Result<String> {
        Ok(picture::draw(&NAMES, &workload::runs(&self.stamps)?, &self.marks, self.begin))
    }

    async fn perform(&mut self, act: Act) -> Result<(), Stuck> {
        let old = self.leader().await?;
        let Some(replica) = self.replicas.iter_mut().find(|replica| replica.name == old.replica) else {
            return Err(nobody());
        };
        let at = crate::clock::boot();
        let stopped = inflict(act, replica)?;
        let name = replica.name;
        self.marks.push(Mark { at, text: format!("{name} {}", act.as_str()) });
        self.tell(at, &format!("{name} {}", act.as_str()))?;

        let new = self.leader_after(at).await?;
        let end = self.runs()?.into_iter().filter(|run| run.replica == name && run.first < at).map(|run| run.last).max();
        let gap = end.map_or(Duration::ZERO, |end| new.first.since(end));
        self.tell(new.first, &format!("{} leads, {} after {name}'s workload was last alive", new.replica, span(gap)))?;
        self.undo(name, stopped).await
    }

    /// Restores the replica, as its supervisor would.
    async fn undo(&mut self, name: &str, stopped: Option<Pid>) -> Result<(), Stuck> {
        if let Some(pid) = stopped {
            // It may have been killed and replaced meanwhile, as it should be.
            let _ = kill(pid, Signal::SIGCONT);
        }
        for replica in self.replicas.iter_mut().filter(|replica| replica.name == name) {
            replica.network.heal();
            let deadline = Deadline::now() + TERM;
            while stopped.is_none() && replica.is_running()? && Deadline::now() < deadline {
                sleep(GLANCE).await;
            }
            replica.start()?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Stuck> {
        for pid in self.replicas.iter().filter_map(Replica::init) {
            let _ = kill(pid, Signal::SIGTERM);
        }
        let deadline = Deadline::now() + PATIENCE;
        for replica in &mut self.replicas {
            while replica.is_running()? {
                if Deadline::now() >= deadline {
                    return Err(format!("{} has not ended {}s after SIGTERM", replica.name, PATIENCE.as_secs()).into());
                }
                sleep(GLANCE).await;
            }
        }
        Ok(())
    }

    /// The run in progress. One that was just replaced has fresh stamps too, but a lower token.
    async fn leader(&self) -> Result<Run, Stuck> {
        let is_fresh = |run: &Run| crate::clock::boot().since(run.last) < FRESH;
        self.find(|runs| runs.into_iter().filter(is_fresh).max_by_key(|run| run.token)).await
    }

    /// The first run to begin after `at`.
    async fn leader_after(&self, at: Instant) -> Result<Run, Stuck> {
        self.find(|runs| runs.into_iter().find(|run| run.first > at)).await
    }

    async fn find(&self, pick: impl Fn(Vec<Run>) -> Option<Run>) -> Result<Run, Stuck> {
        let search = async {
            loop {
                if let Some(run) = pick(self.runs()?) {
                    return Ok(run);
                }
                sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, search).await.unwrap_or_else(|_| Err(nobody()))
    }

    fn runs(&self) -> Result<Vec<Run>, Stuck> {
        Ok(workload::runs(&self.stamps)?)
    }

    fn tell(&self, at: Instant, text: &str) -> io::Result<()> {
        say(&format!("{:6.1} s  {text}\n", at.since(self.begin).as_secs_f64()))
    }
}

/// Carries out `act`; returns the process that it stopped, if any.
fn inflict(act: Act, replica: &Replica) -> Result<Option<Pid>, Stuck> {
    let missing = |what| format!("{} has no {what}", replica.name);
    let init = replica.init().ok_or_else(|| missing("init"))?;
    match act {
        Act::Handover => kill(init, Signal::SIGTERM)?,
        Act::Kill => kill(init, Signal::SIGKILL)?,
        Act::FreezeElector => {
            let elector = replica.elector().ok_or_else(|| missing("elector"))?;
            kill(elector, Signal::SIGSTOP)?;
            return Ok(Some(elector));
        }
        Act::FreezeInit => {
            kill(init, Signal::SIGSTOP)?;
            return Ok(Some(init));
        }
        Act::Cut => replica.network.cut(),
    }
    Ok(None)
}

fn nobody() -> Stuck {
    format!("nobody has led for {}s, which the law does not allow", PATIENCE.as_secs()).into()
}
