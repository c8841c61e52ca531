//! The picture: strips of one minute, with a row for each place of a world; above them, the faults that affected all.

use std::{fmt::Write as _, time::Duration};

use tenure::time::Instant;

use crate::{history::History, world::place_of};

const STRIP: Duration = Duration::from_secs(60);
/// Width of a strip, in characters.
const WIDTH: usize = 120;

/// As plain text: `=` is a workload, `.` a fault of that replica; above them `:` is a fault of the server, `*` one of the Lease.
pub(crate) fn plain(history: &History, begin: Instant, end: Instant) -> String {
    let mut text = String::new();
    let ran = history.lives.iter().map(|life| place_of(&life.replica));
    let places = ran.chain(history.spans.iter().filter_map(|span| span.place)).max().map_or(0, |last| last + 1);
    let mut from = begin;
    while from < end {
        let column = |moment: Instant| {
            let part = moment.since(from).as_secs_f64() / STRIP.as_secs_f64();
            ((part * WIDTH as f64) as usize).min(WIDTH - 1)
        };
        let mut rows = vec![vec![' '; WIDTH]; 1 + places];
        let mut fill = |row: usize, first: Instant, last: Instant, with: char| {
            if first < from + STRIP && last >= from {
                rows[row][column(first)..=column(last)].fill(with);
            }
        };
        for span in &history.spans {
            let mark = match span.place {
                Some(_) => '.',
                None if span.to > span.from => ':',
                None => '*',
            };
            fill(span.place.map_or(0, |place| place + 1), span.from, span.to, mark);
        }
        for life in &history.lives {
            fill(place_of(&life.replica) + 1, life.first, life.last, '=');
        }
        writeln!(text, "world {}, {} s", history.world, from.since(begin).as_secs()).expect("a string");
        for (number, row) in rows.iter().enumerate() {
            let name = number.checked_sub(1).map_or_else(|| " ".into(), |place| place.to_string());
            writeln!(text, "{name} |{}|", row.iter().collect::<String>()).expect("a string");
        }
        from += STRIP;
    }
    text
}
