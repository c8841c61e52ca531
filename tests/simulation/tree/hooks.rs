//! The hooks around a change of role, and the probes of a leader. Each counts as a leader's code while it runs, and may hang or
//! fail at any point.

use tenure::{config::HookKind, law, link::Exit, role::Role, time::Instant};

use super::{Process, Stage, Tree, manner};
use crate::{
    clock::{Clock, MS},
    engine::{Child, Engine, Event},
    plan::Habits,
};

/// The longest run time of one.
const LONGEST: u64 = 200 * MS;

/// Its task: to tell `workload` its role in the term of `token`, or to ask it how it is.
#[derive(Clone, Debug)]
pub struct Hook {
    /// None: a probe.
    pub kind: Option<HookKind>,
    pub workload: i32,
    pub token: String,
    pub not_after: Instant,
    /// True if the hook tells the workload its role, and vouches for its answer.
    pub tells: bool,
    /// True for a hook of a leader.
    pub leads: bool,
    /// A probe's answer is no good one.
    pub ill: bool,
}

impl Tree {
    /// Forks one.
    pub fn fork_hook(&mut self, hook: Hook, covered: bool, habits: &Habits, e: &mut Engine) -> i32 {
        let manner = super::Manner { main: false, breeds: false, obeys_in: None, ..manner(habits, e) };
        self.add(Stage::Hooks(hook), manner, covered, habits, e)
    }

    /// Returns whether nothing is left in the process group of a hook or probe that has ended.
    pub fn is_group_gone(&self, pid: i32) -> bool {
        !self.processes.iter().any(|process| process.group == Some(pid))
    }

    /// Starts the work of a hook or probe.
    pub(super) fn hooks(&mut self, index: usize, clock: Clock, habits: &Habits, e: &mut Engine) {
        let Some(Process { pid, stage, covered, .. }) = self.processes.get_mut(index) else { return };
        let (pid, covered) = (*pid, *covered);
        let Stage::Hooks(Hook { kind, workload, token, not_after, tells, leads, ill }) = stage else { return };
        let (kind, workload, token, told, leads, ill) = (*kind, *workload, token.clone(), *tells, *leads, *ill);
        if law::is_over(*not_after, clock.boot(e.now)) {
            *stage = Stage::Zombie(Exit::Code(126));
            return e.note(self.who, || format!("pid {pid} comes too late to run"));
        }
        e.note(self.who, || format!("RUNS {} as pid {pid} under token {token}", kind.map_or("a probe", HookKind::as_str)));
        let child = Child { who: self.who, pid };
        if leads {
            e.judge.runs(child, &token, covered, e.now);
        }
        if e.chance(habits.leaves) {
            self.daemon(Some(&*token).filter(|_| leads), covered, habits, e);
            // What left the group is the workload's business, where that is not killed, and would not be frozen.
            let stays = habits.freezes || told || e.rng.bool();
            self.processes.last_mut().into_iter().for_each(|daemon| daemon.group = stays.then_some(pid));
        }
        let ends = !e.chance(habits.hangs);
        let exit = Exit::Code(u8::from(e.chance(habits.hangs) || ill));
        // One that ends badly may have done its work all the same.
        let tells = ends && exit == Exit::Code(0) || e.chance(0.5);
        if kind == Some(HookKind::AfterLead) && tells && told {
            self.order(workload, Role::Leader, &token, habits, e);
        }
        let at = e.now + e.spread(MS, LONGEST);
        if let Some(process) = self.processes.get_mut(index).filter(|process| ends && !process.killed) {
            process.ends = Some((at, exit));
            e.at(at, Event::Ends(child));
        }
    }

    /// Lets a hook that ends well vouch that the workload stands by.
    pub(super) fn succeeds(&mut self, index: usize, exit: Exit, e: &mut Engine) {
        let Process { stage: Stage::Hooks(Hook { kind: Some(HookKind::BeforeFollow), workload, tells: true, .. }), .. } =
            &self.processes[index]
        else {
            return;
        };
        let workload = *workload;
        let Some(process) = self.processes.iter_mut().find(|process| process.pid == workload && exit == Exit::Code(0)) else {
            return;
        };
        if let Stage::Runs { .. } = process.stage {
            e.judge.gone(self.who, workload);
            e.note(self.who, || format!("pid {workload} stands by"));
            process.stage = Stage::Stands;
        }
        process.orders.clear();
    }
}
