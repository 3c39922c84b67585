//! Reads messages and bytes from the inbox for the program.

use std::io;

use bytes::BufMut;

use crate::memory::{Buf, no_memory};
use crate::proto::frame::{Frame, HEADER, Kind, LAST, NOTE};
use crate::proto::{Failure, Stock};

use super::{Assembly, Inbox, Protocol, Read, Whole};

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
pub(super) enum Front {
    /// A frame of a message.
    Data(Frame),
    /// A message in the peer's memory, or one that was READ from there or that the peer has written.
    Rendezvous,
    Empty,
    End,
}

/// These functions change only the inbox, so they do not affect the short path.
impl Protocol {
    /// Copies bytes of the stream to `out`, and returns their number, which is 0 at the end. Returns `None` if no bytes
    /// have arrived yet. The memory may be uninitialised.
    pub(crate) fn read_to(&mut self, out: &mut impl BufMut, stock: &mut Stock) -> io::Result<Option<usize>> {
        let wanted = out.remaining_mut();
        match self.inbox().read_to(out, stock) {
            None if wanted > 0 => self.still_open().and_then(|()| self.check_memory(stock)).map(|()| None),
            count => Ok(Some(count.unwrap_or(0))),
        }
    }

    /// Returns the next bytes of the stream without a copy, or with a copy of a few bytes.
    pub(crate) fn take_chunk(&mut self, stock: &mut Stock) -> io::Result<Received> {
        match self.inbox().take_chunk(stock) {
            Received::Empty => self.still_open().and_then(|()| self.check_memory(stock)).map(|()| Received::Empty),
            received => Ok(received),
        }
    }

    /// Returns the next whole message. If a received buffer contains only this message, the program gets that buffer,
    /// and a new one replaces it.
    #[inline]
    pub(crate) fn try_recv(&mut self, stock: &mut Stock) -> io::Result<Received> {
        let longest = self.settings.message as usize;
        match self.inbox().try_recv(longest, stock)? {
            Received::Empty => self.still_open().and_then(|()| self.check_memory(stock)).map(|()| Received::Empty),
            received => Ok(received),
        }
    }

    /// Copies the next whole message into `out`. Returns its length, or `None` after the last message. If the message
    /// is longer than `out`, returns an error, and the message stays in the inbox.
    #[inline]
    pub(crate) fn try_recv_into(&mut self, out: &mut [u8], stock: &mut Stock) -> io::Result<Option<usize>> {
        let length = self.inbox().next_length(stock);
        let Some(place) = out.get_mut(..length) else {
            let text = format!("the next message has {length} bytes; receive it with a buffer of that length");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        if let Some(length) = self.inbox().take_frame(place, stock) {
            return Ok(Some(length));
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

    /// Returns an error if there is no memory for the next message. The message stays announced, and each call retries:
    /// the program may have freed memory after the worker's last turn.
    #[inline]
    fn check_memory(&mut self, stock: &mut Stock) -> io::Result<()> {
        if self.inbox().lacking == 0 { Ok(()) } else { self.whole().retry_reads(stock) }
    }

    /// Whether a read would return data, the end, or an error.
    pub(crate) fn can_receive(&mut self, stock: &mut Stock) -> bool {
        self.inbox().has_message(stock).unwrap_or_else(|| self.still_open().is_err())
    }

    /// Whether the end is next. Returns the reason why the connection ended if that is next.
    pub(crate) fn is_at_end(&mut self, stock: &mut Stock) -> io::Result<bool> {
        match self.inbox().front(stock) {
            _ if self.inbox().assembly.is_some() => Ok(false),
            Front::Data(_) | Front::Rendezvous => Ok(false),
            Front::End => Ok(true),
            Front::Empty => self.still_open().map(|()| false),
        }
    }
}

impl Inbox {
    /// Copies bytes of the stream to `out`. Returns `None` if no bytes have arrived yet, and `Some(0)` at the end.
    fn read_to(&mut self, out: &mut impl BufMut, stock: &mut Stock) -> Option<usize> {
        let before = out.remaining_mut();
        // A receive has taken these bytes from the inbox, and waits for the rest of the message.
        if let Some(Assembly { message, taken, filled, .. }) = &mut self.assembly {
            let bytes = message.get(*taken..*filled).unwrap_or(&[]);
            let count = bytes.len().min(out.remaining_mut());
            out.put_slice(&bytes[..count]);
            *taken += count;
            if taken == filled {
                self.assembly = None;
            }
        }
        while out.has_remaining_mut() {
            match self.front(stock) {
                Front::Data(frame) => {
                    let Some(payload) = self.sends.payload(self.cursor, &frame) else { break };
                    let count = payload.len().min(out.remaining_mut());
                    out.put_slice(&payload[..count]);
                    let is_whole = count == payload.len();
                    self.cursor += count;
                    if is_whole {
                        self.pass_frame(frame.extent(), stock);
                    }
                }
                Front::Rendezvous => {
                    let Some(Read::Ready(message)) = self.reads.front_mut() else {
                        self.read_ahead();
                        break;
                    };
                    let count = message.len().min(out.remaining_mut());
                    out.put_slice(&message[..count]);
                    message.advance(count);
                    self.ahead -= count;
                    if message.is_empty() {
                        drop(self.pass_read(stock));
                    }
                }
                Front::Empty => break,
                Front::End => return Some(before - out.remaining_mut()),
            }
        }
        let filled = before - out.remaining_mut();
        (filled > 0).then_some(filled)
    }

    fn take_chunk(&mut self, stock: &mut Stock) -> Received {
        if let Some(Assembly { mut message, taken, filled, .. }) = self.assembly.take()
            && taken < filled
        {
            message.truncate(filled);
            message.advance(taken);
            return Received::Message(message);
        }
        loop {
            match self.front(stock) {
                Front::Data(frame) if frame.length as usize == self.cursor => self.pass_frame(frame.extent(), stock),
                Front::Data(frame) => return Received::Message(self.take_single(frame, stock)),
                Front::Rendezvous if self.is_read() => {
                    if let Some(Read::Ready(message)) = self.pass_read(stock) {
                        self.ahead -= message.len();
                        return Received::Message(message);
                    }
                }
                Front::Rendezvous => {
                    self.read_ahead();
                    return Received::Empty;
                }
                Front::Empty => return Received::Empty,
                Front::End => return Received::End,
            }
        }
    }

    #[inline]
    fn try_recv(&mut self, longest: usize, stock: &mut Stock) -> io::Result<Received> {
        loop {
            match self.front(stock) {
                Front::Data(frame) => {
                    if frame.flags & LAST != 0 && self.assembly.is_none() {
                        let message = self.take_single(frame, stock);
                        if frame.flags & NOTE != 0
                            && let Ok(bytes) = message[..].try_into()
                        {
                            stock.give(message);
                            return Ok(Received::Message(Buf::note(bytes)));
                        }
                        return Ok(Received::Message(message));
                    }
                    if let Some(message) = self.assemble(frame, longest, stock)? {
                        return Ok(Received::Message(message));
                    }
                }
                Front::Rendezvous if self.is_read() => {
                    if let Some(Read::Ready(message)) = self.pass_read(stock) {
                        self.ahead -= message.len();
                        return Ok(Received::Message(message));
                    }
                }
                Front::Rendezvous => {
                    self.read_ahead();
                    return Ok(Received::Empty);
                }
                Front::Empty => return Ok(Received::Empty),
                Front::End if self.assembly.is_some() => {
                    return Err(Failure::violation("the peer ended in the middle of a message").into());
                }
                Front::End => return Ok(Received::End),
            }
        }
    }

    /// Returns the length of the next message, or 0 if there is none.
    #[inline]
    fn next_length(&mut self, stock: &mut Stock) -> usize {
        match (self.front(stock), self.reads.front()) {
            (Front::Data(frame), _) => match &self.assembly {
                Some(assembly) => assembly.length - assembly.taken,
                None if frame.flags & LAST != 0 => frame.length as usize,
                None => frame.a as usize,
            },
            (Front::Rendezvous, Some(Read::Ready(message))) => message.len(),
            _ => 0,
        }
    }

    /// Copies the next message to `out`, which has its length, if the message consists of one frame that was not read.
    /// Most messages do.
    #[inline]
    fn take_frame(&mut self, out: &mut [u8], stock: &mut Stock) -> Option<usize> {
        let Front::Data(frame) = self.front(stock) else { return None };
        if frame.flags & LAST == 0 || self.assembly.is_some() || self.cursor != 0 {
            return None;
        }
        out.copy_from_slice(self.sends.payload(0, &frame).filter(|payload| payload.len() == out.len())?);
        self.pass_frame(frame.extent(), stock);
        Some(out.len())
    }

    /// Whether a message or the end is next. Returns `None` if nothing has arrived.
    fn has_message(&mut self, stock: &mut Stock) -> Option<bool> {
        match self.front(stock) {
            Front::Data(_) | Front::End => Some(true),
            Front::Rendezvous if self.is_read() || self.lacking != 0 || self.is_placeable() => Some(true),
            Front::Rendezvous | Front::Empty => None,
        }
    }

    /// Lets the READs go on for an ordinary receive of a long message.
    #[cold]
    fn read_ahead(&mut self) {
        self.places = false;
        self.wait_again(|_| true);
    }

    /// Whether the first message of `reads` was READ.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.reads.front(), Some(Read::Ready(_)))
    }

    /// Returns the first entry of the inbox. Skips frames that are not messages.
    #[inline(always)]
    pub(super) fn front(&mut self, stock: &mut Stock) -> Front {
        loop {
            if self.end {
                // This side has closed: for the program, the end is its own.
                return if self.discard { Front::Empty } else { Front::End };
            }
            let Some(frame) = self.sends.front().and_then(|send| Frame::parse(send)) else { return Front::Empty };
            match frame.kind {
                Kind::DATA => return Front::Data(frame),
                Kind::RTS | Kind::WRITTEN => return Front::Rendezvous,
                Kind::FIN | Kind::CLOSE => {
                    self.end = true;
                    self.clear(stock);
                }
                _ => self.pass_frame(frame.extent(), stock),
            }
        }
    }

    /// Adds a frame to the message to which it belongs. Returns the message when it is complete.
    fn assemble(&mut self, frame: Frame, longest: usize, stock: &mut Stock) -> io::Result<Option<Buf>> {
        let is_for_a_region = self.has_region_call();
        let Some(payload) = self.sends.payload(self.cursor, &frame) else { return Ok(None) };
        if self.assembly.is_none() {
            if frame.a <= frame.length || self.cursor != 0 {
                let text = "the rest of a partly read message is next; read to its end as a stream";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let length = frame.a as usize;
            self.places &= is_for_a_region;
            if length > longest {
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
            self.assembly = Some(Assembly { message, length, filled: 0, taken: 0 });
        }
        let Some(assembly) = &mut self.assembly else { return Ok(None) };
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
        self.pass_frame(frame.extent(), stock);
        if frame.flags & LAST == 0 {
            return Ok(None);
        }
        let Some(Assembly { mut message, filled, taken, .. }) = self.assembly.take() else { return Ok(None) };
        message.truncate(filled);
        message.advance(taken);
        Ok(Some(message))
    }

    /// Returns the first message of the inbox, which consists of one frame.
    #[inline]
    fn take_single(&mut self, frame: Frame, stock: &mut Stock) -> Buf {
        let start = HEADER + self.cursor;
        let alone = self.sends.front().is_some_and(|send| send.len() == frame.extent());
        if alone
            && let Some(replacement) = stock.take_surplus()
            && let Some(mut message) = self.sends.pop()
        {
            message.advance(start);
            self.cursor = 0;
            self.free(replacement, stock);
            return message;
        }
        let payload = self.sends.payload(self.cursor, &frame).unwrap_or(&[]);
        // The message fits, because it arrived in a segment.
        let mut message = stock.take_surplus().unwrap_or_else(|| Buf::on_heap(0));
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
        let Some(send) = self.sends.front() else { return };
        if send.len() > extent {
            send.advance(extent);
        } else if let Some(send) = self.sends.pop() {
            self.free(send, stock);
        }
    }

    /// Removes and returns the first message that was READ.
    pub(super) fn pass_read(&mut self, stock: &mut Stock) -> Option<Read> {
        let read = self.reads.pop_front();
        self.first_read = self.first_read.wrapping_add(1);
        if let Some(frame) = self.sends.front().and_then(|send| Frame::parse(send)) {
            self.pass_frame(frame.extent(), stock);
        }
        read
    }
}

impl Whole {
    #[cold]
    fn retry_reads(&mut self, stock: &mut Stock) -> io::Result<()> {
        self.start_reads(stock);
        match self.incoming.inbox.lacking {
            0 => Ok(()),
            length => Err(no_memory(length as usize)),
        }
    }

    /// Returns an error if no further message can arrive.
    pub(super) fn still_open(&self) -> io::Result<()> {
        match &self.failure {
            Some(failure) => Err(failure.clone().into()),
            None if self.is_closed() => Err(io::Error::new(io::ErrorKind::NotConnected, "the connection was closed")),
            None if self.ended => Err(io::ErrorKind::ConnectionReset.into()),
            None => Ok(()),
        }
    }
}
