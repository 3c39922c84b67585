//! Where the library is, and which variable of the environment leads the loader to it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::arguments::Way;
use crate::{CANNOT_RUN, Refusal};

/// The environment variable that names another library, or folder of libraries.
const VARIABLE: &str = "SOFTRNIC_PRELOAD";
/// The object for `LD_PRELOAD`.
const PRELOAD: &str = "libsoftrnic_preload.so";
/// The folder of the pair that stands in for rdma-core's libraries.
const FOLDER: &str = "lib";
/// One of the pair; the other stands beside it.
const IBVERBS: &str = "libibverbs.so.1";

/// The variable to set, and its value: what is there stays, behind softrnic.
pub(crate) fn variable(way: Way) -> Result<(&'static str, OsString), Refusal> {
    let own = env::current_exe().ok().and_then(|file| Some(file.parent()?.to_path_buf()));
    let set = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let place = place(way, set.as_deref(), own.as_deref())?;
    let (name, separators) = match way {
        // The loader takes spaces and colons apart here, and knows no quotes.
        Way::Preload => ("LD_PRELOAD", &b" :"[..]),
        Way::Libraries => ("LD_LIBRARY_PATH", &b":;"[..]),
    };
    if place.as_os_str().as_encoded_bytes().iter().any(|byte| separators.contains(byte)) {
        return Err(Refusal::new(
            CANNOT_RUN,
            format!(
                "the loader cannot be told of a path with a space, colon or semicolon in it, such as {}\n\
                 Move softrnic-run and what is beside it elsewhere, or set {VARIABLE} to a path without.",
                place.display()
            ),
        ));
    }
    Ok((name, before(place.as_os_str(), env::var_os(name).as_deref())))
}

fn place(way: Way, set: Option<&Path>, own: Option<&Path>) -> Result<PathBuf, Refusal> {
    let place = match (way, set) {
        (_, Some(set)) => set.to_path_buf(),
        (Way::Preload, None) => own.unwrap_or(Path::new(".")).join(PRELOAD),
        (Way::Libraries, None) => own.unwrap_or(Path::new(".")).join(FOLDER),
    };
    // The program may run in another folder.
    let place = std::path::absolute(&place).unwrap_or(place);
    let file = match way {
        Way::Preload => place.clone(),
        Way::Libraries => place.join(IBVERBS),
    };
    if file.is_file() {
        return Ok(place);
    }
    let why = match set {
        Some(_) => format!("{VARIABLE} says so"),
        None => "that is beside softrnic-run".to_owned(),
    };
    Err(Refusal::new(
        CANNOT_RUN,
        format!(
            "there is no library at {} ({why})\n\
             `cargo xtask preload` in softrnic's repository builds it, into target/preload beside softrnic-run; or set {VARIABLE} \
             to where it is.",
            file.display()
        ),
    ))
}

fn before(place: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut value = place.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_variable_holds_already_stays_behind_ours() {
        assert_eq!(before("/a.so".as_ref(), None), "/a.so");
        assert_eq!(before("/a.so".as_ref(), Some("".as_ref())), "/a.so");
        assert_eq!(before("/a.so".as_ref(), Some("/b.so /c.so".as_ref())), "/a.so:/b.so /c.so");
    }

    #[test]
    fn a_missing_library_is_told_with_what_builds_it() {
        for way in [Way::Preload, Way::Libraries] {
            let refusal = place(way, None, Some(Path::new("/nowhere"))).unwrap_err();
            assert!(refusal.text.contains("/nowhere/lib") && refusal.text.contains("cargo xtask preload"));
            let refusal = place(way, Some(Path::new("/set")), Some(Path::new("/nowhere"))).unwrap_err();
            assert!(refusal.text.contains("SOFTRNIC_PRELOAD says so"), "{}", refusal.text);
        }
    }
}
