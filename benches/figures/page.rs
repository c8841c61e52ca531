//! The time that a program takes to ask whether the Lease is held (docs/term.md): a comparison in memory, and the clock.

use std::{hint::black_box, time::Duration};

use tenure::{
    clock,
    term_page::{Reader, TermPage},
};

use crate::table::{quantile, title};

const TIMES: u32 = 1_000_000;

pub fn show(rounds: usize) {
    title("may I? The page and the clock");
    let page = TermPage::create().expect("a page");
    let reader = Reader::open(page.number().try_into().expect("a number")).expect("a reader");
    let both = each(rounds, || black_box(clock::boottime()) < black_box(reader.hard()));
    let clock = each(rounds, || black_box(clock::boottime()) < black_box(Duration::ZERO));
    println!("  median of {rounds}: {both:.0} ns, of which the clock takes {clock:.0} ns");
}

/// Nanoseconds for each time.
fn each(rounds: usize, ask: impl Fn() -> bool) -> f64 {
    let round = || {
        let began = clock::boot();
        black_box((0..TIMES).filter(|_| black_box(ask())).count());
        clock::boot().since(began).as_secs_f64() * 1e9 / f64::from(TIMES)
    };
    let figures: Vec<f64> = std::iter::repeat_with(round).take(rounds).collect();
    quantile(&figures, 0.5)
}
