//! Makes the configuration of a file, the environment and flags. Init does that once, at start: nothing is read again.
//!
//! Owns where values come from (`document`, `keys`, `sources`), how they are merged (`load`, `preset`), whether they make sense
//! together (`rules`), and how a whole configuration is written (`schema`, `effective`).
//!
//! Layers: defaults, then one file, then `TENURE_` variables with two underscores together in their name, then flags. The type of a
//! key judges each value alone, with its origin. So all errors are reported at once, each with its file and line, its variable or its
//! flag. Only then the layers are merged: maps entry by entry, everything else as a whole.
//!
//! A variable and `--set` hold text. The text is read like a value without quotes in a file, with two exceptions: text stays text
//! (`007`), and `null` stands for none if the key may be null. An empty variable is an empty text: allowed if the file may say `""`.

mod document;
mod effective;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod keys;
mod load;
mod preset;
mod problem;
mod rules;
mod schema;
mod sources;
#[cfg(test)]
mod tests;

pub(crate) use document::documents;
pub(crate) use load::load_elsewhere;
pub use load::{Loaded, load};
pub use problem::{Invalid, Origin, Problem};
pub use rules::Purpose;
pub(crate) use rules::{is_label, lacks_variable, may_be_told};
pub use schema::{DEFAULTS, schema};
