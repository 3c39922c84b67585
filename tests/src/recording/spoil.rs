//! Outputs outside the headers' values: the output of a call is overwritten, byte by byte, before the caller reads it.
//!
//! An output is data that C fills in and that is not dereferenced: a struct of integers, a returned number, the numbers
//! in a new object. Pointers and the lengths of C's own arrays are not included, because every call must trust them.

use std::slice;

use libc::c_int;

use super::script::Facts;
use super::state::Inner;

/// Which output is overwritten, and the outputs so far.
#[derive(Debug, Default)]
pub(crate) struct Spoil {
    /// How many outputs stay unchanged, and the byte that fills the next one.
    next: Option<(u32, u8)>,
    /// The outputs in order: the verb, and its part.
    written: Vec<&'static str>,
    /// Whether outputs are not logged.
    quiet: bool,
}

impl Spoil {
    /// Fills the `passing + 1`th output from now on with this byte.
    pub(crate) fn set(&mut self, passing: u32, byte: u8) {
        self.next = Some((passing, byte));
        self.written.clear();
    }

    /// Stops logging outputs, and allocates nothing.
    pub(super) fn quiet(&mut self) {
        self.quiet = true;
    }

    /// The outputs since the last query.
    pub(crate) fn take(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.written)
    }

    /// The byte that fills this output; `None` if the output stays unchanged.
    fn byte(&mut self, what: &'static str) -> Option<u8> {
        if !self.quiet {
            self.written.push(what);
        }
        let (left, byte) = self.next.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let byte = *byte;
        self.next = None;
        Some(byte)
    }

    /// Handles an output that a call has filled in.
    ///
    /// # Safety
    ///
    /// The output can be written and consists of integers, so any bytes are valid.
    pub(crate) unsafe fn output<T>(&mut self, what: &'static str, to: *mut T) {
        if let Some(byte) = self.byte(what) {
            // SAFETY: guaranteed by the caller.
            unsafe { to.write_bytes(byte, 1) };
        }
    }

    /// Handles the tag of a union with pointers, which a call has filled in. The tag becomes a value that the headers
    /// do not define, which excludes zero.
    ///
    /// # Safety
    ///
    /// As [`output`](Self::output).
    pub(crate) unsafe fn tag<T>(&mut self, what: &'static str, to: *mut T) {
        if let Some(byte @ 1..) = self.byte(what) {
            // SAFETY: guaranteed by the caller.
            unsafe { to.write_bytes(byte, 1) };
        }
    }
}

impl Inner {
    /// Handles an output that a call has filled in.
    ///
    /// # Safety
    ///
    /// As [`Spoil::output`].
    pub(super) unsafe fn output<T>(&mut self, what: &'static str, to: *mut T) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.spoil.output(what, to) };
    }

    /// Fills in the output of a query, unless queries write nothing. Returns zero.
    ///
    /// # Safety
    ///
    /// As [`Spoil::output`].
    pub(super) unsafe fn fill<T>(&mut self, what: &'static str, to: *mut T, value: impl FnOnce(&Facts) -> T) -> c_int {
        // SAFETY: the caller upholds the same contract.
        unsafe {
            if self.facts.fills {
                to.write(value(&self.facts));
            }
            self.output(what, to);
        }
        0
    }

    /// Handles a number that a call returns.
    pub(super) fn number<T: Number>(&mut self, what: &'static str, mut value: T) -> T {
        // SAFETY: this function owns the number, for which any bytes are valid.
        unsafe { self.output(what, &raw mut value) };
        value
    }

    /// Handles a list that a call has filled in.
    pub(super) fn list<T: Number>(&mut self, what: &'static str, values: &mut [T]) {
        if let (Some(byte), false) = (self.spoil.byte(what), values.is_empty()) {
            let length = size_of_val(values);
            // SAFETY: these are the bytes of the numbers, for which any are valid.
            unsafe { slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), length) }.fill(byte);
        }
    }
}

/// A type for which any bytes are valid.
pub(super) trait Number: Copy {}

impl Number for u16 {}
impl Number for u64 {}
impl Number for i32 {}
impl Number for isize {}
