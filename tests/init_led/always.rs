//! `runs: always` with real signals, datagrams and hooks.

use std::{fs, io::Write as _, time::Duration};

use nix::{
    sys::signal::{
        Signal::{SIGCONT as CONT, SIGHUP as HUP, SIGKILL as KILL, SIGSTOP as STOP},
        kill,
    },
    unistd::Pid,
};
use support::{
    Scratch, open_for_reader,
    procfs::{children, state},
    wait_for, wait_until,
};
use tenure::{
    clock,
    config::{Acknowledge, Config, HookKind, Runs, Signal},
    link::{Exit, Reason, Then, ToElector},
};

use super::{
    faces::{WORKLOAD, notify_at},
    world::{World, burdened, config, hook, sleep_until, timing, within},
};

pub(crate) fn always(acknowledge: Acknowledge, command: &[&str]) -> Config {
    let mut config = config("");
    config.workload.runs = Runs::Always;
    config.workload.acknowledge = Some(acknowledge);
    config.workload.command = command.iter().map(|part| (*part).to_owned()).collect();
    config.signals.on_lead = Some(Signal(libc::SIGUSR1));
    config.signals.on_follow = Some(Signal(libc::SIGUSR2));
    config
}

/// A workload that is told its role by these scripts alone.
pub(crate) fn hooked(command: &[&str], after_lead: &str, before_follow: &str) -> Config {
    let mut config = always(Acknowledge::Hook, command);
    (config.signals.on_lead, config.signals.on_follow) = (None, None);
    (config.hooks.after_lead, config.hooks.before_follow) = (hook(after_lead), hook(before_follow));
    config
}

pub(crate) const STARTS: [&str; 3] = ["sh", "-c", "echo starts; exec sleep 1000"];

pub(crate) fn notifying(behaviour: &str) -> Config {
    let ourselves = std::env::current_exe().unwrap().display().to_string();
    always(Acknowledge::Notify, &[&ourselves, WORKLOAD, behaviour])
}

pub(crate) fn a_standby_that_ends_before_the_elector_has_spoken_is_spoken_of() {
    let scratch = Scratch::new();
    let connected = scratch.join("connected");
    let script = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 7", connected.display());
    let world = World::ungreeted(&always(Acknowledge::None, &["sh", "-c", &script]), true, &[]);

    fs::write(connected, "").unwrap();
    let (code, said) = world.exit();

    assert_eq!(code, 7);
    assert!(said.contains("the standby ended (exit code 7)"), "{said}");
}

/// Starts and promotes it; returns its pid in its own namespace.
pub(crate) fn promoted(config: &Config) -> (World, String) {
    let (mut world, _) = World::contained(config);
    let said = world.line();
    let (pid, role) = said.split_once(' ').unwrap();
    assert_eq!(role, "standby");
    let started = world.lead(clock::boot());
    assert_eq!(started.to_string(), pid);
    assert_eq!(world.line(), "leads");
    (world, pid.to_owned())
}

pub(crate) fn the_role_is_told_by_signals_and_acknowledged_by_datagrams() {
    let (mut world, _) = promoted(&notifying("obeys"));
    let before = world.others();
    world.follows(Reason::StepDown);
    assert_eq!(world.line(), "follows");
    assert_eq!(world.others().len(), before.len(), "it lives on");
}

pub(crate) fn a_workload_that_was_dead_when_its_demotion_was_signalled_is_proved_dead() {
    let script = "trap 'setsid sleep 1000 & echo leads' USR1; echo starts; while :; do sleep 0.01; done";
    let mut world = World::started(&always(Acknowledge::None, &["sh", "-c", script]));
    world.lead(clock::boot());
    assert_eq!(world.line(), "leads");
    let main = world.main();
    world.freeze();
    kill(main, KILL).unwrap();
    wait_until("it is dead", || state(main) == Some('Z'));

    world.step_down(7, Reason::StepDown);
    world.passed_on();
    world.signal(CONT);

    let ToElector::Stopped { stop, .. } = world.hear() else { panic!("not stopped") };
    assert_eq!(stop.exit, Some(Exit::Signal(libc::SIGKILL)), "its end is the proof, and not that it took a signal");
}

pub(crate) fn a_stopped_workload_is_told_no_role_by_a_signal_that_it_has_not_taken() {
    // It says its role, and is trusted to take it on.
    let script = "trap 'echo leads' USR1; trap 'echo follows' USR2; echo starts $$; while :; do sleep 0.01; done";
    for leads in [true, false] {
        let (mut world, _) = World::contained(&always(Acknowledge::None, &["sh", "-c", script]));
        world.line();
        let main = world.main();
        let stop = || {
            kill(main, STOP).unwrap();
            wait_until("it is stopped", || state(main) == Some('T'));
        };
        if leads {
            world.lead(clock::boot());
            assert_eq!(world.line(), "leads");
            stop();
        } else {
            stop();
            world.begin(clock::boot());
        }
        world.step_down(7, Reason::LostToHolder);
        assert_eq!(world.stopped_in_the_end(7), Then::Follow, "nothing was heard of a start");
        assert!(world.line().starts_with("starts "), "it was killed, and a fresh standby runs");
    }
}

pub(crate) fn a_workload_that_does_not_handle_its_demotion_is_killed_and_proved_dead() {
    let script = "trap 'setsid sleep 1000 & echo leads' USR1; sleep 1000 & echo starts; while :; do wait; done";
    let mut world = World::started(&always(Acknowledge::None, &["sh", "-c", script]));
    world.lead(clock::boot());
    assert_eq!(world.line(), "leads");

    world.step_down(7, Reason::StepDown);

    let ToElector::Stopped { stop, .. } = world.hear() else { panic!("not stopped") };
    assert_eq!(stop.exit, Some(Exit::Signal(libc::SIGKILL)), "the signal would have left its daemon");
    assert_eq!(world.line(), "starts", "a fresh standby");
}

pub(crate) fn a_promotion_waits_for_the_handler_of_a_workload_that_just_started() {
    let (mut world, scratch) = unready();
    world.begin(clock::boot());
    let mut fifo = wait_for("the workload's reading", || open_for_reader(&scratch.join("ready")));
    fifo.write_all(b"go\n").unwrap();
    assert_eq!(world.line(), "leads");
    assert!(matches!(world.hear(), ToElector::Started { .. }));
}

pub(crate) fn a_promotion_whose_messenger_was_killed_is_a_stop_and_a_fresh_standby() {
    let (mut world, _scratch) = unready();
    world.begin(clock::boot());
    let child = wait_for("the one that is to send the signal", || messenger(&world));

    kill(child, KILL).unwrap();

    let stopping = world.hear();
    assert!(matches!(stopping, ToElector::Stopping { reason: Reason::NotAcknowledged, .. }), "{stopping:?}");
    world.follows(Reason::NotAcknowledged);
    assert_eq!(world.line(), "starts", "a fresh standby");
}

/// Init's child that waits until the workload handles the signal of its promotion; it has executed nothing.
fn messenger(world: &World) -> Option<Pid> {
    let (init, elector) = (world.init(), world.elector());
    let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
    children(init).into_iter().find(|pid| *pid != elector && program(*pid) == program(init))
}

/// A standby that handles no signal before it is told to get ready, by the FIFO `ready`.
fn unready() -> (World, Scratch) {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("ready");
    let script = format!("echo starts; read word <{}; trap 'echo leads' USR1; while :; do sleep 0.01; done", fifo.display());
    let world = World::started(&always(Acknowledge::None, &["sh", "-c", &script]));
    (world, scratch)
}

/// The term is renewed, and given up all the same.
pub(crate) fn a_workload_that_does_not_handle_its_promotion_by_s_is_stopped() {
    let mut world = World::started(&within(timing(), always(Acknowledge::None, &STARTS)));
    let a = clock::boot();
    world.begin(a);
    let soft = world.deadlines(a).soft;
    while clock::boot() + Duration::from_secs(2) < soft {
        sleep_until(clock::boot() + Duration::from_secs(1));
        world.renew(clock::boot());
    }
    let ToElector::Stopping { reason, at, .. } = world.hear() else { panic!("not given up") };
    assert_eq!((reason, at >= soft), (Reason::NotAcknowledged, true));
    world.follows(Reason::NotAcknowledged);
    assert_eq!(world.line(), "starts", "a fresh standby");
}

pub(crate) fn a_word_from_somebody_else_acknowledges_nothing() {
    let (mut world, _) = promoted(&notifying("stubborn"));
    let workload = world.main();
    let environment = fs::read_to_string(format!("/proc/{workload}/environ")).unwrap();
    let address = environment.split('\0').find_map(|entry| entry.strip_prefix("NOTIFY_SOCKET=")).unwrap().to_owned();
    let asked = clock::boot();
    world.step_down(7, Reason::LostToHolder);
    assert_eq!(world.line(), "follows");
    notify_at(&address, "X_TENURE_ROLE=standby");
    world.stopped_in_the_end(7);
    assert!(clock::boot() >= asked + timing().loss_grace, "the whole time was left to the workload");
}

pub(crate) fn a_word_from_before_the_question_is_no_answer() {
    let (mut world, _) = promoted(&notifying("foretells"));
    let workload = world.main();
    // Init would read it at once, and nobody has asked yet.
    world.freeze();
    kill(workload, HUP).unwrap();
    assert_eq!(world.line(), "foretells");
    world.step_down(7, Reason::LostToHolder);
    world.passed_on();

    world.signal(CONT);

    assert_eq!(world.line(), "follows");
    let ToElector::Stopped { stop, .. } = world.hear() else { panic!("not stopped") };
    assert_eq!(stop.exit, Some(Exit::Signal(libc::SIGKILL)), "it has not answered since it was asked");
}

pub(crate) fn a_workload_that_floods_its_socket_is_killed_in_time_all_the_same() {
    let (world, _) = promoted(&within(burdened(), notifying("floods")));
    let end = world.deadlines(clock::boot()).end;
    let ToElector::Stopping { reason, at, .. } = world.hear() else { panic!("it goes on") };
    assert_eq!((reason, at < end), (Reason::Expired, true));
    sleep_until(end);
    assert_eq!(world.others(), []);
}

pub(crate) fn the_role_is_told_and_acknowledged_by_hooks() {
    let scratch = Scratch::new();
    let log = scratch.join("hooks");
    let hook = |words: &str| format!("echo {words} >>{}", log.display());
    let after_lead = hook("$TENURE_ROLE $TENURE_FENCING_TOKEN");
    let config = hooked(&STARTS, &after_lead, &hook("$TENURE_ROLE $TENURE_FENCING_TOKEN $TENURE_REASON"));
    let world = World::started(&config);
    world.lead(clock::boot());
    world.follows(Reason::StepDown);
    assert_eq!(fs::read_to_string(&log).unwrap(), "leader 17\nstandby 17 step-down\n");
    let reported = [HookKind::AfterLead, HookKind::BeforeFollow].map(|hook| (hook, Exit::Code(0)));
    assert_eq!(world.hooked.take(), reported, "in time to be told of");
}

pub(crate) fn what_a_hook_leaves_running_ends_with_it() {
    let config = hooked(&STARTS, "(trap '' TERM HUP; sleep 1000; echo promotes) &", "sleep 1000 &");
    let world = World::started(&config);
    world.lead(clock::boot());
    assert_eq!(world.others().len(), 1, "the workload alone");
    world.follows(Reason::StepDown);
    assert_eq!(world.others().len(), 1, "the workload alone");
}

pub(crate) fn a_workload_that_takes_its_signals_lives_on_in_either_role_however_they_were_set_at_the_start() {
    // A shell would unblock what it traps.
    let script = "import signal, time\n\
                  signal.signal(signal.SIGUSR1, lambda *_: print('leads'))\n\
                  signal.signal(signal.SIGUSR2, lambda *_: print('follows'))\n\
                  print('starts')\n\
                  while True: time.sleep(0.01)";
    let config = always(Acknowledge::None, &["python3", "-u", "-c", script]);
    for how in ["--default-signal", "--ignore-signal=USR1,USR2", "--block-signal=USR1,USR2"] {
        let (mut world, _) = World::beginning(&config, &["env", how]);
        assert_eq!(world.line(), "starts", "{how}");
        let main = world.main();
        world.lead(clock::boot());
        assert_eq!(world.line(), "leads", "{how}");
        world.follows(Reason::StepDown);
        assert_eq!(world.line(), "follows", "{how}");
        assert!(world.main() == main && state(main) != Some('Z'), "{how}: it lives on");
    }
}
