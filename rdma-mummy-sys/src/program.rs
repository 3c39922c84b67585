//! The logger: code of the program that the crates of this workspace call. It may use these crates itself, block on a lock
//! that another thread holds while it uses them, or panic. So a thread that holds a lock of these crates queues its
//! lines, and passes them to the logger when it has released its locks. It is for the crates of this workspace.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Line = Box<dyn FnOnce()>;

thread_local! {
    /// The number of [`Held`] values of this thread.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread runs the logger.
    static IS_LOGGING: Cell<bool> = const { Cell::new(false) };
    static HAS_LINES: Cell<bool> = const { Cell::new(false) };
    /// Without a destructor, the queue also works while the thread exits. It owns no memory while it is empty.
    static LINES: ManuallyDrop<RefCell<Vec<Line>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// While a thread has such a value, it calls no logger. Declare it before the guard of the lock, or as a later field, so
/// that it is dropped after the lock is released.
#[derive(Debug)]
#[must_use]
pub struct Held(PhantomData<*const ()>);

impl Held {
    /// This thread begins to hold a lock.
    #[inline]
    pub fn new() -> Held {
        HELD.set(HELD.get() + 1);
        Held(PhantomData)
    }
}

impl Default for Held {
    fn default() -> Held {
        Held::new()
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let left = HELD.get() - 1;
        HELD.set(left);
        if left == 0 && HAS_LINES.get() {
            log_queued();
        }
    }
}

/// Passes a line to the logger, at once or after the thread has released its locks. A logger that uses these crates gets
/// no lines about that: each line could cause another one without end, and the logger may hold a lock of its own.
#[cold]
pub fn log(line: impl FnOnce() + 'static) {
    if IS_LOGGING.get() {
        return;
    }
    if HELD.get() == 0 {
        return call(line);
    }
    LINES.with(|lines| lines.borrow_mut().push(Box::new(line)));
    HAS_LINES.set(true);
}

#[cold]
fn log_queued() {
    HAS_LINES.set(false);
    for line in LINES.with(|lines| mem::take(&mut *lines.borrow_mut())) {
        call(line);
    }
}

/// Calls the logger. If it panics, the panic hook has reported that; this thread may be one that all connections need.
fn call(line: impl FnOnce()) {
    IS_LOGGING.set(true);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(line)) {
        // Its drop could panic too.
        mem::forget(payload);
    }
    IS_LOGGING.set(false);
}

/// Logs a line of the calling crate, which depends on the crate `log`: `log!(warn, "text {value}")`. See
/// [`program`](crate::program).
#[doc(hidden)]
#[macro_export]
macro_rules! log {
    (@level error) => { ::log::Level::Error };
    (@level warn) => { ::log::Level::Warn };
    (@level info) => { ::log::Level::Info };
    (@level debug) => { ::log::Level::Debug };
    ($level:ident, $($text:tt)+) => {
        // The logger's own filter is code of the program, too; `log` applies it later.
        if $crate::log!(@level $level) <= ::log::max_level() {
            let text = ::std::format!($($text)+);
            $crate::program::log(move || ::log::log!($crate::log!(@level $level), "{text}"));
        }
    };
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn line_waits_for_the_last_lock_and_a_panic_stops_no_other() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let add = |number| {
            let lines = Rc::clone(&lines);
            move || lines.borrow_mut().push(number)
        };
        log(add(1));
        assert_eq!(*lines.borrow(), [1]);
        let outer = Held::new();
        let inner = Held::new();
        log(add(2));
        log(|| panic!("a logger fails"));
        log(add(3));
        drop(outer);
        assert_eq!(*lines.borrow(), [1]);
        drop(inner);
        assert_eq!(*lines.borrow(), [1, 2, 3]);
        log(|| panic!("a logger fails"));
        log(add(4));
        assert_eq!(lines.borrow().len(), 4);
    }

    #[test]
    fn logger_that_uses_these_crates_gets_no_lines_about_that() {
        let count = Rc::new(Cell::new(0));
        let of_logger = Rc::clone(&count);
        log(move || {
            let _held = Held::new();
            let of_line = Rc::clone(&of_logger);
            log(move || of_line.set(of_line.get() + 100));
            of_logger.set(of_logger.get() + 1);
        });
        assert_eq!(count.get(), 1);
    }
}
