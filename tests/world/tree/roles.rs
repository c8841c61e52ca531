//! A workload that always runs: it stands by, and leads from one signal to the next.

use tenure::{law::is_over, link::Exit, role::Role, time::Instant};

use super::{Errand, Habits, Part, Process, Stage, Tree};
use crate::{
    clock::{Clock, MS, Ns},
    scene::{Child, Due, Observer, Scene},
};

/// A role that it was told, and has not taken on yet.
#[derive(Clone, Debug, Hash)]
pub(super) struct Order {
    at: Ns,
    role: Role,
    token: u64,
}

impl Tree {
    /// Forks a child that sends the signal that promotes `workload`, unless it is too late.
    pub fn promote(&mut self, workload: i32, token: u64, not_after: Instant, habits: &Habits, e: &mut impl Scene) -> i32 {
        self.assign(Part::Teller, Errand::Promote { workload, token, not_after }, false, habits, e)
    }

    /// SIGKILL to the child that tells the workload its role. One that promotes may have sent the signal just before without
    /// reporting it; returns whether it has.
    pub fn cancel(&mut self, pid: i32, clock: Clock, habits: &Habits, e: &mut impl Scene) -> bool {
        let who = self.who;
        let Some(process) = self.find_mut(pid).filter(|process| !process.killed) else { return false };
        let stage = process.stage.clone();
        process.kill(who, e);
        let Stage::Forked(Errand::Promote { workload, token, not_after }) = stage else { return false };
        let is_sent = !is_over(not_after, clock.boot(e.now())) && e.chance(0.5);
        if is_sent {
            self.order(workload, Role::Leader, token, habits, e);
        }
        is_sent
    }

    /// The promoting child has checked the clock, and sends the signal.
    pub(super) fn promotes(&mut self, pid: i32, workload: i32, token: u64, is_late: bool, habits: &Habits, e: &mut impl Scene) {
        self.becomes(pid, Stage::Zombie(Exit::Code(u8::from(is_late))));
        e.note(self.who, || format!("pid {pid} promotes {workload}: {}", !is_late));
        if !is_late {
            self.order(workload, Role::Leader, token, habits, e);
        }
    }

    /// Forks a child that sends the signal that demotes `workload`.
    pub fn demote(&mut self, workload: i32, habits: &Habits, e: &mut impl Scene) -> i32 {
        self.assign(Part::Teller, Errand::Demote { workload }, false, habits, e)
    }

    /// The demoting child sends the signal, and ends: well if the workload takes it, and otherwise once that is gone.
    pub(super) fn demotes(&mut self, pid: i32, workload: i32, habits: &Habits, e: &mut impl Scene) {
        let takes = |process: &Process| !process.killed && matches!(process.stage, Stage::Stands | Stage::Runs(_));
        let takes = self.find(workload).is_some_and(takes);
        e.note(self.who, || format!("pid {pid} demotes {workload}: {takes}"));
        if takes {
            self.order(workload, Role::Standby, 0, habits, e);
        }
        self.becomes(pid, Stage::Zombie(Exit::Code(u8::from(!takes))));
    }

    /// The workload is told its role. Some ignore it when they are to stand by.
    pub fn order<E: Scene>(&mut self, pid: i32, role: Role, token: u64, habits: &Habits, e: &mut E) {
        let who = self.who;
        let Some(process) = self.find_mut(pid) else { return };
        if role == Role::Standby && habits.says && e.chance(habits.deaf) {
            return;
        }
        let span = if habits.says { e.spread(10_000, if role == Role::Leader { 20 * MS } else { habits.lingers }) } else { 0 };
        let at = process.orders.back().map_or(0, |order| order.at).max(e.after(span));
        process.orders.push_back(Order { at, role, token });
        e.schedule(at, Due::Obeys(Child { who, pid }));
    }

    /// Returns whether the workload leads; none if it says nothing any more.
    pub fn speaks(&self, pid: i32) -> Option<bool> {
        let process = self.find(pid).filter(|process| process.part == Part::Main && !process.killed)?;
        let (is_leader, is_standby) = (matches!(process.stage, Stage::Runs(_)), matches!(process.stage, Stage::Stands));
        (is_leader || is_standby).then_some(is_leader)
    }

    /// Takes on the role that the process was told; returns which.
    pub fn obey(&mut self, pid: i32, habits: &Habits, e: &mut impl Scene) -> Option<Role> {
        let child = Child { who: self.who, pid };
        // A dying process reports nothing. Where no report is asked for, the signal suffices, and is never disobeyed.
        let process = self.find_mut(pid).filter(|process| !(process.killed && habits.says))?;
        let (Stage::Runs(_) | Stage::Stands) = process.stage else { return None };
        if process.orders.front()?.at > e.now() {
            return None;
        }
        let Order { role, token, .. } = process.orders.pop_front()?;
        match role {
            Role::Leader if process.killed => return None,
            Role::Leader => {
                process.stage = Stage::Runs(token);
                process.may_exit(child, habits, e);
                e.note(child.who, || format!("RUNS as pid {pid} under token {token}"));
                self.leads(pid, token, e);
            }
            Role::Standby => {
                e.note(child.who, || format!("pid {pid} stands by"));
                e.judge().gone(child);
                process.stage = Stage::Stands;
            }
        }
        Some(role)
    }
}
