//! `tenure held` where there is nothing to read; where there is, tests/term_page and tests/init_led have it read.

use crate::world::tenure;

#[test]
fn without_a_page_nobody_knows() {
    tenure(&["held"], &[]).says(2, &["TENURE_TERM_FD: is not set: only what a workload of tenure starts can ask"]);
    for number in ["", "x", "-1", "70000"] {
        tenure(&["held"], &[("TENURE_TERM_FD", number)]).says(2, &["TENURE_TERM_FD: is not the number of a descriptor"]);
    }
    tenure(&["held"], &[("TENURE_TERM_FD", "100")]).says(2, &["descriptor 100 cannot be read", "closes what it inherits"]);
    tenure(&["held"], &[("TENURE_TERM_FD", "0")]).says(2, &["descriptor 0 is no page of this version of tenure"]);
}

#[test]
fn a_span_without_a_unit_and_an_unknown_word_are_64() {
    for span in ["2", "-1s", "soon"] {
        tenure(&["held", &format!("--for={span}")], &[]).says(78, &["is not a duration: write a number and a unit"]);
    }
    for line in [&["held", "2s"][..], &["held", "--four=2s"], &["held", "--", "true"]] {
        tenure(line, &[]).says(64, &["Usage: tenure held"]);
    }
}
