//! Random reads and writes on non-blocking streams, with poll(2) alone. `TRESPASS_MIXES` is the number of seeds,
//! `TRESPASS_SEED` the first one.

use std::io::{BufRead, ErrorKind, IoSlice, IoSliceMut, Read, Write};

use crate::common::{bytes, on_both, pair};
use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trespass::Transport;
use trespass::net::{Reader, Shutdown, Stream};

/// A time limit that only a lost wake-up reaches, in seconds.
const LONG: i64 = 60;

/// One end, and the calls that it need not wait for.
struct End {
    stream: Stream,
    data: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    may_read: bool,
    may_write: bool,
    has_shut: bool,
    has_ended: bool,
}

impl End {
    fn new(stream: Stream, data: Vec<u8>) -> Self {
        stream.set_nonblocking(true).unwrap();
        let (may_read, may_write, has_shut, has_ended) = (true, true, false, false);
        Self { stream, data, written: 0, received: Vec::new(), may_read, may_write, has_shut, has_ended }
    }

    fn wants_read(&self) -> bool {
        self.may_read && !self.has_ended
    }

    fn wants_write(&self) -> bool {
        self.may_write && !self.has_shut
    }

    fn read(&mut self, random: &mut Rng) {
        let most = [1, 100, 20_000, 300_000][random.usize(..4)];
        let mut some = vec![0; 1 + random.usize(..most)];
        let mut stream = &self.stream;
        let read = match random.usize(..4) {
            3 => {
                let mut reader = Reader::new(self.stream.clone());
                let taken = reader.fill_buf();
                taken.map(|bytes| {
                    some.clear();
                    some.extend_from_slice(bytes);
                    bytes.len()
                })
            }
            0 => {
                let at = random.usize(..some.len());
                let (left, right) = some.split_at_mut(at);
                stream.read_vectored(&mut [IoSliceMut::new(left), IoSliceMut::new(right)])
            }
            _ => stream.read(&mut some),
        };
        match read {
            Ok(0) => self.has_ended = true,
            Ok(count) => {
                self.received.extend_from_slice(&some[..count]);
                // A program may also wait although bytes are left.
                self.may_read = random.usize(..3) != 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                self.may_read = false;
            }
        }
    }

    fn write(&mut self, random: &mut Rng) {
        let rest = &self.data[self.written..];
        let mut stream = &self.stream;
        if rest.is_empty() {
            self.has_shut = stream.shutdown(Shutdown::Write).is_ok();
            return;
        }
        let most = [1, 100, 20_000, 300_000][random.usize(..4)];
        let some = &rest[..rest.len().min(1 + random.usize(..most))];
        let written = match random.usize(..3) {
            0 => {
                let (left, right) = some.split_at(random.usize(..some.len()));
                stream.write_vectored(&[IoSlice::new(left), IoSlice::new(right)])
            }
            _ => stream.write(some),
        };
        match written {
            Ok(count) => {
                self.written += count;
                // After a part, the program waits.
                self.may_write = count == some.len();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                self.may_write = false;
            }
        }
    }

    /// Makes one call that need not wait, if there is one, or one that nothing has called for.
    fn step(&mut self, random: &mut Rng) {
        match (self.wants_read(), self.wants_write()) {
            (true, true) if random.usize(..2) == 0 => self.read(random),
            (_, true) => self.write(random),
            (true, false) => self.read(random),
            _ if random.usize(..20) == 0 && !self.has_ended => self.read(random),
            _ if random.usize(..20) == 0 && !self.has_shut => self.write(random),
            _ => {}
        }
    }
}

fn run(transport: Transport, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let (left, right) = pair(transport);
    let [near, far] = [(left, 1), (right, 2)].map(|(connection, salt)| {
        let length = random.usize(..3_000_000);
        End::new(Stream::from(connection), bytes(length, seed as usize * 2 + salt))
    });
    let mut ends = [near, far];
    while !ends.iter().all(|end| end.has_shut && end.has_ended) {
        let which = random.usize(..2);
        for _ in 0..1 + random.usize(..40) {
            ends[which].step(&mut random);
        }
        let is_over = ends.iter().all(|end| end.has_shut && end.has_ended);
        if is_over || ends.iter().any(|end| end.wants_read() || end.wants_write()) {
            continue;
        }
        let mut fds = ends.each_ref().map(|end| PollFd::new(&end.stream, PollFlags::IN));
        let count = poll(&mut fds, Some(&Timespec { tv_sec: LONG, tv_nsec: 0 })).unwrap();
        let state = || {
            ends.each_ref().map(|end| {
                (end.written, end.data.len(), end.has_shut, end.may_write, end.received.len(), end.has_ended)
            })
        };
        assert!(count != 0, "{transport:?}, seed {seed}: a wake-up is lost: {:?}", state());
        let signalled = fds.each_ref().map(|fd| !fd.revents().is_empty());
        for (end, is_signalled) in ends.iter_mut().zip(signalled) {
            end.may_read |= is_signalled;
            end.may_write |= is_signalled;
        }
    }
    let [near, far] = ends;
    assert!(near.received == far.data && far.received == near.data, "{transport:?}, seed {seed}");
}

#[test]
fn random_calls_of_nonblocking_streams_lose_no_byte_and_no_wake_up() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TRESPASS_SEED").unwrap_or(1);
    on_both(|transport| {
        for seed in first..first + number("TRESPASS_MIXES").unwrap_or(8) {
            run(transport, seed);
        }
    });
}
