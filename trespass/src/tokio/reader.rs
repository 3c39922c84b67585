//! Reads of a stream without a copy.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::Stream;
use super::waiting::poll;
use crate::net;
use crate::worker::Wait;

/// Reads a stream without copying its bytes: it implements `AsyncBufRead`, in the place of `tokio::io::BufReader`.
pub type Reader = net::Reader<Stream>;

impl AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let reader = self.get_mut();
        if reader.bytes.is_none() {
            let stream = reader.stream.blocking();
            reader.bytes = ready!(poll(stream.attempt(Wait::Read, context.waker(), |worker| stream.chunk(worker))))?;
        }
        Poll::Ready(Ok(reader.buffer()))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.pass(count);
    }
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.bytes.is_none() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let count = self.buffer().len().min(into.remaining());
        into.put_slice(&self.buffer()[..count]);
        self.pass(count);
        Poll::Ready(Ok(()))
    }
}
