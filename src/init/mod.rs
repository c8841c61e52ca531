//! PID 1: the loop that owns the workload, its deadlines and the signals. No network.
//!
//! Carries out the decisions of the [`Agent`](crate::supervision::Agent). One thread, and one poll(2) over signals, an absolute
//! alarm, the link to the elector, NOTIFY_SOCKET, and the children that are about to execute. It never waits for
//! standard error, for the elector or for the workload. All waits have a limit: a fork, a walk through /proc, 10 ms to see
//! that a signal is blocked before a demotion, 200 ms for a fuse, and 500 ms for a pass over all fuses.
//!
//! - [`event_loop`] is the loop, and [`Alarm`] ends its sleep. [`Turn`] gives the order of steps, and acts through [`container`],
//!   which also tells a running workload its role.
//! - [`elector`] starts the elector and speaks to it. [`processes`] holds the workload, its hooks and its probes, [`programs`]
//!   their commands and environments, and [`foreground`] their terminal.
//! - [`notifications`] reads NOTIFY_SOCKET, and [`hook_output`] logs the output of hooks. [`fuses`] lets the kernel kill at H if
//!   neither init nor the elector runs.
//! - [`proof`] kills by scans of the processes that are left, and [`container`] by kill(-1). [`log`] writes init's lines, and
//!   [`identity`] names this replica.

use std::{error::Error, fmt::Display, fs, os::unix::fs::FileTypeExt as _, path::Path};

use nix::errno::Errno;

use crate::{
    alarm::Alarm,
    api::Cluster,
    cli::{ClusterFlags, Run},
    clock,
    config::{Config, LogFormat, Preset, Signals},
    exit,
    loading::{self, Purpose},
    process::{
        Pid,
        mask::Mask,
        memory,
        notify::NotifySocket,
        reap,
        scan::{HIDES, Scanner},
        signals::{self, Inherited},
        slice,
        sockets::Sockets,
        terminal::Terminal,
    },
    stderr::{StderrLog, write_termination_message},
    supervision::{AgentConfig, Turn},
    term_page::TermPage,
    words::one_line,
};

use self::{event_loop::EventLoop, hook_output::HookOutput, log::Log, programs::Programs};

pub(crate) use self::identity::{UNFIT, base};

mod container;
mod elector;
mod event_loop;
mod foreground;
mod fuses;
mod hook_output;
mod identity;
mod log;
mod notifications;
mod processes;
mod programs;
mod proof;

/// Reads the configuration, for the only time, and runs the workload; returns the exit code.
pub fn start(arguments: &Run) -> u8 {
    match loading::load(&arguments.flags, &arguments.command, Purpose::Run) {
        Ok(loaded) => {
            let mut log = Log::new(loaded.config.log.clone());
            for note in &loaded.notes {
                log.warn(note);
            }
            run_with(loaded.config, loaded.preset, &arguments.flags.cluster, log)
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
pub fn run(config: Config) -> u8 {
    let log = Log::new(config.log.clone());
    run_with(config, Preset::Run, &ClusterFlags::default(), log)
}

fn run_with(config: Config, preset: Preset, cluster: &ClusterFlags, mut log: Log) -> u8 {
    match prepare(config, preset, cluster, &mut log) {
        Ok((prepared, config)) => {
            let event_loop = EventLoop::new(prepared, &config.config, config.pid1, log);
            if config.config.lease.enabled {
                memory::forget_start();
                memory::keep_what_is_used();
            }
            event_loop.run(Turn::new(config, fastrand::u64(..)))
        }
        Err(Unprepared { code, why }) => {
            log.termination_message(&why, code);
            code
        }
    }
}

/// The resources that init holds from its start to its end.
struct Prepared {
    inherited: Inherited,
    signals: signals::Signals,
    alarm: Alarm,
    programs: Programs,
    hook_output: Vec<HookOutput>,
    page: Option<TermPage>,
    notify: Option<NotifySocket>,
    terminal: Option<Terminal>,
}

/// The reason why nothing can be run.
#[derive(Debug)]
struct Unprepared {
    code: u8,
    why: String,
}

impl Unprepared {
    fn new(code: u8, why: &(dyn Error + 'static)) -> Self {
        Self { code, why: one_line(why) }
    }

    /// An error of a system call that init cannot do without.
    fn system(what: &str, why: &dyn Display) -> Self {
        Self { code: exit::INTERNAL, why: format!("{what}: {why}") }
    }
}

fn prepare(
    mut config: Config,
    preset: Preset,
    which: &ClusterFlags,
    log: &mut Log,
) -> Result<(Prepared, AgentConfig), Unprepared> {
    let began = clock::boot();
    let guards = config.lease.enabled;
    let mut context = None;
    if guards {
        memory::close_to_others();
        let cluster = Cluster::discover(which.kubeconfig.as_deref(), which.context.as_deref());
        let cluster = cluster.map_err(|error| Unprepared::new(error.exit_code(), &error))?;
        context = cluster.context();
        if let Some(pipe) = context.iter().flat_map(|context| &context.files).find(|file| is_gone_once_read(file)) {
            let why = format!(
                "cannot use the kubeconfig {}: each elector reads it again, and only tenure has it: write it to a file",
                pipe.display()
            );
            return Err(Unprepared { code: exit::INVALID, why });
        }
        if config.lease.namespace.is_empty() {
            // The workload is told the namespace too.
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
    // A plain init changes nothing of what it was started with.
    if config.lease.enabled {
        inherited.sent = sent(&config);
    }
    let pid1 = Pid::this().as_raw() == 1;
    check_permission()?;
    if !pid1 {
        adopt(guards, is_for_a_pod(&preset), log)?;
    }
    if guards {
        check_sight(pid1)?;
    }
    let mut identity = String::new();
    if guards {
        let pod_name = std::env::var("POD_NAME").ok();
        identity = identity::full(&config, pod_name)?;
        inherited.raise_descriptors(fuses::DESCRIPTORS);
        // Refused by older kernels and some containers; it only makes late wake-ups rarer.
        let _ = slice::shorten();
    }
    let notify = (guards && config.workload.notifies())
        .then(|| NotifySocket::open(config.workload.notify_access))
        .transpose()
        .map_err(|error| Unprepared::system("NOTIFY_SOCKET cannot be made", &error))?;
    let address = notify.as_ref().map(NotifySocket::address);
    let mut programs = Programs::find(&config, std::env::vars_os(), &identity, address)?;
    let sockets = Sockets::inherited(|name| std::env::var(name).ok());
    if let Some(sockets) = sockets.map_err(|why| Unprepared { code: exit::INVALID, why })? {
        programs.hand(sockets);
    }
    let page = if guards { term_page(log) } else { None };
    if let Some(page) = &page {
        programs.give(page.number());
    }
    let hooks = guards.then_some(&config.hooks);
    let hook_output = hooks.map_or(Ok(Vec::new()), HookOutput::of);
    let hook_output = hook_output.map_err(|errno| Unprepared::system("what hooks print cannot be read", &errno))?;
    let signals = signals::Signals::open().map_err(|error| Unprepared::system("signals cannot be awaited", &error))?;
    let alarm = Alarm::nonblocking().map_err(|error| Unprepared::system("deadlines cannot be awaited", &error))?;
    let terminal = Terminal::of_streams();
    // Even without a terminal as standard input and output, a key may end the workload, because it is lent the terminal once it
    // asks for it.
    let config = AgentConfig { config: config.into(), preset, began, identity, context, pid1, terminal: Terminal::is_there() };
    Ok((Prepared { inherited, signals, alarm, programs, hook_output, page, notify, terminal }, config))
}

/// Makes the page. Without one the workload runs all the same, and its variable is not set.
fn term_page(log: &mut Log) -> Option<TermPage> {
    let why = |error| log.warn(&format!("there is no TENURE_TERM_FD: {}", one_line(&error)));
    TermPage::create().map_err(why).ok()
}

/// A pipe, or what another process has not open.
fn is_gone_once_read(file: &Path) -> bool {
    let is_own = ["/dev/stdin", "/dev/fd", "/proc/self", "/proc/thread-self"].iter().any(|own| file.starts_with(own));
    is_own || fs::metadata(file).is_ok_and(|file| file.file_type().is_fifo())
}

/// Checks that /proc shows all processes. Otherwise nothing could be proved gone, and no Lease be given back (law 8).
fn check_sight(pid1: bool) -> Result<(), Unprepared> {
    let scanner = Scanner::open().map_err(|error| Unprepared::new(exit::INTERNAL, &error))?;
    if pid1 && scanner.is_partial() {
        return Err(Unprepared::system("no end of the workload could be proved", &HIDES));
    }
    Ok(())
}

/// Returns the signals that tenure sends by itself, beside those that it passes on.
fn sent(config: &Config) -> Mask {
    let Signals { on_lead, on_follow, rewrite } = &config.signals;
    let rewritten = rewrite.leader.values().chain(rewrite.standby.values()).copied();
    let all = rewritten.chain([*on_lead, *on_follow, Some(config.workload.stop.signal)]).flatten();
    all.fold(Mask::NONE, |sent, signal| sent.with(signal.0))
}

/// Checks that a seccomp profile does not deny waitid and kill, without which init would run for ever.
fn check_permission() -> Result<(), Unprepared> {
    let denied = |what| move |errno: Errno| Unprepared::system(what, &errno.desc());
    if let Err(errno) = reap::peek()
        && errno != Errno::ECHILD
    {
        return Err(denied("children cannot be reaped (waitid)")(errno));
    }
    nix::sys::signal::kill(Pid::this(), None).map_err(denied("no process can be signalled (kill)"))
}

/// Makes init the parent of the workload's orphans, if it is not PID 1.
fn adopt(guards: bool, warns: bool, log: &mut Log) -> Result<(), Unprepared> {
    let adopted = nix::sys::prctl::set_child_subreaper(true);
    if !guards {
        return Ok(());
    }
    // Otherwise a process that daemonised itself would not be a descendant of init, and a proof would miss it (law 8).
    adopted.map_err(|errno| Unprepared::system("orphans of the workload cannot be adopted, so make tenure PID 1", &errno))?;
    let weaker = "not PID 1: the workload's processes are found and killed one by one, not by the kernel as a whole, so that the \
                  guarantee is weaker; make tenure the entrypoint of the container";
    if warns {
        log.warn(weaker);
    }
    Ok(())
}

/// Returns true if tenure should be the entrypoint of a container: a person or cron on a machine of their own runs no container.
fn is_for_a_pod(preset: &Preset) -> bool {
    *preset == Preset::Run || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}
