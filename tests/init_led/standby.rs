//! `standby.command` with real processes.

use support::{Scratch, safe};
use tenure::{
    clock,
    config::Config,
    link::{Reason, Term, Then, ToInit},
};

use super::world::{World, config, shell};

/// Each of both holds the lock for as long as anything of it runs, and says if it is not alone.
const WITNESS: &str = "exec 9>>$LOCK; flock -n 9 || echo together; echo $TENURE_ROLE";

/// This while following, and a workload; both of which leave a daemon.
fn beside(scratch: &Scratch, standby: &str) -> Config {
    let daemon = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &";
    let script = |rest: &str| shell(&format!("{WITNESS}; {daemon} {rest}"));
    let mut config = config("");
    (config.workload.command, config.standby.command) = (script("exec sleep 1000"), script(standby));
    config.workload.env.insert("LOCK".into(), scratch.join("lock").display().to_string());
    config
}

fn assert_alone(world: &mut World, role: &str) {
    let line = world.line();
    safe(line != "together", || format!("the {role} runs beside another"));
    assert_eq!(line, role);
}

pub(crate) fn the_standby_is_gone_as_a_whole_before_the_leader_starts_and_the_leader_before_the_standby() {
    let scratch = Scratch::new();
    let (mut world, _) = World::contained(&beside(&scratch, "exec sleep 1000"));
    assert_alone(&mut world, "standby");
    world.lead(clock::boot());
    assert_alone(&mut world, "leader");
    world.step_down(7, Reason::StepDown);
    assert_eq!(world.stopped_in_the_end(7), Then::Follow);
    assert_alone(&mut world, "standby");
    world.tell(&ToInit::Ended { term: Term(1), backoff: None });
    world.tell_lead_of(2, clock::boot());
    assert_alone(&mut world, "leader");
}
