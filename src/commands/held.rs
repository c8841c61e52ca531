//! `tenure held`: the same look at the page as a program's own, for scripts (docs/term.md).

use std::time::Duration;

use super::Ended;
use crate::{
    cli, clock,
    console::{self, answer},
    environment::TERM_FD,
    term_page::Reader,
    words::one_line,
};

const NOT_HELD: u8 = 1;
/// There is no page to look at.
const NO_PAGE: u8 = 2;

pub(super) fn run(held: &cli::Held) -> Ended {
    let unset = "is not set: only what a workload of tenure starts can ask, unless its log says that there is no page";
    let number = std::env::var_os(TERM_FD).ok_or_else(|| refuse(unset))?;
    let number = number.to_str().and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| refuse("is not the number of a descriptor"))?;
    let page = Reader::open(number).map_err(|error| refuse(&one_line(&error)))?;
    // The clock last: whatever comes between the two is time that has passed.
    if !held.token {
        return Ok(held_through(page.hard(), clock::boottime().saturating_add(held.span)));
    }
    let Some((token, hard)) = page.token() else { return Ok(NOT_HELD) };
    Ok(match held_through(hard, clock::boottime().saturating_add(held.span)) {
        0 if token == 0 => refuse("the fencing token of this term is no number of 64 bits"),
        0 => answer(&format!("{token}\n"), 0),
        code => code,
    })
}

fn held_through(hard: Duration, end: Duration) -> u8 {
    if end < hard { 0 } else { NOT_HELD }
}

fn refuse(why: &str) -> u8 {
    console::refuse(NO_PAGE, &format!("{TERM_FD}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_until_h_and_not_at_it() {
        let at = |hard, end| held_through(Duration::from_nanos(hard), Duration::from_nanos(end));
        assert_eq!([at(10, 9), at(10, 10), at(10, 11), at(0, 0)], [0, 1, 1, 1]);
    }
}
