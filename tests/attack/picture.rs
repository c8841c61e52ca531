//! The picture: strips of one minute, with three rows for the places of a world; above them, the faults that affected all.

use std::{fmt::Write as _, time::Duration};

use tenure::time::Instant;

use crate::{history::History, world::place_of};

const STRIP: Duration = Duration::from_secs(60);
/// Width of a strip in the plain form, in characters.
const WIDTH: usize = 120;
const TERMS: [&str; 4] = ["#2b6cb0", "#2f855a", "#b7791f", "#6b46c1"];

/// As SVG.
pub(crate) fn svg(history: &History, begin: Instant, end: Instant) -> String {
    let strips = end.since(begin).as_secs() / STRIP.as_secs() + 1;
    let (width, height) = (1260, strips * 110 + 30);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"9\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"16\" font-size=\"12\">world {}: a bar is a term \
         with a workload, a band a fault at that replica, above the rows at the server or the Lease</text>\n",
        history.world
    );
    for strip in 0..strips {
        let from = begin + STRIP * u32::try_from(strip).unwrap_or_default();
        draw(&mut svg, history, from, strip * 110 + 30, from.since(begin));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, history: &History, from: Instant, top: u64, at: Duration) {
    let to = from + STRIP;
    let x = |moment: Instant| 50.0 + moment.clamp(from, to).since(from).as_secs_f64() * 20.0;
    let mut line = |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string");
    line(format_args!("<text x=\"5\" y=\"{}\">{} s</text>\n", top + 12, at.as_secs()));
    for place in 0..3 {
        let y = top + 20 + place * 26;
        line(format_args!("<text x=\"30\" y=\"{}\">{place}</text><path d=\"M50 {} h1200\" stroke=\"#ddd\"/>\n", y + 14, y + 20));
    }
    for span in history.spans.iter().filter(|span| span.from < to && span.to >= from) {
        let (y, height) = span.place.map_or((top, 98), |place| (top + 20 + 26 * place as u64, 20));
        let (left, width) = (x(span.from), (x(span.to) - x(span.from)).max(1.5));
        line(format_args!(
            "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"#e53e3e\" opacity=\"0.25\"><title>{0}\
             </title></rect><text x=\"{left:.1}\" y=\"{1}\" fill=\"#9b2c2c\">{0}</text>\n",
            span.fault.describe(),
            y + 8
        ));
    }
    for (index, life) in history.lives.iter().enumerate().filter(|(_, life)| life.first < to && life.last >= from) {
        let y = top + 30 + 26 * place_of(&life.replica) as u64;
        let (left, width) = (x(life.first), (x(life.last) - x(life.first)).max(1.0));
        line(format_args!(
            "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"9\" fill=\"{}\"><title>{} token {}</title></rect>\n",
            TERMS[index % TERMS.len()],
            life.replica,
            life.token
        ));
    }
}

/// As plain text: `=` is a workload, `.` a fault of that replica; above them `:` is a fault of the server, `*` one of the Lease.
pub(crate) fn plain(history: &History, begin: Instant, end: Instant) -> String {
    let mut text = String::new();
    let mut from = begin;
    while from < end {
        let column = |moment: Instant| {
            let part = moment.since(from).as_secs_f64() / STRIP.as_secs_f64();
            ((part * WIDTH as f64) as usize).min(WIDTH - 1)
        };
        let mut rows = vec![vec![' '; WIDTH]; 4];
        let mut fill = |row: usize, first: Instant, last: Instant, with: char| {
            if first < from + STRIP && last >= from {
                rows[row][column(first)..=column(last)].fill(with);
            }
        };
        for span in &history.spans {
            let mark = if span.place.is_some() {
                '.'
            } else if span.to > span.from {
                ':'
            } else {
                '*'
            };
            fill(span.place.map_or(0, |place| place + 1), span.from, span.to, mark);
        }
        for life in &history.lives {
            fill(place_of(&life.replica) + 1, life.first, life.last, '=');
        }
        writeln!(text, "world {}, {} s", history.world, from.since(begin).as_secs()).expect("a string");
        for (row, name) in rows.iter().zip([" ", "0", "1", "2"]) {
            writeln!(text, "{name} |{}|", row.iter().collect::<String>()).expect("a string");
        }
        from += STRIP;
    }
    text
}
