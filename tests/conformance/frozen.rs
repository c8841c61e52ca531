//! Cases 37 to 39 and 55: init or the elector is killed or frozen.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{
    Behaviour, Case, Prepared, Replica, Stage, cases,
    procfs::{children, command_line},
    spec::{CALM, calm, is_held_by, wait},
    timing,
};
use tenure::clock;

use super::{last_confirmed, late, until};

pub fn all() -> Vec<Case> {
    cases![
        case_37_a_frozen_elector_writes_nothing_stale,
        case_38_init_killed_as_pid_1_takes_everything_along,
        case_38_init_killed_among_others_takes_everything_along,
        case_39_a_frozen_init_is_replaced_by_the_second_guard,
        case_55_after_a_gap_it_kills_before_it_speaks,
        case_55_after_a_gap_the_log_says_when_the_program_died,
    ]
}

/// Gives it a stubborn workload whose main process is a shell that starts a daemon of the same kind on SIGUSR1.
fn begetting(prepared: Prepared) -> Prepared {
    const SCRIPT: &str = r#"trap : TERM; trap 'setsid --fork "$0" "$@"' USR1; "$0" "$@" & while :; do wait; done"#;
    let mut prepared = prepared.workload(&Behaviour::stubborn());
    prepared.launch.workload.splice(0..0, ["sh", "-c", SCRIPT].map(str::to_owned));
    prepared
}

/// Makes it start its daemon, which no fuse covers if init is stopped; returns the main process.
async fn beget(stage: &Stage, me: &Replica) -> Pid {
    let is_main = |pid: &Pid| command_line(*pid)[0] == "sh";
    let main = children(me.init().await).into_iter().find(is_main).expect("the main process");
    kill(main, Signal::SIGUSR1).expect("it lives");
    stage.witness.start(&me.name, 1).await;
    main
}

async fn case_37_a_frozen_elector_writes_nothing_stale(stage: Stage) {
    let (me, _) = stage.lead(calm(stage.prepare("me").await)).await;
    let x = stage.prepare("x").await.unhurried().start();
    let elector = me.elector().await;
    // Nothing is in flight, and will not be for a while.
    let renewals = me.proxy.log.count(|e| e.request.is_held() && e.succeeded());
    me.proxy.log.nth(renewals, "a renewal", |e| e.request.is_held() && e.succeeded()).await;

    kill(elector, Signal::SIGSTOP).expect("the elector lives");
    let frozen = clock::boot();
    stage.witness.signal("me", "SIGTERM").await;
    stage.witness.start("x", 0).await;
    until(frozen + Duration::from_secs(20)).await;
    // Init may have replaced it by now.
    let _ = kill(elector, Signal::SIGCONT);

    x.proxy.log.nth(9, "x goes on", |e| e.request.is_held() && e.succeeded()).await;
    let late = me.proxy.log.since(frozen + Duration::from_millis(500));
    assert!(!late.iter().any(|e| e.request.is_write()), "{late:?}");
    assert_eq!((stage.witness.starts("me"), stage.witness.starts("x")), (1, 1));
}

async fn init_killed(stage: Stage, prepared: Prepared) {
    let (me, _) = stage.lead(prepared.workload(&Behaviour::stubborn())).await;
    let workload = me.workload().await;
    let killed = clock::boot();

    me.signal(Signal::SIGKILL).await;

    assert_ne!(me.exit().await, 0);
    // A vanished parent means that the kernel has sent the signal; nothing else may be left either.
    me.gone(workload).await;
    let object = stage.lease.read().await.expect("a Lease");
    assert!(is_held_by(&object["spec"], "me"), "nobody released it");
    let x = stage.start("x").await;
    let start = stage.witness.start("x", 0).await;
    let last = last_confirmed(&me, killed + Duration::from_secs(1));
    assert!(start.at() >= last.request.at + wait(4.0));
    assert!(!me.proxy.log.all().iter().any(|e| e.request.is_release()));
    drop(x);
}

async fn case_38_init_killed_as_pid_1_takes_everything_along(stage: Stage) {
    let prepared = stage.prepare("me").await;
    init_killed(stage, prepared).await;
}

async fn case_38_init_killed_among_others_takes_everything_along(stage: Stage) {
    let prepared = stage.prepare("me").await.uncontained();
    init_killed(stage, prepared).await;
}

async fn case_39_a_frozen_init_is_replaced_by_the_second_guard(stage: Stage) {
    // It must be awake to kill what the kernel's fuses do not cover, and is, within a part of this margin.
    let margin = Duration::from_secs(4);
    let prepared = calm(stage.prepare("me").await).set("workload.stop.lossGrace", "1s").set("workload.stop.killMargin", "4s");
    let (me, start) = stage.lead(begetting(prepared)).await;
    let x = stage.prepare("x").await.unhurried().start();

    me.signal(Signal::SIGSTOP).await;
    let main = beget(&stage, &me).await;
    let daemon = me.daemon_beside(start.pid).await;

    for process in children(main).into_iter().chain([main, daemon]) {
        me.gone(process).await;
    }
    let last = last_confirmed(&me, clock::boot());
    let hard = CALM.end(last.request.at).before(margin);
    assert!(stage.witness.last_alive("me") < hard + late(hard));
    stage.witness.start("x", 0).await;
    me.signal(Signal::SIGCONT).await;
    x.proxy.log.nth(4, "x goes on", |e| e.request.is_held() && e.succeeded()).await;
    assert!(!me.proxy.log.all().iter().any(|e| e.request.is_release()));
    assert!(me.runs());
}

/// How a suspend looks to init and the elector: they do not run, and CLOCK_BOOTTIME goes on. No namespace lets a test step that
/// clock under a running process; what each machine does with such a step is tested in
/// `init_that_wakes_after_h_kills_everything_first` (src/supervision) and
/// `after_a_gap_in_its_own_clock_the_term_is_ended_before_anything_is_sent` (src/election).
async fn case_55_after_a_gap_it_kills_before_it_speaks(stage: Stage) {
    let (me, _) = stage.lead(begetting(stage.prepare("me").await)).await;
    // The elector wakes first: what it does must not depend on init being awake.
    let both = [me.elector().await, me.init().await];
    both.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("it lives"));
    beget(&stage, &me).await;
    until(clock::boot() + 2 * timing::DURATION).await;
    let woken = clock::boot();

    both.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("it lives"));

    let next = me.proxy.log.first("a request", |e| e.request.at > woken).await;
    let again = stage.witness.start("me", 2).await;
    let life = &stage.witness.lives()[0];
    assert!(life.last > last_confirmed(&me, woken).request.at + timing::DURATION, "only waking kills the daemon");
    assert!(next.request.at > life.last, "{next:?}");
    assert!(again.at() > next.request.at);
    let lines = me.lines();
    assert!(!lines.iter().any(|line| line.contains("was dead at ")), "the daemon was not: {lines:?}");
}

/// Both logs, merged by time, never look like two leaders at once.
async fn case_55_after_a_gap_the_log_says_when_the_program_died(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.workload(&Behaviour::stubborn())).await;
    let x = stage.start("x").await;
    let both = [me.elector().await, me.init().await];
    both.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("it lives"));
    stage.witness.start("x", 0).await;
    let woken = clock::boot();

    both.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).expect("it lives"));

    let line = |replica: &Replica, part: &'static str| replica.lines().into_iter().find(|line| line.contains(part));
    me.proxy.log.first("a request", |e| e.request.at > woken).await;
    let dead = line(&me, "was dead at ").expect("a line about the end");
    let led = line(&x, "leading: ").expect("x leads");
    let (at, _) = dead.split_once("was dead at ").and_then(|(_, rest)| rest.split_once(',')).expect("a time");
    assert!(at < &*led, "{dead}\n{led}");
    let after = me.lines().into_iter().filter(|line| **line > *led && line.contains("stopping the program"));
    assert_eq!(after.collect::<Vec<_>>(), Vec::<String>::new());
}
