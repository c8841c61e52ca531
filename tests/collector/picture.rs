//! Spans as a picture: one bar each, replica by replica, on one axis of time.

use std::{fmt::Write as _, fs, path::Path};

use super::Seen;

const WIDTH: f64 = 900.0;
const LABELS: f64 = 230.0;
const ROW: usize = 24;
const COLOURS: [&str; 4] = ["#2f6fb2", "#c2571a", "#3d8a47", "#7a4fa3"];

/// Writes the spans of this trace to `file` as SVG.
pub fn draw(seen: &[Seen], trace: &str, file: &Path) {
    let mut spans: Vec<&Seen> = seen.iter().filter(|span| span.trace == trace).collect();
    spans.sort_by_key(|span| (span.begin, u64::MAX - span.end));
    let begin = spans.iter().map(|span| span.begin).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
    let millis = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    let scale = (WIDTH - LABELS - 90.0) / millis(begin, end).max(0.001);
    let mut replicas = Vec::new();
    let mut rows = String::new();
    for (row, span) in spans.iter().enumerate() {
        let replica = span.resource["service.instance.id"].split('_').next().unwrap_or_default();
        let known = replicas.iter().position(|other| *other == replica);
        let colour = COLOURS[known.unwrap_or(replicas.len()) % COLOURS.len()];
        if known.is_none() {
            replicas.push(replica);
        }
        let is_part = spans.iter().any(|whole| span.is_part_of(whole));
        let what = match span.attributes.get("tenure.to") {
            Some(to) => format!("{replica}: {} to {to} ({})", span.name, span.attributes["tenure.reason"]),
            None => span.name.clone(),
        };
        let (y, indent) = (40 + row * ROW, if is_part { 20 } else { 4 });
        let (from, long) = (LABELS + millis(begin, span.begin) * scale, millis(span.begin, span.end));
        let (bar, after) = ((long * scale).max(2.0), from + (long * scale).max(2.0) + 5.0);
        let base = y + 13;
        write!(
            rows,
            r#"<text x="{indent}" y="{base}">{what}</text><rect x="{from:.1}" y="{y}" width="{bar:.1}" height="16" rx="2" fill="{colour}"/><text x="{after:.1}" y="{base}">{long:.1} ms</text>"#
        )
        .expect("text");
    }
    let (height, total) = (60 + spans.len() * ROW, millis(begin, end));
    let head = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/><text x="4" y="22" font-size="15">trace {trace}, {total:.1} ms</text>"#
    );
    fs::write(file, format!("{head}{rows}</svg>\n")).expect("a file");
}
