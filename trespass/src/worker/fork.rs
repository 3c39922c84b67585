//! `fork(2)`: a child shares the descriptors of its parent's connections, and may not use them.
//!
//! A read by the child would take what the parent waits for. At the fork, another thread may also have held a lock. So
//! the handles of a parent do nothing in a child but return an error; the child creates workers of its own.

use std::io;

pub use rdma_mummy_sys::process::PerProcess;
use rdma_mummy_sys::process::{generation, watch};

/// A process, as opposed to its parents and children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    pub fn this() -> Self {
        watch();
        Self(generation())
    }

    /// Whether this process is a child, or a child's child.
    #[inline]
    pub fn is_over(self) -> bool {
        self.0 != generation()
    }

    /// # Errors
    ///
    /// `Unsupported` if this process is a child.
    #[inline]
    pub fn check(self) -> io::Result<()> {
        if self.is_over() { Err(inherited()) } else { Ok(()) }
    }
}

#[cold]
fn inherited() -> io::Error {
    let text = "the connections belong to the parent of this process (fork); create others here";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
