//! Actions of the processes under init by themselves.

use tenure::{notification::Notification, role::Role, supervision::NotSpawned};
use tenure_world::Due;

use super::{Container, Word};
use crate::{
    clock::{MS, S, nanos},
    engine::{Child, Engine, Event},
};

impl Container {
    /// Why the workload does not answer well, if it does not. It recovers in the end.
    pub fn illness(&self, e: &mut Engine) -> Option<String> {
        let ill = self.node.habits.ill;
        (ill > 0.0 && e.now < self.node.plan.storm && e.chance(ill)).then(|| "ill".into())
    }

    /// SIGKILL to the elector, not by init's decision.
    pub fn shoot_elector(&mut self, e: &mut Engine) {
        let Some(elector) = self.elector.as_mut().filter(|elector| !elector.is_dead) else { return };
        elector.is_dead = true;
        let child = elector.child;
        let span = e.latency(MS);
        e.judge.trouble(self.who.replica, e.now + S);
        let until = e.now + nanos(self.node.config.lease.duration) * 2 + S;
        e.judge.forgets(self.who, until);
        e.after(span, Event::ElectorGone(child));
        self.wake(e);
        self.expose(e);
    }

    /// Before this step of init, the elector may say its last words, die and be there to be reaped, all at once.
    pub(super) fn may_lose_elector(&mut self, e: &mut Engine) {
        let Some(left) = self.bereft_before else { return };
        self.bereft_before = left.checked_sub(1);
        if left > 0 {
            return;
        }
        self.last_turn(e);
        self.shoot_elector(e);
        if let Some(elector) = &mut self.elector {
            elector.is_zombie = true;
        }
    }

    /// A killed elector can be reaped.
    pub fn elector_gone(&mut self, pid: i32, e: &mut Engine) {
        if let Some(elector) = self.elector.as_mut().filter(|elector| elector.child.pid == pid) {
            elector.is_zombie = true;
        }
        for undead in self.undead.iter_mut().filter(|(undead, _)| *undead == pid) {
            undead.1 = true;
        }
        self.wake(e);
    }

    /// A forked child is about to exec.
    pub fn exec(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Due(Due::Exec(Child { who: self.who, pid })));
        }
        if self.tree.lives(pid) {
            self.set_mark(pid);
        }
        let Some(outcome) = self.tree.exec(pid, self.clock(), &self.node.habits, e) else { return self.wake(e) };
        if self.node.habits.tells {
            let span = e.spread(MS, S);
            e.after(span, Event::Says(Child { who: self.who, pid }));
        }
        if self.main == Some(pid) {
            self.never_ran = matches!(outcome, Err(NotSpawned::Late));
            self.outcome = Some(outcome);
        }
        self.wake(e);
    }

    /// The workload takes on a role that it was told, and reports it, once or more often.
    pub fn obeys(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Due(Due::Obeys(Child { who: self.who, pid })));
        }
        let Some(role) = self.tree.obey(pid, &self.node.habits, e) else { return };
        if self.node.habits.says {
            self.answered = Some(e.now).filter(|_| role == Role::Leader);
            let times = if e.chance(0.3) { 3 } else { 1 };
            self.words.extend(std::iter::repeat_n((pid, Word::Said(Notification::Role(role))), times));
        }
        self.wake(e);
    }

    /// The workload says how it is, and will say so again.
    pub fn says(&mut self, pid: i32, e: &mut Engine) {
        let Some(leads) = self.tree.speaks(pid) else { return };
        let said = match (self.illness(e), e.rng.bool()) {
            (None, _) => Notification::Ready,
            (Some(_), true) if leads => Notification::WatchdogTrigger,
            (Some(_), _) => Notification::Reloading,
        };
        if e.now >= self.suspended_until && !self.tree.is_stopped(pid, e.now) {
            self.words.push_back((pid, Word::Said(said)));
            self.wake(e);
        }
        let span = e.spread(20 * MS, 5 * S);
        e.after(span, Event::Says(Child { who: self.who, pid }));
    }

    /// A process ends.
    pub fn ends(&mut self, pid: i32, e: &mut Engine) {
        if e.now < self.suspended_until {
            return e.at(self.suspended_until, Event::Due(Due::Ends(Child { who: self.who, pid })));
        }
        if self.tree.end(pid, e) {
            self.child_changed(e);
        }
    }

    /// SIGCHLD, which coalesces.
    pub(super) fn child_changed(&mut self, e: &mut Engine) {
        if !self.signals.contains(&libc::SIGCHLD) {
            self.signals.push_back(libc::SIGCHLD);
        }
        self.wake(e);
    }
}
