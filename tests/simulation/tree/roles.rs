//! A workload that always runs: it stands by, and leads from one signal to the next.

use tenure::{law, link::Exit, role::Role, time::Instant};

use super::{Process, Stage, Tree, manner};
use crate::{
    clock::{Clock, MS, Ns},
    engine::{Child, Engine, Event},
    plan::Habits,
};

/// Signal to lead.
pub const ON_LEAD: i32 = libc::SIGUSR1;
/// Signal to stand by.
pub const ON_FOLLOW: i32 = libc::SIGUSR2;

/// A role that it was told, and has not taken on yet.
#[derive(Clone, Debug)]
pub(super) struct Order {
    at: Ns,
    role: Role,
    token: String,
}

impl Tree {
    /// Forks the workload to stand by.
    pub fn fork_standby(&mut self, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = manner(habits, e);
        let stage = Stage::Forked { token: None, not_after: Instant::NEVER };
        self.add(stage, manner, false, habits, e)
    }

    /// Forks a child that sends the signal that promotes `workload`, unless it is too late.
    pub fn promote(&mut self, workload: i32, token: String, not_after: Instant, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = super::Manner { main: false, breeds: false, ..manner(habits, e) };
        self.add(Stage::Promotes { workload, token, not_after }, manner, false, habits, e)
    }

    /// SIGKILL to the child that tells the workload its role. One that promotes may have sent the signal just before without
    /// reporting it; returns whether it has.
    pub fn cancel(&mut self, pid: i32, clock: Clock, habits: &Habits, e: &mut Engine) -> bool {
        let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid && !process.killed) else { return false };
        process.kill(self.who, e);
        let Stage::Promotes { workload, token, not_after } = &process.stage else { return false };
        let (workload, token, late) = (*workload, token.clone(), law::is_over(*not_after, clock.boot(e.now)));
        let is_sent = !late && e.chance(0.5);
        if is_sent {
            self.order(workload, Role::Leader, &token, habits, e);
        }
        is_sent
    }

    /// The promoting child checks the clock, and sends the signal.
    pub(super) fn promotes(&mut self, index: usize, clock: Clock, habits: &Habits, e: &mut Engine) {
        let Some(Process { pid, stage, killed, .. }) = self.processes.get_mut(index) else { return };
        let Stage::Promotes { workload, token, not_after } = stage else { return };
        if *killed {
            return;
        }
        let (pid, workload, token, late) = (*pid, *workload, token.clone(), law::is_over(*not_after, clock.boot(e.now)));
        *stage = Stage::Zombie(Exit::Code(u8::from(late)));
        e.note(self.who, || format!("pid {pid} promotes {workload}: {}", !late));
        if !late {
            self.order(workload, Role::Leader, &token, habits, e);
        }
    }

    /// Forks a child that sends the signal that demotes `workload`.
    pub fn demote(&mut self, workload: i32, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = super::Manner { main: false, breeds: false, ..manner(habits, e) };
        self.add(Stage::Demotes { workload }, manner, false, habits, e)
    }

    /// The demoting child sends the signal, and ends: well if the workload takes it, and otherwise once that is gone.
    pub(super) fn demotes(&mut self, index: usize, habits: &Habits, e: &mut Engine) {
        let Some(Process { pid, stage: Stage::Demotes { workload }, killed: false, .. }) = self.processes.get(index) else {
            return;
        };
        let (pid, workload) = (*pid, *workload);
        let takes = |process: &Process| {
            process.pid == workload && !process.killed && matches!(process.stage, Stage::Stands | Stage::Runs { .. })
        };
        let takes = self.processes.iter().any(takes);
        e.note(self.who, || format!("pid {pid} demotes {workload}: {takes}"));
        if takes {
            self.order(workload, Role::Standby, "", habits, e);
        }
        if let Some(process) = self.processes.get_mut(index) {
            process.stage = Stage::Zombie(Exit::Code(u8::from(!takes)));
        }
    }

    /// The workload is told its role. Some ignore it when they are to stand by.
    pub fn order(&mut self, pid: i32, role: Role, token: &str, habits: &Habits, e: &mut Engine) {
        let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid) else { return };
        if role == Role::Standby && habits.says && e.chance(habits.deaf) {
            return;
        }
        let span = if habits.says { e.spread(10_000, if role == Role::Leader { 20 * MS } else { habits.lingers }) } else { 0 };
        let at = process.orders.back().map_or(0, |order| order.at).max(e.now + span);
        process.orders.push_back(Order { at, role, token: token.into() });
        e.at(at, Event::Obeys(Child { who: self.who, pid }));
    }

    /// Returns whether the workload leads; none if it says nothing any more.
    pub fn speaks(&self, pid: i32) -> Option<bool> {
        let process = self.processes.iter().find(|process| process.pid == pid && process.manner.main && !process.killed)?;
        let (is_leader, is_standby) = (matches!(process.stage, Stage::Runs { .. }), matches!(process.stage, Stage::Stands));
        (is_leader || is_standby).then_some(is_leader)
    }

    /// Takes on the role that the process was told; returns which.
    pub fn obey(&mut self, pid: i32, habits: &Habits, e: &mut Engine) -> Option<Role> {
        // A dying process reports nothing. Where no report is asked for, the signal suffices, and is never disobeyed.
        let process = self.processes.iter_mut().find(|process| process.pid == pid && !(process.killed && habits.says))?;
        let (Stage::Runs { .. } | Stage::Stands) = process.stage else { return None };
        if process.orders.front()?.at > e.now {
            return None;
        }
        let Order { role, token, .. } = process.orders.pop_front()?;
        let child = Child { who: self.who, pid };
        match role {
            Role::Leader if process.killed => return None,
            Role::Leader => {
                e.note(self.who, || format!("RUNS as pid {pid} under token {token}"));
                e.judge.runs(child, &token, process.covered, e.now);
                process.stage = Stage::Runs { token };
                process.may_exit(child, habits, e);
            }
            Role::Standby => {
                e.note(self.who, || format!("pid {pid} stands by"));
                e.judge.gone(self.who, pid);
                process.stage = Stage::Stands;
            }
        }
        Some(role)
    }
}
