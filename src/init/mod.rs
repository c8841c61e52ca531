//! PID 1: the loop that owns the workload, its deadlines and the signals. No network.
//!
//! Does what the [`Agent`] decides. One thread, one poll(2) over signals, one absolute CLOCK_BOOTTIME timer, the link to the
//! elector, NOTIFY_SOCKET and the children that are about to execute. Nothing in it waits for standard error, for the elector or
//! for the workload. What it cannot avoid waiting for is bounded: a fork, a walk through /proc, a millisecond to see that a
//! signal is blocked before a demotion, two hundred for a fuse and half a second for all of them together.
//!
//! - [`event_loop`] is the loop, and [`timer`] what ends its sleep; [`actions`] carries the actions out, [`roles`] those that tell
//!   a running workload its role.
//! - [`elector`] starts the elector and speaks to it; [`processes`] are the workload, its hooks and its probes, [`programs`] what
//!   they are started from and told; [`foreground`] is their terminal.
//! - [`helpers`] makes sure that a hook or probe ends as a whole, and [`prints`] logs what hooks print; [`fuses`] has the kernel kill at H if neither init nor the elector runs.
//! - [`proof`] kills and scans for what is left; [`log`] and [`identity`] are what their names say.

use std::{error::Error, fmt::Display};

use crate::{
    api::Cluster,
    cli::Run,
    clock,
    config::{self, Config, LogFormat, Preset, Purpose},
    exit,
    process::{
        Pid, memory,
        notify::NotifySocket,
        scan::{HIDES, Scanner},
        signals::{self, Inherited, Signals},
        slice,
        sockets::Sockets,
        terminal::Terminal,
    },
    stderr::{StderrLog, write_termination_message},
    supervision::{Agent, AgentConfig},
    term_page::TermPage,
    words::one_line,
};

use self::{event_loop::EventLoop, log::Log, prints::Prints, programs::Programs, timer::Timer};

mod actions;
mod elector;
mod event_loop;
mod foreground;
mod fuses;
mod helpers;
mod identity;
mod log;
mod prints;
mod processes;
mod programs;
mod proof;
mod roles;
mod timer;

/// Reads the configuration, once and for all, and runs the workload; returns the exit code.
#[must_use]
pub fn start(arguments: &Run) -> u8 {
    match config::load(&arguments.flags, &arguments.command, Purpose::Run) {
        Ok(loaded) => {
            let mut log = Log::new(loaded.config.log.clone());
            for note in &loaded.notes {
                log.warn(note);
            }
            run_with(loaded.config, loaded.preset, log)
        }
        Err(invalid) => {
            let words = format!("tenure: {invalid}\n");
            StderrLog::new(LogFormat::Text).write(words.as_bytes());
            write_termination_message(&words);
            exit::INVALID
        }
    }
}

/// Runs the workload by `config` until it is over; returns the exit code.
#[must_use]
pub fn run(config: Config) -> u8 {
    let log = Log::new(config.log.clone());
    run_with(config, Preset::Run, log)
}

fn run_with(config: Config, preset: Preset, mut log: Log) -> u8 {
    match prepare(config, preset, &mut log) {
        Ok((prepared, config)) => {
            let event_loop = EventLoop::new(prepared, &config, log);
            if config.config.lease.enabled {
                memory::forget_start();
                memory::keep_what_is_used();
            }
            event_loop.run(Agent::new(config))
        }
        Err(Unprepared { code, why }) => {
            log.termination_message(&why);
            code
        }
    }
}

/// What init holds from its start to its end.
struct Prepared {
    inherited: Inherited,
    signals: Signals,
    timer: Timer,
    programs: Programs,
    prints: Vec<Prints>,
    page: Option<TermPage>,
    notify: Option<NotifySocket>,
    terminal: Option<Terminal>,
}

/// Why there is nothing to run.
struct Unprepared {
    code: u8,
    why: String,
}

impl Unprepared {
    fn new(code: u8, why: &(dyn Error + 'static)) -> Self {
        Self { code, why: one_line(why) }
    }

    /// The system denies what init cannot do without.
    fn system(what: &str, why: &dyn Display) -> Self {
        Self { code: exit::INTERNAL, why: format!("{what}: {why}") }
    }
}

fn prepare(mut config: Config, preset: Preset, log: &mut Log) -> Result<(Prepared, AgentConfig), Unprepared> {
    let began = clock::boot();
    let guards = config.lease.enabled;
    let mut context = None;
    if guards {
        let cluster = Cluster::discover().map_err(|error| Unprepared::new(error.exit_code(), &error))?;
        context = cluster.context();
        if config.lease.namespace.is_empty() {
            // The workload is told it too.
            let namespace = cluster.namespace().map_err(|error| Unprepared::new(error.exit_code(), &error))?;
            config.lease.namespace = namespace.into();
        }
        if preset != Preset::Run && programs::leads_already(&config, |name| std::env::var(name).ok()) {
            let why = format!(
                "the Lease {} is already held by the tenure that runs this: it would be waited for in vain",
                config.lease.name
            );
            return Err(Unprepared { code: exit::INVALID, why });
        }
    }
    let mut inherited = signals::block().map_err(|error| Unprepared::system("the signals cannot be blocked", &error))?;
    let pid1 = Pid::this().as_raw() == 1;
    if !pid1 {
        adopt(guards, log)?;
    }
    if guards {
        see(pid1)?;
    }
    let mut identity = String::new();
    if guards {
        let pod_name = std::env::var("POD_NAME").ok();
        identity = identity::full(&config, pod_name).map_err(|error| Unprepared::new(error.exit_code(), &error))?;
        inherited.raise_descriptors(fuses::DESCRIPTORS);
        // Refused by older kernels and some containers; it only makes late wake-ups rarer.
        drop(slice::shorten());
    }
    let notify = (guards && config.workload.notifies())
        .then(|| NotifySocket::open(config.workload.notify_access))
        .transpose()
        .map_err(|error| Unprepared::system("NOTIFY_SOCKET cannot be made", &error))?;
    let address = notify.as_ref().map(NotifySocket::address);
    let mut programs = Programs::find(&config, std::env::vars_os(), &identity, address)
        .map_err(|error| Unprepared::new(error.exit_code(), &error))?;
    let sockets = Sockets::inherited(|name| std::env::var(name).ok());
    if let Some(sockets) = sockets.map_err(|error| Unprepared::new(exit::INVALID, &error))? {
        programs.hand(sockets);
    }
    let page = if guards { term_page(log) } else { None };
    if let Some(page) = &page {
        programs.give(page.number());
    }
    let hooks = guards.then_some(&config.hooks);
    let prints = hooks.map_or(Ok(Vec::new()), Prints::of);
    let prints = prints.map_err(|errno| Unprepared::system("what hooks print cannot be read", &errno))?;
    let signals = Signals::open().map_err(|error| Unprepared::system("signals cannot be awaited", &error))?;
    let timer = Timer::open().map_err(|error| Unprepared::system("deadlines cannot be awaited", &error))?;
    let terminal = Terminal::of_stdin();
    // Whatever standard input is, a key may end the workload: it is lent the terminal once it asks for it.
    let config = AgentConfig { config, preset, began, identity, context, pid1, terminal: Terminal::is_there() };
    Ok((Prepared { inherited, signals, timer, programs, prints, page, notify, terminal }, config))
}

/// An extra for the workload, which can do without: its variable is not set then.
fn term_page(log: &mut Log) -> Option<TermPage> {
    let why = |error| log.warn(&format!("there is no TENURE_TERM_FD: {}", one_line(&error)));
    TermPage::create().map_err(why).ok()
}

/// What cannot be seen cannot be proved gone, and no Lease would ever be given back (law 8).
fn see(pid1: bool) -> Result<(), Unprepared> {
    let scanner = Scanner::open().map_err(|error| Unprepared::new(exit::INTERNAL, &error))?;
    if pid1 && scanner.is_partial() {
        return Err(Unprepared::system("no end of the workload could be proved", &HIDES));
    }
    Ok(())
}

/// Adopts the orphans of the workload where init is not PID 1.
fn adopt(guards: bool, log: &mut Log) -> Result<(), Unprepared> {
    let adopted = nix::sys::prctl::set_child_subreaper(true);
    if !guards {
        return Ok(());
    }
    // Whatever daemonised itself would be nobody's here, and no proof would miss it (law 8).
    adopted.map_err(|errno| Unprepared::system("orphans of the workload cannot be adopted, so make tenure PID 1", &errno))?;
    let weaker = "not PID 1: the workload's processes are found and killed one by one, not by the kernel as a whole, so that the \
                  guarantee is weaker; make tenure the entrypoint of the container";
    log.warn(weaker);
    Ok(())
}
