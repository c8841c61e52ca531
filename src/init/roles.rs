//! Tells a workload that runs everywhere or is continued its role: by signal and NOTIFY_SOCKET (law 8, 15).

use super::event_loop::EventLoop;
use crate::{
    process::{
        Pid, kill,
        notify::Mark,
        spawn::{self, RoleSignal, Spawning},
    },
    role::Role,
    supervision::Order,
    words::one_line,
};

impl EventLoop {
    /// Tells the workload its role; returns the child that does so, if one is needed. An error is the reason why it was not told.
    pub(super) fn tell_role(&mut self, order: Order) -> Result<Option<Spawning>, String> {
        match order {
            Order::Mark(number) => {
                let marked = self.notifications.mark(number).map_or(Ok(()), Mark::set);
                marked.map(|()| None).map_err(|error| format!("NOTIFY_SOCKET cannot be marked: {error}"))
            }
            Order::Signal { pid, role, signal, not_after, mark, until_taken } => {
                let pid = Pid::from_raw(pid);
                let key = match role {
                    Role::Leader => "signals.onLead",
                    Role::Standby => "signals.onFollow",
                };
                // Without a handler the signal would end the main process, and the rest would run on as a leader's.
                if role == Role::Standby && !spawn::handles(pid, signal) {
                    return Err(format!("the workload does not handle {key} ({}) and is killed", signal.name()));
                }
                if not_after.is_none() && !until_taken {
                    let sent = kill::send(pid, signal);
                    return sent.map(|()| None).map_err(|error| format!("the workload cannot be told {key}: {error}"));
                }
                // A notification proves that the signal was received. Without one, the child waits for that.
                let mark = mark.and_then(|number| self.notifications.mark(number));
                let child = RoleSignal { pid, signal, not_after, mark, until_taken }.spawn();
                child.map(Some).map_err(|error| format!("the workload cannot be told {key}: {}", one_line(&error)))
            }
            Order::Resume { not_after } => {
                let pids = self.stopped(false).ok_or("the workload is not frozen any more, and does not lead")?;
                self.foreground.hand_over(self.processes.main());
                let child = spawn::resume(&pids, not_after);
                child.map(Some).map_err(|error| format!("the workload cannot be continued: {}", one_line(&error)))
            }
        }
    }
}
