//! Bytes of a request or an answer.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

use trespass::Buf;

/// How many vectors a thread caches for later bodies, and the maximum capacity that a cached vector may have.
const KEPT: usize = 256;
const LONGEST: usize = 64 << 10;

thread_local!(static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) });

/// Bytes of a request, an answer or an item; dereferences to `[u8]`.
///
/// Each thread reuses the memory of dropped bodies, so later calls do not allocate memory for their bodies.
#[derive(Default)]
pub struct Body(Bytes);

enum Bytes {
    Vector(Vec<u8>),
    /// A whole received message, of which this body is the last part.
    Message(Buf),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Vector(Vec::new())
    }
}

impl Body {
    /// Creates an empty body. It reuses the memory of a dropped body if this thread has cached one.
    pub fn new() -> Self {
        let vector = FREE.try_with(|free| free.try_borrow_mut().ok().and_then(|mut free| free.pop()));
        Self(Bytes::Vector(vector.ok().flatten().unwrap_or_default()))
    }

    /// Creates a body with a copy of the bytes.
    pub fn copy(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        let mut body = Self::new();
        body.writer().extend_from_slice(bytes);
        body
    }

    pub(crate) fn message(buf: Buf) -> Self {
        Self(Bytes::Message(buf))
    }

    /// Removes bytes from the start.
    pub(crate) fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Bytes::Vector(vector) => _ = vector.drain(..count),
            Bytes::Message(buf) => buf.advance(count),
        }
    }

    /// Returns the vector that stores the bytes, so that the caller can write to it.
    pub fn writer(&mut self) -> &mut Vec<u8> {
        if let Bytes::Message(buf) = &self.0 {
            self.0 = Bytes::Vector(buf.to_vec());
        }
        match &mut self.0 {
            Bytes::Vector(vector) => vector,
            Bytes::Message(_) => unreachable!("it was replaced"),
        }
    }

    /// Converts the body into a vector.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(self.writer())
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Vector(vector) => vector,
            Bytes::Message(buf) => buf,
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Vector(bytes))
    }
}

impl Clone for Body {
    fn clone(&self) -> Self {
        Self::copy(self)
    }
}

impl Drop for Body {
    #[inline]
    fn drop(&mut self) {
        if let Bytes::Vector(vector) = &mut self.0
            && (1..=LONGEST).contains(&vector.capacity())
        {
            keep(std::mem::take(vector));
        }
    }
}

/// Caches a vector for a later body of this thread.
fn keep(mut vector: Vec<u8>) {
    vector.clear();
    // If the thread is exiting, this fails and nothing is cached.
    _ = FREE.try_with(|free| {
        if let Ok(mut free) = free.try_borrow_mut()
            && free.len() < KEPT
        {
            free.push(vector);
        }
    });
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("length", &self.len()).finish_non_exhaustive()
    }
}
