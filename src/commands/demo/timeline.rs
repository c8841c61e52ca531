//! Draws who ran when as the text at the end of the demo, and judges it.
//!
//! Pure: runs and marks in, text out.

use std::time::Duration;

use super::workload::Run;
use crate::time::Instant;

/// Columns of the time axis.
const WIDTH: u32 = 90;

/// Something that was done.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) text: String,
}

/// The drawing and what it proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    /// The drawing and the verdict, for people.
    pub(super) text: String,
    /// True if no two ran at once, and the fencing tokens only rose.
    pub(super) holds: bool,
}

/// A line for each of `names`, one for the marks, and the verdict.
pub(super) fn draw(names: &[&str], runs: &[Run], marks: &[Mark], begin: Instant) -> Drawn {
    let end = runs.iter().map(|run| run.last).max().unwrap_or(begin);
    let axis = Axis { begin, column: end.since(begin).max(Duration::from_millis(1)) / WIDTH };
    let mut text = String::from("\n");
    for name in names {
        let bar: String = (0..WIDTH).map(|column| axis.cell(name, runs, column)).collect();
        text += &format!("{name:>6}  {bar}\n");
    }
    let numbers = axis.numbers(marks);
    text += &format!("        {numbers}\n        {}\n\n", axis.scale(end));
    for (mark, number) in marks.iter().zip(1..) {
        text += &format!("  {number}  {:5.1} s  {}\n", mark.at.since(begin).as_secs_f64(), mark.text);
    }
    let overlaps = overlaps(runs);
    for (one, other, span) in &overlaps {
        let line = format!("{} (token {}) and {} (token {})", one.replica, one.token, other.replica, other.token);
        text += &format!("\nTWO AT ONCE for {span:?}: {line}");
    }
    let alone = overlaps.is_empty();
    let rising = runs.is_sorted_by(|one, other| one.token <= other.token);
    let verdict = if alone { "no two at once" } else { "this must not happen" };
    let tokens = if rising { "fencing tokens only rose" } else { "FENCING TOKENS FELL" };
    text += &format!("\n{} runs of the workload, {verdict}; {tokens}.\n", runs.len());
    Drawn { text, holds: alone && rising }
}

/// Pairs that ran at once, and for how long. The runs are sorted by their first stamps.
fn overlaps(runs: &[Run]) -> Vec<(&Run, &Run, Duration)> {
    let mut found = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for later in runs.iter().skip(index + 1).filter(|later| later.first <= run.last) {
            found.push((run, later, run.last.min(later.last).since(later.first)));
        }
    }
    found
}

/// Returns a length of time for people.
pub(super) fn span(span: Duration) -> String {
    if span < Duration::from_secs(1) { format!("{} ms", span.as_millis()) } else { format!("{:.2} s", span.as_secs_f64()) }
}

struct Axis {
    begin: Instant,
    column: Duration,
}

impl Axis {
    fn cell(&self, name: &str, runs: &[Run], column: u32) -> char {
        let from = self.begin + self.column * column;
        let to = from + self.column;
        let ran = runs.iter().any(|run| run.replica == name && run.first < to && run.last >= from);
        if ran { '█' } else { '·' }
    }

    fn numbers(&self, marks: &[Mark]) -> String {
        let mut line = vec![' '; WIDTH as usize];
        for (mark, number) in marks.iter().zip(1_u32..) {
            let column = mark.at.since(self.begin).as_nanos() / self.column.as_nanos().max(1);
            let place = usize::try_from(column).ok().and_then(|column| line.get_mut(column));
            if let (Some(place), Some(digit)) = (place, char::from_digit(number % 10, 10)) {
                *place = digit;
            }
        }
        line.into_iter().collect::<String>().trim_end().to_owned()
    }

    fn scale(&self, end: Instant) -> String {
        let seconds = format!("{:.0} s", end.since(self.begin).as_secs_f64());
        let width = (WIDTH as usize).saturating_sub(3);
        format!("0 s{seconds:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn run(replica: &str, token: u64, first: u64, last: u64) -> Run {
        Run { replica: replica.into(), token, first: at(first), last: at(last) }
    }

    #[test]
    fn runs_one_after_the_other_are_alone() {
        let runs = [run("red", 3, 0, 899), run("green", 12, 901, 1_800)];

        let drawn = draw(&["red", "green"], &runs, &[], at(0));

        assert!(drawn.holds);
        let (ran, stood) = ("█".repeat(45), "·".repeat(45));
        assert!(drawn.text.contains(&format!("   red  {ran}{stood}\n green  {stood}{ran}\n")), "{}", drawn.text);
        assert!(drawn.text.contains("2 runs of the workload, no two at once; fencing tokens only rose."), "{}", drawn.text);
    }

    #[test]
    fn two_at_once_are_named_with_how_long() {
        let runs = [run("red", 3, 0, 1_000), run("green", 4, 990, 2_000)];

        let drawn = draw(&["red", "green"], &runs, &[], at(0));

        assert!(!drawn.holds);
        assert!(drawn.text.contains("TWO AT ONCE for 10ms: red (token 3) and green (token 4)"), "{}", drawn.text);
    }

    #[test]
    fn a_run_within_another_counts_even_if_a_third_began_between() {
        let runs = [run("red", 3, 0, 1_000), run("green", 4, 100, 200), run("blue", 5, 300, 400)];

        assert_eq!(overlaps(&runs).len(), 2);
    }

    #[test]
    fn a_falling_token_is_no_success() {
        let runs = [run("red", 9, 0, 900), run("green", 8, 1_000, 2_000)];

        let drawn = draw(&["red", "green"], &runs, &[], at(0));

        assert!(!drawn.holds && drawn.text.contains("FENCING TOKENS FELL"));
    }

    #[test]
    fn marks_stand_where_they_happened() {
        let runs = [run("red", 3, 0, 9_000)];
        let marks = [Mark { at: at(4_500), text: "something".into() }];

        let drawn = draw(&["red"], &runs, &marks, at(0));

        let numbers = drawn.text.lines().find(|line| line.trim() == "1").expect("a line of numbers");
        assert_eq!(numbers.len(), 8 + 46);
        assert!(drawn.text.contains("1    4.5 s  something"), "{}", drawn.text);
    }
}
