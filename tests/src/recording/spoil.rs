//! Outputs that no header knows: what a call wrote is overwritten, byte by byte, before the caller sees it.
//!
//! An output is what C fills in and nobody follows: a struct of integers, a number that is returned, the numbers in a new
//! object. Pointers, and counts that say how long an array of C's own is, are not among them: who cannot believe these can
//! call nothing.

use std::slice;

use super::state::Inner;

/// Which output is overwritten, and what was written so far.
#[derive(Debug, Default)]
pub(crate) struct Spoil {
    /// How many outputs are still left alone, and the byte that all of the next one become.
    next: Option<(u32, u8)>,
    /// The outputs in their order: the verb, and what of it.
    written: Vec<&'static str>,
    /// Whether they are not written down.
    quiet: bool,
}

impl Spoil {
    /// The `passing + 1`th output from now on becomes this byte throughout.
    pub(crate) fn set(&mut self, passing: u32, byte: u8) {
        self.next = Some((passing, byte));
        self.written.clear();
    }

    /// Writes no outputs down any more, and allocates nothing.
    pub(super) fn quiet(&mut self) {
        self.quiet = true;
    }

    /// The outputs since this was last asked.
    pub(crate) fn take(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.written)
    }

    /// The byte for this output, if it is its turn.
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

    /// A call has filled this in.
    ///
    /// # Safety
    ///
    /// It can be written, and any bytes are a value of it: it consists of integers.
    pub(crate) unsafe fn output<T>(&mut self, what: &'static str, to: *mut T) {
        if let Some(byte) = self.byte(what) {
            // SAFETY: the caller's promise.
            unsafe { to.write_bytes(byte, 1) };
        }
    }

    /// A call has filled in what says which pointer of a union there is: it becomes one that no header knows, and never
    /// zero, which is another that they know.
    ///
    /// # Safety
    ///
    /// As [`output`](Self::output).
    pub(crate) unsafe fn tag<T>(&mut self, what: &'static str, to: *mut T) {
        if let Some(byte @ 1..) = self.byte(what) {
            // SAFETY: the caller's promise.
            unsafe { to.write_bytes(byte, 1) };
        }
    }
}

impl Inner {
    /// A call has filled this in.
    ///
    /// # Safety
    ///
    /// As [`Spoil::output`].
    pub(super) unsafe fn output<T>(&mut self, what: &'static str, to: *mut T) {
        // SAFETY: passed on to the caller.
        unsafe { self.spoil.output(what, to) };
    }

    /// A call has filled in what says which pointer of a union there is.
    ///
    /// # Safety
    ///
    /// As [`Spoil::output`].
    pub(super) unsafe fn tag<T>(&mut self, what: &'static str, to: *mut T) {
        // SAFETY: passed on to the caller.
        unsafe { self.spoil.tag(what, to) };
    }

    /// A call returns this number.
    pub(super) fn number<T: Number>(&mut self, what: &'static str, mut value: T) -> T {
        // SAFETY: a number of its own, of which any bytes are a value.
        unsafe { self.output(what, &raw mut value) };
        value
    }

    /// A call has filled in a list.
    pub(super) fn list<T: Number>(&mut self, what: &'static str, values: &mut [T]) {
        if let (Some(byte), false) = (self.spoil.byte(what), values.is_empty()) {
            let length = size_of_val(values);
            // SAFETY: these are the bytes of the numbers, of which any are a value.
            unsafe { slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), length) }.fill(byte);
        }
    }
}

/// What any bytes are a value of.
pub(super) trait Number: Copy {}

impl Number for u16 {}
impl Number for u64 {}
impl Number for i32 {}
impl Number for isize {}
