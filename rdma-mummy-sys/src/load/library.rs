//! Finding a library, opening it once, and keeping it.
//!
//! Nothing is loaded before the first call that needs it. The first caller loads under a lock; every later call is one
//! atomic load. A failure is not remembered: a service that starts before its driver finds it at a later call.
//!
//! A loaded library is never unloaded: its functions are handed out as plain pointers, objects carry pointers into it and
//! into the drivers that it loads in turn, and nothing counts any of them.

#[cfg(target_env = "gnu")]
use core::ffi::c_char;
use core::ffi::c_void;
#[cfg(target_env = "gnu")]
use core::ptr;
use core::ptr::NonNull;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::error::{Attempt, LoadError};
use super::provider::Registered;
use super::{gate, own_object};

/// Why a library is not opened that this code is in.
const OWN: &str = "it is this library itself, and not the system's";

/// What is known of a library before it is loaded.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// The name that the loader searches for, e.g. `libibverbs.so.1`.
    pub soname: &'static str,
    /// The environment variable that names another file; when it is set, nothing else is tried. Programs that run with
    /// more rights than their caller (set-user-ID) ignore it, as the loader ignores `LD_LIBRARY_PATH` there.
    pub variable: &'static str,
    /// The package that has the library, by distribution.
    pub packages: &'static str,
}

/// A struct with one optional function pointer for each function of a library.
///
/// Implemented by the four tables of this crate, and by nothing else.
pub trait Table: Default + Send + Sync + sealed::Sealed + 'static {
    /// The library whose functions these are.
    const KNOWN: Known;
    /// A function that every release of it has.
    #[doc(hidden)]
    const FIRST: &'static str;

    /// Looks each function up by name; what is not found stays `None`.
    ///
    /// # Safety
    ///
    /// Each function that `handle` exports under a name of this table has the type and the meaning that rdma-core gives
    /// it, and `handle` is never closed.
    #[doc(hidden)]
    unsafe fn fill(handle: &Handle) -> Self;

    #[doc(hidden)]
    fn slot() -> &'static Slot<Self>;

    #[doc(hidden)]
    fn of(provider: &'static Registered) -> Option<&'static Self>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A library: the table of its functions, and where they came from.
///
/// It dereferences to its table, whose fields are optional: `library.ibv_set_ece` is `None` in a library older than
/// that function. The method of the same name, `library.ibv_set_ece()`, says which library lacks it.
pub struct Library<T> {
    table: T,
    /// What the loader was asked for; `None` for a table made by the program.
    requested: Option<PathBuf>,
    /// The file behind it, with links resolved.
    path: Option<PathBuf>,
}

impl<T: Table> Library<T> {
    /// Loads the library from `path`: a file, or a soname to search for. The C-shaped functions do not use it unless
    /// [`install`](Self::install) is called.
    ///
    /// # Errors
    ///
    /// [`LoadError::Library`] with what the loader said. A function that the library lacks is no error here.
    ///
    /// # Safety
    ///
    /// What the file runs when it is loaded is sound, and each function that it exports under a name of the table has
    /// the type and the meaning that rdma-core gives it.
    pub unsafe fn open_from(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        // SAFETY: passed on to the caller.
        unsafe { Self::open(path.as_ref()) }.map_err(|attempt| LoadError::Library {
            known: known::<T>(),
            from_environment: false,
            attempts: vec![attempt],
        })
    }

    /// Makes a library of a table that the program has filled itself, for tests and for functions linked statically.
    ///
    /// # Safety
    ///
    /// Each function of the table does what rdma-core documents for its name, for as long as the process runs.
    pub unsafe fn from_table(table: T) -> Self {
        Library { table, requested: None, path: None }
    }

    /// Makes this the library of the system for the whole process, in place of the one that the first verb would load.
    ///
    /// # Errors
    ///
    /// The library itself, back, when another is in use already: objects of the one may not reach the other.
    pub fn install(self) -> Result<&'static Self, Self> {
        let slot = T::slot();
        let _hold = gate::hold();
        let _opening = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever sets it holds the lock.
        if slot.library.get().is_some() { Err(self) } else { Ok(slot.library.get_or_init(|| self)) }
    }

    /// The default library: the file that the environment variable names, else the soname; where that leads back to this code,
    /// the file of that name in the system's folders.
    fn open_default() -> Result<Self, LoadError> {
        let from_environment = override_path(T::KNOWN.variable);
        let path = from_environment.as_deref().unwrap_or(Path::new(T::KNOWN.soname));
        let mut attempts = Vec::new();
        let mut open = |path: &Path| {
            // SAFETY: the file is the library of the system, or the one that whoever started the process put in its place: the
            // same trust as in the loader's own search path.
            unsafe { Self::open(path.as_os_str()) }.map_err(|attempt| {
                let own = attempt.reason == OWN;
                attempts.push(attempt);
                own
            })
        };
        let opened = match open(path) {
            Ok(library) => Some(library),
            Err(own) if own && from_environment.is_none() => {
                own_object::files(T::KNOWN.soname).find_map(|file| open(&file).ok())
            }
            Err(_) => None,
        };
        opened.ok_or_else(|| LoadError::Library {
            known: known::<T>(),
            from_environment: from_environment.is_some(),
            attempts,
        })
    }

    /// # Safety
    ///
    /// As for [`open_from`](Self::open_from).
    unsafe fn open(path: &OsStr) -> Result<Self, Attempt> {
        // NOW: a library that lacks something itself fails here, in words, rather than aborting the process in the
        // middle of a verb. LOCAL: its names serve this table and its own drivers, and take nobody else's place.
        // SAFETY: the caller vouches for what runs at loading.
        let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| Attempt { path: path.into(), reason: error.to_string() })?;
        if address(&handle, T::FIRST).is_some_and(|first| own_object::is_own(first.as_ptr())) {
            return Err(Attempt { path: path.into(), reason: OWN.to_owned() });
        }
        // SAFETY: the caller vouches for the functions, and the handle is let go below rather than closed.
        let table = unsafe { T::fill(&handle) };
        // Lets go of the handle without closing it.
        let raw = handle.into_raw();
        // SAFETY: `raw` is the handle of a library that was loaded just now, and nothing closes it.
        let file = unsafe { file_of(raw) };
        Ok(Library { table, requested: Some(path.into()), path: file.or_else(|| Path::new(path).canonicalize().ok()) })
    }

    #[doc(hidden)]
    pub fn symbol<F>(&self, function: Option<F>, symbol: &'static str) -> Result<F, LoadError> {
        function.ok_or_else(|| LoadError::Symbol {
            known: known::<T>(),
            path: self.path.clone().or_else(|| self.requested.clone()),
            symbol,
        })
    }
}

impl<T> Library<T> {
    /// The functions.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// The file that was loaded, with links resolved, e.g. `/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0`. `None`
    /// for a table made by the program.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether it is a table made by the program ([`from_table`](Self::from_table)).
    pub fn is_from_table(&self) -> bool {
        self.requested.is_none()
    }

    /// The release of rdma-core that the name of the file tells, e.g. 44 for `libibverbs.so.1.14.44.0`. `None` where it
    /// tells none, as for a table or a file with a name of its own.
    pub fn release(&self) -> Option<u32> {
        release(self.path()?.file_name()?.to_str()?)
    }
}

/// The address of what the library exports under this name. It has no type, so that one copy serves all functions of all tables.
#[inline(never)]
pub(crate) fn address(handle: &Handle, name: &str) -> Option<NonNull<c_void>> {
    // SAFETY: nothing is read or called: the address alone is returned.
    let symbol = unsafe { handle.get::<*mut c_void>(name.as_bytes()) }.ok()?;
    NonNull::new(symbol.as_raw_ptr())
}

impl<T> Deref for Library<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.table
    }
}

impl<T> fmt::Debug for Library<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("requested", &self.requested).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where the library of the system is kept once it is loaded.
pub struct Slot<T> {
    library: OnceLock<Library<T>>,
    opening: Mutex<()>,
}

impl<T: Table> Slot<T> {
    pub(crate) const fn new() -> Self {
        Slot { library: OnceLock::new(), opening: Mutex::new(()) }
    }

    /// The library, if a call has loaded it.
    pub(crate) fn loaded(&'static self) -> Option<&'static Library<T>> {
        self.library.get()
    }

    /// The library, loaded now if it was not.
    pub(crate) fn get(&'static self) -> Result<&'static Library<T>, LoadError> {
        self.loaded().map_or_else(|| self.load(), Ok)
    }

    #[cold]
    fn load(&'static self) -> Result<&'static Library<T>, LoadError> {
        let _hold = gate::hold();
        // The lock guards no data of its own, so that a thread which panicked with it held has broken nothing.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = self.library.get() {
            return Ok(library);
        }
        let library = Library::open_default()?;
        Ok(self.library.get_or_init(|| library))
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("library", &self.library).finish_non_exhaustive()
    }
}

fn known<T: Table>() -> &'static Known {
    const { &T::KNOWN }
}

/// The value of `variable`, unless it is empty or the process runs with more rights than its caller.
fn override_path(variable: &str) -> Option<PathBuf> {
    // SAFETY: reads the auxiliary vector of this process and has no precondition.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let value = if privileged { None } else { env::var_os(variable) };
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The file that `handle` was loaded from, with links resolved.
///
/// # Safety
///
/// `handle` came from `dlopen` and stays open.
#[cfg(target_env = "gnu")]
unsafe fn file_of(handle: *mut c_void) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    /// The start of the loader's public record of a loaded object, `struct link_map` of `<link.h>`.
    #[repr(C)]
    struct LinkMap {
        l_addr: usize,
        l_name: *const c_char,
    }

    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the handle is open by contract. For this request the loader stores one pointer, the address of its record
    // of the object, where it is told to: in `map`.
    let failed = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0;
    if failed || map.is_null() {
        return None;
    }
    // SAFETY: the record begins as `LinkMap` does. The loader keeps it, and the string in it, while the object is
    // loaded.
    let name = unsafe { CStr::from_ptr((*map).l_name) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

/// Other C libraries have no `dlinfo`.
#[cfg(not(target_env = "gnu"))]
unsafe fn file_of(_handle: *mut c_void) -> Option<PathBuf> {
    None
}

/// Reads `libNAME.so.MAJOR.MINOR.RELEASE.PATCH`.
fn release(file_name: &str) -> Option<u32> {
    let (_, version) = file_name.split_once(".so.")?;
    let mut parts = version.split('.');
    let release = parts.nth(2)?.parse().ok()?;
    parts.next().map(|_| release)
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_release_is_the_third_number_of_four() {
        assert_eq!(release("libibverbs.so.1.14.44.0"), Some(44));
        assert_eq!(release("librdmacm.so.1.3.61.1"), Some(61));
        assert_eq!(release("libibverbs.so.1.0.0"), None);
        assert_eq!(release("libibverbs.so.1"), None);
        assert_eq!(release("libibverbs.so"), None);
        assert_eq!(release("libmine.so.a.b.c.d"), None);
    }
}
