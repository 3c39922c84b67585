//! Tests of code that relies on memory ordering. loom runs them in many interleavings of threads.

#![allow(clippy::unwrap_used, reason = "a test")]

mod deferrals;
mod guards;
mod rings;

/// The atomics and locks of loom, which the files under test use here.
mod sys {
    pub(crate) mod sync {
        use std::sync::LockResult;
        pub(crate) use std::sync::TryLockError;

        pub(crate) use loom::hint::spin_loop;
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
        pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

        /// One iteration is enough, because more of them add interleavings without new behaviour.
        pub(crate) const SPINS: u32 = 1;

        pub(crate) fn unpoisoned<T>(result: LockResult<T>) -> T {
            result.unwrap()
        }
    }
}

mod wire {
    pub(crate) mod bytes {
        use std::sync::Arc;

        use loom::cell::UnsafeCell;

        /// A range of the bytes of a ring.
        #[derive(Debug)]
        pub(crate) struct Segment {
            pub(crate) of: Option<Arc<[UnsafeCell<u8>]>>,
            pub(crate) start: usize,
            pub(crate) length: usize,
        }

        impl Segment {
            pub(crate) const EMPTY: Self = Self { of: None, start: 0, length: 0 };

            pub(crate) fn is_empty(&self) -> bool {
                self.length == 0
            }

            fn cells(&self) -> &[UnsafeCell<u8>] {
                let of = self.of.as_deref().unwrap_or_default();
                &of[self.start..][..self.length]
            }
        }

        #[derive(Debug)]
        pub(crate) struct Fault;

        pub(crate) fn write_bytes(from: &[u8], to: &[Segment]) -> Result<(), Fault> {
            let cells = to.iter().flat_map(Segment::cells);
            // SAFETY: the model fails the test on a concurrent use.
            cells.zip(from).for_each(|(cell, &byte)| cell.with_mut(|to| unsafe { *to = byte }));
            Ok(())
        }

        pub(crate) fn copy(_: &[Segment], _: &[Segment]) -> Result<(), Fault> {
            unreachable!("all payloads are bytes here")
        }

        pub(crate) fn read_bytes(from: &[Segment]) -> Vec<u8> {
            // SAFETY: the model fails the test on a concurrent change.
            from.iter().flat_map(Segment::cells).map(|cell| cell.with(|byte| unsafe { *byte })).collect()
        }
    }

    pub(crate) mod packet {
        use crate::wire::bytes::Segment;

        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Payload<'p> {
            Bytes(&'p [u8]),
            #[expect(dead_code, reason = "all payloads are bytes here")]
            Memory(&'p [Segment]),
        }
    }
}
