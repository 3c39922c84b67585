//! What is said when a library, or one function of it, is not there.

use std::fmt;
use std::path::{Path, PathBuf};

use super::library::Known;

/// A library of rdma-core could not be loaded, or the one loaded lacks a function.
///
/// Its text names the library, every path that was tried with the loader's own words, and what to install or set.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file could be loaded. Nothing is remembered of it: the next call tries again.
    #[error("cannot load {}: tried {}; {}", .known.soname, list(.attempts), remedy(.known, *.from_environment))]
    #[non_exhaustive]
    Library {
        /// The library that was wanted.
        known: &'static Known,
        /// Whether the environment variable of this library named the only path that was tried.
        from_environment: bool,
        /// Each path tried, in order, and why it did not load.
        attempts: Vec<Attempt>,
    },
    /// A library was loaded, and has no such function: it is older than the function, or a table that leaves it out.
    #[error(
        "{} ({}) has no function {symbol}: it takes a newer rdma-core, whose path the environment variable {} can name",
        .known.soname, origin(.path.as_deref()), .known.variable
    )]
    #[non_exhaustive]
    Symbol {
        /// The library that was asked.
        known: &'static Known,
        /// The file that was loaded; `None` for a table of functions made by the program.
        path: Option<PathBuf>,
        /// The function that it lacks.
        symbol: &'static str,
    },
}

/// The text: it is what `main` and `unwrap` print.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One path that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// What the loader was asked for: a path, or a soname that it searches for.
    pub path: PathBuf,
    /// What the loader said.
    pub reason: String,
}

impl LoadError {
    /// The soname of the library that this is about, e.g. `libibverbs.so.1`.
    pub fn library(&self) -> &'static str {
        match self {
            LoadError::Library { known, .. } | LoadError::Symbol { known, .. } => known.soname,
        }
    }

    /// The function that the loaded library lacks; `None` when no library was loaded.
    pub fn symbol(&self) -> Option<&'static str> {
        match self {
            LoadError::Library { .. } => None,
            LoadError::Symbol { symbol, .. } => Some(symbol),
        }
    }

    /// The `errno` that the C-shaped function of the same name leaves: `EOPNOTSUPP`.
    pub fn errno(&self) -> i32 {
        libc::EOPNOTSUPP
    }
}

/// Each path with the loader's reason.
fn list(attempts: &[Attempt]) -> String {
    let attempts: Vec<_> =
        attempts.iter().map(|Attempt { path, reason }| format!("`{}` ({reason})", path.display())).collect();
    attempts.join(", ")
}

/// What to install or set.
fn remedy(known: &Known, from_environment: bool) -> String {
    let Known { packages, variable, .. } = known;
    if from_environment {
        format!("nothing else was tried because the environment variable {variable} is set")
    } else {
        format!("install it ({packages}), or set the environment variable {variable} to its path")
    }
}

/// Where the functions came from.
fn origin(path: Option<&Path>) -> String {
    path.map_or_else(|| "a table of functions".to_owned(), |path| path.display().to_string())
}

/// An I/O error of kind `Unsupported` that keeps the text.
impl From<LoadError> for std::io::Error {
    fn from(error: LoadError) -> Self {
        std::io::Error::new(std::io::ErrorKind::Unsupported, error)
    }
}
