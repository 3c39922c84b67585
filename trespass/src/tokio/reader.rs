//! Reads of a stream without a copy.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::Stream;
use super::waiting::poll;
use crate::memory::Buf;
use crate::worker::Wait;

/// Reads a stream without copying its bytes, as [`net::Reader`](crate::net::Reader) does. It has the place of
/// `tokio::io::BufReader`.
#[derive(Debug)]
pub struct Reader {
    stream: Stream,
    /// Bytes that were taken from the stream. `None` if all were consumed.
    bytes: Option<Buf>,
}

impl Reader {
    /// Reads from this stream. Other clones of the stream must not read.
    pub fn new(stream: Stream) -> Reader {
        Reader { stream, bytes: None }
    }

    /// Returns the stream, such as for writing.
    pub fn get_ref(&self) -> &Stream {
        &self.stream
    }

    /// Returns the bytes that were taken from the stream and not consumed.
    pub fn buffer(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    /// Returns the stream. The bytes of [`Reader::buffer`] are lost.
    pub fn into_inner(self) -> Stream {
        self.stream
    }
}

impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let Self { stream, bytes } = self.get_mut();
        if bytes.is_none() {
            let stream = stream.blocking();
            *bytes = ready!(poll(stream.attempt(Wait::Read, context.waker(), |worker| stream.chunk(worker))))?;
        }
        Poll::Ready(Ok(bytes.as_deref().unwrap_or_default()))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        let Some(bytes) = &mut self.bytes else { return };
        bytes.advance(count);
        if bytes.is_empty() {
            self.bytes = None;
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.bytes.is_none() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let count = self.buffer().len().min(into.remaining());
        into.put_slice(&self.buffer()[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}
