//! The folder with the files of the soft devices.
//!
//! Its name is a hash of its contents, so that all processes of a user share it, and nothing has to be removed when a
//! process ends. It is complete once it has this name, and is never changed. If the addresses of the host change, there
//! is another folder. A folder that no process has used for a day is removed.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use softrnic::File;

use crate::register;

/// The folders that also contain the entries of the system's devices.
const SHARED: [&str; 3] = ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband"];
/// The folder that contains only soft devices.
const OWN: &str = "/sys/devices/virtual/softrnic";
/// The time after which a folder is removed.
const UNUSED: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the path may belong to a soft device. This rejects most paths at the first bytes.
pub(super) fn may_be_ours(path: &[u8]) -> bool {
    match path {
        [b'/', b's', ..] => path.starts_with(b"/sys/"),
        [b'/', b'd', ..] => path.starts_with(b"/dev/"),
        _ => path.starts_with(b"//"),
    }
}

/// Returns the path in the tree if `path` belongs to a soft device, or is one of the folders of all devices.
pub(super) fn redirect(path: &CStr) -> Option<CString> {
    let text = path.to_str().ok()?;
    let parts = || text.split('/').filter(|part| !["", "."].contains(part));
    let is_below = |folder: &str| {
        let folder = folder.split('/').skip(1);
        let count = folder.clone().count();
        folder.eq(parts().take(count)).then_some(count)
    };
    // Signal handlers and allocators also open files of the system, so nothing is allocated before this.
    let shared = SHARED.iter().find_map(|folder| is_below(folder).map(|count| (*folder, count)));
    if shared.is_none() && is_below(OWN).is_none() {
        return None;
    }
    let parts: Vec<&str> = parts().collect();
    let _inside = register::ready();
    let files = softrnic::files();
    if files.is_empty() {
        return None;
    }
    // The entry of a system's device, and `..`, belong to the system.
    if let Some((folder, count)) = shared
        && let Some(entry) = parts.get(count)
        && !files
            .iter()
            .any(|(path, _)| path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')) == Some(entry))
    {
        return None;
    }
    let root = root(files)?;
    let mut redirected = root.into_os_string();
    redirected.push("/");
    redirected.push(parts.join("/"));
    // A path that ends with a slash names a folder.
    if text.ends_with('/') {
        redirected.push("/");
    }
    CString::new(redirected.into_encoded_bytes()).ok()
}

/// Removes the folder of the tree from the start of a resolved path.
///
/// # Safety
///
/// `path` is a C string that may be written.
pub(super) unsafe fn hide(path: *mut c_char) {
    // SAFETY: guaranteed by the caller; the end of the string with its terminator is moved to the start.
    unsafe {
        let shown = shown(path);
        std::ptr::copy(shown, path, CStr::from_ptr(shown).count_bytes() + 1);
    }
}

/// Returns the rest of a path, without the folder of the tree.
///
/// # Safety
///
/// `path` is a C string.
pub(super) unsafe fn shown(path: *const c_char) -> *const c_char {
    // SAFETY: guaranteed by the caller; the rest is a part of the string.
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes();
        path.add(tail(bytes).map_or(0, |tail| bytes.len() - tail.len()))
    }
}

/// Returns the path below the root of the tree.
fn tail(path: &[u8]) -> Option<&[u8]> {
    let marker = format!("/{}/", user_folder());
    let place = path.windows(marker.len()).position(|window| window == marker.as_bytes())?;
    let after = &path[place + marker.len()..];
    let slash = after.iter().position(|&byte| byte == b'/')?;
    Some(&after[slash..])
}

fn user_folder() -> String {
    // SAFETY: the function has no preconditions.
    format!("softrnic-{}", unsafe { libc::geteuid() })
}

/// Returns the root of the tree with these files, and creates it if necessary.
fn root(mut files: Vec<(String, File)>) -> Option<PathBuf> {
    for folder in SHARED {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if let Ok(name) = entry.file_name().into_string() {
                let path = format!("{folder}/{name}");
                if !files.iter().any(|(known, _)| *known == path) {
                    files.push((path.clone(), File::Link(path)));
                }
            }
        }
    }
    files.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    let mut reason = None;
    for base in bases() {
        match in_base(&base, &name, &files) {
            Ok(root) => return Some(root),
            Err(error) => reason = Some((base, error)),
        }
    }
    if let Some((base, error)) = reason {
        print_error(&base, &error);
    }
    None
}

/// The folders that may contain the tree: first those in memory.
fn bases() -> impl Iterator<Item = PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.into_iter().chain(["/dev/shm".into(), env::temp_dir()])
}

fn in_base(base: &Path, name: &str, files: &[(String, File)]) -> io::Result<PathBuf> {
    let user = base.join(user_folder());
    make_private(&user)?;
    let root = user.join(name);
    if let Ok(found) = fs::File::open(&root) {
        // Another process of the user removes a folder that was not used for a long time.
        let _ = found.set_modified(SystemTime::now());
        return Ok(root);
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let fresh = user.join(format!(".{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let made = write(&fresh, files).and_then(|()| match fs::rename(&fresh, &root) {
        // Another process was faster.
        Err(_) if root.is_dir() => fs::remove_dir_all(&fresh),
        renamed => renamed,
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    remove_unused(&user);
    made.map(|()| root)
}

/// Creates a folder that only this user can access, unless it exists.
fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    // SAFETY: the function has no preconditions.
    let is_own = found.uid() == unsafe { libc::geteuid() };
    if found.is_dir() && is_own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user may write this folder"))
}

fn write(root: &Path, files: &[(String, File)]) -> io::Result<()> {
    let mut written = HashMap::new();
    for (path, file) in files {
        let path = root.join(path.trim_start_matches('/'));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match file {
            // In memory, a file takes at least a page, and all empty entries of a table have the same text.
            File::Text(text) if written.get(text).is_some_and(|first| fs::hard_link(first, &path).is_ok()) => {}
            File::Text(text) => {
                // The program must not change what other processes read.
                let open = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path);
                open?.write_all(text.as_bytes())?;
                written.insert(text, path);
            }
            File::Link(to) => symlink(to, &path)?,
            File::CharacterDevice => symlink("/dev/null", &path)?,
        }
    }
    // All of these folders exist, even if one of them is empty.
    SHARED.iter().try_for_each(|folder| fs::create_dir_all(root.join(folder.trim_start_matches('/'))))
}

fn remove_unused(user: &Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(user).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).map(|then| now.duration_since(then));
        if matches!(age, Ok(Ok(age)) if age > UNUSED) {
            // A process that is killed meanwhile must not leave a part of the folder under its name.
            let away = user.join(format!(".{}-{}", entry.file_name().to_string_lossy(), process::id()));
            if fs::rename(entry.path(), &away).is_ok() {
                let _ = fs::remove_dir_all(away);
            }
        }
    }
}

/// The error is printed here, because the calling function cannot report it.
#[expect(clippy::print_stderr, reason = "the calling program cannot report it")]
fn print_error(base: &Path, error: &io::Error) {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    if !PRINTED.swap(true, Ordering::Relaxed) {
        let user = base.join(user_folder());
        eprintln!(
            "softrnic: cannot create the files of soft devices in {}: {error}; set TMPDIR to a folder that only you can \
             write",
            user.display()
        );
    }
}
