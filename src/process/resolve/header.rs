//! What the first bytes of a file say about how the kernel would execute it.
//!
//! Owns the kernel's rules for `#!`, and for the magic and the loader of ELF. What it cannot tell for certain is left to execve.

use std::{
    ffi::{CStr, OsStr},
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use elf::{ElfStream, abi::PT_INTERP, endian::NativeEndian};

/// As much of a file as the kernel looks at.
const LENGTH: usize = 256;

/// PATH_MAX: the kernel takes no longer name of a loader.
const LONGEST_NAME: u64 = 4096;

const MAGIC: &[u8] = b"\x7fELF";

/// The machines whose ELF files this binary's kernel may execute: its own, and the 32-bit one of its family. Empty: unknown.
const MACHINES: &[u16] = if cfg!(target_arch = "x86_64") {
    &[libc::EM_X86_64, libc::EM_386]
} else if cfg!(target_arch = "aarch64") {
    &[libc::EM_AARCH64, libc::EM_ARM]
} else {
    &[]
};

/// What a file is to execve.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A script for this interpreter, or a program with this dynamic loader.
    Interpreted(PathBuf),
    /// Nothing that the kernel executes.
    Unfit(&'static str),
    /// Executable, or execve finds out.
    Left,
}

/// The header of a regular file; one that may not be read can still be executed.
pub(super) fn of(file: &Path) -> Header {
    let Ok(head) = read(file) else { return Header::Left };
    match judge(&head) {
        Header::Unfit(_) if has_mark(file, &head) && may_have_handlers() => Header::Left,
        Header::Left if head.starts_with(MAGIC) => loader(file).map_or(Header::Left, Header::Interpreted),
        header @ (Header::Interpreted(_) | Header::Unfit(_) | Header::Left) => header,
    }
}

/// The dynamic loader that a program names; none if it is static, or execve finds out what is wrong with it.
fn loader(file: &Path) -> Option<PathBuf> {
    let mut program = ElfStream::<NativeEndian, _>::open_stream(open(file).ok()?).ok()?;
    // Another machine's is run by a handler, which knows where that machine's files are.
    if MACHINES.first() != Some(&program.ehdr.e_machine) {
        return None;
    }
    let header = program.segments().iter().find(|header| header.p_type == PT_INTERP).copied()?;
    if header.p_filesz > LONGEST_NAME {
        return None;
    }
    let name = CStr::from_bytes_until_nul(program.segment_data(&header).ok()?).ok()?;
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

/// Whether it has what the handlers of binfmt_misc usually know a file by: an extension, or bytes that are no text.
fn has_mark(file: &Path, head: &[u8]) -> bool {
    file.extension().is_some() || head.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace())
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(LENGTH);
    open(file)?.take(LENGTH as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn open(file: &Path) -> io::Result<File> {
    // Do not block on a FIFO that has taken the file's place since the check.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)
}

fn judge(head: &[u8]) -> Header {
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line, head.len() == LENGTH);
    }
    if !head.starts_with(MAGIC) {
        return Header::Unfit("is neither a program nor a script with a #! line");
    }
    match head.get(18..20) {
        Some(&[a, b]) if !MACHINES.is_empty() && !MACHINES.contains(&u16::from_ne_bytes([a, b])) => {
            Header::Unfit("is a program for another kind of processor")
        }
        Some(_) | None => Header::Left,
    }
}

/// What follows `#!`: a name, from the first non-blank to the next blank or the end of the line or file.
fn script(line: &[u8], is_cut: bool) -> Header {
    let start = line.iter().position(|byte| !b" \t".contains(byte)).unwrap_or(line.len());
    let name = line.get(start..).unwrap_or_default();
    match name.iter().position(|byte| b" \t\n\0".contains(byte)) {
        None if is_cut => Header::Left,
        end => match name.get(..end.unwrap_or(name.len())) {
            None | Some([]) => Header::Unfit("its #! line names no interpreter"),
            Some(name) => Header::Interpreted(OsStr::from_bytes(name).into()),
        },
    }
}

/// Whether a binfmt_misc handler (qemu, a Java runtime) may take what the kernel itself does not execute. A container cannot see
/// which ones there are, only that there can be none.
fn may_have_handlers() -> bool {
    std::fs::read_to_string("/proc/filesystems").map_or(true, |known| known.contains("binfmt_misc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        [b"\x7fELF".as_slice(), &[0; 14], &machine.to_ne_bytes(), &[0; 44]].concat()
    }

    #[test]
    fn a_script_names_its_interpreter_as_the_kernel_reads_it() {
        for (head, interpreter) in [
            ("#!/bin/sh\necho", "/bin/sh"),
            ("#! \t/bin/sh -e x\n", "/bin/sh"),
            ("#!/bin/sh\t-e\n", "/bin/sh"),
            ("#!/bin/sh", "/bin/sh"),
            ("#!/bin/sh\r\n", "/bin/sh\r"),
            ("#!sh\n", "sh"),
        ] {
            assert_eq!(judge(head.as_bytes()), Header::Interpreted(interpreter.into()), "{head:?}");
        }
        let longest = format!("#!/{} ", "x".repeat(LENGTH - 4));
        assert!(matches!(judge(longest.as_bytes()), Header::Interpreted(_)));
        let cut = format!("#!/{}", "x".repeat(LENGTH - 3));
        assert_eq!(judge(cut.as_bytes()), Header::Left);
    }

    #[test]
    fn a_file_that_names_no_interpreter_and_is_no_program_is_unfit() {
        for head in ["", "#", "echo hi\n", "\n#!/bin/sh\n", "#!", "#!\n/bin/sh\n", "#! \t\n", "\x7fEL"] {
            assert!(matches!(judge(head.as_bytes()), Header::Unfit(_)), "{head:?}");
        }
    }

    #[test]
    fn plain_text_without_an_extension_is_nobodys() {
        for (name, head, marked) in [
            ("/bin/run", "echo hi\n", false),
            ("/bin/run", "", false),
            ("/opt/a.b/run", "echo hi\n", false),
            ("/bin/run.py", "print()\n", true),
            ("/bin/run", "MZ\x00\x03", true),
        ] {
            assert_eq!(has_mark(name.as_ref(), head.as_bytes()), marked, "{name} {head:?}");
        }
    }

    #[test]
    fn a_program_is_for_this_family_of_processors() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(judge(&own[..LENGTH]), Header::Left);
        assert_eq!(judge(&elf(if cfg!(target_arch = "x86_64") { libc::EM_386 } else { libc::EM_ARM })), Header::Left);
        assert_eq!(judge(&elf(libc::EM_S390)), Header::Unfit("is a program for another kind of processor"));
        assert_eq!(judge(b"\x7fELF cut"), Header::Left);
    }

    #[test]
    fn a_program_names_its_loader_and_a_broken_one_is_left_to_execve() {
        let sh = std::fs::read("/bin/sh").unwrap();
        let Header::Interpreted(loader) = of("/bin/sh".as_ref()) else { panic!("/bin/sh is static") };
        assert!(loader.is_absolute() && loader.exists(), "{loader:?}");
        let cut = std::env::temp_dir().join(format!("tenure-header-{}", std::process::id()));
        for length in [20, 64, 200] {
            std::fs::write(&cut, &sh[..length]).unwrap();
            assert_eq!(of(&cut), Header::Left, "{length}");
        }
        std::fs::remove_file(cut).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_left_to_execve() {
        assert_eq!(of("/proc/self/mem".as_ref()), Header::Left);
        assert_eq!(of("/no/such/file".as_ref()), Header::Left);
    }
}
