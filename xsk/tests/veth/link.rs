//! Sends packets from one socket to another, and checks their order and content.

use std::time::{Duration, Instant};

use xsk::{
    AttachMode, Attached, Error, Filter, Interface, Packet, Pool, Program, Queue, Socket, SocketBuilder, Umem,
    UmemBuilder,
};

use crate::net::did_not_run;

/// Maximum time that a test waits for a packet.
const PATIENCE: Duration = Duration::from_secs(60);

/// A socket on an interface, with all of its memory.
pub(crate) struct End {
    pub(crate) umem: Umem,
    pub(crate) pool: Pool,
    pub(crate) queue: Queue,
}

impl End {
    pub(crate) fn new(interface: &Interface) -> Self {
        Self::with(interface, Umem::builder(4096), |socket| socket).unwrap()
    }

    pub(crate) fn with(
        interface: &Interface,
        umem: UmemBuilder,
        options: impl FnOnce(&mut SocketBuilder) -> &mut SocketBuilder,
    ) -> Result<Self, Error> {
        let (umem, mut pool) = umem.build()?;
        let mut builder = Socket::builder(interface, 0);
        options(&mut builder);
        let mut queue = builder.open(&umem)?;
        queue.fill.refill(&mut pool);
        Ok(Self { umem, pool, queue })
    }

    /// Opens a socket with multi-buffer, or reports that the kernel does not support it.
    pub(crate) fn multi_buffer(interface: &Interface, umem: UmemBuilder) -> Option<Self> {
        match Self::with(interface, umem, |socket| socket.multi_buffer(true).ring_size(64)) {
            Err(error) if error.errno() == libc::EINVAL => {
                did_not_run("multi-buffer needs Linux 6.6");
                None
            }
            end => Some(end.unwrap()),
        }
    }

    /// Attaches the program for all packets, and passes them to this socket.
    pub(crate) fn steer(&self, interface: &Interface, mode: AttachMode, is_multi_buffer: bool) -> (Program, Attached) {
        let load = if is_multi_buffer { Program::load_multi_buffer } else { Program::load };
        let program = load(Filter::All).unwrap();
        program.map().insert(self.queue.rx.socket()).unwrap();
        let attached = program.attach(interface, mode).unwrap();
        (program, attached)
    }

    /// Like `steer`, for an interface from which a program was removed. Retries, because the forked child of a
    /// concurrent test keeps the removed link until the child executes another program.
    pub(crate) fn steer_again(&self, interface: &Interface) -> (Program, Attached) {
        let program = Program::load(Filter::All).unwrap();
        program.map().insert(self.queue.rx.socket()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match program.attach(interface, AttachMode::Native) {
                Ok(attached) => return (program, attached),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// Sends packets; takes completed frames as the ring requires.
    pub(crate) fn send(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) {
        for bytes in packets {
            let mut packet = self.packet(&bytes);
            let deadline = Instant::now() + PATIENCE;
            loop {
                let sent = self.queue.tx.batch(1).send(packet);
                let Err(back) = sent else { break };
                packet = back;
                self.queue.tx.wake().unwrap();
                self.queue.completion.collect(&mut self.pool);
                assert!(Instant::now() < deadline, "the TX ring stays full");
            }
        }
        self.flush();
    }

    /// Sends packets as one batch that must fit.
    pub(crate) fn send_batch(&mut self, packets: &[Vec<u8>]) {
        let packets: Vec<Packet> = packets.iter().map(|bytes| self.packet(bytes)).collect();
        let mut batch = self.queue.tx.batch(packets.len());
        for packet in packets {
            batch.send(packet).unwrap();
        }
        drop(batch);
        self.flush();
    }

    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Packet {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.pool.take() {
                return frame.packet_from(bytes).unwrap();
            }
            self.queue.tx.wake().unwrap();
            self.queue.completion.collect(&mut self.pool);
            assert!(Instant::now() < deadline, "no frame returns");
        }
    }

    /// Sends until the TX ring is empty.
    pub(crate) fn flush(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.queue.tx.pending() != 0 {
            self.queue.tx.wake().unwrap();
            self.queue.completion.collect(&mut self.pool);
            assert!(Instant::now() < deadline, "{} packets are not sent", self.queue.tx.pending());
        }
    }

    /// Receives complete packets, and refills the fill ring.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut received: Vec<Vec<u8>> = Vec::new();
        let mut pieces: Vec<u8> = Vec::new();
        while received.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} packets arrived: {:?}",
                received.len(),
                self.queue.rx.socket().statistics()
            );
            self.queue.rx.wait(Duration::from_millis(10)).unwrap();
            for packet in self.queue.rx.batch(64) {
                pieces.extend_from_slice(packet.bytes());
                if !packet.continues() {
                    received.push(std::mem::take(&mut pieces));
                }
                self.pool.put(packet).unwrap();
            }
            self.queue.fill.refill(&mut self.pool);
            self.queue.fill.wake().unwrap();
        }
        received
    }

    /// Checks that no further packet arrives.
    pub(crate) fn assert_silent(&mut self) {
        assert!(!self.queue.rx.wait(Duration::from_millis(50)).unwrap(), "an unexpected packet");
    }

    /// Checks that all frames are in the pool, in a ring, or in the kernel.
    pub(crate) fn collect(&mut self) {
        self.queue.completion.collect(&mut self.pool);
        self.pool.collect_dropped();
    }
}

/// A packet of this length with a number in it; the content depends on both.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    let rest = (bytes.len()..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8);
    bytes.extend(rest);
    bytes.truncate(len);
    bytes
}

/// The packets `0..count` of one length.
pub(crate) fn frames(count: u32, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, len)).collect()
}

/// Sends in groups that fit into the receiver's rings, and checks the received packets.
pub(crate) fn transfer(from: &mut End, to: &mut End, packets: &[Vec<u8>]) {
    for group in packets.chunks(32) {
        from.send(group.iter().cloned());
        assert!(to.receive(group.len()) == group, "a packet arrived changed or out of order");
    }
}
