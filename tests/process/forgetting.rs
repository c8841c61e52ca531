//! Memory that only a program's start needed is dropped.

use std::{env, fs};

use tenure::process::memory::forget_start;

#[test]
fn a_program_goes_on_after_it_forgot_its_code_and_constants() {
    let before = present();

    forget_start();

    let after = present();
    assert_eq!(format!("{:?}", ["still", "here"]), r#"["still", "here"]"#);
    assert!(after < before, "{after} of {before} kB are left");
}

/// How much of the program's file this process has in memory and cannot write to, in kilobytes.
fn present() -> u32 {
    let program = format!(" {}", env::current_exe().expect("a program").display());
    let maps = fs::read_to_string("/proc/self/smaps").expect("its mappings");
    let (mut sum, mut is_counted) = (0, false);
    for line in maps.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["Rss:", size, "kB"] if is_counted => sum += size.parse::<u32>().expect("a number"),
            // Where a mapping begins, or another of its lines.
            [_, access, ..] if !words[0].ends_with(':') => is_counted = access.starts_with("r-") && line.ends_with(&program),
            _ => {}
        }
    }
    sum
}
