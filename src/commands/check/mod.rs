//! `tenure check`: whether a replica could do its work here, and what to change.
//!
//! Owns the checks and their wording. Every finding is reported; the exit code is that of the most serious one.

use std::fmt::Write as _;

use self::power::{Finding, Power};
use super::{
    Ended,
    access::{Access, exit_code, said},
    block_on,
};
use crate::{
    api::{PLUGIN_PATIENCE, Place, Request},
    cli,
    config::{Config, HookKind, ProbeKind, can_stand, duration},
    console,
    election::{ONLY_READS, record::LeaseRecord, writes::operator::rehearsal},
    elector, exit, init,
    loading::{Purpose, lacks_variable},
    process::resolve::resolve,
    request::RequestError,
    words::{counted, one_line, visible},
};

mod law;
mod permissions;
mod power;

pub(super) use law::grace_period;
pub(super) use permissions::rights;

pub(super) fn run(check: &cli::Check) -> Ended {
    let loaded = super::load(&check.flags, &check.command, Purpose::Inspect)?;
    let mut report = Report::default();
    report.section("configuration");
    report.text(&loaded.effective(check.verbose));
    for note in &loaded.notes {
        report.note(note);
    }
    check_programs(&loaded.config, &mut report);
    if loaded.config.lease.enabled {
        if let Some(lacking) = elector::lacks_address(&loaded.config) {
            report.bad(exit::INVALID, &lacking);
        }
        let from = &loaded.config.lease.prefer.from;
        if !from.is_empty() && std::env::var_os(from).is_none_or(|value| value.is_empty()) {
            let lacking = lacks_variable(from);
            // Who checks a file before an upgrade is no replica.
            if check.offline { report.note(&lacking) } else { report.bad(exit::INVALID, &lacking) }
        }
        if !can_stand(&init::base(&loaded.config.lease.identity, std::env::var("POD_NAME").ok())) {
            report.bad(exit::INVALID, init::UNFIT);
        }
        law::check(&loaded.config, &mut report);
    } else {
        law::check_plain(&loaded.config, &mut report);
    }
    report.section("kill power of this container");
    let power = Power::probe(&loaded.config);
    for Finding { strong, text } in power.findings() {
        if strong { report.good(&text) } else { report.note(&text) }
    }
    if !loaded.config.lease.enabled {
        return Ok(report.finish());
    }
    if !power.can_prove() {
        report.bad(exit::INTERNAL, "no end of the workload could be proved: a replica does not start here");
    }
    law::check_witness(&loaded.config.lease, power.pid1, &mut report);
    if !check.offline
        && let Err(error) = block_on(check_server(&check.flags.cluster, &loaded.config, &mut report))
    {
        report.bad(exit::INTERNAL, &format!("the API server cannot be asked: {error}"));
    }
    Ok(report.finish())
}

fn check_programs(config: &Config, report: &mut Report) {
    if config.workload.command.is_empty() {
        report.note("no workload was given: write it after -- to check it too");
    }
    let path = config.workload.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"));
    let hook = |kind: HookKind| Some((format!("hooks.{}", kind.as_str()), &kind.of(&config.hooks)?.command));
    let probe = |kind: ProbeKind| (format!("workload.{}.exec", kind.as_str()), &kind.of(&config.workload).exec.command);
    let mut programs = vec![("the workload".to_owned(), &config.workload.command)];
    // A plain init runs no other.
    if config.lease.enabled {
        programs.push(("standby.command".into(), &config.standby.command));
        programs.extend(HookKind::ALL.into_iter().filter_map(hook));
        programs.extend(ProbeKind::ALL.into_iter().map(probe));
    }
    for (name, command) in programs {
        let Some(program) = command.first() else { continue };
        match resolve(program, path.as_deref()) {
            Ok(file) => report.good(&format!("{name} is {}", file.display())),
            Err((code, why)) => report.bad(exit::INVALID, &format!("{name} cannot be executed ({code}): {why}")),
        }
    }
}

async fn check_server(which: &cli::ClusterFlags, config: &Config, report: &mut Report) {
    report.section("API server");
    let access = match Access::open(which, which.request_timeout.unwrap_or(config.lease.attempt_timeout), PLUGIN_PATIENCE).await {
        Ok(access) => access,
        Err(error) => return report.bad(error.exit_code(), &one_line(&error)),
    };
    report.good(&format!("{}, by {}", access.cluster.url(), access.cluster.source()));
    let namespace = match access.namespace(&config.lease.namespace) {
        Ok(namespace) => namespace,
        Err(error) => return report.bad(error.exit_code(), &one_line(&error)),
    };
    let name = &config.lease.name;
    let before = crate::clock::boot();
    let read = access.lease(namespace, name).await;
    let took = crate::clock::boot().since(before);
    let mut refused = None;
    match read {
        Ok(Some(record)) => {
            report.good(&format!("Lease {namespace}/{name} is there, read in {}", duration::measured(took)));
            if let Some(odd) = record.warning(None) {
                report.note(odd);
            }
            refused = rehearse(&access, namespace, name, &record, report).await;
        }
        Ok(None) => match access.lacks_namespace(namespace).await {
            Some(why) => report.bad(exit::INVALID, &format!("{why}: create it, or name another with --namespace")),
            None => report.good(&format!("Lease {namespace}/{name} is not there yet, answered in {}", duration::measured(took))),
        },
        Err(error) => {
            report.bad(exit_code(&error), &format!("Lease {namespace}/{name} cannot be read: {}", said(&error)));
            if exit_code(&error) == exit::UNAVAILABLE {
                return;
            }
        }
    }
    let before = report.codes.len();
    permissions::check(&access, namespace, config, report).await;
    // Without a failure there, it is not for want of a right: an admission plugin refuses what the rights allow.
    if let Some(error) = refused.filter(|_| report.codes.len() == before) {
        report.bad(exit_code(&error), &format!("a dry run of a write: {}", said(&error)));
    }
}

/// Times a write that changes nothing. Returns why it was refused, which may be a matter of the permissions.
async fn rehearse(
    access: &Access,
    namespace: &str,
    name: &str,
    record: &LeaseRecord,
    report: &mut Report,
) -> Option<RequestError> {
    let write = Request::lease(&Place::lease(namespace, name), &rehearsal(record)).with(&[("dryRun", "All")]);
    let before = crate::clock::boot();
    match access.send(&write).await.object() {
        Ok(_) => report
            .good(&format!("a dry run of a write is answered in {}", duration::measured(crate::clock::boot().since(before)))),
        Err(error) if error.status.is_none() => {
            report.bad(exit::UNAVAILABLE, &format!("a dry run of a write: {}; {ONLY_READS}", said(&error)));
        }
        // A conflict says nothing, nor does a webhook that knows no dry run.
        Err(error) => return Some(error).filter(|error| !matches!(error.status, Some(400 | 409))),
    }
    None
}

/// The findings, as they will be printed.
#[derive(Debug, Default)]
struct Report {
    text: String,
    codes: Vec<u8>,
    notes: usize,
}

impl Report {
    fn section(&mut self, title: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}{title}");
    }

    fn text(&mut self, text: &str) {
        for line in text.lines() {
            let _ = writeln!(self.text, "  {line}");
        }
    }

    fn good(&mut self, finding: &str) {
        let _ = writeln!(self.text, "  ok    {}", visible(finding));
    }

    fn note(&mut self, finding: &str) {
        let _ = writeln!(self.text, "  note  {}", visible(finding));
        self.notes += 1;
    }

    fn bad(&mut self, code: u8, finding: &str) {
        let _ = writeln!(self.text, "  FAIL  {}", visible(finding));
        self.codes.push(code);
    }

    /// Prints it, and returns the exit code of what has to be fixed first.
    fn finish(mut self) -> u8 {
        let verdict = if self.codes.is_empty() { "a replica can run here" } else { "a replica cannot run here as it should" };
        let (failures, notes) = (counted(self.codes.len(), "failure"), counted(self.notes, "note"));
        let _ = writeln!(self.text, "\n{verdict}: {failures}, {notes}");
        let gravest = [exit::INVALID, exit::UNAVAILABLE].into_iter().find(|code| self.codes.contains(code));
        let code = gravest.or_else(|| self.codes.first().copied()).unwrap_or_default();
        console::answer(&self.text, code)
    }
}
