//! A time service that slews the kernel's clocks as fast as chrony may, 8 % each way, moves no deadline of the shipped program.
//!
//! A binary of its own, which `tests/run` runs alone: it slews the clocks of the whole machine for half a minute.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test fails by panicking, says why, and reads the hardware's clock past the product"
)]

use std::{process::ExitCode, time::Duration};

use nix::time::{ClockId, clock_gettime};
use support::{Behaviour, Stage, cases, not_run, slewed, slewed::Slewed};

/// D. The law leaves 0.52 s until then after H, and a clock that is 8 % slow would use up twice as much.
const DURATION: Duration = Duration::from_secs(12);

/// How long ago the last renewal may have been when the leader is cut off.
const RENEWED: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    if let Some(code) = slewed::face() {
        return code;
    }
    let cases = cases![EMBEDDED: no_slew_of_the_kernels_clock_moves_a_deadline];
    support::case::main(env!("CARGO_BIN_EXE_tenure"), vec![("clock", cases)])
}

/// CLOCK_MONOTONIC_RAW, which nothing slews.
fn hardware() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).expect("a clock");
    Duration::new(now.tv_sec().try_into().expect("seconds"), now.tv_nsec().try_into().expect("nanoseconds"))
}

async fn no_slew_of_the_kernels_clock_moves_a_deadline(stage: Stage) {
    let slewed = match Slewed::alone() {
        Ok(slewed) => slewed,
        // Only the simulation slews clocks then.
        Err(error) => return not_run("deadlines while the kernel's clocks are slewed by 8 % (CAP_SYS_TIME)", error),
    };
    for (rate, name) in [(9_200, "slow"), (10_800, "fast")] {
        let stage = stage.beside(name).await;
        let me = stage.prepare("me").await.workload(&Behaviour::stubborn());
        let me = me.set("lease.duration", "12s").set("workload.stop.killMargin", "400ms");
        let (me, _) = stage.lead(me).await;
        let workload = me.workload().await;
        let _x = stage.start("x").await;
        slewed.to(rate);
        let renewals = me.proxy.log.count(|e| e.request.is_held() && e.succeeded());
        me.proxy.log.nth(renewals + 3, "renewals", |e| e.request.is_held() && e.succeeded()).await;

        me.proxy.cut();
        let cut = hardware();

        me.gone(workload).await;
        let dead = hardware() - cut;
        stage.witness.start("x", 0).await;
        let taken = hardware() - cut;
        slewed.to(10_000);
        println!("{name}: dead after {dead:.2?}, taken after {taken:.2?}");
        assert!(dead < DURATION, "{name}: dead {dead:?} after the last renewal, and D is {DURATION:?}");
        assert!(taken + RENEWED > DURATION, "{name}: taken {taken:?} after the last renewal, and D is {DURATION:?}");
        stage.witness.assert_no_overlap();
    }
}
