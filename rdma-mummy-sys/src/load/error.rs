//! Errors for a missing library or a missing function.

use std::fmt;
use std::path::{Path, PathBuf};

/// Static facts about a library.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// The name that the loader searches for, e.g. `libibverbs.so.1`.
    pub soname: &'static str,
    /// The environment variable that names another file; if set, no other file is tried. Set-user-ID programs ignore
    /// the variable, as the loader ignores `LD_LIBRARY_PATH` in them.
    pub variable: &'static str,
    /// The package of the library, by distribution.
    pub packages: &'static str,
}

/// A library of rdma-core could not be loaded, or lacks a function.
///
/// The text names the library, every path tried with the loader's message, and a remedy.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file could be loaded. Failures are not cached: the next call tries again.
    #[error("cannot load {}: tried {}; {}", .known.soname, list(.attempts), remedy(.known, *.from_environment))]
    #[non_exhaustive]
    Library {
        /// The library requested.
        known: &'static Known,
        /// Whether the library's environment variable named the only path to try.
        from_environment: bool,
        /// Each path tried, in order, with the loader's message.
        attempts: Vec<Attempt>,
    },
    /// The loaded library lacks the function: the library is older, or is a table that the program made without this
    /// function.
    #[error(
        "{} ({}) has no function {symbol}: the library is too old; upgrade rdma-core, or set the environment \
        variable {} to the path of a newer library",
        .known.soname, origin(.path.as_deref()), .known.variable
    )]
    #[non_exhaustive]
    Symbol {
        /// The library that was searched.
        known: &'static Known,
        /// The file that was loaded; `None` for a table of functions made by the program.
        path: Option<PathBuf>,
        /// The missing function.
        symbol: &'static str,
    },
}

/// Prints the `Display` text, because `main` and `unwrap` print `Debug`.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One path that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The path or soname passed to the loader.
    pub path: PathBuf,
    /// The loader's message.
    pub reason: String,
}

impl LoadError {
    /// Returns the soname of the library, e.g. `libibverbs.so.1`.
    pub fn library(&self) -> &'static str {
        match self {
            LoadError::Library { known, .. } | LoadError::Symbol { known, .. } => known.soname,
        }
    }

    /// Returns the missing function, or `None` if no library was loaded.
    pub fn symbol(&self) -> Option<&'static str> {
        match self {
            LoadError::Library { .. } => None,
            LoadError::Symbol { symbol, .. } => Some(symbol),
        }
    }

    /// Returns the `errno` that the C function of the same name sets: `EOPNOTSUPP`.
    pub fn errno(&self) -> i32 {
        libc::EOPNOTSUPP
    }
}

/// Formats each path with the loader's message.
fn list(attempts: &[Attempt]) -> String {
    let attempts: Vec<_> =
        attempts.iter().map(|Attempt { path, reason }| format!("`{}` ({reason})", path.display())).collect();
    attempts.join(", ")
}

/// Returns the remedy.
fn remedy(known: &Known, from_environment: bool) -> String {
    let Known { packages, variable, .. } = known;
    if from_environment {
        format!("correct or unset the environment variable {variable}, which replaces the default path")
    } else {
        format!("install it ({packages}), or set the environment variable {variable} to its path")
    }
}

/// Formats the origin of the functions.
fn origin(path: Option<&Path>) -> String {
    path.map_or_else(|| "a table of functions".to_owned(), |path| path.display().to_string())
}

/// Converts to an I/O error of kind `Unsupported` with the same text.
impl From<LoadError> for std::io::Error {
    fn from(error: LoadError) -> Self {
        std::io::Error::new(std::io::ErrorKind::Unsupported, error)
    }
}
