//! Reads of a stream without a copy.

use std::io::{self, BufRead, Read};

use crate::memory::Buf;

use super::Stream;

/// Reads a stream without copying its bytes: [`BufRead::fill_buf`] returns them in the memory into which the NIC has
/// placed them.
///
/// This type has the place of `BufReader`, which would copy. As there, dropping it loses the bytes that
/// [`Reader::buffer`] returns.
///
/// ```no_run
/// use std::io::BufRead;
/// use trespass::net::{Reader, Stream};
///
/// let mut reader = Reader::new(Stream::connect("192.0.2.1:7000")?);
/// let mut sum = 0;
/// loop {
///     let bytes = reader.fill_buf()?;
///     if bytes.is_empty() {
///         break;
///     }
///     sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
///     let count = bytes.len();
///     reader.consume(count);
/// }
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<S = Stream> {
    pub(crate) stream: S,
    /// Bytes that were taken from the stream. `None` if all were consumed.
    pub(crate) bytes: Option<Buf>,
}

impl<S> Reader<S> {
    /// Reads from this stream. Other clones of the stream must not read.
    pub fn new(stream: S) -> Self {
        Reader { stream, bytes: None }
    }

    /// Returns the stream, such as for writing.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns the bytes that were taken from the stream and not consumed.
    pub fn buffer(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    /// Returns the stream. The bytes of [`Reader::buffer`] are lost.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Removes the first bytes of [`Reader::buffer`]. The memory returns to its pool with the last of them.
    pub(crate) fn pass(&mut self, count: usize) {
        let Some(bytes) = &mut self.bytes else { return };
        bytes.advance(count);
        if bytes.is_empty() {
            self.bytes = None;
        }
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes.is_none() {
            self.bytes = self.stream.take_chunk()?;
        }
        Ok(self.buffer())
    }

    fn consume(&mut self, count: usize) {
        self.pass(count);
    }
}

impl Read for Reader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_none() {
            return self.stream.read(bytes);
        }
        let count = self.buffer().read(bytes)?;
        self.pass(count);
        Ok(count)
    }
}
