//! The site of docs/ is built, and what its links lead to is there.
//!
//! Building mdBook takes minutes: `.ci/nightly site`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use support::Scratch;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");

fn build(pages: &Path, site: &Path) -> Output {
    Command::new(Path::new(DOCS).join("build")).args([pages, site]).output().unwrap()
}

#[test]
fn the_site_has_every_page_and_every_link_leads_somewhere() {
    let site = Scratch::new();

    let output = build(Path::new(DOCS), &site);

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for page in ["index.html", "first-failover.html", "reference.html", "repository/config/tenure.yaml"] {
        assert!(site.join(page).exists(), "{page}");
    }
}

#[test]
fn a_link_to_nothing_a_heading_that_is_not_there_and_a_page_that_nobody_names_are_found() {
    for (name, text, words) in [
        ("lease.md", "[gone](gone.md)", "lease.html: gone.html"),
        ("lease.md", "[gone](limits.md#gone)", "lease.html: limits.html#gone"),
        ("new.md", "# New", "SUMMARY.md does not name new.md"),
    ] {
        let (pages, site) = (Scratch::new(), Scratch::new());
        for file in fs::read_dir(DOCS).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file()) {
            fs::copy(file.path(), pages.join(file.file_name())).unwrap();
        }
        fs::write(pages.join(name), text).unwrap();

        let output = build(&pages, &site);

        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{words} is not in\n{said}");
    }
}
