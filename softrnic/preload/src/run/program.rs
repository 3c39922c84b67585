//! Finds the program, and rejects it if the loader would ignore softrnic for it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{CANNOT_RUN, NOT_FOUND, Refusal};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const EXECUTE: u32 = 0o111;
const CAPABILITIES: &str = "security.capability";
/// How many bytes of a program are read to find its program headers.
const HEAD: u64 = 64 << 10;

/// Finds the file of the program as a shell does.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match fs::metadata(&file) {
            Ok(found) if is_program(&found) => Ok(file),
            Ok(_) => Err(Refusal::new(CANNOT_RUN, format!("cannot run {}: not an executable file", file.display()))),
            Err(error) => Err(Refusal::new(NOT_FOUND, format!("cannot run {}: {error}", file.display()))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| fs::metadata(file).is_ok_and(|found| is_program(&found)));
    found.ok_or_else(|| {
        Refusal::new(NOT_FOUND, format!("cannot run {}: not found in PATH; {}", name.display(), package(name)))
    })
}

/// Suggests the package that contains the program, if it is a known one.
fn package(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let package = match &*name {
        "rping" | "ucmatose" | "udaddy" | "mckey" | "cmtime" | "rdma_client" | "rdma_server" => "rdmacm-utils",
        "ibv_devinfo" | "ibv_devices" | "ibv_asyncwatch" => "ibverbs-utils",
        name if name.starts_with("ibv_") && name.ends_with("_pingpong") => "ibverbs-utils",
        name if name.starts_with("ib_") && (name.ends_with("_bw") || name.ends_with("_lat")) => "perftest",
        _ => return "give the path of the program".to_owned(),
    };
    format!("install the Debian or Ubuntu package {package}")
}

/// Checks whether the loader uses softrnic for this program.
pub(crate) fn check(file: &Path) -> Result<(), Refusal> {
    let refuse =
        |why: &str| Err(Refusal::new(CANNOT_RUN, format!("cannot run {} with softrnic: {why}", file.display())));
    let found = fs::metadata(file)
        .map_err(|error| Refusal::new(CANNOT_RUN, format!("cannot read {}: {error}", file.display())))?;
    if gains_rights(&found) {
        return refuse(
            "it is set-user-ID or set-group-ID, so the loader ignores softrnic; run it as that user, or run a copy without \
             the bit: cp PROGRAM /tmp/ && softrnic-run /tmp/PROGRAM",
        );
    }
    // If the user is root, the loader does not ignore `LD_PRELOAD` because of the capabilities of a file.
    if !rustix::process::getuid().is_root() && has_capabilities(file) {
        return refuse(
            "it has file capabilities (see getcap), so the loader ignores softrnic; run a copy, which has none: \
             cp PROGRAM /tmp/ && softrnic-run /tmp/PROGRAM",
        );
    }
    let mut head = Vec::new();
    // If an executable file cannot be read, the program is started without this check.
    if let Ok(opened) = File::open(file) {
        opened.take(HEAD).read_to_end(&mut head).ok();
    }
    if is_static(&head) {
        return refuse("it is statically linked, so no loader can replace its libibverbs; link it dynamically");
    }
    Ok(())
}

fn is_program(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & EXECUTE != 0
}

fn gains_rights(found: &Metadata) -> bool {
    // SAFETY: both functions take no arguments, access no memory of this program and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = found.mode();
    (mode & SET_USER != 0 && found.uid() != user)
        || (mode & SET_GROUP != 0 && mode & 0o010 != 0 && found.gid() != group)
}

/// Whether executing the file adds capabilities.
fn has_capabilities(file: &Path) -> bool {
    // The buffer has space for all versions of the attribute.
    let mut buffer = [0_u8; 64];
    rustix::fs::getxattr(file, CAPABILITIES, &mut buffer).is_ok_and(|length| gives_capabilities(&buffer[..length]))
}

/// Whether the attribute contains any capability. The attribute starts with a word whose lowest bit means "effective".
/// A permitted and an inheritable word follow for each half of the sets. All words are little-endian.
fn gives_capabilities(attribute: &[u8]) -> bool {
    let words: Vec<u32> = attribute.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).take(5).collect();
    let permitted = words.get(1).into_iter().chain(words.get(3));
    words.first().is_some_and(|word| word & 1 != 0) || permitted.into_iter().any(|&half| half != 0)
}

/// Whether `head` is the start of a program that names no loader. The program must have 64 bits and native byte order.
fn is_static(head: &[u8]) -> bool {
    const LOADER: u32 = 3;
    if !head.starts_with(b"\x7fELF\x02") {
        return false;
    }
    let kind = |number: u64| {
        let start = usize::try_from(read64(head, 32)?.checked_add(number.checked_mul(read16(head, 54)?)?)?).ok()?;
        Some(u32::from_ne_bytes(head.get(start..start.checked_add(4)?)?.try_into().ok()?))
    };
    let kinds: Option<Vec<u32>> = read16(head, 56).and_then(|count| (0..count).map(kind).collect());
    // If the table of program headers cannot be read, the program is not rejected.
    kinds.is_some_and(|kinds| !kinds.contains(&LOADER))
}

fn read64(head: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?))
}

fn read16(head: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_ne_bytes(head.get(at..at + 2)?.try_into().ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_error_names_its_package() {
        let refusal = find("ibv_never_pingpong".as_ref()).unwrap_err();
        assert_eq!(refusal.code, NOT_FOUND);
        assert!(refusal.text.contains("ibverbs-utils"), "{}", refusal.text);
        assert_eq!(find("/nowhere/at/all".as_ref()).unwrap_err().code, NOT_FOUND);
        assert_eq!(find("/".as_ref()).unwrap_err().code, CANNOT_RUN);
    }

    #[test]
    fn program_without_loader_is_static() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own));
        // This copy of the file has no program headers.
        let mut none = own.clone();
        none[56..58].fill(0);
        assert!(is_static(&none));
        for cut in 0..256 {
            // A truncated file must not cause a panic.
            is_static(&own[..cut]);
        }
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn only_permitted_and_effective_capabilities_count() {
        let words = |words: [u32; 5]| words.map(u32::to_le_bytes).concat();
        assert!(gives_capabilities(&words([0x0200_0001, 0x2000, 0, 0, 0])));
        assert!(gives_capabilities(&words([0x0200_0000, 0x2000, 0, 0, 0])));
        assert!(gives_capabilities(&words([0x0200_0000, 0, 0, 0x80, 0])));
        assert!(!gives_capabilities(&words([0x0200_0000, 0, 0x2000, 0, 0x80])), "inherited ones alone");
        assert!(!gives_capabilities(&words([0x0200_0000, 0, 0, 0, 0])));
        assert!(!gives_capabilities(&[]));
    }

    #[test]
    fn file_capabilities_are_read_back() {
        let folder = sideway_test_names::Folder::new();
        let file = folder.join("program");
        fs::copy("/bin/sh", &file).unwrap();
        assert!(!has_capabilities(&file));
        let raw = [0x0200_0001_u32, 0x2000, 0, 0, 0].map(u32::to_le_bytes).concat();
        match rustix::fs::setxattr(&file, CAPABILITIES, &raw, rustix::fs::XattrFlags::empty()) {
            Ok(()) => assert!(has_capabilities(&file)),
            Err(error) => println!("skipped: cannot set capabilities of a file: {error}"),
        }
    }

    #[test]
    fn script_is_accepted() {
        assert_eq!(check("/bin/sh".as_ref()), Ok(()));
    }
}
