//! Shifts the wall clock of one replica, and no other clock, with a library preloaded into its processes.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use support::not_run;

/// Builds the library in this directory, if there is a C compiler.
pub(crate) fn library(directory: &Path) -> Option<PathBuf> {
    let (source, library) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attack/wall.c"), directory.join("wall.so"));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    let built = built.is_ok_and(|status| status.success());
    if !built {
        not_run("an attack on the wall clocks of replicas", "there is no C compiler (cc)");
    }
    built.then_some(library)
}

/// The wall clock of one replica's place.
pub(crate) struct Wall {
    library: Option<PathBuf>,
    file: File,
    path: PathBuf,
}

impl Wall {
    /// A correct one, whose file is in this directory.
    pub(crate) fn new(directory: &Path, number: u8, library: Option<&Path>) -> Self {
        let path = directory.join(format!("wall-{number}"));
        let wall = Self { library: library.map(Path::to_owned), file: File::create(&path).expect("a file"), path };
        wall.shift(0);
        wall
    }

    /// Sets it off by this many seconds from now on; whether it did.
    pub(crate) fn shift(&self, seconds: i64) -> bool {
        self.file.write_all_at(&(seconds * 1_000_000_000).to_ne_bytes(), 0).expect("a file in memory");
        self.library.is_some()
    }

    /// The environment that the processes need.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let Some(library) = &self.library else { return Vec::new() };
        vec![("LD_PRELOAD".into(), text(library)), ("ATTACK_WALL_OFFSET".into(), text(&self.path))]
    }
}
