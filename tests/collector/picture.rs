//! Spans as a picture: one bar each, replica by replica, on one axis of time.

use std::{fs, path::Path};

use tenure::svg::Picture;

use super::Seen;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 270.0;
const ROW: f64 = 26.0;
const CLASSES: [&str; 4] = ["blue", "green", "amber", "red"];

/// Writes the spans of this trace to `file` as SVG.
pub fn draw(seen: &[Seen], trace: &str, file: &Path) {
    let mut spans: Vec<&Seen> = seen.iter().filter(|span| span.trace == trace).collect();
    spans.sort_by_key(|span| (span.begin, u64::MAX - span.end));
    let begin = spans.iter().map(|span| span.begin).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
    let millis = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    let scale = (WIDTH - LABELS - 100.0) / millis(begin, end).max(0.001);
    let mut picture = Picture::new(WIDTH, &format!("The trace of a handover: {:.1} ms", millis(begin, end)));
    let (mut replicas, mut told, mut y) = (Vec::new(), Vec::new(), 46.0);
    for span in &spans {
        let replica = span.resource["service.instance.id"].split('_').next().unwrap_or_default();
        let known = replicas.iter().position(|other| *other == replica);
        let class = CLASSES[known.unwrap_or(replicas.len()) % CLASSES.len()];
        if known.is_none() {
            replicas.push(replica);
        }
        let is_part = spans.iter().any(|whole| span.is_part_of(whole));
        let what = match span.attributes.get("tenure.to") {
            Some(to) => format!("{replica}: {} to {to} ({})", span.name, span.attributes["tenure.reason"]),
            None => span.name.clone(),
        };
        let (from, long) = (LABELS + millis(begin, span.begin) * scale, millis(span.begin, span.end));
        let took = format!("{long:.1} ms");
        picture.words(if is_part { "faint" } else { "" }, if is_part { 34.0 } else { 16.0 }, y + 13.0, &what);
        picture.bar(class, [from, y, (long * scale).max(2.0), 17.0], &format!("{what}: {took}"));
        picture.words("faint", from + (long * scale).max(2.0) + 6.0, y + 13.0, &took);
        told.push(format!("{what}: {took}."));
        y += ROW;
    }
    fs::write(file, picture.file(y + 12.0, &told.join(" "))).expect("a file");
}
