//! Finds out, for `tenure check`, how far this container lets tenure see and kill processes.
//!
//! Owns the probes and their wording. Requires nothing, and changes nothing but the time slice of the process that asks and, for
//! a moment, its oom_score_adj.

use std::fs;

use nix::{
    sched::{CloneFlags, unshare},
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, Pid, fork},
};

use crate::{
    config::{Config, duration},
    law::Timing,
    process::{
        PID1,
        fuse::Fuse,
        runs_our_program,
        scan::{HIDES, ScanError, Scanner},
        slice, spawn,
    },
    time::Instant,
    words::one_line,
};

const CAP_KILL: u32 = 5;
const CAP_SETUID: u32 = 7;

/// The kill power of this container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Power {
    /// True if tenure is PID 1 of this namespace: this process, or the one that it was started beside (`kubectl exec`).
    pub(super) pid1: bool,
    /// The effective user.
    pub(super) uid: u32,
    /// True if this user namespace is the host's, so that its numbers are the host's.
    pub(super) host_users: bool,
    /// True if a program may make a PID namespace of its own.
    pub(super) nests: bool,
    /// The text of `/proc/self/status`.
    pub(super) status: Status,
    /// True if the root file system ignores setuid bits.
    pub(super) nosuid: bool,
    /// The use of /proc here.
    pub(super) proc: Proc,
    /// The state of the kernel's fuse: steady or not, or why there is none.
    pub(super) fuse: Result<bool, String>,
    /// The timing that the fuse serves.
    pub(super) timing: Timing,
    /// True if a shorter time slice is granted.
    pub(super) slice: bool,
    /// The oom_score_adj of tenure and of its workload; none if it cannot be written.
    pub(super) oom_scores: Option<(i32, i32)>,
    /// True if the kernel, out of memory, kills the whole cgroup of this container at once.
    pub(super) oom_group: bool,
}

/// Privileges and confinement of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// No setuid program gains anything.
    pub(super) no_new_privs: bool,
    /// Effective capabilities, one bit each.
    pub(super) effective: u64,
    /// Those that it may use; a program that it executes as root has them too, new privileges or not.
    pub(super) permitted: u64,
    /// Those that a program may still gain.
    pub(super) bounding: u64,
    /// Seccomp: 0 off, 1 strict, 2 filter.
    pub(super) seccomp: u8,
}

/// The use of /proc here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proc {
    /// Every process is seen.
    Whole,
    /// Processes of other users are hidden: `hidepid`.
    Partial,
    /// /proc belongs to another PID namespace.
    Foreign,
    /// /proc cannot be read.
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// True if the guarantee is as strong as it can be in this respect.
    pub(super) strong: bool,
    /// The state and what it means, in one line.
    pub(super) text: String,
}

impl Power {
    /// Asks the kernel about a replica with this configuration.
    pub(super) fn probe(config: &Config) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            pid1: Pid::this() == PID1 || runs_our_program(PID1),
            uid: nix::unistd::geteuid().as_raw(),
            host_users: read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]),
            nests: may_nest(),
            status: parse_status(&read("/proc/self/status")),
            nosuid: root_is_nosuid(&read("/proc/self/mountinfo")),
            proc: match Scanner::open() {
                Ok(scanner) if scanner.is_partial() => Proc::Partial,
                Ok(_) => Proc::Whole,
                Err(ScanError::Foreign) => Proc::Foreign,
                Err(ScanError::Open(_)) => Proc::Absent,
            },
            fuse: Fuse::arm(Instant::NEVER).map(|fuse| fuse.is_steady()).map_err(|error| one_line(&error)),
            timing: config.timing(),
            slice: slice::shorten().is_ok(),
            oom_scores: oom_scores(config.workload.oom_score_adjust),
            oom_group: read("/sys/fs/cgroup/memory.oom.group").trim() == "1",
        }
    }

    /// Returns true if a replica starts here. A process that it cannot see, it cannot prove gone.
    pub(super) const fn can_prove(&self) -> bool {
        match self.proc {
            Proc::Whole => true,
            Proc::Partial => !self.pid1,
            Proc::Foreign | Proc::Absent => false,
        }
    }

    /// Returns true if a child may become a user whom this process may not signal.
    pub(super) const fn may_be_refused(&self) -> bool {
        !has(self.status.effective, CAP_KILL) && (self.may_change_users() || self.may_execute_setuid_programs())
    }

    /// Returns true if a child may call setuid(2), as entrypoints do that start as root and drop to another user.
    const fn may_change_users(&self) -> bool {
        let Status { no_new_privs, permitted, bounding, .. } = self.status;
        // Capabilities that root lacks are regained by the next program that it executes.
        let regained = if self.uid == 0 && !no_new_privs { bounding } else { 0 };
        has(permitted | regained, CAP_SETUID)
    }

    const fn may_execute_setuid_programs(&self) -> bool {
        !self.status.no_new_privs && !self.nosuid && self.status.bounding != 0
    }

    /// All findings, the most important first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![
            self.reach(),
            self.sight(),
            self.refusal(),
            self.fuse(),
            self.fuse_reach(),
            self.promptness(),
            self.memory(),
            self.confinement(),
        ]
    }

    fn reach(&self) -> Finding {
        if self.pid1 {
            return strong("PID 1: SIGKILL reaches every process of the container at once, and none outlives tenure");
        }
        weak(
            "not PID 1: only descendants are found and killed, one by one; make tenure the ENTRYPOINT, without a shared PID namespace",
        )
    }

    fn sight(&self) -> Finding {
        match self.proc {
            Proc::Whole => strong("/proc shows every process: a stop can be proved while the elector lives"),
            Proc::Partial => weak(HIDES),
            Proc::Foreign => weak("/proc is another PID namespace's: nothing can be found or proved; mount this one's"),
            Proc::Absent => weak("/proc cannot be read: nothing can be found or proved; mount it"),
        }
    }

    fn refusal(&self) -> Finding {
        if has(self.status.effective, CAP_KILL) {
            return strong("CAP_KILL: a child of any user can be killed");
        }
        if self.may_change_users() {
            return weak(
                "CAP_SETUID without CAP_KILL: a child could become a user whom tenure may not kill, and would die only with the \
                 container: run as one user that is not root, or add the capability KILL",
            );
        }
        if self.may_be_refused() {
            return weak(
                "a setuid program could become a user whom tenure may not kill, and would die only with the container: set \
                 allowPrivilegeEscalation: false",
            );
        }
        strong("no child can become a user whom tenure may not kill")
    }

    fn fuse(&self) -> Finding {
        match &self.fuse {
            Ok(true) => strong(
                "the kernel has a fuse: the workload's process groups die at the kill deadline even if tenure gets no processor",
            ),
            Ok(false) => {
                let advance = self.timing.fuse_advance();
                let late = "the kernel (before Linux 6.15) has a fuse that may be late by a sixteenth of lease.duration";
                if advance.is_zero() {
                    return strong(format!("{late}: workload.stop.killMargin has room for that"));
                }
                weak(format!(
                    "{late}: it is set {} before the kill deadline, and workload.stop.lossGrace is shorter by that; \
                     a workload.stop.killMargin of {} has room for it",
                    duration::format(advance),
                    duration::format(self.timing.kill_margin + advance)
                ))
            }
            Err(why) => weak(format!(
                "there is no fuse in the kernel ({why}): with init and elector both stopped the workload outlives its deadline"
            )),
        }
    }

    /// The fuse may kill less than kill(2). The kernel (sigio_perm) asks whether init is root of the host's user namespace, with or
    /// without capabilities, or has the user of the process. And it forces SIGKILL on no init of a PID namespace.
    fn fuse_reach(&self) -> Finding {
        let is_root = self.uid == 0 && self.host_users;
        let user = (!is_root && (self.may_change_users() || self.may_execute_setuid_programs())).then_some(
            "processes of another user (run as one user that is not root, with allowPrivilegeEscalation: false, or as root of the \
             host's users)",
        );
        let nested =
            self.nests.then_some("the first process of a PID namespace that the workload makes (a sandbox; seccomp forbids it)");
        let beyond: Vec<_> = [user, nested].into_iter().flatten().collect();
        if beyond.is_empty() {
            return strong(
                "no process of the workload can leave the reach of a fuse: it cannot change its user, nor its PID namespace",
            );
        }
        weak(format!("a fuse does not reach {}: those die by init or the elector only", beyond.join(", nor ")))
    }

    fn promptness(&self) -> Finding {
        if self.slice {
            return strong("a time slice of 0.1 ms is granted: init wakes up sooner on a busy node");
        }
        weak("no shorter time slice (before Linux 6.12, or refused): leave workload.stop.killMargin room under tight CPU limits")
    }

    fn memory(&self) -> Finding {
        if self.oom_group {
            return weak(
                "memory.oom.group is 1: out of memory, the kernel kills tenure together with the workload, whatever \
                 workload.oomScoreAdjust says; without lease.witness a standby then waits out lease.duration; \
                 the kubelet's singleProcessOOMKill: true turns it off",
            );
        }
        match self.oom_scores {
            Some((own, workload)) if own < workload => {
                strong(format!("oom_score_adj of the workload {workload}, of tenure {own}: the kernel takes it before its guard"))
            }
            Some((own, workload)) => weak(format!(
                "oom_score_adj of the workload {workload}, of tenure {own}: out of memory, the kernel may take tenure first; \
                     set workload.oomScoreAdjust above 0, and request memory for the container, as without that nothing is above \
                     tenure's 1000"
            )),
            None => weak("oom_score_adj cannot be written: out of memory, the kernel may take tenure before the workload"),
        }
    }

    fn confinement(&self) -> Finding {
        let seccomp = match self.status.seccomp {
            0 => "no seccomp",
            1 => "strict seccomp",
            _ => "a seccomp filter",
        };
        let privileges = if self.status.no_new_privs { "no new privileges" } else { "new privileges possible" };
        strong(format!("uid {}, {privileges}, {seccomp}", self.uid))
    }
}

/// Returns true if a child can make a PID namespace: by itself, or with a user namespace, which needs no privilege where it is allowed.
#[expect(unsafe_code, reason = "fork")]
fn may_nest() -> bool {
    // SAFETY: the child makes two system calls, and ends without running anything of this process.
    let child = match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => child,
        Ok(ForkResult::Child) => {
            let alone = unshare(CloneFlags::CLONE_NEWPID);
            let nests = alone.or_else(|_| unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)).is_ok();
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(nests.into()) }
        }
        Err(_) => return true,
    };
    !matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0)))
}

/// The oom_score_adj of tenure, and what the kernel grants a workload: without CAP_SYS_RESOURCE it refuses lower ones. This process
/// takes the workload's for a moment.
fn oom_scores(adjust: i16) -> Option<(i32, i32)> {
    let (own, wanted) = spawn::oom_scores(adjust)?;
    let take = |score: i32| fs::write("/proc/self/oom_score_adj", score.to_string()).is_ok();
    let granted = if take(wanted) { wanted } else { own };
    take(own).then_some((own, granted))
}

const fn has(capabilities: u64, capability: u32) -> bool {
    capabilities & (1 << capability) != 0
}

fn strong(text: impl Into<String>) -> Finding {
    Finding { strong: true, text: text.into() }
}

fn weak(text: impl Into<String>) -> Finding {
    Finding { strong: false, text: text.into() }
}

fn parse_status(text: &str) -> Status {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("", str::trim)
    };
    let capabilities = |name| u64::from_str_radix(field(name), 16).unwrap_or_default();
    Status {
        no_new_privs: field("NoNewPrivs") == "1",
        effective: capabilities("CapEff"),
        permitted: capabilities("CapPrm"),
        bounding: capabilities("CapBnd"),
        seccomp: field("Seccomp").parse().unwrap_or_default(),
    }
}

fn root_is_nosuid(mounts: &str) -> bool {
    let top = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/"));
    top.and_then(|line| line.split(' ').nth(5)).is_some_and(|options| options.split(',').any(|option| option == "nosuid"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CONFINED: Power = Power {
        pid1: true,
        uid: 65532,
        host_users: true,
        nests: false,
        status: Status { no_new_privs: true, effective: 0, permitted: 0, bounding: 0, seccomp: 2 },
        nosuid: false,
        proc: Proc::Whole,
        fuse: Ok(true),
        timing: Timing {
            duration: Duration::from_secs(60),
            renew_period: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(2),
            drift: 10_000,
            loss_grace: Duration::from_secs(4),
            kill_margin: Duration::from_secs(1),
        },
        slice: true,
        oom_scores: Some((0, 100)),
        oom_group: false,
    };

    #[test]
    fn a_confined_container_with_tenure_as_pid_1_has_no_weakness() {
        assert_eq!(CONFINED.findings().into_iter().filter(|finding| !finding.strong).collect::<Vec<_>>(), []);
    }

    #[test]
    fn every_weakness_is_told() {
        let status = Status { no_new_privs: false, bounding: 0x1ff, ..CONFINED.status };
        let weak = Power {
            pid1: false,
            status,
            proc: Proc::Partial,
            nests: true,
            fuse: Err("sockets are refused".into()),
            slice: false,
            oom_scores: None,
            ..CONFINED
        };
        let strong = weak.findings().into_iter().map(|finding| finding.strong).collect::<Vec<_>>();
        assert_eq!(strong, [false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn a_fuse_that_may_be_late_costs_grace_unless_the_kill_margin_has_room() {
        let timing = Timing { kill_margin: Duration::from_secs(4), ..CONFINED.timing };

        let late = Power { fuse: Ok(false), ..CONFINED }.fuse();
        let roomy = Power { fuse: Ok(false), timing, ..CONFINED }.fuse();

        assert!(!late.strong && roomy.strong, "{late:?} {roomy:?}");
        assert!(late.text.contains("it is set 2.85s before the kill deadline"), "{late:?}");
        assert!(late.text.ends_with("a workload.stop.killMargin of 3.85s has room for it"), "{late:?}");
    }

    #[test]
    fn root_can_kill_children_of_any_user() {
        let effective = 1 << CAP_KILL;
        let status = Status { no_new_privs: false, effective, permitted: effective | 1 << CAP_SETUID, ..CONFINED.status };
        assert!(!Power { status, ..CONFINED }.may_be_refused());
    }

    #[test]
    fn root_that_may_only_change_users_may_be_refused_whatever_setuid_programs_gain() {
        let status = Status { permitted: 1 << CAP_SETUID, ..CONFINED.status };
        let drops = Power { uid: 0, nosuid: true, status, ..CONFINED };
        assert!(drops.may_be_refused());
        let Finding { strong, text } = drops.refusal();
        assert!(!strong && text.ends_with(": run as one user that is not root, or add the capability KILL"), "{text}");

        let regained = Status { no_new_privs: false, bounding: 1 << CAP_SETUID, ..CONFINED.status };
        assert!(Power { status: regained, ..drops.clone() }.may_be_refused());
        assert!(!Power { status: regained, uid: 65532, ..drops.clone() }.may_be_refused());
        let kept = Status { no_new_privs: true, ..regained };
        assert!(!Power { status: kept, ..drops }.may_be_refused());
    }

    #[test]
    fn a_fuse_reaches_no_other_user_unless_init_is_root_of_the_hosts_users_and_no_init_of_a_nested_namespace() {
        let capabilities = 1 << CAP_KILL | 1 << CAP_SETUID;
        let status = Status { no_new_privs: true, effective: capabilities, permitted: capabilities, ..CONFINED.status };
        let reach = |power: Power| power.fuse_reach();

        let kills = Power { status, ..CONFINED };
        assert!(!kills.may_be_refused() && !reach(kills.clone()).strong, "kill(2) may what the fuse may not");
        let mapped = Power { uid: 0, host_users: false, ..kills.clone() };
        assert!(reach(mapped).text.starts_with("a fuse does not reach processes of another user"));
        assert!(reach(Power { uid: 0, ..kills }).strong);
        let gains = Status { no_new_privs: false, bounding: 1, ..CONFINED.status };
        assert!(!reach(Power { status: gains, ..CONFINED }).strong);

        let Finding { strong, text } = reach(Power { nests: true, ..CONFINED });
        assert!(!strong && text.starts_with("a fuse does not reach the first process of a PID namespace"), "{text}");
    }

    #[test]
    fn a_container_that_dies_as_a_whole_makes_the_workloads_score_void() {
        for oom_scores in [Some((0, 100)), None] {
            let Finding { strong, text } = Power { oom_scores, oom_group: true, ..CONFINED }.memory();
            assert!(!strong && text.contains("lease.duration") && text.contains("singleProcessOOMKill: true"), "{text}");
        }
    }

    #[test]
    fn a_workload_that_the_kernel_does_not_take_before_its_guard_is_told_with_both_scores() {
        for (own, workload) in [(1000, 1000), (600, 100), (0, 0)] {
            let Finding { strong, text } = Power { oom_scores: Some((own, workload)), ..CONFINED }.memory();
            assert!(
                !strong && text.starts_with(&format!("oom_score_adj of the workload {workload}, of tenure {own}:")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_kernels_files_are_read() {
        let status = "Name:\tsh\nCapPrm:\t00000000000000a0\nCapEff:\t0000000000000020\nCapBnd:\t00000000000001ff\n\
                      NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let expected = Status { no_new_privs: true, effective: 0x20, permitted: 0xa0, bounding: 0x1ff, seccomp: 2 };
        assert_eq!(parse_status(status), expected);
        let plain = "1 0 0:1 / / rw,relatime - overlay overlay rw\n";
        let nosuid = "2 1 0:2 / / ro,nosuid,relatime shared:1 - overlay overlay rw\n3 2 0:3 / /tmp rw - tmpfs tmpfs rw\n";
        assert!(!root_is_nosuid(plain) && root_is_nosuid(&format!("{plain}{nosuid}")));
    }

    #[test]
    fn this_machine_answers_every_probe() {
        let power = Power::probe(&Config::default());
        assert_eq!(power.uid, nix::unistd::geteuid().as_raw());
        assert_eq!(power.proc, Proc::Whole, "the tests need a /proc of their own");
    }
}
