//! The programs of the simulated world: what they send, receive and close.

use std::io;
use std::sync::Arc;

use crate::memory::{Buf, RegionMemory};
use crate::proto::{Place, Placed, Protocol, Received, Stock};

use super::log::byte;
use super::node::{Node, Path, SEGMENT, World};
use super::rng::Rng;

impl World {
    /// Lets the program send a message.
    pub(super) fn send(&mut self, side: usize, pair: usize, rng: &mut Rng) {
        let Node { stock, posted, ends, .. } = &mut self.nodes[side];
        let end = &mut ends[pair];
        let length = match rng.below(8) {
            0..4 => rng.below(100),
            4 => rng.below(SEGMENT as u32 * 2),
            5 | 6 => rng.below(4_000),
            _ => rng.below(30_000),
        } as usize;
        let from = end.log.sent;
        let message: Vec<u8> = (0..length).map(|at| byte(pair, side, from + at as u64)).collect();
        if self.path != Path::Any {
            // The credits of a SEND then do not depend on its path.
            posted.extend(stock.receives.drain(..));
        }
        let is_free = end.connection.can_send() && end.connection.requests.is_empty();
        if self.path != Path::Long {
            self.was_short = !message.is_empty()
                && end.connection.send_now(&message, stock, |header, message| end.link.send_now(header, message));
            if self.was_short {
                assert!(is_free, "a message overtakes a request, or is sent after the end");
                return end.log.send(length);
            }
        } else if self.was_short {
            end.connection
                .whole()
                .try_send(&message, stock, |message| end.link.expose(message))
                .expect("a message is accepted");
            end.link.posted.extend(end.connection.whole().requests.pop_front());
            assert!(end.connection.requests.is_empty(), "the short path sends one SEND");
            return end.log.send(length);
        }
        let result = if end.stream {
            end.connection.whole().write(&message, stock, |message| end.link.expose(message))
        } else if rng.one_in(2) {
            end.connection.whole().try_send(&message, stock, |message| end.link.expose(message)).map(|()| length)
        } else {
            let Some(mut buffer) = stock.pool.alloc(length) else { return };
            buffer.copy_from_slice(&message);
            end.connection
                .whole()
                .try_send_buf(buffer, stock, |message| end.link.expose(message))
                .map(|()| length)
                .map_err(|(error, buffer)| {
                    assert_eq!(&buffer[..], &message, "the message comes back");
                    error
                })
        };
        end.mark(stock);
        match result {
            Ok(length) => end.log.send(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => assert!(end.log.ended || end.down || end.connection.peer_close().is_some(), "{error}"),
        }
    }

    /// Lets the program flush its messages.
    pub(super) fn flush(&mut self, side: usize, pair: usize) {
        let Node { stock, ends, .. } = &mut self.nodes[side];
        ends[pair].connection.whole().flush();
        ends[pair].mark(stock);
    }

    /// Lets the program receive; returns whether it received anything.
    pub(super) fn receive(&mut self, side: usize, pair: usize, rng: &mut Rng) -> bool {
        let [left, right] = &mut self.nodes;
        let (node, peer) = if side == 0 { (left, right) } else { (right, left) };
        let (end, log) = (&mut node.ends[pair], &mut peer.ends[pair].log);
        if end.closed || end.reached_end {
            return false;
        }
        let result = if end.stream {
            let mut bytes = vec![0; 1 + rng.below(5_000) as usize];
            if self.path != Path::Long
                && let Some(count) = end.connection.read_alone(&mut bytes, &mut node.stock)
            {
                log.receive(pair, 1 - side, &bytes[..count], false);
                end.dirty |= end.connection.needs_turn(&node.stock);
                return true;
            }
            if self.path == Path::Any && rng.one_in(3) {
                end.connection.take_chunk(&mut node.stock).inspect(|taken| {
                    if let Received::Message(chunk) = taken {
                        log.receive(pair, 1 - side, chunk, false);
                    }
                })
            } else {
                end.connection.read_to(&mut &mut bytes[..], &mut node.stock).map(|count| match count {
                    None => Received::Empty,
                    Some(0) => Received::End,
                    Some(count) => {
                        log.receive(pair, 1 - side, &bytes[..count], false);
                        Received::Message(Buf::on_heap(0))
                    }
                })
            }
        } else {
            let is_due = end.connection.can_receive(&mut node.stock);
            let received = match rng.below(5) {
                0 | 1 => end.connection.try_recv(&mut node.stock),
                2 | 3 => receive_into(&mut end.connection, &mut node.stock, rng),
                _ => receive_in_region(&mut end.connection, &mut end.call, &mut node.stock, rng),
            };
            assert!(is_due || matches!(received, Ok(Received::Empty)), "a task was not woken for {received:?}");
            if let Ok(Received::Message(message)) = &received {
                log.receive(pair, 1 - side, message, true);
            }
            received
        };
        end.mark(&node.stock);
        match result {
            Ok(Received::Message(message)) => {
                if !end.stream && rng.one_in(8) && self.path == Path::Any {
                    node.hoard.push(message);
                }
                true
            }
            Ok(Received::Empty) => false,
            Ok(Received::End) => {
                end.reached_end = true;
                assert!(log.ended, "received an end that was not sent");
                assert_eq!(log.received, log.sent, "the peer still had bytes to send");
                true
            }
            Err(error) => {
                assert!(end.down, "{error}");
                false
            }
        }
    }

    pub(super) fn shut(&mut self, side: usize, pair: usize, rng: &mut Rng) {
        let Node { stock, ends, .. } = &mut self.nodes[side];
        let end = &mut ends[pair];
        if rng.one_in(2) {
            end.log.ended |= end.connection.whole().shutdown(stock).is_ok();
        } else {
            end.connection.whole().close(9, "enough", self.now, stock);
            end.log.ended = true;
            end.closed = true;
        }
        end.mark(stock);
    }
}

/// Receives in a region of the program. The program may give up a call before the message has arrived, and then uses the
/// region for something else. If the range is too short, retries with a longer one.
fn receive_in_region(
    connection: &mut Protocol,
    call: &mut Option<Place>,
    stock: &mut Stock,
    rng: &mut Rng,
) -> io::Result<Received> {
    const LONGEST: usize = 30_000;
    let mut place = match call.take() {
        Some(place) if !rng.one_in(4) => place,
        given_up => {
            let region = given_up.map_or_else(|| Arc::new(RegionMemory::simulated(LONGEST)), |place| place.share());
            region.write_at(0, &[rng.below(256) as u8; LONGEST])?;
            Place::new(&region, 0..2_000 + rng.below(28_000) as usize)
        }
    };
    let mut placed = connection.try_place(&place, stock);
    if placed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
        place = Place::new(&place.share(), 0..LONGEST);
        placed = connection.try_place(&place, stock);
    }
    match placed {
        Ok(Some(Placed::Region(length))) => {
            let mut message = Buf::on_heap(length);
            place.region().read_at(0, &mut message)?;
            Ok(Received::Message(message))
        }
        Ok(Some(Placed::Buffer(message))) => Ok(Received::Message(message)),
        Ok(None) => Ok(Received::End),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            *call = Some(place);
            Ok(Received::Empty)
        }
        Err(error) => Err(error),
    }
}

/// Receives into a buffer of the program. If the buffer is too short, retries with a longer one.
fn receive_into(connection: &mut Protocol, stock: &mut Stock, rng: &mut Rng) -> io::Result<Received> {
    let mut bytes = vec![0; rng.below(2_000) as usize];
    let received = match connection.try_recv_into(&mut bytes, stock) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            bytes.resize(30_000, 0);
            connection.try_recv_into(&mut bytes, stock)
        }
        received => received,
    };
    match received {
        Ok(None) => Ok(Received::End),
        Ok(Some(length)) => {
            let mut message = Buf::on_heap(length);
            message.copy_from_slice(&bytes[..length]);
            Ok(Received::Message(message))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Empty),
        Err(error) => Err(error),
    }
}
