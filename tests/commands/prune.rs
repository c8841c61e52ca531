//! `tenure prune` refuses what it cannot use, before it asks anybody.

use crate::world::tenure;

#[test]
fn an_age_without_a_unit_is_64() {
    for age in ["60", "-1h", "soon"] {
        let option = format!("--older-than={age}");
        tenure(&["prune", &option], &[]).says(64, &[&format!("{age:?} is not a duration: write a number and a unit")]);
    }
    tenure(&["prune", "a-lock"], &[]).says(64, &["unexpected argument 'a-lock'"]);
}

#[test]
fn without_a_cluster_it_is_78() {
    tenure(&["prune"], &[("HOME", "/home/nobody")]).says(78, &["no cluster to talk to"]);
}

#[test]
fn its_help_says_what_stays_and_its_exit_codes() {
    tenure(&["prune", "--help"], &[]).says(0, &["is in use, and stays", "1 the server refused to delete some", "[default: 1h]"]);
}
