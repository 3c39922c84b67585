//! Several requests that are posted at once.

use crate::Error;
use crate::memory::{Buf, Remote};
use crate::request::{Operation, Request};

/// Requests that [`submit`](super::Connection::submit) posts at once, in this order, with one doorbell and one completion. The
/// same batch can be filled and submitted many times, and then allocates no memory. It keeps its requests and their buffers
/// until it is drained, and can be submitted again as it is.
///
/// ```
/// # async fn example(connection: &canter::Connection, pool: &canter::Pool, remote: canter::Remote) -> Result<(), canter::Error> {
/// let mut batch = canter::Batch::new();
/// for block in 0..32 {
///     batch.write(pool.get().await, remote.slice(block * 4096, 4096)?);
/// }
/// connection.submit(&mut batch).await?;
/// for buf in batch.drain() {
///     drop(buf); // the buffers, in the order of the requests
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    requests: Vec<Request>,
    /// The first mistake, which submitting reports.
    mistake: Option<Error>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message.
    #[inline]
    pub fn send(&mut self, buf: Buf) {
        self.requests.push(Request { operation: Operation::Send, buf });
    }

    /// Adds a message with immediate data.
    #[inline]
    pub fn send_imm(&mut self, buf: Buf, imm: u32) {
        self.requests.push(Request { operation: Operation::SendImm(imm), buf });
    }

    /// Adds a write.
    #[inline]
    pub fn write(&mut self, buf: Buf, remote: Remote) {
        self.check(&buf, remote);
        self.requests.push(Request { operation: Operation::Write(remote.target()), buf });
    }

    /// Adds a write with immediate data.
    #[inline]
    pub fn write_imm(&mut self, buf: Buf, remote: Remote, imm: u32) {
        self.check(&buf, remote);
        self.requests.push(Request { operation: Operation::WriteImm(remote.target(), imm), buf });
    }

    /// Adds a read.
    #[inline]
    pub fn read(&mut self, buf: Buf, remote: Remote) {
        self.check(&buf, remote);
        self.requests.push(Request { operation: Operation::Read(remote.target()), buf });
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes all requests, and returns their buffers in order.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Buf> {
        self.mistake = None;
        self.requests.drain(..).map(|request| request.buf)
    }

    #[inline]
    fn check(&mut self, buf: &Buf, remote: Remote) {
        if buf.len() > remote.len() {
            self.note(buf.len(), remote);
        }
    }

    #[cold]
    fn note(&mut self, length: usize, remote: Remote) {
        self.mistake.get_or_insert(Error::OutOfRange { offset: 0, length, size: remote.len() });
    }

    /// Checks the batch, and takes the requests.
    pub(super) fn take(&mut self, depth: u32) -> Result<Vec<Request>, Error> {
        let (length, limit) = (self.requests.len(), depth as usize);
        if length > limit {
            return Err(Error::BatchTooLong { length, limit });
        }
        match &self.mistake {
            Some(mistake) => Err(mistake.clone()),
            None => Ok(std::mem::take(&mut self.requests)),
        }
    }

    /// Takes the completed requests back.
    pub(super) fn finish(&mut self, mut requests: Vec<Request>) {
        if requests.first().is_some_and(|request| request.buf.lands_elsewhere()) {
            for request in &mut requests {
                if matches!(request.operation, Operation::Read(_)) {
                    request.buf.land();
                }
            }
        }
        self.requests = requests;
    }
}
