//! Writes the files that are generated from the code.
//!
//! ```text
//! cargo run --example manual                  the reference and the schemas of the repository; a test keeps them current
//! cargo run --example manual -- DIRECTORY     the files of a release beside the binary: manual pages, completions, the schema
//! ```

use std::{env, fs, io, path::Path};

mod pages;

use pages::contract;

fn main() -> io::Result<()> {
    let (top, files) = match env::args_os().nth(1) {
        None => (env!("CARGO_MANIFEST_DIR").into(), pages::kept()),
        Some(directory) => (directory, pages::shipped()?),
    };
    for (name, text) in files {
        let file = Path::new(&top).join(&name);
        if name == pages::CONTRACT {
            let changelog = fs::read_to_string(Path::new(&top).join("CHANGELOG.md"))?;
            let before = contract::read(&fs::read_to_string(&file).unwrap_or_default());
            let broken = contract::broken(&before, &contract::read(&String::from_utf8_lossy(&text)), &changelog);
            if !broken.is_empty() {
                return Err(io::Error::other(format!("write these below \"### Breaking\" in CHANGELOG.md first: {broken:#?}")));
            }
        }
        fs::create_dir_all(file.parent().unwrap_or_else(|| Path::new(&top)))?;
        fs::write(file, text)?;
    }
    Ok(())
}
