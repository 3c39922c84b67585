//! A table of functions in front of all providers: a program's calls reach it first, whether an object belongs to the
//! system or to a provider in this process. A tracer is such a table: it looks at the arguments, [`pass`]es the call on,
//! and looks at the result.
//!
//! Without a front, a call costs one more atomic load.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use std::sync::OnceLock;

use super::gate;
use super::library::Table;
use super::provider::{Provider, Registered};
use crate::bindings::verbs::ibv_context;

static FRONT: OnceLock<&'static Registered> = OnceLock::new();

thread_local! {
    /// Whether this thread is in [`pass`].
    static PASSES: Cell<bool> = const { Cell::new(false) };
}

/// Another front is installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` already stands in front of all providers; only one can")]
#[non_exhaustive]
pub struct InstallError {
    /// The name of the installed front.
    pub name: String,
}

/// Puts the tables of `front` in front of all providers, until the process exits. A function that a table lacks is
/// called without the front. The front has no devices, so its functions receive objects of other providers, and
/// [`pass`] the call on.
///
/// # Errors
///
/// [`InstallError`] if there is a front.
///
/// # Safety
///
/// Until the process exits, each function of the tables behaves as rdma-core documents for its name.
pub unsafe fn install(front: Provider) -> Result<(), InstallError> {
    let _hold = gate::hold();
    let front = Registered::unlisted(front);
    FRONT.set(front).map_err(|_| InstallError { name: FRONT.get().map_or("", |front| front.name()).to_owned() })
}

/// Runs `call`, in which this thread's calls of verbs do not reach the front.
pub fn pass<R>(call: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            PASSES.set(self.0);
        }
    }
    let _back = Back(PASSES.replace(true));
    call()
}

/// Marks that a jump takes this thread out of all functions of the front, without returning from [`pass`].
pub fn leave() {
    PASSES.set(false);
}

/// Whether this thread is in [`pass`].
#[inline]
#[must_use]
pub fn is_passing() -> bool {
    PASSES.get()
}

/// Returns the address of a function of the driver of `context`, whose file identifies the driver: a front may have put
/// its own functions into the context. Null if the driver has none.
///
/// # Safety
///
/// `context` is a live context.
#[must_use]
pub unsafe fn driver(context: *mut ibv_context) -> *const c_void {
    let driver = FRONT.get().and_then(|front| front.driver());
    // SAFETY: guaranteed by the caller.
    let replaced = driver.map_or(ptr::null(), |driver| unsafe { driver(context) });
    if !replaced.is_null() {
        return replaced;
    }
    // SAFETY: as above.
    unsafe { (*context).ops.poll_cq }.map_or(ptr::null(), |function| function as *const c_void)
}

/// The table of the front, for a call of the program.
#[inline]
pub(crate) fn of<T: Table>() -> Option<&'static T> {
    FRONT.get().filter(|_| !is_passing()).and_then(|front| T::of(front))
}

/// Returns from the calling function with the result of the front's function, if there is one.
macro_rules! front {
    ($Outer:ty, $($field:ident).+ ($($argument:expr),* $(,)?)) => {
        $crate::load::front::front!(@ $Outer, |table| table.$($field).+, ($($argument),*))
    };
    (@ $Outer:ty, |$table:ident| $function:expr, ($($argument:expr),*)) => {
        if let Some(function) = $crate::load::front::of::<$Outer>().and_then(|$table| $function) {
            // SAFETY: the function behaves as rdma-core documents for this name, and the caller upholds that contract.
            return unsafe { function($($argument),*) };
        }
    };
}

pub(crate) use front;
