//! Draws who ran when as a picture, for a page of docs/.
//!
//! Pure: runs and marks in, SVG out.

use super::{
    timeline::{Mark, span},
    workload::Run,
};
use crate::{svg::Picture, time::Instant};

const WIDTH: f64 = 860.0;
/// The left and the right end of the axis.
const AXIS: [f64; 2] = [76.0, 836.0];
const TOP: f64 = 62.0;
const ROW: f64 = 32.0;
/// Seconds from one line of the scale to the next.
const STEP: usize = 5;

/// A row for each of `names`, a line for each mark, and below them what happened at each.
pub(super) fn draw(names: &[&str], runs: &[Run], marks: &[Mark], begin: Instant) -> String {
    let seconds = |at: Instant| at.since(begin).as_secs_f64();
    let end = runs.iter().map(|run| seconds(run.last)).fold(1.0, f64::max);
    let x = |seconds: f64| AXIS[0] + (AXIS[1] - AXIS[0]) * seconds / end;
    let mut picture = Picture::new(WIDTH, "A tenure demo: three replicas, one of which runs the program at a time");
    let bottom = names.iter().fold(TOP, |y, _| y + ROW);
    for second in (0_u32..).step_by(STEP).map(f64::from).take_while(|second| *second <= end) {
        picture.line("axis", [x(second), TOP - 4.0, x(second), bottom]);
        picture.words("faint mid", x(second), bottom + 16.0, &format!("{second} s"));
    }
    for (name, y) in names.iter().zip(rows(TOP, ROW)) {
        picture.words("end", AXIS[0] - 10.0, y + 16.0, name);
        picture.bar("idle", [AXIS[0], y, AXIS[1] - AXIS[0], 22.0], "stands by");
        for run in runs.iter().filter(|run| run.replica == *name) {
            let (from, to) = (seconds(run.first), seconds(run.last));
            picture.bar(name, [x(from), y, x(to) - x(from), 22.0], &format!("ran from {from:.2} s to {to:.2} s"));
        }
    }
    let mut told = Vec::new();
    for ((mark, number), y) in marks.iter().zip(1..).zip(rows(bottom + 42.0, 20.0)) {
        let at = seconds(mark.at);
        picture.line("line dash", [x(at), TOP - 8.0, x(at), bottom]);
        picture.words("bold mid", x(at), TOP - 12.0, &format!("{number}"));
        let said = format!("{} {}", mark.text, follows(runs, mark.at));
        picture.words("bold end", 34.0, y, &format!("{number}"));
        picture.words("", 44.0, y, &format!("{at:.1} s: {said}"));
        told.push(format!("At {at:.1} s {said}."));
    }
    let height = rows(bottom + 42.0, 20.0).nth(marks.len()).unwrap_or(bottom);
    picture.file(height, &told.join(" "))
}

/// Who ran next after `at`, and how long nobody did before that.
fn follows(runs: &[Run], at: Instant) -> String {
    let ended = runs.iter().filter(|run| run.first <= at).map(|run| run.last).max();
    let next = runs.iter().find(|run| run.first > at);
    match (ended, next) {
        (Some(ended), Some(next)) => format!("\u{2192} {} runs, after a gap of {}", next.replica, span(next.first.since(ended))),
        (None, _) | (_, None) => "\u{2192} nobody runs".into(),
    }
}

fn rows(first: f64, step: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |y| Some(y + step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn each_run_is_a_bar_to_scale_and_each_mark_says_what_followed() {
        let run = |replica: &str, first, last| Run { replica: replica.into(), token: 1, first: at(first), last: at(last) };
        let runs = [run("red", 0, 5_000), run("blue", 5_012, 10_000)];
        let marks = [Mark { at: at(4_990), text: "red is killed".into() }];

        let drawn = draw(&["red", "blue"], &runs, &marks, at(0));

        assert!(drawn.contains("class=\"red\" x=\"76.0\" y=\"62.0\" width=\"380.0\""), "{drawn}");
        assert!(drawn.contains("class=\"blue\" x=\"456.9\" y=\"94.0\" width=\"379.1\""), "{drawn}");
        assert!(
            drawn.contains("<desc id=\"tells\">At 5.0 s red is killed \u{2192} blue runs, after a gap of 12 ms.</desc>"),
            "{drawn}"
        );
    }
}
