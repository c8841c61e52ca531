//! The hooks around a change of role, and the probes of a leader. Each counts as a leader's code while it runs, and may hang or
//! fail at any point.

use tenure::{config::HookKind, law::is_over, link::Exit, role::Role, time::Instant};

use super::{Errand, Habits, Part, Stage, Tree};
use crate::{
    clock::MS,
    scene::{Child, Due, Observer, Scene},
};

/// The longest run time of one.
const LONGEST: u64 = 200 * MS;

/// Its task: to tell `workload` its role in the term of `token`, or to ask it how it is.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Hook {
    /// None: a probe.
    pub kind: Option<HookKind>,
    pub workload: i32,
    pub token: u64,
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
    pub fn fork_hook(&mut self, hook: Hook, covered: bool, habits: &Habits, e: &mut impl Scene) -> i32 {
        self.assign(Part::Hook, Errand::Hook(hook), covered, habits, e)
    }

    /// Returns whether nothing is left in the process group of a hook or probe that has ended.
    pub fn is_group_gone(&self, pid: i32) -> bool {
        !self.processes.iter().any(|process| process.group == Some(pid))
    }

    /// Starts the work of a hook or probe.
    pub(super) fn hooks(&mut self, pid: i32, hook: Hook, now: Instant, habits: &Habits, e: &mut impl Scene) {
        let Hook { kind, workload, token, not_after, tells: told, leads, ill } = hook;
        if is_over(not_after, now) {
            self.becomes(pid, Stage::Zombie(Exit::Code(126)));
            return e.note(self.who, || format!("pid {pid} comes too late to run"));
        }
        self.becomes(pid, Stage::Hooks(hook));
        e.note(self.who, || format!("RUNS {} as pid {pid} under token {token}", kind.map_or("a probe", HookKind::as_str)));
        let covered = self.find(pid).is_some_and(|process| process.covered);
        if leads {
            self.leads(pid, token, e);
        }
        if e.chance(habits.leaves) {
            self.daemon(Part::Daemon, leads.then_some(token), covered, habits, e);
            // What left the group is the workload's business, where that is not killed, and would not be frozen.
            let stays = habits.freezes || told || e.coin();
            if let Some(daemon) = self.processes.last_mut() {
                daemon.group = stays.then_some(pid);
            }
        }
        let ends = !e.chance(habits.hangs);
        let exit = Exit::Code(u8::from(e.chance(habits.hangs) || ill));
        // One that ends badly may have done its work all the same.
        let tells = ends && exit == Exit::Code(0) || e.chance(0.5);
        if kind == Some(HookKind::AfterLead) && tells && told {
            self.order(workload, Role::Leader, token, habits, e);
        }
        let span = e.spread(MS, LONGEST);
        let at = e.after(span);
        let child = Child { who: self.who, pid };
        if let Some(process) = self.find_mut(pid).filter(|process| ends && !process.killed) {
            process.ends = Some((at, exit));
            e.schedule(at, Due::Ends(child));
        }
    }

    /// Lets a hook that ends well vouch that the workload stands by.
    pub(super) fn succeeds(&mut self, pid: i32, exit: Exit, e: &mut impl Scene) {
        let Some(Stage::Hooks(hook)) = self.find(pid).map(|process| &process.stage) else { return };
        if hook.kind != Some(HookKind::BeforeFollow) || !hook.tells || exit != Exit::Code(0) {
            return;
        }
        let (workload, who) = (hook.workload, self.who);
        let Some(process) = self.find_mut(workload) else { return };
        if let Stage::Runs(_) = process.stage {
            e.judge().gone(Child { who, pid: workload });
            e.note(who, || format!("pid {workload} stands by"));
            process.stage = Stage::Stands;
        }
        process.orders.clear();
    }
}
