//! Prints rows of figures.

use std::time::Duration;

/// Milliseconds. Negative if the next workload began before the last one had ended.
pub type Gap = f64;

/// The time from the last stamp of one workload to the first stamp of the next.
pub fn gap(last: tenure::time::Instant, first: tenure::time::Instant) -> Gap {
    let millis = |span: Duration| span.as_secs_f64() * 1_000.0;
    if first >= last { millis(first.since(last)) } else { -millis(last.since(first)) }
}

/// The smallest value that this fraction of the figures does not exceed.
pub fn quantile(figures: &[Gap], part: f64) -> Gap {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Prints the median, p99, the maximum, and how often two workloads ran at once.
pub fn row(who: &str, figures: &[Gap]) {
    let overlaps: Vec<Gap> = figures.iter().copied().filter(|figure| *figure < 0.0).collect();
    let longest = overlaps.iter().copied().fold(0.0, f64::min);
    println!(
        "  {who:<20} median {:>9.1} ms   p99 {:>9.1} ms   max {:>9.1} ms   n {:>4}   two at once {:>3} times, {:.0} ms at most",
        quantile(figures, 0.5),
        quantile(figures, 0.99),
        quantile(figures, 1.0),
        figures.len(),
        overlaps.len(),
        -longest,
    );
}

pub fn title(text: &str) {
    println!("\n{text}");
}
