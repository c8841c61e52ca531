//! Reads from a page of the documentation what its reader types, and the files that it tells the reader to paste.

use std::{fs, path::Path};

/// The lines of the blocks of `sh`, without their comments.
pub fn commands(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split("  #").next()).map(str::trim);
    lines.filter(|line| !line.is_empty())
}

/// The text of this file of `deploy/pasted`.
pub fn pasted(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/pasted").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The block that is this file: its comment at the top is the name.
pub fn file<'a>(page: &'a str, name: &str) -> &'a str {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let head = format!("# {name}");
    let named = |text: &&str| text.lines().find(|line| !line.starts_with("#!")) == Some(&head);
    blocks.map(|(_, text)| text).find(named).unwrap_or_else(|| panic!("the page has no {name}"))
}
