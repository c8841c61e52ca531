//! Which face am I: init, elector, a command? Then hand over.

fn main() {}
