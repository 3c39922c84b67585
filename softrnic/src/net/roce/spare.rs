//! Buffers that are used again, so that a busy connection allocates no memory.

use std::collections::VecDeque;

/// The largest buffer that an idle connection keeps, in bytes.
const SMALL: usize = 256;
/// The capacity of a queue that an idle connection keeps.
const FEW: usize = 8;

/// Empty buffers of a connection.
#[derive(Debug)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
    max: usize,
}

impl Spare {
    /// `max` is the maximum number of buffers.
    pub(super) const fn new(max: usize) -> Self {
        Self { buffers: Vec::new(), max }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < self.max {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Frees the memory that an idle connection does not need: one of a thousand, for example.
    pub(super) fn rest<T>(&mut self, queue: &mut VecDeque<T>) {
        self.buffers.retain(|buffer| buffer.capacity() <= SMALL);
        self.buffers.truncate(1);
        self.buffers.shrink_to(1);
        if queue.is_empty() && queue.capacity() > FEW {
            queue.shrink_to(FEW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_keeps_one_small_buffer() {
        let mut spare = Spare::new(3);
        for capacity in [16 << 10, 64, 64, 64] {
            spare.keep(Vec::with_capacity(capacity));
        }
        assert_eq!(spare.buffers.len(), 3);
        let mut queue: VecDeque<u64> = VecDeque::with_capacity(1000);
        spare.rest(&mut queue);
        assert_eq!((spare.buffers.len(), spare.take().capacity(), spare.take().capacity()), (1, 64, 0));
        assert!(queue.capacity() < 100, "{}", queue.capacity());
    }
}
