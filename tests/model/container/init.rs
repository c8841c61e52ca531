//! The world of init's turn: what its calls do, and what they find.

use tenure::{
    config::Signal,
    link::{Exit, InitialState, ToElector, ToInit},
    notification::Notification,
    role::Role,
    supervision::{
        self, Dead, Ended, Heard, HelperKind, LinkBroken, NotSpawned, Order, Program, Scan, Started, Target, TermStatus,
    },
    time::Instant,
};

use super::{Around, Container, Word};
use crate::{
    elector::ElectorProcess,
    tree::{Hook, Killer},
};

/// Init, while it takes a step.
pub struct Init<'a, 'b> {
    pub container: &'a mut Container,
    pub around: &'a mut Around<'b>,
}

impl Init<'_, '_> {
    fn kill_tree(&mut self) -> bool {
        self.container.tree.kill(Killer::All, &self.around.setup.habits(), self.around)
    }
}

impl supervision::Container for Init<'_, '_> {
    fn now(&self) -> Instant {
        self.around.boot()
    }

    fn fuse_fired(&mut self) -> bool {
        std::mem::take(&mut self.container.fired)
    }

    fn lives(&mut self) -> bool {
        self.container.tree.is_any_alive()
    }

    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>> {
        let elector = self.container.elector.as_mut()?;
        let Some(message) = elector.to_init.pop_front() else { return elector.is_dead.then_some(Err(LinkBroken)) };
        if let ToInit::Lead { info, .. } = &message {
            self.container.token = info.token.parse().unwrap_or_default();
        }
        self.around.judge.lawful(|law| law.init_hears(self.container.who, &message));
        Some(Ok(message))
    }

    fn signal(&mut self) -> Option<i32> {
        self.container.signals.pop_front()
    }

    fn dead(&mut self) -> Dead {
        let dead = self.container.undead.first().copied().or_else(|| self.container.tree.zombie());
        dead.map_or(Dead::Nobody, Dead::Process)
    }

    fn reap(&mut self, pid: i32) -> Option<Ended> {
        let container = &mut *self.container;
        if let Some(index) = container.undead.iter().position(|undead| *undead == pid) {
            container.undead.remove(index);
            return Some(Ended { exit: Exit::Signal(libc::SIGKILL), started: Some(Ok(())) });
        }
        let exit = container.tree.reap(pid)?;
        container.teller.take_if(|(teller, _)| *teller == pid);
        let is_main = container.main.take_if(|main| *main == pid).is_some();
        Some(Ended { exit, started: if is_main { container.spawned.take() } else { Some(Ok(())) } })
    }

    fn started(&mut self) -> Option<Started> {
        self.container.spawned.take()
    }

    // What a hook leaves behind leaves its group too.
    fn is_group_gone(&mut self, _: i32) -> bool {
        true
    }

    fn heard(&mut self) -> Option<Heard> {
        Some(match self.container.words.pop_front()? {
            Word::Mark(number) => Heard::Marked(number),
            Word::Said(said) => Heard::Said(vec![said]),
        })
    }

    fn start_elector(&mut self, initial: InitialState) -> Result<i32, NotSpawned> {
        let pid = self.container.tree.pid();
        self.around.judge.lawful(|law| law.next_elector(self.container.who, &initial));
        self.container.elector = Some(ElectorProcess::start(pid, initial));
        Ok(pid)
    }

    fn kill_elector(&mut self) {
        if let Some(elector) = &mut self.container.elector {
            elector.die();
            self.container.undead.push(elector.pid);
        }
    }

    fn close_link(&mut self) {
        self.container.elector = None;
    }

    fn send(&mut self, message: ToElector) {
        if self.container.elector.is_some() {
            self.around.judge.lawful(|law| law.init_says(self.container.who, &message));
        }
        // Only people want to know how long a hook took.
        let is_told = !matches!(message, ToElector::Hooked { .. });
        if let Some(elector) = self.container.elector.as_mut().filter(|elector| is_told && !elector.is_dead) {
            elector.to_elector.push_back(message);
        }
    }

    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned> {
        let Self { container, around } = self;
        let habits = around.setup.habits();
        let Program { helper, not_after, fused, .. } = program;
        Ok(match helper {
            None => {
                // What another one has said is not believed once that is gone.
                container.words.retain(|word| !matches!(word, Word::Said(said) if !matches!(said, Notification::Role(_))));
                container.unready = false;
                let lead = fused.then_some((container.token, not_after));
                let pid = container.tree.fork(lead, false, &habits, *around);
                container.main = Some(pid);
                pid
            }
            Some(HelperKind::Hook(_)) => {
                let token = if fused { container.token } else { 0 };
                let hook = Hook { kind: None, workload: 0, token, not_after, tells: false, leads: fused, ill: false };
                container.tree.fork_hook(hook, false, &habits, *around)
            }
            Some(HelperKind::Probe(_)) => return Err(NotSpawned::Unavailable { message: "nobody asks".into() }),
        })
    }

    fn tell(&mut self, order: Order) -> Result<Option<i32>, String> {
        let Self { container, around } = self;
        let (token, habits) = (container.token, around.setup.habits());
        let (child, mark) = match order {
            Order::Mark(number) => {
                container.words.push_back(Word::Mark(number));
                return Ok(None);
            }
            Order::Signal { pid, not_after: Some(not_after), mark, .. } => {
                (container.tree.promote(pid, token, not_after, &habits, *around), mark)
            }
            Order::Signal { pid, not_after: None, mark, until_taken: true, .. } => {
                (container.tree.demote(pid, &habits, *around), mark)
            }
            Order::Signal { pid, not_after: None, .. } => {
                container.tree.order(pid, Role::Standby, 0, &habits, *around);
                return Ok(None);
            }
            Order::Resume { not_after } => {
                let left = container.tree.frozen(false, &habits, *around).ok_or("it is not frozen any more")?;
                (container.tree.resume(left, token, not_after, &habits, *around), None)
            }
        };
        container.teller = Some((child, mark));
        Ok(Some(child))
    }

    fn kill(&mut self, target: Target, signal: Signal) -> bool {
        let Self { container, around } = self;
        let (Target::Main(pid) | Target::Group(pid)) = target;
        if signal.0 == libc::SIGKILL {
            container.tree.kill_group(pid, *around);
        } else {
            container.tree.ask(pid, signal.0, *around);
        }
        true
    }

    // Only a plain init does that.
    fn wake(&mut self, _: Target) {}

    fn frozen(&mut self, stop: bool) -> bool {
        self.container.tree.frozen(stop, &self.around.setup.habits(), self.around).is_some()
    }

    fn scan(&mut self, kill: bool) -> Scan {
        let killed = kill && self.kill_tree();
        self.container.tree.scan(killed)
    }

    fn kill_all(&mut self) {
        if let Some(elector) = &mut self.container.elector {
            elector.die();
        }
        self.kill_tree();
    }

    fn follow_hard(&mut self, hard: Option<Instant>) {
        self.container.fuse = hard.filter(|_| self.container.has_fuse);
    }

    fn publish(&mut self, _: TermStatus) {}

    fn say(&mut self, _: String) {}

    fn last_words(&mut self, _: &str, _: u8) {}

    fn die(&mut self) {
        self.container.end(self.around);
    }
}
