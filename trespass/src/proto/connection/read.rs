//! Reads messages and bytes from the inbox for the program.

use std::io;

use bytes::BufMut;

use crate::memory::{Buf, no_memory};
use crate::proto::frame::{Frame, HEADER, Kind, LAST, NOTE, Source};
use crate::proto::{Failure, Stock};

use super::{Assembly, Connection, Incoming, Read};

/// The result of a receive.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Buf),
    /// No message has arrived yet.
    Empty,
    /// The peer has ended sending.
    End,
}

/// How many bytes of memory are allocated for a message when its first frame arrives. More memory is added only as
/// bytes arrive, because the peer chose the announced length.
const AT_ONCE: usize = 2 << 20;

/// The first entry of the inbox.
enum Front {
    /// A frame of a message.
    Data(Frame),
    /// A message in the peer's memory, or one that was READ from there.
    Rendezvous,
    Empty,
    End,
}

impl Connection {
    /// Copies the bytes of a short message to `out` in the common case. In all other cases returns `None`, and the
    /// caller must use [`Connection::read`].
    #[inline(always)]
    pub(crate) fn read_alone(&mut self, out: &mut [u8], stock: &mut Stock) -> Option<usize> {
        self.incoming.read_alone(out, stock)
    }

    /// Copies bytes of the stream to `out`, and returns their number, which is 0 at the end. Returns `None` if no bytes
    /// have arrived yet.
    #[inline]
    pub(crate) fn read(&mut self, mut out: &mut [u8], stock: &mut Stock) -> io::Result<Option<usize>> {
        match self.read_alone(out, stock) {
            Some(count) => Ok(Some(count)),
            None => self.read_to(&mut out, stock),
        }
    }

    /// Does the same as `read`. The memory may be uninitialised.
    pub(crate) fn read_to(&mut self, out: &mut impl BufMut, stock: &mut Stock) -> io::Result<Option<usize>> {
        let before = out.remaining_mut();
        // A receive has taken these bytes from the inbox, and waits for the rest of the message.
        if let Some(Assembly { message, taken, filled, .. }) = &mut self.incoming.assembly {
            let bytes = message.get(*taken..*filled).unwrap_or(&[]);
            let count = bytes.len().min(out.remaining_mut());
            out.put_slice(&bytes[..count]);
            *taken += count;
            if taken == filled {
                self.incoming.assembly = None;
            }
        }
        while out.has_remaining_mut() {
            match self.front(stock) {
                Front::Data(frame) => {
                    let incoming = &mut self.incoming;
                    let Some(payload) =
                        incoming.inbox.front().and_then(|send| send.get(HEADER + incoming.cursor..frame.extent()))
                    else {
                        break;
                    };
                    let count = payload.len().min(out.remaining_mut());
                    out.put_slice(&payload[..count]);
                    incoming.cursor += count;
                    if count == payload.len() {
                        incoming.pass_frame(frame.extent(), stock);
                    }
                }
                Front::Rendezvous => {
                    let incoming = &mut self.incoming;
                    let Some(Read::Ready(message)) = incoming.reads.front_mut() else { break };
                    let count = message.len().min(out.remaining_mut());
                    out.put_slice(&message[..count]);
                    message.advance(count);
                    incoming.ahead -= count;
                    if message.is_empty() {
                        drop(incoming.pass_read(stock));
                    }
                }
                Front::Empty => break,
                Front::End => return Ok(Some(before - out.remaining_mut())),
            }
        }
        let filled = before - out.remaining_mut();
        if filled > 0 || before == 0 { Ok(Some(filled)) } else { self.still_open().map(|()| None) }
    }

    /// Returns the next whole message. If a received buffer contains only this message, the program gets that buffer,
    /// and a new one replaces it.
    #[inline]
    pub(crate) fn try_recv(&mut self, stock: &mut Stock) -> io::Result<Received> {
        loop {
            match self.front(stock) {
                Front::Data(frame) => {
                    if frame.flags & LAST != 0 && self.incoming.assembly.is_none() {
                        let message = self.incoming.take_single(frame, stock);
                        if frame.flags & NOTE != 0
                            && let Ok(bytes) = message[..].try_into()
                        {
                            stock.give(message);
                            return Ok(Received::Message(Buf::note(bytes)));
                        }
                        return Ok(Received::Message(message));
                    }
                    if let Some(message) = self.assemble(frame, stock)? {
                        return Ok(Received::Message(message));
                    }
                }
                Front::Rendezvous if matches!(self.incoming.reads.front(), Some(Read::Ready(_))) => {
                    if let Some(Read::Ready(message)) = self.incoming.pass_read(stock) {
                        self.incoming.ahead -= message.len();
                        return Ok(Received::Message(message));
                    }
                }
                Front::Rendezvous | Front::Empty => break,
                Front::End if self.incoming.assembly.is_some() => {
                    return Err(Failure::violation("the peer ended in the middle of a message").into());
                }
                Front::End => return Ok(Received::End),
            }
        }
        self.still_open().map(|()| Received::Empty)
    }

    /// Copies the next whole message into `out`. Returns its length, or `None` after the last message. If the message
    /// is longer than `out`, returns an error, and the message stays in the inbox.
    #[inline]
    pub(crate) fn try_recv_into(&mut self, out: &mut [u8], stock: &mut Stock) -> io::Result<Option<usize>> {
        let length = match self.front(stock) {
            Front::Data(frame) => match &self.incoming.assembly {
                Some(assembly) => assembly.length - assembly.taken,
                None if frame.flags & LAST != 0 => frame.length as usize,
                None => frame.a as usize,
            },
            Front::Rendezvous => match self.incoming.reads.front() {
                Some(Read::Ready(message)) => message.len(),
                _ => 0,
            },
            Front::Empty | Front::End => 0,
        };
        let Some(place) = out.get_mut(..length) else {
            let text = format!("the next message has {length} bytes; receive it with a buffer of that length");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        if let Front::Data(Frame { flags, length, .. }) = self.front(stock)
            && flags & LAST != 0
            && self.incoming.assembly.is_none()
            && self.incoming.cursor == 0
        {
            // Most messages consist of one frame, which is copied to `out` directly.
            let bytes = self.read(place, stock)?.unwrap_or(0);
            debug_assert_eq!(bytes, length as usize);
            if length == 0 {
                self.incoming.pass_frame(HEADER, stock);
            }
            return Ok(Some(bytes));
        }
        match self.try_recv(stock)? {
            Received::Message(message) => match out.get_mut(..message.len()) {
                Some(place) => {
                    place.copy_from_slice(&message);
                    Ok(Some(message.len()))
                }
                // Not reached: the message is as long as announced, or shorter.
                None => Err(Failure::violation("a message is longer than announced").into()),
            },
            Received::Empty => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Ok(None),
        }
    }

    /// Whether `read` or `try_recv` would return data, the end, or an error.
    pub(crate) fn can_receive(&mut self, stock: &mut Stock) -> bool {
        match self.front(stock) {
            Front::Data(_) | Front::End => true,
            Front::Rendezvous if matches!(self.incoming.reads.front(), Some(Read::Ready(_))) => true,
            Front::Rendezvous | Front::Empty => self.still_open().is_err(),
        }
    }

    /// Returns the first entry of the inbox. Skips frames that are not messages.
    #[inline(always)]
    fn front(&mut self, stock: &mut Stock) -> Front {
        loop {
            let incoming = &mut self.incoming;
            if incoming.end {
                // This side has closed: for the program, the end is its own.
                return if incoming.discard { Front::Empty } else { Front::End };
            }
            let Some(frame) = incoming.inbox.front().and_then(|send| Frame::parse(send)) else { return Front::Empty };
            match frame.kind {
                Kind::DATA => return Front::Data(frame),
                Kind::RTS => return Front::Rendezvous,
                Kind::FIN | Kind::CLOSE => {
                    incoming.end = true;
                    incoming.clear_inbox(stock);
                }
                _ => incoming.pass_frame(frame.extent(), stock),
            }
        }
    }

    /// Adds a frame to the message to which it belongs. Returns the message when it is complete.
    fn assemble(&mut self, frame: Frame, stock: &mut Stock) -> io::Result<Option<Buf>> {
        let incoming = &mut self.incoming;
        let Some(payload) = incoming.inbox.front().and_then(|send| send.get(HEADER + incoming.cursor..frame.extent()))
        else {
            return Ok(None);
        };
        if incoming.assembly.is_none() {
            if frame.a <= frame.length || incoming.cursor != 0 {
                let text = "the rest of a partly read message is next; read to its end as a stream";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let length = frame.a as usize;
            if length > self.settings.message as usize {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of {length} bytes is too long"),
                ));
            }
            let first = length.min(AT_ONCE);
            let message = stock
                .pool
                .alloc_within_half(first)
                .or_else(|| Buf::try_on_heap(first))
                .ok_or_else(|| no_memory(first))?;
            incoming.assembly = Some(Assembly { message, length, filled: 0, taken: 0 });
        }
        let Some(assembly) = &mut incoming.assembly else { return Ok(None) };
        let end = assembly.filled + payload.len();
        if end > assembly.length {
            return Err(Failure::violation("a message is longer than announced").into());
        }
        if end > assembly.message.len() {
            let more = assembly.length.min(2 * end);
            let mut longer = Buf::try_on_heap(more).ok_or_else(|| no_memory(more))?;
            longer[..assembly.filled].copy_from_slice(&assembly.message[..assembly.filled]);
            assembly.message = longer;
        }
        let Some(place) = assembly.message.get_mut(assembly.filled..end) else { return Ok(None) };
        place.copy_from_slice(payload);
        assembly.filled = end;
        incoming.pass_frame(frame.extent(), stock);
        if frame.flags & LAST == 0 {
            return Ok(None);
        }
        let Some(Assembly { mut message, filled, taken, .. }) = incoming.assembly.take() else { return Ok(None) };
        message.truncate(filled);
        message.advance(taken);
        Ok(Some(message))
    }

    /// Returns an error if no further message can arrive.
    fn still_open(&self) -> io::Result<()> {
        match &self.failure {
            Some(failure) => Err(failure.clone().into()),
            None if self.is_closed() => Err(io::Error::new(io::ErrorKind::NotConnected, "the connection was closed")),
            None if self.ended => Err(io::ErrorKind::ConnectionReset.into()),
            None => Ok(()),
        }
    }
}

impl Incoming {
    /// Handles the common case of a read. In this case, the first SEND is one DATA frame, of which nothing was read. The
    /// frame also fills `out`, or no other data has arrived.
    #[inline(always)]
    fn read_alone(&mut self, out: &mut [u8], stock: &mut Stock) -> Option<usize> {
        if self.assembly.is_some() {
            return None;
        }
        let (count, send) = self.inbox.take_alone(out)?;
        self.freed = self.freed.wrapping_add(1);
        stock.receives.push(send);
        Some(count)
    }

    /// Returns the first message of the inbox, which consists of one frame.
    #[inline]
    fn take_single(&mut self, frame: Frame, stock: &mut Stock) -> Buf {
        let start = HEADER + self.cursor;
        let alone = self.inbox.front().is_some_and(|send| send.len() == frame.extent());
        if alone
            && let Some(replacement) = stock.take()
            && let Some(mut message) = self.inbox.pop()
        {
            message.advance(start);
            self.cursor = 0;
            self.free(replacement, stock);
            return message;
        }
        let payload = self.inbox.front().and_then(|send| send.get(start..frame.extent())).unwrap_or(&[]);
        // The message fits, because it arrived in a segment.
        let mut message = stock.take().unwrap_or_else(|| Buf::on_heap(0));
        if !message.push(payload) {
            message = Buf::on_heap(payload.len());
            message.copy_from_slice(payload);
        }
        self.pass_frame(frame.extent(), stock);
        message
    }

    /// Removes the first frame after it was read. With the last frame of a SEND, its receive becomes free.
    #[inline]
    fn pass_frame(&mut self, extent: usize, stock: &mut Stock) {
        self.cursor = 0;
        let Some(send) = self.inbox.front() else { return };
        if send.len() > extent {
            send.advance(extent);
        } else if let Some(send) = self.inbox.pop() {
            self.free(send, stock);
        }
    }

    /// Removes and returns the first message that was READ.
    fn pass_read(&mut self, stock: &mut Stock) -> Option<Read> {
        let read = self.reads.pop_front();
        self.first_read = self.first_read.wrapping_add(1);
        self.pass_frame(HEADER + Source::LENGTH, stock);
        read
    }
}
