//! Sends messages: builds their frames, uses credits, and adds control frames.

use std::io;
use std::sync::Arc;

use crate::memory::{Buf, Transfer, no_memory};
use crate::proto::frame::{Frame, HEADER, Kind, LAST, NOTE, set_credits};
use crate::proto::{FLOOR, RESERVE, Remote, Request, Stock};

use super::{Fin, Item, Outgoing, Whole};

/// The maximum number of SENDs passed to the backend in a turn. Further SENDs wait, and further small messages are
/// added to them.
const BATCH: usize = 16;
/// The maximum number of messages that wait for the peer to READ them. A link can expose more buffers than this,
/// because it revokes a key only some time after the READ.
const EXPOSED: usize = 32;
/// A write of a stream sends at most this part of the high-water mark as one message. With shorter messages, the caller
/// and the peer wait for each other more often, and each wait may include a wake-up.
const PIECES: usize = 2;
/// Total size of the control frames DONE, FIN_ACK, RETURNED and WITHDRAWN, in bytes.
const CONTROL: usize = 4 * HEADER;

impl Whole {
    /// Copies a message from the program's memory, and sends the copy. Returns `WouldBlock` if too many bytes wait to
    /// be sent. `expose` lets the peer read a buffer, or returns it.
    #[inline]
    pub(crate) fn try_send<E>(&mut self, message: &[u8], stock: &mut Stock, expose: E) -> io::Result<()>
    where
        E: FnOnce(Buf) -> Result<Remote, Buf>,
    {
        if message.len() + HEADER <= self.agreement.segment as usize {
            return self.send_piece(message, stock);
        }
        self.send_copy(message, stock, expose)
    }

    /// Sends a message that fits into one SEND.
    #[inline]
    fn send_piece(&mut self, message: &[u8], stock: &mut Stock) -> io::Result<()> {
        self.may_send(message.len())?;
        let frame = Frame { flags: LAST, a: message.len() as u32, ..Frame::new(Kind::DATA) };
        self.push_frame(frame, message, stock)
    }

    /// Sends a notification. Returns `WouldBlock` if too many bytes wait to be sent.
    pub(crate) fn notify(&mut self, number: u64, stock: &mut Stock) -> io::Result<()> {
        let bytes = number.to_le_bytes();
        self.may_send(bytes.len())?;
        let frame = Frame { flags: LAST | NOTE, a: bytes.len() as u32, ..Frame::new(Kind::DATA) };
        self.push_frame(frame, &bytes, stock)
    }

    /// Sends a copy of a message that is longer than a segment.
    #[inline(never)]
    fn send_copy<E>(&mut self, message: &[u8], stock: &mut Stock, expose: E) -> io::Result<()>
    where
        E: FnOnce(Buf) -> Result<Remote, Buf>,
    {
        self.may_send(message.len())?;
        let copy = stock.pool.alloc(message.len()).or_else(|| Buf::try_on_heap(message.len()));
        let mut copy = copy.ok_or_else(|| no_memory(message.len()))?;
        copy.copy_from_slice(message);
        self.push_message(copy, stock, expose).map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    /// Sends a message from a buffer. A long message in unregistered memory is copied. If the message cannot be sent
    /// now, the error contains the buffer.
    pub(crate) fn try_send_buf<E>(
        &mut self,
        mut message: Buf,
        stock: &mut Stock,
        expose: E,
    ) -> Result<(), (io::Error, Buf)>
    where
        E: FnOnce(Buf) -> Result<Remote, Buf>,
    {
        if let Err(error) = self.may_send(message.len()) {
            return Err((error, message));
        }
        let frame =
            Frame { flags: LAST, a: message.len() as u32, length: message.len() as u32, ..Frame::new(Kind::DATA) };
        // A buffer that waits would use much more memory than counts as waiting, so its bytes join those before it.
        let is_short = frame.extent() <= self.agreement.segment as usize / 2;
        if is_short && !self.can_launch() && self.push_frame(frame, &message, stock).is_ok() {
            return Ok(());
        }
        if message.len() + HEADER <= self.agreement.segment as usize
            && stock.pool.owns(&message)
            && message.prepend(&frame.emit())
        {
            self.outgoing.lacks_memory = false;
            self.push_send(message);
            return Ok(());
        }
        self.push_message(message, stock, expose).map_err(|message| (io::ErrorKind::WouldBlock.into(), message))
    }

    /// Sends bytes of a stream as messages, up to the high-water mark. Returns the number of bytes accepted.
    #[inline]
    pub(crate) fn write<E>(&mut self, bytes: &[u8], stock: &mut Stock, expose: E) -> io::Result<usize>
    where
        E: FnOnce(Buf) -> Result<Remote, Buf>,
    {
        let piece = self.agreement.segment as usize - HEADER;
        if bytes.len() <= piece {
            return if bytes.is_empty() { Ok(0) } else { self.send_piece(bytes, stock).map(|()| bytes.len()) };
        }
        let most = self.agreement.rendezvous.min(self.agreement.message) as usize;
        let length = bytes.len().min(most).min(self.settings.send_high_water / PIECES);
        if length > self.settings.eager || self.outgoing.offers.fits(length) {
            self.may_send(length)?;
            if let Some(mut copy) = stock.pool.alloc(length) {
                copy.copy_from_slice(&bytes[..length]);
                return self
                    .push_message(copy, stock, expose)
                    .map(|()| length)
                    .map_err(|_| io::ErrorKind::WouldBlock.into());
            }
        }
        let mut written = 0;
        for part in bytes.chunks(piece) {
            match self.send_piece(part, stock) {
                Ok(()) => written += part.len(),
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// Records that the link has completed WRITEs of this number of bytes.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.outgoing.waiting = self.outgoing.waiting.saturating_sub(bytes);
        self.alive.heard = true;
    }

    /// Whether `try_send` would accept a message.
    pub(crate) fn can_send(&self) -> bool {
        self.may_send(0).is_ok()
    }

    /// Whether a waiting sender can continue: bytes can be sent, the flush is complete, or the connection has ended.
    pub(crate) fn can_progress(&self) -> bool {
        self.ended || self.failure.is_some() || self.is_closed() || self.can_send() || self.is_flushed()
    }

    /// Whether a sender waits only for memory.
    pub(crate) fn lacks_memory(&self, stock: &mut Stock) -> bool {
        let is_flushed = self.outgoing.is_flushing && self.is_flushed();
        let is_lacking = self.outgoing.lacks_memory && !self.ended && self.failure.is_none() && !is_flushed;
        is_lacking && !self.has_segment(stock)
    }

    /// Whether a SEND gets a segment. If it must wait, one is left: a long message that waits before it needs segments for
    /// its parts.
    fn has_segment(&self, stock: &mut Stock) -> bool {
        if self.can_launch() { stock.has_segment() } else { stock.has_surplus() }
    }

    /// Whether the peer's NIC has received everything that was sent, and the peer has READ all announced messages.
    pub(crate) fn has_sent_all(&self) -> bool {
        let out = &self.outgoing;
        out.queue.is_empty() && out.exposed.is_empty() && !out.in_flight()
    }

    /// Whether everything was sent, and the keys of granted regions are valid.
    fn is_flushed(&self) -> bool {
        self.has_sent_all() && !self.outgoing.is_binding()
    }

    /// Adds transfers of regions, which are executed in order with the messages, and need no credit.
    pub(crate) fn transfer(&mut self, transfers: Vec<Transfer>) -> io::Result<()> {
        let under_way = Arc::clone(&self.under_way);
        let counted = transfers.into_iter().map(|transfer| transfer.counted(&under_way));
        self.request(counted.map(|transfer| Request::Transfer(Box::new(transfer))))
    }

    /// Whether all transfers have ended.
    pub(crate) fn has_moved_all(&self) -> bool {
        Arc::strong_count(&self.under_way) == 1
    }

    /// Adds requests of regions.
    pub(crate) fn request(&mut self, requests: impl IntoIterator<Item = Request>) -> io::Result<()> {
        match &self.failure {
            Some(failure) => Err(failure.clone().into()),
            None if self.ended => Err(io::ErrorKind::NotConnected.into()),
            None => {
                self.requests.extend(requests);
                Ok(())
            }
        }
    }

    /// Requests that the key of a region that was just granted becomes valid.
    pub(crate) fn granted(&mut self) {
        self.outgoing.valid_from = self.outgoing.probes + 1;
        self.requests.push_back(Request::Bind);
    }

    /// Makes the link report completions until everything was sent.
    pub(crate) fn flush(&mut self) {
        self.outgoing.is_flushing = !self.is_flushed();
    }

    /// Returns whether the connection is flushed. Returns an error if the connection ended before.
    pub(crate) fn flushed(&mut self) -> io::Result<bool> {
        self.flush();
        match &self.failure {
            Some(failure) => Err(failure.clone().into()),
            None if self.ended && self.outgoing.is_flushing => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(!self.outgoing.is_flushing),
        }
    }

    pub(crate) fn set_send_high_water(&mut self, bytes: usize) {
        self.settings.send_high_water = bytes.max(1);
    }

    #[inline]
    fn may_send(&self, length: usize) -> io::Result<()> {
        let (out, agreement) = (&self.outgoing, &self.agreement);
        let has_room = out.waiting <= self.settings.send_high_water && out.exposed.len() < EXPOSED;
        if out.is_open && has_room && length <= agreement.message as usize { Ok(()) } else { Err(self.refusal(length)) }
    }

    /// Returns an error if a message cannot be accepted.
    #[cold]
    fn refusal(&self, length: usize) -> io::Error {
        if let Some(failure) = &self.failure {
            return failure.clone().into();
        }
        if self.outgoing.fin != Fin::Open || self.peer_close.is_some() || self.ended {
            return io::ErrorKind::BrokenPipe.into();
        }
        if length > self.agreement.message as usize {
            let text =
                format!("the message has {length} bytes, and the peer accepts at most {}", self.agreement.message);
            return io::Error::new(io::ErrorKind::InvalidInput, text);
        }
        io::ErrorKind::WouldBlock.into()
    }

    /// Sends a message that is too long for one SEND: it is written to a buffer that the peer has announced, the peer
    /// READs it, or it is sent in parts. Returns the
    /// message if no memory is left to announce it.
    fn push_message<E>(&mut self, message: Buf, stock: &mut Stock, expose: E) -> Result<(), Buf>
    where
        E: FnOnce(Buf) -> Result<Remote, Buf>,
    {
        let length = message.len();
        if !self.has_segment(stock) {
            self.outgoing.lacks_memory = true;
            return Err(message);
        }
        if stock.pool.owns(&message)
            && let Some((number, to)) = self.outgoing.offers.find(length)
        {
            // Only the frame needs a credit and has a place among the messages, so the WRITE is posted at once.
            self.requests.push_back(Request::Write { from: message, to });
            let frame = Frame { flags: LAST, a: length as u32, b: number, ..Frame::new(Kind::WRITTEN) };
            if self.push_frame(frame, &[], stock).is_ok() {
                self.outgoing.offers.used(number);
                self.outgoing.waiting += length;
                self.rendezvous_sent += 1;
                return Ok(());
            }
            return Err(match self.requests.pop_back() {
                Some(Request::Write { from, .. }) => from,
                _ => Buf::on_heap(0),
            });
        }
        let exposed = if length > self.settings.eager && length <= self.agreement.rendezvous as usize {
            expose(message)
        } else {
            Err(message)
        };
        match exposed {
            Ok(remote) => {
                let frame = Frame { flags: LAST, a: length as u32, ..Frame::new(Kind::RTS) };
                if self.push_frame(frame, &remote.emit(), stock).is_err() {
                    // This does not fail, because a spare segment is available.
                    self.requests.push_back(Request::Conceal(remote));
                    return Err(Buf::on_heap(0));
                }
                self.outgoing.exposed.push_back((remote, length));
                self.rendezvous_sent += 1;
            }
            Err(message) => self.outgoing.queue.push_back(Item::Rest { message, first: true }),
        }
        self.outgoing.waiting += length;
        Ok(())
    }

    /// Adds a frame to the last SEND that was not posted yet, or begins a new SEND.
    #[inline]
    pub(super) fn push_frame(&mut self, mut frame: Frame, payload: &[u8], stock: &mut Stock) -> io::Result<()> {
        frame.length = payload.len() as u32;
        let most = self.agreement.segment as usize;
        let last = match self.outgoing.queue.back_mut() {
            Some(Item::Send(send)) => Some((send, true)),
            Some(Item::Rest { .. }) => None,
            None => match self.requests.back_mut() {
                Some(Request::Send(send)) if !uses_reserve(send) => Some((send, false)),
                _ => None,
            },
        };
        if let Some((send, waits)) = last
            && send.len() + frame.extent() <= most
            && send.append(&frame.emit(), payload)
        {
            if waits {
                self.outgoing.waiting += frame.extent();
            }
            return Ok(());
        }
        // A CLOSE that waits delays nothing for long, because of the linger time.
        let may_send = frame.kind == Kind::CLOSE || self.has_segment(stock);
        let Some(mut send) = may_send.then(|| stock.take()).flatten() else {
            self.outgoing.lacks_memory = true;
            return Err(io::ErrorKind::WouldBlock.into());
        };
        self.outgoing.lacks_memory = false;
        if !send.append(&frame.emit(), payload) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.push_send(send);
        Ok(())
    }

    #[inline]
    fn push_send(&mut self, send: Buf) {
        if self.can_launch() {
            self.launch(send);
        } else {
            self.outgoing.waiting += send.len();
            self.outgoing.queue.push_back(Item::Send(send));
        }
    }

    /// Whether a SEND passes to the backend without waiting.
    #[inline]
    fn can_launch(&self) -> bool {
        self.outgoing.queue.is_empty() && self.credits() > RESERVE && self.requests.len() < BATCH
    }

    /// Returns the number of SENDs for which the peer has receives.
    #[inline]
    pub(super) fn credits(&self) -> u16 {
        self.outgoing.limit.wrapping_sub(self.outgoing.sent as u16)
    }

    /// Passes a SEND to the backend. The caller has checked the credits.
    #[inline]
    pub(super) fn launch(&mut self, mut send: Buf) {
        self.incoming.announced = self.incoming.target();
        set_credits(&mut send, self.incoming.announced);
        self.outgoing.sent += 1;
        self.requests.push_back(Request::Send(send));
    }

    #[inline]
    pub(super) fn send_queued(&mut self, stock: &mut Stock) {
        while self.credits() > RESERVE && self.requests.len() < BATCH {
            match self.outgoing.queue.pop_front() {
                None => return,
                Some(Item::Send(send)) => {
                    self.outgoing.waiting -= send.len();
                    self.launch(send);
                }
                Some(Item::Rest { message, first }) => {
                    let Some(send) = stock.take() else {
                        self.outgoing.queue.push_front(Item::Rest { message, first });
                        return;
                    };
                    self.send_part(message, first, send);
                }
            }
        }
    }

    /// Sends the next part of a message in the empty segment `send`.
    fn send_part(&mut self, mut message: Buf, first: bool, mut send: Buf) {
        let length = message.len().min(self.agreement.segment as usize - HEADER);
        let whole = length == message.len();
        let frame = Frame {
            flags: if whole { LAST } else { 0 },
            length: length as u32,
            a: if first { message.len() as u32 } else { 0 },
            ..Frame::new(Kind::DATA)
        };
        // The frame fits into the segment, because `agreement.segment` is the minimum of both sides' lengths.
        send.append(&frame.emit(), &message[..length]);
        self.outgoing.waiting -= length;
        self.launch(send);
        if !whole {
            message.advance(length);
            self.outgoing.queue.push_front(Item::Rest { message, first: false });
        }
    }

    /// Sends pending control frames. They are added to the last SEND that was not posted yet, or get a SEND of their
    /// own.
    #[inline]
    pub(super) fn send_control(&mut self, stock: &mut Stock) {
        let grant = self.incoming.is_grant_due();
        let is_withdrawn = self.outgoing.offers.is_withdrawn;
        if !grant && !is_withdrawn && !self.incoming.has_status() {
            return;
        }
        if let Some(Request::Send(send)) = self.requests.back_mut()
            && send.len() + CONTROL <= self.agreement.segment as usize
            && send.room() >= CONTROL
        {
            self.incoming.announced = self.incoming.target();
            self.incoming.append_status(send);
            self.outgoing.append_status(send);
            set_credits(send, self.incoming.announced);
        } else if self.credits() >= if grant { 1 } else { 2 }
            && let Some(mut send) = stock.take()
        {
            send.push(&Frame::new(Kind::GRANT).emit());
            self.incoming.append_status(&mut send);
            self.outgoing.append_status(&mut send);
            self.launch(send);
        }
    }

    /// Returns credits that an idle connection does not need, so that the peer can lease them to other connections.
    /// Until the peer's confirmation arrives, credits refer to the old limit and are ignored.
    pub(super) fn return_credits(&mut self, stock: &mut Stock) {
        let held = self.outgoing.limit;
        let kept = (self.outgoing.sent as u16).wrapping_add(1 + FLOOR);
        if self.credits() <= 1 + FLOOR || !self.outgoing.queue.is_empty() || self.outgoing.returning {
            return;
        }
        let Some(mut send) = stock.take() else { return };
        send.push(&Frame { a: u32::from(held), b: u32::from(kept), ..Frame::new(Kind::RETURN) }.emit());
        (self.outgoing.limit, self.outgoing.returning) = (kept, true);
        self.launch(send);
        // This SEND does not count as activity of the connection.
        self.alive.sent = self.outgoing.sent;
    }
}

/// Whether a SEND begins with a control frame, and so may use one of the credits that messages leave unused.
#[inline]
fn uses_reserve(send: &[u8]) -> bool {
    send.first().is_none_or(|&kind| matches!(Kind(kind), Kind::GRANT | Kind::RETURN | Kind::BUFFERS | Kind::WITHDRAW))
}

impl Outgoing {
    /// Whether the key of a granted region may still be invalid.
    #[inline]
    pub(super) fn is_binding(&self) -> bool {
        self.probed < self.valid_from
    }

    /// Whether a probe has not completed.
    #[inline]
    pub(super) fn is_probing(&self) -> bool {
        self.probed != self.probes
    }

    /// Appends the confirmation of a withdrawal to a SEND with space for it, if one is due.
    fn append_status(&mut self, send: &mut Buf) {
        if std::mem::take(&mut self.offers.is_withdrawn) {
            send.push(&self.offers.confirmation().emit());
        }
    }

    /// Whether the link has not completed all SENDs.
    #[inline]
    pub(super) fn in_flight(&self) -> bool {
        self.sent > self.completed
    }
}
