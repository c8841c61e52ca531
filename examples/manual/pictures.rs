//! The pictures of the documentation that are drawn from the code.

use tenure::{config::Config, law::RETRY_PAUSE, svg::Picture, time::Instant};

/// The width of both.
const WIDTH: f64 = 860.0;

/// A term whose renewals fail, to scale, by the times of the default configuration.
pub(crate) fn timing() -> String {
    let timing = Config::default().timing();
    let deadlines = timing.deadlines(Instant::BOOT);
    let seconds = |at: Instant| at.since(Instant::BOOT).as_secs_f64();
    let takeover = seconds(timing.takeable(Instant::BOOT, timing.duration));
    let [stop, kill, end] = [deadlines.soft, deadlines.hard, deadlines.end].map(seconds);
    let (period, attempt) = (timing.renew_period.as_secs_f64(), timing.attempt_timeout.as_secs_f64());
    let x = |at: f64| 132.0 + 690.0 * at / 16.5;
    let mut picture = Picture::new(WIDTH, "A term whose renewals fail, to scale (default times)");
    for second in (0..=16).step_by(2).map(f64::from) {
        picture.line("axis", [x(second), 70.0, x(second), 212.0]);
        picture.words("faint mid", x(second), 228.0, &format!("{second} s"));
    }
    for (row, name) in [(94.0, "renewals"), (136.0, "the program"), (178.0, "a standby")] {
        picture.words("end", 122.0, row, name);
    }
    picture.bar("green", [x(0.0) - 2.0, 79.0, 4.0, 22.0], "the last renewal that is confirmed: it is sent at 0 s");
    for number in 0..timing.attempts() {
        let from = period + f64::from(number) * (attempt + RETRY_PAUSE.as_secs_f64());
        picture.bar("amber", [x(from), 79.0, x(from + attempt) - x(from), 22.0], "an attempt to renew that is not answered");
        picture.words("on mid", x(from + attempt / 2.0), 95.0, "attempt");
    }
    for (class, from, to, says) in
        [("green", 0.0, stop, "runs"), ("amber", stop, kill, "stops: lossGrace"), ("red", kill, end, "kill")]
    {
        picture.bar(class, [x(from), 121.0, x(to) - x(from), 22.0], says);
        picture.words("on mid", x(f64::midpoint(from, to)), 137.0, says);
    }
    picture.bar("idle", [x(0.0), 163.0, x(takeover) - x(0.0), 22.0], "has seen the renewal, and waits");
    picture.bar("green", [x(takeover), 163.0, x(16.5) - x(takeover), 22.0], "leads");
    picture.words("mid", x(takeover / 2.0), 179.0, "sees no renewal, and waits");
    let deadlines = [
        (stop, "stop deadline (S)", "stop signal"),
        (kill, "kill deadline (H)", "SIGKILL to everything"),
        (end, "end (E)", "everything is gone"),
        (takeover, "takeover", "a standby leads"),
    ];
    let mut told = String::from("The last renewal is sent at 0 s.");
    for ((at, name, what), y) in deadlines.into_iter().zip([252.0, 272.0, 292.0, 312.0]) {
        picture.line("line dash", [x(at), 60.0, x(at), y]);
        picture.words("end", x(at) - 5.0, y, &format!("{name}, {at} s: {what}"));
        told += &format!(" At {at} s, the {name}: {what}.");
    }
    picture.words("faint", x(0.0), 64.0, "the last renewal that is confirmed is sent");
    picture.file(328.0, &told)
}

/// The processes of a replica, and what each does to which.
pub(crate) fn processes() -> String {
    let mut picture = Picture::new(WIDTH, "The processes of a replica");
    let boxes = [
        ([28.0, 48.0, 588.0, 226.0], "the container of the program", ""),
        ([52.0, 88.0, 200.0, 64.0], "init", "PID 1: no network"),
        ([392.0, 88.0, 200.0, 64.0], "elector", "decides who leads"),
        ([52.0, 204.0, 200.0, 54.0], "the program", "and all that it starts"),
        ([392.0, 204.0, 200.0, 54.0], "fuse", "a timer in the kernel"),
        ([672.0, 88.0, 160.0, 64.0], "API server", "the Lease"),
        ([672.0, 204.0, 160.0, 54.0], "witness", "a second container"),
    ];
    for ([x, y, width, height], name, what) in boxes {
        let is_container = what.is_empty();
        picture.bar(if is_container { "panel" } else { "box" }, [x, y, width, height], name);
        let class = if is_container { "faint" } else { "bold" };
        picture.words(class, x + 12.0, y + 24.0, name);
        picture.words("faint", x + 12.0, y + 44.0, what);
    }
    let lines = [
        ([252.0, 112.0, 392.0, 112.0], (262.0, 106.0), "\u{2194} few messages"),
        ([252.0, 132.0, 392.0, 132.0], (262.0, 148.0), "\u{2194} guard each other"),
        ([152.0, 152.0, 152.0, 204.0], (160.0, 182.0), "\u{2193} starts, stops, kills, proves the end"),
        ([592.0, 120.0, 672.0, 120.0], (600.0, 112.0), "\u{2194} renews"),
        ([392.0, 231.0, 252.0, 231.0], (262.0, 225.0), "\u{2190} kills, if both fail"),
        ([752.0, 204.0, 752.0, 152.0], (662.0, 182.0), "\u{2191} releases"),
    ];
    for (ends, (x, y), says) in lines {
        picture.line("line", ends);
        picture.words("", x, y, says);
    }
    picture.words(
        "faint",
        28.0,
        300.0,
        "The witness releases the Lease once the kernel says that no process of the container is left.",
    );
    picture.file(
        318.0,
        "Init, PID 1 of the container, starts, stops and kills the program, and uses no network. The elector decides who leads, and renews \
         the Lease at the API server. Init and elector guard each other, and a timer in the kernel, the fuse, kills the program if both \
         fail. A witness in a second container releases the Lease once no process of the container is left.",
    )
}
