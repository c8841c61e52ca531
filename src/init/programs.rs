//! The programs that init runs. They are found before anything else is done. Builds the environment of each: the
//! variables of a term come from `link::TermInfo`, the others are written here.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io::ErrorKind,
    os::fd::RawFd,
    path::PathBuf,
};

use super::Unprepared;
use crate::{
    config::{Config, HookKind, ProbeKind, Signal},
    environment::{
        EXIT_CODE, EXIT_SIGNAL, IDENTITY, LEASE, NAMESPACE, NOTIFY_SOCKET, OF_A_TERM, REASON, ROLE, SLOTS, TERM_FD, TRACEPARENT,
        TRACESTATE, WATCHDOG_PID, WATCHDOG_USEC,
    },
    link::Exit,
    process::{
        resolve::resolve,
        sockets::{self, Sockets},
        spawn::{Command, SpawnError},
    },
    role::Role,
    supervision::{self, HelperKind, ProgramEnv},
    words::squeezed,
};

/// The workload, its hooks and its probes, ready to be started.
#[derive(Debug)]
pub(super) struct Programs {
    workload: Program,
    /// `standby.command`, which runs while this replica follows.
    standby: Option<Program>,
    /// Hooks and probes, by their keys.
    helpers: BTreeMap<&'static str, Program>,
    /// The names of the Leases, by slot.
    leases: Vec<String>,
    environment: BTreeMap<OsString, OsString>,
    /// NOTIFY_SOCKET is tenure's own.
    notifies: bool,
    page: Option<RawFd>,
    sockets: Option<Handed>,
}

/// Sockets, and the variables that describe them.
#[derive(Debug)]
struct Handed {
    sockets: Sockets,
    described: BTreeMap<OsString, OsString>,
}

#[derive(Debug)]
struct Program {
    file: PathBuf,
    arguments: Vec<String>,
}

impl Programs {
    /// Finds every command in the PATH that it will have: that of `inherited`, or of `workload.env`. `notify` is the value of
    /// NOTIFY_SOCKET.
    ///
    /// # Errors
    /// The first one that cannot be executed.
    pub(super) fn find(
        config: &Config,
        inherited: impl Iterator<Item = (OsString, OsString)>,
        identity: &str,
        notify: Option<String>,
    ) -> Result<Self, Unprepared> {
        let notifies = notify.is_some();
        let environment = environment(config, inherited, identity, notify);
        let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let find = |key: &str, command: &[String]| {
            let found = resolve(command.first().map(String::as_str).unwrap_or_default(), path);
            let file = found.map_err(|(code, why)| Unprepared { code, why: squeezed(&format!("{key}{why}")) })?;
            Ok(Program { file, arguments: command.to_vec() })
        };
        let hooks = HookKind::ALL.into_iter().filter_map(|kind| Some(("hooks", kind.as_str(), &kind.of(&config.hooks)?.command)));
        let probes = ProbeKind::ALL.into_iter().map(|kind| ("workload", kind.as_str(), &kind.of(&config.workload).exec.command));
        let mut helpers = BTreeMap::new();
        // Without a Lease none of them is run.
        if config.lease.enabled {
            for (section, key, command) in hooks.chain(probes.filter(|(.., it)| !it.is_empty())) {
                helpers.insert(key, find(&format!("{section}.{key}: "), command)?);
            }
        }
        let standby = Some(&*config.standby.command).filter(|command| !command.is_empty() && config.lease.enabled);
        Ok(Self {
            standby: standby.map(|command| find("standby.command: ", command)).transpose()?,
            workload: find("", &config.workload.command)?,
            helpers,
            leases: config.lease.names().collect(),
            environment,
            notifies,
            page: None,
            sockets: None,
        })
    }

    /// Lets the workload and the hooks inherit this descriptor of the page.
    pub(super) const fn give(&mut self, page: RawFd) {
        self.page = Some(page);
    }

    /// Lets the workload, or `standby.command`, inherit these sockets at each start. Hooks and probes do not get them.
    pub(super) fn hand(&mut self, sockets: Sockets) {
        let is_of = |names: [&str; 2], name: &OsString| name.to_str().is_some_and(|name| names.contains(&name));
        let described = self.environment.extract_if(.., |name, _| is_of(sockets::DESCRIBES, name)).collect();
        self.environment.retain(|name, _| !is_of(sockets::NAMES_PROCESS, name));
        self.sockets = Some(Handed { sockets, described });
    }

    /// The name of the workload's program in this role, for log lines.
    pub(super) fn name(&self, role: Option<Role>) -> &str {
        self.program(role).arguments.first().map(String::as_str).unwrap_or_default()
    }

    fn program(&self, role: Option<Role>) -> &Program {
        match &self.standby {
            Some(standby) if role == Some(Role::Standby) => standby,
            Some(_) | None => &self.workload,
        }
    }

    /// The command of a program, with its role, its term and the reason of that one's end in the environment. The workload and
    /// hooks get the page, and the workload the sockets.
    ///
    /// # Errors
    /// A NUL byte in the environment, or no such command.
    pub(super) fn command(&self, start: &supervision::Program) -> Result<Command, SpawnError> {
        let supervision::Program { helper, role, told: ProgramEnv { info, reason, exit }, .. } = start;
        let unset = || SpawnError::Unavailable("it is not set", ErrorKind::NotFound.into());
        let (program, page, handed) = match helper {
            None => (self.program(*role), self.page, self.sockets.as_ref()),
            Some(kind) => {
                let page = if let HelperKind::Hook(_) = kind { self.page } else { None };
                (self.helpers.get(kind.as_str()).ok_or_else(unset)?, page, None)
            }
        };
        let mut told = BTreeMap::new();
        if let Some(role) = role {
            told.insert(ROLE.into(), role.as_str().into());
        }
        if let Some(info) = info {
            info.export(&mut told);
            told.extend(self.leases.get(usize::from(info.slot.0)).map(|lease| (LEASE.into(), lease.clone())));
        }
        if let Some(reason) = reason {
            told.insert(REASON.into(), reason.as_str().into());
        }
        told.extend(exit.map(|exit| match exit {
            Exit::Code(code) => (EXIT_CODE.into(), code.to_string()),
            Exit::Signal(signal) => (EXIT_SIGNAL.into(), Signal(signal).name()),
        }));
        told.extend(page.map(|page| (TERM_FD.into(), page.to_string())));
        // What others than the workload say to tenure does not count.
        let is_workload = std::ptr::eq(program, &self.workload);
        let is_told = |name: &str| is_workload || !self.notifies || ![NOTIFY_SOCKET, WATCHDOG_USEC].contains(&name);
        let is_kept = |name: &str| !is_replaced(name, &told) && is_told(name);
        let kept = self.environment.iter().filter(|(name, _)| name.to_str().is_none_or(is_kept));
        let described = handed.iter().flat_map(|handed| &handed.described);
        let kept = kept.chain(described).map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let told = told.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let mut command = Command::new(&program.file, &program.arguments, kept.chain(told))?;
        command.kept = page;
        command.sockets = handed.map(|handed| handed.sockets.clone());
        Ok(command)
    }
}

/// Returns true if tenure was started by the workload that leads under the same Lease.
pub(super) fn leads_already(config: &Config, variable: impl Fn(&str) -> Option<String>) -> bool {
    let told = [(ROLE, Role::Leader.as_str()), (NAMESPACE, &config.lease.namespace), (LEASE, &config.lease.name)];
    // With several slots another one may be free.
    config.lease.slots == 1 && told.into_iter().all(|(name, value)| variable(name).as_deref() == Some(value))
}

/// Returns true if a variable of this name is replaced. TRACESTATE belongs to TRACEPARENT, so both are.
fn is_replaced(name: &str, told: &BTreeMap<String, String>) -> bool {
    told.contains_key(name) || name == TRACESTATE && told.contains_key(TRACEPARENT)
}

/// Builds the environment that every program gets, apart from role and term.
fn environment(
    config: &Config,
    inherited: impl Iterator<Item = (OsString, OsString)>,
    identity: &str,
    notify: Option<String>,
) -> BTreeMap<OsString, OsString> {
    let mut environment = BTreeMap::new();
    for (name, value) in inherited {
        // getenv(3) finds the first of several variables of one name.
        environment.entry(name).or_insert(value);
    }
    // WATCHDOG_PID names tenure, not the workload.
    environment.remove(OsStr::new(WATCHDOG_PID));
    environment.extend(config.workload.env.iter().map(|(name, value)| (name.into(), value.into())));
    if !config.lease.enabled {
        // The descriptor of an outer tenure is closed by the execve.
        environment.remove(OsStr::new(TERM_FD));
        return environment;
    }
    environment.retain(|name, _| !name.to_str().is_some_and(|name| OF_A_TERM.contains(&name)));
    let lease = &config.lease;
    let known = [
        (LEASE, Some(lease.name.clone())),
        (SLOTS, Some(lease.slots.to_string())),
        (NAMESPACE, Some(lease.namespace.clone()).filter(|namespace| !namespace.is_empty())),
        (IDENTITY, Some(identity.to_owned())),
        (NOTIFY_SOCKET, notify),
        (WATCHDOG_USEC, config.workload.liveness.notify.then(|| config.workload.liveness.watchdog().as_micros().to_string())),
    ];
    environment.extend(known.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Hook, time::Instant};

    fn config() -> Config {
        let mut config = Config::default();
        config.workload.command = vec!["true".into()];
        config
    }

    #[test]
    fn a_program_is_sought_in_the_path_that_it_will_have() {
        let mut config = config();
        let missing = |config: &Config| Programs::find(config, std::env::vars_os(), "", None).err().map(|error| error.code);
        assert_eq!(missing(&config), None);

        config.workload.env.insert("PATH".into(), "/nonexistent".into());

        assert_eq!(missing(&config), Some(127));
    }

    #[test]
    fn a_hook_is_looked_for_where_there_is_a_lease() {
        let mut config = config();
        config.hooks.after_lead = Hook { command: vec!["/no/such/hook".into()], ..Hook::default() };
        let missing = |config: &Config| Programs::find(config, std::env::vars_os(), "", None).err();

        let error = missing(&config).unwrap();
        assert_eq!((error.code, error.why), (127, "hooks.afterLead: /no/such/hook: not found".into()));
        config.lease.enabled = false;
        assert!(missing(&config).is_none());

        config.standby.command = vec!["/no/such/page".into()];
        assert!(missing(&config).is_none());
        (config.lease.enabled, config.hooks.after_lead) = (true, Hook::default());
        assert_eq!(missing(&config).map(|error| error.why), Some("standby.command: /no/such/page: not found".into()));
    }

    #[test]
    fn the_state_of_an_outer_trace_goes_with_its_parent() {
        let told = |name: &str| BTreeMap::from([(name.to_owned(), String::new())]);
        assert!(is_replaced("TRACEPARENT", &told("TRACEPARENT")) && is_replaced("TRACESTATE", &told("TRACEPARENT")));
        assert!(!is_replaced("TRACESTATE", &told("TENURE_TERM")) && !is_replaced("OTHER", &told("TRACEPARENT")));
    }

    #[test]
    fn only_the_workload_is_told_where_to_notify() {
        let mut config = config();
        (config.standby.command, config.workload.liveness.notify) = (vec!["true".into()], true);
        config.hooks.before_lead = Hook { command: vec!["true".into()], ..Hook::default() };
        let programs = |notify| {
            let outer =
                [("PATH", "/usr/bin:/bin"), ("NOTIFY_SOCKET", "@systemd")].map(|(name, value)| (name.into(), value.into()));
            Programs::find(&config, outer.into_iter(), "me", notify).unwrap()
        };
        let told = |programs: &Programs, helper, role| {
            let (role, told, not_after) = (Some(role), ProgramEnv::default(), Instant::NEVER);
            let program = supervision::Program { helper, role, told, not_after, fused: false };
            format!("{:?}", programs.command(&program).unwrap())
        };

        let (hook, own) = (Some(HelperKind::Hook(HookKind::BeforeLead)), programs(Some("@here".into())));
        let workload = told(&own, None, Role::Leader);
        let others = [told(&own, None, Role::Standby), told(&own, hook, Role::Leader)];
        let under_systemd = told(&programs(None), hook, Role::Leader);

        assert!(workload.contains("NOTIFY_SOCKET=@here") && workload.contains("WATCHDOG_USEC="), "{workload}");
        assert!(others.iter().all(|told| !told.contains("NOTIFY_SOCKET") && !told.contains("WATCHDOG_USEC")), "{others:?}");
        assert!(under_systemd.contains("NOTIFY_SOCKET=@systemd"), "{under_systemd}");
    }

    #[test]
    fn what_an_outer_tenure_said_of_its_term_is_not_passed_on() {
        let outer = [
            "TENURE_ACQUIRED_AT",
            "TENURE_EXIT_CODE",
            "TENURE_EXIT_SIGNAL",
            "TENURE_FENCING_TOKEN",
            "TENURE_LEASE_UID",
            "TENURE_REASON",
            "TENURE_SLOT",
            "TENURE_TERM",
            "TENURE_TERM_FD",
            "OTHER",
        ];
        let outer = outer.into_iter().map(|name| (name.into(), "outer".into()));

        let environment = environment(&config(), outer, "me", None);

        let names: Vec<_> = environment.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["OTHER", "TENURE_IDENTITY", "TENURE_LEASE", "TENURE_SLOTS"]);
    }
}
