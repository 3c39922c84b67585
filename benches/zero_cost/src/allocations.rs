//! Counting allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use anyhow::{Result, ensure};

thread_local! {
    // The threads of softrnic start while a loop already runs.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

/// The system's allocator with a counter of each thread's calls; a program that measures uses it as its global allocator.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// SAFETY: the system's allocator does all the work; the counter requires no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs a loop that must not allocate in this thread, and returns its result.
///
/// # Errors
///
/// The loop failed or allocated, or the program does not count.
pub fn none_in<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = CALLS.get();
    drop(black_box(Box::new(0_u8)));
    let start = CALLS.get();
    ensure!(start == before + 2, "the allocator of this program does not count");
    let result = run()?;
    let calls = CALLS.get() - start;
    ensure!(calls == 0, "the loop called the allocator {calls} times");
    Ok(result)
}
