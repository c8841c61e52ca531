//! Tells a workload that runs everywhere its role: by signal, hook and NOTIFY_SOCKET (law 8, 15).

use std::os::fd::AsFd;

use super::{drive::Drive, hooks::Hook};
use crate::{
    clock,
    config::{HookKind, Signal},
    link::{Exit, Facts, Reason},
    process::{
        Pid, kill,
        notify::NotifySocket,
        reap,
        spawn::{self, Fate, Outcome, Place, Setup},
    },
    supervision::{Agent, Input, RoleInput},
    time::Instant,
    words::one_line,
};

impl Drive {
    pub(super) fn drain_notify(&mut self, agent: &mut Agent) {
        if let Some(Err(error)) = self.notify.as_ref().map(NotifySocket::drain) {
            agent.handle(Input::Role(RoleInput::NotDrained), clock::boot());
            self.warn(format!("NOTIFY_SOCKET cannot be emptied: {error}"));
        }
    }

    pub(super) fn promote(&mut self, agent: &mut Agent, pid: i32, signal: Signal, not_after: Instant) {
        let notify = self.notify.as_ref().map(AsFd::as_fd);
        // A notification is an answer to the signal; whoever is not asked for one must at least have it.
        match spawn::promote(Pid::from_raw(pid), signal, not_after, notify, notify.is_none()) {
            Ok(spawning) => self.pending.promotion = Some(spawning),
            Err(error) => {
                self.warn(format!("the workload cannot be promoted: {}", one_line(&error)));
                agent.handle(Input::Role(RoleInput::NotPromoted), clock::boot());
            }
        }
    }

    pub(super) fn hook(
        &mut self,
        agent: &mut Agent,
        hook: HookKind,
        facts: Option<&Facts>,
        reason: Option<Reason>,
        not_after: Instant,
    ) {
        let fuse = self.spare_fuse();
        let setup = Setup {
            inherited: self.inherited,
            place: Place::Group,
            directory: None,
            input: spawn::Input::Null,
            link: None,
            oom_score_adjust: self.oom_score_adjust,
            not_after: Some(not_after),
            fuse: fuse.as_ref().map(AsFd::as_fd),
        };
        let command = self.programs.hook(hook, facts, reason);
        let input = match command.and_then(|command| command.map(|command| command.spawn(&setup)).transpose()) {
            Ok(Some(spawning)) => {
                if let Some(fuse) = fuse {
                    self.fuses.keep(fuse, spawning.pid);
                }
                self.fuses.started();
                let pid = spawning.pid.as_raw();
                self.hook = Some(Hook::new(hook, spawning));
                Input::Role(RoleInput::HookForked { pid })
            }
            Ok(None) => Input::Role(RoleInput::HookNotForked),
            Err(error) => {
                self.warn(format!("hooks.{} cannot be run: {}", hook.name(), one_line(&error)));
                Input::Role(RoleInput::HookNotForked)
            }
        };
        agent.handle(input, clock::boot());
    }

    pub(super) fn demote(&mut self, agent: &mut Agent, pid: i32, signal: Signal) {
        // It ended meanwhile, and its id may be reused.
        if self.main.map(Pid::as_raw) != Some(pid) {
            return;
        }
        let pid = Pid::from_raw(pid);
        let refused = !reap::is_dead(pid)
            && match spawn::fate(pid, signal) {
                // Its remains would work on as a leader's, and until it is reaped its death looks like an acknowledgement.
                Fate::Ends => true,
                Fate::Ignores => self.trusts_signals,
                Fate::Blocks | Fate::Handles => false,
            };
        if refused {
            agent.handle(Input::Role(RoleInput::NotDemoted), clock::boot());
            return self.warn(format!("the workload does not handle signals.onFollow ({}) and is killed", signal.name()));
        }
        let failed = if self.trusts_signals {
            // The end of that child is the answer.
            spawn::demote(pid, signal).map(|spawning| self.pending.demotion = Some(spawning)).err().map(|error| one_line(&error))
        } else {
            let failed = kill::send(pid, signal).err().map(|error| error.to_string());
            // A zombie takes a signal too, and handles none: that it is reaped is the answer. What it has left is not demoted.
            if failed.is_none() && !reap::is_dead(pid) {
                agent.handle(Input::Role(RoleInput::Demoted), clock::boot());
            }
            failed
        };
        if let Some(error) = failed {
            self.warn(format!("the workload cannot be told signals.onFollow: {error}"));
            agent.handle(Input::Role(RoleInput::NotDemoted), clock::boot());
        }
    }

    /// Takes in how a child that signalled has ended.
    pub(super) fn report_told(&mut self, agent: &mut Agent, pid: Pid, exit: Exit) {
        if let Some(mut spawning) = self.pending.promotion.take_if(|spawning| spawning.pid == pid) {
            match spawning.outcome() {
                Some(Outcome::Done) if exit == Exit::Code(0) => {
                    self.fuses.started();
                    agent.handle(Input::Role(RoleInput::Promoted), clock::boot());
                }
                Some(Outcome::Failed(failure)) => {
                    self.warn(format!("the workload cannot be promoted: {failure}"));
                    agent.handle(Input::Role(RoleInput::NotPromoted), clock::boot());
                }
                Some(Outcome::Late) => agent.handle(Input::Role(RoleInput::PromotionLate), clock::boot()),
                Some(Outcome::Done) | None => agent.handle(Input::Role(RoleInput::PromotionKilled), clock::boot()),
            }
        }
        if let Some(mut spawning) = self.pending.demotion.take_if(|spawning| spawning.pid == pid) {
            let input = match spawning.outcome() {
                Some(Outcome::Done) if exit == Exit::Code(0) => RoleInput::Demoted,
                Some(Outcome::Failed(failure)) => {
                    self.warn(format!("the workload cannot be told signals.onFollow: {failure}"));
                    RoleInput::NotDemoted
                }
                // Killed, or the workload is gone, which is its own news.
                Some(Outcome::Done | Outcome::Late) | None => RoleInput::NotDemoted,
            };
            agent.handle(Input::Role(input), clock::boot());
        }
    }
}
