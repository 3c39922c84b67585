//! Counting allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, ensure};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a counter of its calls; a program that measures uses it as its global allocator.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// SAFETY: the system's allocator does all the work; the counter requires no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs a loop that must not allocate, and returns its result.
///
/// # Errors
///
/// The loop failed or allocated, or the program does not count.
pub fn none_in<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = CALLS.load(Relaxed);
    drop(black_box(Box::new(0_u8)));
    let start = CALLS.load(Relaxed);
    ensure!(start == before + 2, "the allocator of this program does not count, or another thread allocates");
    let result = run()?;
    let calls = CALLS.load(Relaxed) - start;
    ensure!(calls == 0, "the loop called the allocator {calls} times");
    Ok(result)
}
