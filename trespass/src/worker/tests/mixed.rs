//! Messages that are received, and read as a stream. `TRESPASS_MIXES` is the number of seeds of the random test,
//! `TRESPASS_SEED` the first one.

use rustix::event::{PollFd, PollFlags, Timespec};

use super::*;
use crate::proto::Rng;

/// Returns byte `at` of what the side with this number sends.
fn byte(side: usize, at: usize) -> u8 {
    (at as u32 * 31 + at as u32 / 255 + side as u32 * 7) as u8
}

/// One side of a connection, with the calls that it may still make before it must wait.
struct Mixed {
    worker: Worker,
    id: ConnectionId,
    side: usize,
    sent: usize,
    received: usize,
    /// Whether the last call to send, or to receive, would have blocked.
    is_full: bool,
    is_empty: bool,
    has_shut: bool,
    has_ended: bool,
}

impl Mixed {
    fn next(&self, length: usize) -> Vec<u8> {
        (self.sent..self.sent + length).map(|at| byte(self.side, at)).collect()
    }

    /// Sends bytes by a random call. Returns how many were accepted.
    fn send(&mut self, left: usize, rng: &mut Rng) {
        let most = [1, 8, 300, 5_000, 60_000, 300_000][rng.below(6) as usize];
        let length = left.min(1 + rng.below(most) as usize);
        let bytes = self.next(length);
        let sent = match rng.below(4) {
            0 if left >= 8 => {
                let number = u64::from_le_bytes(self.next(8).try_into().unwrap());
                self.worker.try_notify(self.id, number).map(|()| 8)
            }
            1 => self.worker.try_write(self.id, &bytes),
            2 => {
                let mut message = self.worker.alloc(self.id, length);
                message.copy_from_slice(&bytes);
                match self.worker.try_send_buf(self.id, message) {
                    Ok(()) => Ok(length),
                    Err((error, message)) => {
                        assert!(message[..] == bytes, "the error returns the message");
                        Err(error)
                    }
                }
            }
            _ => self.worker.try_send(self.id, &bytes).map(|()| length),
        };
        match sent {
            Ok(count) => self.sent += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                self.is_full = true;
            }
        }
    }

    /// Receives bytes by a random call.
    fn receive(&mut self, rng: &mut Rng) {
        let most = [1, 100, 20_000, 400_000][rng.below(4) as usize];
        let mut bytes = vec![0; 1 + rng.below(most) as usize];
        let received = match rng.below(3) {
            0 => self.worker.try_recv(self.id).map(|message| bytes = message.to_vec()),
            1 => self.worker.try_recv_into(self.id, &mut bytes).map(|count| bytes.truncate(count)),
            _ => self.worker.try_read(self.id, &mut bytes).and_then(|count| {
                bytes.truncate(count);
                if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            }),
        };
        match received {
            Ok(()) => {
                let from = self.received;
                let is_right = bytes.iter().enumerate().all(|(at, &got)| got == byte(1 - self.side, from + at));
                assert!(is_right, "{} bytes from {from}", bytes.len());
                self.received += bytes.len();
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.has_ended = true,
            // The message is longer than the memory, and stays.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                self.is_empty = true;
            }
        }
    }

    /// Makes one random call, of those that would not block.
    fn step(&mut self, total: usize, rng: &mut Rng) {
        match rng.below(8) {
            0 => self.worker.flush(),
            1 => _ = self.worker.is_flushed(self.id).unwrap(),
            2..5 if !self.is_full && self.sent < total => self.send(total - self.sent, rng),
            3 if self.sent == total && !self.has_shut => {
                self.has_shut = self.worker.shutdown(self.id).is_ok();
            }
            _ if !self.is_empty && !self.has_ended => self.receive(rng),
            _ => self.turn(),
        }
    }

    fn turn(&mut self) {
        if self.worker.poll() != 0 {
            (self.is_full, self.is_empty) = (false, false);
        }
    }

    /// Whether every call that is left would block.
    fn must_wait(&self, total: usize) -> bool {
        (self.is_full || (self.sent == total && self.has_shut)) && (self.is_empty || self.has_ended)
    }
}

/// Makes random calls on both sides of a connection until all bytes and both ends have arrived.
fn mix(kind: Kind, seed: u64) {
    let (mut rng, begun) = (Rng::new(seed), Instant::now());
    let mut server = Server::new(Transport::Any);
    let (client, near, far) = server.neighbour(kind);
    let total = 1 + rng.below(2_000_000) as usize;
    let side = |side, worker, id| Mixed {
        worker,
        id,
        side,
        sent: 0,
        received: 0,
        is_full: false,
        is_empty: false,
        has_shut: false,
        has_ended: false,
    };
    let mut sides = [side(0, server.worker, far), side(1, client, near)];
    while !sides.iter().all(|side| side.has_ended && side.has_shut) {
        let which = rng.below(2) as usize;
        // One side may run for long before the other one.
        for _ in 0..1 + rng.below(30) {
            sides[which].step(total, &mut rng);
        }
        if !sides.iter().all(|side| side.must_wait(total)) {
            continue;
        }
        let times = sides.each_mut().map(|side| side.worker.arm().unwrap());
        let time = times[0].min(times[1]).min(LONG);
        if !time.is_zero() {
            let limit = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            let mut fds = sides.each_ref().map(|side| PollFd::from_borrowed_fd(side.worker.fd(), PollFlags::IN));
            let count = rustix::event::poll(&mut fds, Some(&limit)).unwrap();
            let state = sides.each_ref().map(|side| (side.sent, side.received, side.is_full));
            assert!(count != 0 || time < LONG, "a wake-up is lost: {state:?} of {total}");
        }
        for side in &mut sides {
            side.turn();
            (side.is_full, side.is_empty) = (false, false);
        }
        assert!(begun.elapsed() < 5 * LONG, "endless wake-ups");
    }
    assert!(sides.iter().all(|side| side.received == total), "{:?} of {total}", sides.map(|side| side.received));
}

#[test]
fn random_mixes_of_calls_lose_no_byte_and_no_wake_up() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TRESPASS_SEED").unwrap_or(1);
    for seed in first..first + number("TRESPASS_MIXES").unwrap_or(5) {
        for kind in [Kind::Tcp, Kind::Rdma] {
            println!("{kind:?}, seed {seed}");
            mix(kind, seed);
        }
    }
}

/// A message of which a receive has taken a part may be read as a stream, and its rest received.
#[test]
fn reads_and_receives_of_one_message_take_turns() {
    let mut server = Server::new(Transport::Tcp);
    let (mut socket, id) = server.raw_peer();
    let begin = send(Frame { a: 3_000, ..Frame::new(FrameKind::DATA) }, &[b'A'; 1_000]);
    let end = send(Frame { flags: 1, ..Frame::new(FrameKind::DATA) }, &[b'B'; 2_000]);
    let other = send(Frame { flags: 1, a: 5, ..Frame::new(FrameKind::DATA) }, b"other");
    for taken in [1_000, 400, 4_000] {
        let arrive = |server: &mut Server, socket: &mut TcpStream, bytes: &[u8], count| {
            let before = server.worker.stats(id).unwrap().receives;
            socket.write_all(bytes).unwrap();
            let begun = Instant::now();
            while server.worker.stats(id).unwrap().receives < before + count {
                server.worker.poll();
                assert!(begun.elapsed() < LONG);
            }
        };
        arrive(&mut server, &mut socket, &begin, 1);
        assert_eq!(server.worker.try_recv(id).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut bytes = vec![0; taken];
        let mut read = 0;
        if taken <= 1_000 {
            read = server.worker.try_read(id, &mut bytes).unwrap();
            assert_eq!(read, taken);
        }
        arrive(&mut server, &mut socket, &[&end[..], &other[..]].concat(), 2);
        if taken > 1_000 {
            // Also the message after it, because a stream has no boundaries.
            read = server.worker.try_read(id, &mut bytes).unwrap();
            assert_eq!(bytes[..read], [&[b'A'; 1_000][..], &[b'B'; 2_000], b"other"].concat());
        } else {
            assert_eq!(bytes, vec![b'A'; read]);
            let rest = [vec![b'A'; 1_000 - read], vec![b'B'; 2_000]].concat();
            assert_eq!(server.worker.try_recv(id).unwrap()[..], rest[..]);
            assert_eq!(server.worker.try_recv(id).unwrap()[..], *b"other");
        }
    }
}
