//! `tenure completions` and `tenure man`; tests/manual.rs has what is in them.

use crate::world::tenure;

#[test]
fn a_shell_and_man_get_what_a_release_has_as_files() {
    tenure(&["completions", "bash"], &[]).says(0, &["_tenure()", "step-down"]);
    tenure(&["man"], &[]).says(0, &[".TH tenure 1"]);
    tenure(&["man", "lock"], &[]).says(0, &["\\fBtenure lock\\fR [OPTIONS] ", " \\-\\- <COMMAND>"]);
    tenure(&["man", "config", "schema"], &[]).says(0, &[".TH tenure-config-schema 1"]);
}

#[test]
fn what_there_is_not_is_refused_and_names_what_there_is() {
    tenure(&["completions", "tcsh"], &[]).says(78, &["bash", "fish", "zsh"]);
    tenure(&["man", "statsu"], &[]).says(78, &["there is no page tenure-statsu; there are tenure, tenure-run"]);
}
