//! The ends of init's children: electors, the workload's main process, hooks and probes, and orphans.
//!
//! A hook or probe counts as ended only once its whole process group is gone (law 8: "with every hook and probe of the term dead").
//! Processes that have left the group are not found here, nor are those of a workload that was demoted and runs on.

use crate::{
    config::Signal,
    link::{Exit, ToElector},
    supervision::interface::{Input, NotSpawned, Target},
    time::Instant,
};

use super::{
    MAX_TIME, Turn,
    container::{Container, Dead, Ended, HelperKind, Started},
};

/// A hook or a probe, until its whole process group is gone.
#[derive(Clone, Debug, Hash)]
pub(super) struct Helper {
    pub(super) kind: HelperKind,
    pub(super) began: Instant,
    pub(super) pid: i32,
    /// The end of its main process; others of its group may be left.
    pub(super) exit: Option<Exit>,
}

impl Turn {
    /// Reaps dead children and tells the agent. The agent's actions are carried out afterwards. Returns true if anything has
    /// ended.
    pub(super) fn reap(&mut self, c: &mut impl Container) -> bool {
        let (mut any, enough) = (false, c.now() + MAX_TIME);
        self.more_to_reap = loop {
            let dead = c.dead();
            self.is_childless = dead == Dead::Childless;
            match dead {
                Dead::Process(pid) if self.reap_one(pid, c) => any = true,
                Dead::Process(_) | Dead::Nobody | Dead::Childless => break false,
            }
            if c.now() >= enough {
                break true;
            }
        };
        self.end_helpers(c) || any
    }

    fn reap_one(&mut self, pid: i32, c: &mut impl Container) -> bool {
        let helper = self.helpers.iter().position(|helper| helper.pid == pid && helper.exit.is_none());
        if helper.is_some() {
            // While the pid still names the group. If others of the group may not be killed, the hook or probe does not end.
            c.kill(Target::Group(pid), Signal::KILL);
        }
        let Some(ended) = c.reap(pid) else { return false };
        if self.elector == Some(pid) {
            self.drain(c);
            self.elector = None;
            c.close_link();
            self.elector_ended(ended, c);
        } else if let Some(index) = self.killed.iter().position(|killed| *killed == pid) {
            self.killed.swap_remove(index);
            // If it was stuck in the kernel for long, its successor runs already.
            if self.elector.is_none() {
                self.elector_ended(ended, c);
            }
        } else if let Some((index, helper)) = helper.and_then(|index| Some((index, self.helpers.get_mut(index)?))) {
            helper.exit = Some(ended.exit);
            match (helper.kind, ended.started) {
                (HelperKind::Hook(hook), Some(Err(why))) => {
                    c.say(format!("hooks.{} cannot be run: {}", hook.as_str(), describe(why)));
                }
                // Its group had no other member.
                (HelperKind::Probe(kind), Some(Err(why))) => {
                    let began = self.helpers.swap_remove(index).began;
                    self.probe_not_run(kind, began, why, c);
                }
                (HelperKind::Hook(_) | HelperKind::Probe(_), _) => {}
            }
        } else {
            self.process_ended(pid, ended, c);
        }
        true
    }

    fn elector_ended(&mut self, Ended { exit, started }: Ended, c: &mut impl Container) {
        self.handle(Input::ElectorEnded, c);
        let how = if let Some(Err(why)) = started { describe(why) } else { exit.to_string() };
        self.complain(format!("the elector ended: {how}"), c);
    }

    /// Logs why there is no elector. Once for each reason, because init tries again every second.
    pub(super) fn complain(&mut self, line: String, c: &mut impl Container) {
        if line != self.complaint {
            self.complaint.clone_from(&line);
            c.say(line);
        }
    }

    /// Hands a child's report to the agent before the child's end.
    fn process_ended(&mut self, pid: i32, Ended { exit, started }: Ended, c: &mut impl Container) {
        if self.teller.take_if(|teller| *teller == pid).is_some() {
            let told = match started {
                Some(Ok(())) if exit == Exit::Code(0) => Ok(()),
                Some(Err(NotSpawned::Late)) => Err("it did not handle the signal in time".into()),
                Some(Err(why)) => Err(describe(why)),
                Some(Ok(())) | None => Err("it may have been told, or not".into()),
            };
            self.role_told(told.map_err(|why| format!("the workload was not told its role: {why}")), c);
        } else if self.main == Some(pid) {
            // An end after S is none of the workload's own: S is looked at as for any deadline (law 9).
            let now = c.now();
            self.drain(c);
            if let Some(started) = started {
                self.main_started(started, c);
            }
            self.check_fuse(c);
            (self.main, self.teller, self.is_unmarked) = (None, None, false);
            self.notifications.clear();
            return self.agent.handle(Input::Reaped { pid, exit }, now);
        }
        self.handle(Input::Reaped { pid, exit }, c);
    }

    pub(super) fn main_started(&mut self, started: Started, c: &impl Container) {
        self.handle(started.map_or_else(Input::NotSpawned, |()| Input::Spawned), c);
    }

    /// Reports each hook and probe whose process group is gone. Returns true if there was one.
    fn end_helpers(&mut self, c: &mut impl Container) -> bool {
        let mut any = false;
        while let Some(over) = self.helpers.iter().position(|helper| helper.exit.is_some() && c.is_group_gone(helper.pid)) {
            let Helper { kind, began, pid, exit } = self.helpers.swap_remove(over);
            let (Some(exit), ended) = (exit, c.now()) else { continue };
            let input = match kind {
                HelperKind::Hook(hook) => {
                    c.send(ToElector::Hooked { hook, began, ended, exit });
                    Input::Reaped { pid, exit }
                }
                HelperKind::Probe(kind) => {
                    self.unforked.forget();
                    Input::Probed { kind, began, failure: (exit != Exit::Code(0)).then(|| exit.to_string()) }
                }
            };
            self.handle(input, c);
            any = true;
        }
        any
    }
}

/// Describes why nothing was spawned.
pub(super) fn describe(why: NotSpawned) -> String {
    match why {
        NotSpawned::Late => "its time had passed".into(),
        NotSpawned::Failed { message, .. } | NotSpawned::Unavailable { message } => message,
    }
}
