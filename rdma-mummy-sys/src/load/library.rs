//! Finding a library, loading it once, and keeping it loaded.
//!
//! A library is loaded at the first call that needs it, under a lock; later calls cost one atomic load. Failures are
//! not cached: a service that starts before the driver is installed finds the driver at a later call.
//!
//! A loaded library is never unloaded. Its functions are used as plain pointers, objects point into the library and its
//! drivers, and no reference count tracks these pointers.

#[cfg(target_env = "gnu")]
use core::ffi::c_char;
use core::ffi::c_void;
#[cfg(target_env = "gnu")]
use core::ptr;
use core::ptr::NonNull;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::error::{Attempt, Known, LoadError};
use super::provider::Registered;
use super::{gate, own_object};

/// Why a file that contains this code is not loaded as the system's library.
const OWN: &str = "it is this library itself, not the system's";

/// A struct with one optional function pointer per function of a library.
///
/// Sealed: implemented by the four tables of this crate.
pub trait Table: Default + Send + Sync + sealed::Sealed + 'static {
    /// The library of these functions.
    const KNOWN: Known;
    /// A function that exists in every release.
    #[doc(hidden)]
    const FIRST: &'static str;

    /// Looks each function up by name; a missing one stays `None`.
    ///
    /// # Safety
    ///
    /// Each function that `handle` exports under a name of this table has rdma-core's type and behaviour, and `handle`
    /// is never closed.
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

/// A library: the table of its functions, and their origin.
///
/// A value dereferences to the table, whose fields are optional: `library.ibv_set_ece` is `None` in a library older
/// than that function. The method of the same name, `library.ibv_set_ece()`, returns an error that names the library
/// instead.
pub struct Library<T> {
    table: T,
    /// The path or soname passed to the loader; `None` for a table made by the program.
    requested: Option<PathBuf>,
    /// The file loaded, with links resolved.
    path: Option<PathBuf>,
}

impl<T: Table> Library<T> {
    /// Loads the library from `path`: a file, or a soname to search for. The C functions use it only after
    /// [`install`](Self::install).
    ///
    /// # Errors
    ///
    /// [`LoadError::Library`] with the loader's message. A function missing in the library is not an error here.
    ///
    /// # Safety
    ///
    /// Code that the file runs on loading is sound, and each function that it exports under a name of the table has
    /// rdma-core's type and behaviour.
    pub unsafe fn open_from(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        // SAFETY: the caller upholds the contract.
        unsafe { Self::open(path.as_ref()) }.map_err(|attempt| LoadError::Library {
            known: known::<T>(),
            from_environment: false,
            attempts: vec![attempt],
        })
    }

    /// Creates a library from a table that the program has filled, for tests and statically linked functions.
    ///
    /// # Safety
    ///
    /// Each function of the table behaves as rdma-core documents for its name, until the process exits.
    pub unsafe fn from_table(table: T) -> Self {
        Library { table, requested: None, path: None }
    }

    /// Makes this the system's library for the whole process, in place of the default one.
    ///
    /// # Errors
    ///
    /// Returns the library if another is already in use, because objects of the two must not be mixed.
    pub fn install(self) -> Result<&'static Self, Self> {
        let slot = T::slot();
        let _hold = gate::hold();
        let _opening = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Every writer holds the lock.
        if slot.library.get().is_some() { Err(self) } else { Ok(slot.library.get_or_init(|| self)) }
    }

    /// Loads the default library: the file that the environment variable names, else the soname. If that is this code
    /// itself, loads the file of that name from the system's directories.
    fn open_default() -> Result<Self, LoadError> {
        let from_environment = override_path(T::KNOWN.variable);
        let path = from_environment.as_deref().unwrap_or(Path::new(T::KNOWN.soname));
        let mut attempts = Vec::new();
        let mut open = |path: &Path| {
            // SAFETY: the file is the system's library, or one chosen by the user that started the process: the loader
            // trusts its own search path in the same way.
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
        // NOW: a library with missing dependencies fails here with an error, and does not abort the process during a
        // verb. LOCAL: its names are visible only to this table and its own drivers.
        // SAFETY: by contract the code run at loading is sound.
        let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| Attempt { path: path.into(), reason: error.source().unwrap_or(&error).to_string() })?;
        if address(&handle, T::FIRST).is_some_and(|first| own_object::is_own(first.as_ptr())) {
            return Err(Attempt { path: path.into(), reason: OWN.to_owned() });
        }
        // SAFETY: by contract the functions have the right types; the handle is leaked below, not closed.
        let table = unsafe { T::fill(&handle) };
        // Leaks the handle.
        let raw = handle.into_raw();
        // SAFETY: `raw` is the handle of the library just loaded, and is never closed.
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
    /// Returns the functions.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// Returns the file loaded, with links resolved, e.g. `/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0`; `None`
    /// for a table made by the program.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether this is a table made by the program ([`from_table`](Self::from_table)).
    pub fn is_from_table(&self) -> bool {
        self.requested.is_none()
    }

    /// Returns the rdma-core release from the file's name, e.g. 44 for `libibverbs.so.1.14.44.0`; `None` if the name
    /// has none.
    pub fn release(&self) -> Option<u32> {
        release(self.path()?.file_name()?.to_str()?)
    }
}

/// Returns the address that the library exports under this name. Untyped, so that one copy of this code serves all
/// functions.
#[inline(never)]
pub(crate) fn address(handle: &Handle, name: &str) -> Option<NonNull<c_void>> {
    // SAFETY: the symbol is neither read nor called; only its address is returned.
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

/// Stores the system's library once it is loaded.
pub struct Slot<T> {
    library: OnceLock<Library<T>>,
    opening: Mutex<()>,
}

impl<T: Table> Slot<T> {
    pub(crate) const fn new() -> Self {
        Slot { library: OnceLock::new(), opening: Mutex::new(()) }
    }

    /// Returns the library if a call has loaded it.
    pub(crate) fn loaded(&'static self) -> Option<&'static Library<T>> {
        self.library.get()
    }

    /// Returns the library, loading it if necessary.
    pub(crate) fn get(&'static self) -> Result<&'static Library<T>, LoadError> {
        self.loaded().map_or_else(|| self.load(), Ok)
    }

    #[cold]
    fn load(&'static self) -> Result<&'static Library<T>, LoadError> {
        let _hold = gate::hold();
        // The lock guards no data, so a poisoned lock is harmless.
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

/// Returns the value of `variable`, unless it is empty or the program is set-user-ID.
fn override_path(variable: &str) -> Option<PathBuf> {
    // SAFETY: `getauxval` reads this process's auxiliary vector, and has no preconditions.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let value = if privileged { None } else { env::var_os(variable) };
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the file that `handle` was loaded from, with links resolved.
///
/// # Safety
///
/// `handle` came from `dlopen` and stays open.
#[cfg(target_env = "gnu")]
unsafe fn file_of(handle: *mut c_void) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    /// The start of `struct link_map` of `<link.h>`, the loader's public record of a loaded object.
    #[repr(C)]
    struct LinkMap {
        l_addr: usize,
        l_name: *const c_char,
    }

    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the handle is open by contract. For this request the loader stores one pointer, the address of its
    // record, in `map`.
    let failed = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0;
    if failed || map.is_null() {
        return None;
    }
    // SAFETY: the record starts like `LinkMap`. The loader keeps it and its string while the object is loaded.
    let name = unsafe { CStr::from_ptr((*map).l_name) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

/// Other C libraries have no `dlinfo`.
#[cfg(not(target_env = "gnu"))]
unsafe fn file_of(_handle: *mut c_void) -> Option<PathBuf> {
    None
}

/// Parses `libNAME.so.MAJOR.MINOR.RELEASE.PATCH`.
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
    fn release_is_third_of_four_numbers() {
        assert_eq!(release("libibverbs.so.1.14.44.0"), Some(44));
        assert_eq!(release("librdmacm.so.1.3.61.1"), Some(61));
        assert_eq!(release("libibverbs.so.1.0.0"), None);
        assert_eq!(release("libibverbs.so.1"), None);
        assert_eq!(release("libibverbs.so"), None);
        assert_eq!(release("libmine.so.a.b.c.d"), None);
    }
}
