//! Free frames, for one thread.

use super::frame::Frame;
use super::region::Holder;
use super::token::Token;

/// Free frames of a UMEM: a stack without locks.
///
/// Each thread has its own pool. To move frames between threads, send a pool: [`split`](Self::split) and
/// [`append`](Self::append).
#[derive(Debug)]
pub struct Pool {
    starts: Vec<u64>,
    holder: Holder,
}

impl Pool {
    pub(crate) fn empty(holder: Holder) -> Self {
        Self { starts: Vec::new(), holder }
    }

    /// Creates the first pool, with all frames, which are taken in order.
    pub(super) fn full(holder: Holder) -> Self {
        let geometry = *holder.geometry();
        Self {
            starts: (0..geometry.count).rev().map(|index| u64::from(index) * u64::from(geometry.frame_size)).collect(),
            holder,
        }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Removes a frame. If none is left, the pool first takes the frames that were dropped.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if self.starts.is_empty() {
            self.collect_dropped();
        }
        let start = self.starts.pop()?;
        // SAFETY: the pool owned the frame, which the region counts as outside.
        Some(Frame::at_start(unsafe { Token::new(self.holder.pointer(), start) }))
    }

    /// Takes the frames that were dropped.
    #[cold]
    #[inline(never)]
    pub fn collect_dropped(&mut self) {
        self.holder.drain(|start| self.starts.push(start));
    }

    /// Adds a frame.
    ///
    /// # Errors
    ///
    /// Returns the frame if it belongs to another UMEM.
    #[inline]
    pub fn put(&mut self, frame: impl Into<Frame>) -> Result<(), Frame> {
        let frame = frame.into();
        if !frame.token().belongs_to(self.holder.pointer()) {
            return Err(frame);
        }
        self.starts.push(frame.into_token().into_addr());
        Ok(())
    }

    /// Moves up to `count` frames to a new pool.
    #[must_use = "the frames are dropped with the new pool"]
    pub fn split(&mut self, count: usize) -> Self {
        if self.starts.len() < count {
            self.collect_dropped();
        }
        let at = self.starts.len().saturating_sub(count);
        Self { starts: self.starts.split_off(at), holder: self.holder.clone() }
    }

    /// Moves all frames of another pool to this one.
    ///
    /// # Errors
    ///
    /// Returns the other pool if it belongs to another UMEM.
    pub fn append(&mut self, mut other: Self) -> Result<(), Self> {
        if self.holder.pointer() != other.holder.pointer() {
            return Err(other);
        }
        self.starts.append(&mut other.starts);
        Ok(())
    }
}

impl Drop for Pool {
    /// The frames of a dropped pool return to the UMEM.
    fn drop(&mut self) {
        for start in self.starts.drain(..) {
            // SAFETY: the pool owned the frame, which the region counts as outside.
            drop(unsafe { Token::new(self.holder.pointer(), start) });
        }
    }
}
