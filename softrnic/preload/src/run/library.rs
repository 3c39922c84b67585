//! Finds the library, and chooses the environment variables that make the loader use it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::arguments::Method;
use crate::{CANNOT_RUN, Refusal};

/// Name of the environment variable that contains the path of another library or, for `--libraries`, of another folder
/// of libraries.
const VARIABLE: &str = "SOFTRNIC_PRELOAD";
/// The shared object for `LD_PRELOAD`.
const PRELOAD: &str = "libsoftrnic_preload.so";
/// The folder of the two libraries that replace rdma-core's.
const FOLDER: &str = "lib";
/// One of the two libraries; the other one is in the same folder.
const IBVERBS: &str = "libibverbs.so.1";
/// The folder of all three libraries in an installation, beside that of this command. It is not below `lib`, of which
/// `pip install --target` only keeps Python's files.
const INSTALLED: &str = "libexec/softrnic";

/// Returns the variables to set, and their values. If a variable is already set, its current value is appended to that
/// of softrnic.
pub(crate) fn variables(method: Method) -> Result<Vec<(&'static str, OsString)>, Refusal> {
    let own = env::current_exe().ok().and_then(|file| Some(file.parent()?.to_path_buf()));
    let set = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = library_path(method, set.as_deref(), own.as_deref())?;
    match method {
        Method::Preload => Ok(vec![preload(&path)?]),
        // The library is also preloaded, because its functions for files must precede those of the C library. The
        // loader finds the loaded library under its name.
        Method::Libraries => Ok(vec![
            preload(&path.join(IBVERBS))?,
            variable("LD_LIBRARY_PATH", &path, (b":;", "colons and semicolons"))?,
        ]),
    }
}

fn preload(path: &Path) -> Result<(&'static str, OsString), Refusal> {
    variable("LD_PRELOAD", path, (b" :", "spaces and colons"))
}

/// Returns a variable and its value. The loader splits the value at the separators and supports no quotes.
fn variable(
    name: &'static str,
    path: &Path,
    (separators, described): (&[u8], &str),
) -> Result<(&'static str, OsString), Refusal> {
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| separators.contains(byte)) {
        return Err(Refusal::new(
            CANNOT_RUN,
            format!(
                "cannot load {}: the loader splits {name} at {described}; move softrnic-run and its libraries to another \
                 folder, or set {VARIABLE} to another path",
                path.display()
            ),
        ));
    }
    Ok((name, before(path.as_os_str(), env::var_os(name).as_deref())))
}

fn library_path(method: Method, set: Option<&Path>, own: Option<&Path>) -> Result<PathBuf, Refusal> {
    let own = own.unwrap_or(Path::new("."));
    let installed = own.parent().map(|prefix| prefix.join(INSTALLED));
    let (beside, installed) = match method {
        Method::Preload => (own.join(PRELOAD), installed.map(|folder| folder.join(PRELOAD))),
        Method::Libraries => (own.join(FOLDER), installed),
    };
    let file = |path: &Path| match method {
        Method::Preload => path.to_path_buf(),
        Method::Libraries => path.join(IBVERBS),
    };
    let path = match set {
        Some(set) => set.to_path_buf(),
        None => installed.filter(|path| !file(&beside).is_file() && file(path).is_file()).unwrap_or(beside),
    };
    // The path must be absolute, because the program may change its working directory.
    let path = std::path::absolute(&path).unwrap_or(path);
    let file = file(&path);
    if file.is_file() {
        return Ok(path);
    }
    let remedy = match set {
        Some(_) => format!("correct or unset {VARIABLE}"),
        None => format!("build it with `cargo xtask preload` and run target/preload/softrnic-run, or set {VARIABLE}"),
    };
    Err(Refusal::new(CANNOT_RUN, format!("cannot load {}: no such file; {remedy}", file.display())))
}

/// Appends the other libraries. One of ours is left out: two of them in a process would call each other.
fn before(path: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut value = path.to_owned();
    let others = others.map_or(&[][..], OsStrExt::as_bytes).split(|byte| b" :".contains(byte));
    let is_ours = |other: &&[u8]| {
        let name = other.rsplit(|byte| *byte == b'/').next();
        name == Some(PRELOAD.as_bytes()) || name == Some(IBVERBS.as_bytes())
    };
    for other in others.filter(|other| !other.is_empty() && !is_ours(other)) {
        value.push(":");
        value.push(OsStr::from_bytes(other));
    }
    value
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sideway_test_names::Folder;

    use super::*;

    #[test]
    fn existing_value_is_kept_after_ours() {
        assert_eq!(before("/a.so".as_ref(), None), "/a.so");
        assert_eq!(before("/a.so".as_ref(), Some("".as_ref())), "/a.so");
        assert_eq!(before("/a.so".as_ref(), Some("/b.so /c.so".as_ref())), "/a.so:/b.so:/c.so");
        let others = "/x/libsoftrnic_preload.so:/b.so:/y/libibverbs.so.1";
        assert_eq!(before("/a.so".as_ref(), Some(others.as_ref())), "/a.so:/b.so");
    }

    #[test]
    fn installed_command_finds_its_libraries_below_the_prefix() {
        let folder = Folder::new();
        let (bin, libraries) = (folder.path().join("bin"), folder.path().join(INSTALLED));
        for (method, expected) in [(Method::Preload, libraries.join(PRELOAD)), (Method::Libraries, libraries.clone())] {
            library_path(method, None, Some(&bin)).unwrap_err();
            fs::create_dir_all(&libraries).unwrap();
            for name in [PRELOAD, IBVERBS] {
                fs::write(libraries.join(name), "").unwrap();
            }
            assert_eq!(library_path(method, None, Some(&bin)), Ok(expected));
            fs::remove_dir_all(&libraries).unwrap();
        }
    }

    #[test]
    fn missing_library_error_names_the_command_that_builds_it() {
        for method in [Method::Preload, Method::Libraries] {
            let refusal = library_path(method, None, Some(Path::new("/nowhere"))).unwrap_err();
            assert!(refusal.text.contains("/nowhere/lib") && refusal.text.contains("cargo xtask preload"));
            let refusal = library_path(method, Some(Path::new("/set")), Some(Path::new("/nowhere"))).unwrap_err();
            assert!(refusal.text.contains("unset SOFTRNIC_PRELOAD"), "{}", refusal.text);
        }
    }
}
