//! `tenure held`: the same look at the page as a program's own, for scripts (docs/term.md).

use crate::{
    cli, clock,
    console::{answer, complain},
    environment::TERM_FD,
    term_page::Reader,
    time::Instant,
    words::one_line,
};

const NOT_HELD: u8 = 1;
/// There is no page to look at.
const NO_PAGE: u8 = 2;

pub(super) fn run(held: &cli::Held) -> u8 {
    let Some(number) = std::env::var_os(TERM_FD) else {
        let why = "is not set: only what a workload of tenure starts can ask, unless its log says that there is no page";
        return refuse(why);
    };
    let Some(number) = number.to_str().and_then(|number| number.parse().ok()) else {
        return refuse("is not the number of a descriptor");
    };
    let page = match Reader::open(number) {
        Ok(page) => page,
        Err(error) => return refuse(&one_line(&error)),
    };
    // The clock last: whatever comes between the two is time that has passed.
    if !held.token {
        return held_through(page.hard(), clock::boot() + held.span);
    }
    match page.token() {
        Some((token, hard)) => match held_through(hard, clock::boot() + held.span) {
            0 if token == 0 => refuse("the fencing token of this term is no number of 64 bits"),
            0 => answer(&format!("{token}\n"), 0),
            code => code,
        },
        None => NOT_HELD,
    }
}

fn held_through(hard: Instant, end: Instant) -> u8 {
    if end < hard { 0 } else { NOT_HELD }
}

fn refuse(why: &str) -> u8 {
    complain(&format!("{TERM_FD}: {why}"));
    NO_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_until_h_and_not_at_it() {
        let at = |hard, end| held_through(Instant::from_nanos(hard), Instant::from_nanos(end));
        assert_eq!([at(10, 9), at(10, 10), at(10, 11), at(0, 0)], [0, 1, 1, 1]);
    }
}
