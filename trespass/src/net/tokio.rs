//! Streams for tokio. The worker's own thread calls the wakers, so the streams work in any runtime. In a runtime of
//! tokio, `Handle::drive_in_tokio` saves the switches to that thread.
//!
//! If a polled stream is dropped, the worker closes it in the background, because a task must not block. The end of the
//! process waits for that.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::worker::Wait;

use super::{Listener, Stream};

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        poll(self.attempt(Wait::Read, context.waker(), |worker| self.read_to(worker, buffer).map(drop)))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll(self.attempt(Wait::Write, context.waker(), |worker| self.write_some(worker, bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll(self.attempt(Wait::Write, context.waker(), |worker| self.write_parts(worker, parts)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Is ready when the peer's NIC has received everything that was written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.connection().id();
        poll(self.attempt(Wait::Write, context.waker(), |worker| match worker.is_flushed(id)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }))
    }

    /// Shuts down writing. Is ready when the peer's NIC has received everything that was written.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.connection().id();
        poll(self.attempt(Wait::Write, context.waker(), |worker| {
            worker.shutdown(id)?;
            worker.flush();
            match worker.is_flushed(id)? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        }))
    }
}

impl Listener {
    /// Accepts the next stream. Is pending until one is available.
    ///
    /// # Errors
    ///
    /// The stream ended before its address was read; the listener continues.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        poll(self.acceptor().try_accept_or_wake(context.waker()).map(Stream::from))
    }
}

fn poll<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}
