//! PID 1: the loop that owns the workload, its deadlines and the signals. No network.
//!
//! Does what the [`Agent`](crate::supervision::Agent) decides. One thread, one poll(2) over signals, one absolute CLOCK_BOOTTIME
//! timer, the link to the elector, NOTIFY_SOCKET and the children that are about to execute. Nothing in it waits: not for
//! standard error, not for the elector, not for a child.
//!
//! - [`drive`] is the loop, [`deeds`] carries the actions out.
//! - [`elector`] starts the elector and speaks to it; [`programs`] knows the workload and the hooks, and what they are told.
//! - [`hooks`] sees to it that a hook ends as a whole; [`fuses`] has the kernel kill at H where neither init nor the elector runs.
//! - [`proof`] kills and looks who is left; [`log`] and [`identity`] say what their names say.

use crate::{
    config::{Acknowledge, Config},
    exit,
    process::{
        Pid, memory,
        notify::NotifySocket,
        signals::{self, Inherited},
        slice,
        terminal::Terminal,
    },
    supervision::Settings,
};

use self::{drive::Drive, log::Log, programs::Programs};

mod deeds;
mod drive;
mod elector;
mod fuses;
mod hooks;
mod identity;
mod log;
mod programs;
mod proof;

/// Runs the workload by `config` until it is over; the exit code.
#[must_use]
pub fn run(config: Config) -> u8 {
    let mut log = Log::new(config.log.clone());
    match prepare(config, &mut log) {
        Ok((drive, settings)) => drive.run(settings, log),
        Err((code, why)) => {
            log.last_words(&why);
            code
        }
    }
}

fn prepare(config: Config, log: &mut Log) -> Result<(Drive, Settings), (u8, String)> {
    let system = |what: &str, why: &dyn std::fmt::Display| (exit::INTERNAL, format!("{what}: {why}"));
    let inherited: Inherited = signals::block().map_err(|error| system("the signals cannot be blocked", &error))?;
    let pid1 = Pid::this().as_raw() == 1;
    if !pid1 {
        adopt(config.lease.enabled, log);
    }
    let mut identity = String::new();
    if config.lease.enabled {
        let pod_name = std::env::var("POD_NAME").ok();
        identity = identity::full(&config, pod_name).map_err(|error| (error.exit_code(), error.to_string()))?;
        // Refused by older kernels and some containers; it only makes wake-ups rarer late.
        drop(slice::shorten());
    }
    let notify = (config.lease.enabled && config.workload.acknowledge == Some(Acknowledge::Notify))
        .then(NotifySocket::open)
        .transpose()
        .map_err(|error| system("NOTIFY_SOCKET cannot be made", &error))?;
    let address = notify.as_ref().map(NotifySocket::address);
    let programs = Programs::find(&config, std::env::vars_os(), &identity, address)
        .map_err(|error| (error.exit_code(), error.to_string()))?;
    let terminal = Terminal::of_stdin();
    let settings = Settings { config, identity, pid1, terminal: terminal.is_some() };
    let drive = Drive::new(inherited, programs, notify, terminal, &settings)
        .map_err(|error| system("signals and timers cannot be awaited", &error))?;
    if settings.config.lease.enabled {
        memory::forget_start();
        memory::keep_what_is_used();
    }
    Ok((drive, settings))
}

/// Where init is not PID 1, orphans of the workload become its children all the same.
fn adopt(guards: bool, log: &mut Log) {
    let adopted = nix::sys::prctl::set_child_subreaper(true);
    if !guards {
        return;
    }
    let weaker = "not PID 1: the workload's processes are found and killed one by one, not by the kernel as a whole, so that the \
                  guarantee is weaker; make tenure the entrypoint of the container";
    log.line(log::Level::Warn, weaker);
    if let Err(errno) = adopted {
        log.line(log::Level::Warn, &format!("orphans of the workload cannot be adopted: {errno}"));
    }
}
