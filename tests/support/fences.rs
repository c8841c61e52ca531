//! What a page of the documentation lets its reader type.

/// The lines of the blocks of `sh`, without their comments.
pub(crate) fn commands(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split("  #").next()).map(str::trim);
    lines.filter(|line| !line.is_empty())
}
