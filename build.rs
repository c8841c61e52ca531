//! Orders the code of the static binary; see `src/main.ld`.

use std::{env, path::Path};

fn main() {
    let Ok(root) = env::var("CARGO_MANIFEST_DIR") else { return };
    let script = Path::new(&root).join("src/main.ld");
    println!("cargo::rerun-if-changed={}", script.display());
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|environment| environment == "musl") {
        println!("cargo::rustc-link-arg-bin=tenure=-T{}", script.display());
    }
}
