//! Long reads of a peer that takes the data as fast as it is sent.

use std::sync::Weak;

use super::*;
use crate::net::iwarp::outgoing::TURN;
use crate::net::iwarp::rdmap::ReadRequest;
use crate::wire::transport::Wake;

const LENGTH: usize = 64 * TURN;

/// A QP that responds to a read. It reads the peer's socket itself, so that TCP never lacks space.
#[derive(Debug)]
struct Source {
    this: Weak<Self>,
    peer: Mutex<TcpStream>,
    /// The carrier and the PSN of the read.
    read: Mutex<Option<(Arc<dyn Carrier>, u32)>>,
    given: AtomicU32,
}

impl Source {
    fn given(&self) -> usize {
        self.given.load(Ordering::SeqCst) as usize
    }

    fn give(&self) {
        let read = self.read.lock().unwrap();
        let (carrier, psn) = read.as_ref().unwrap();
        while self.given() < LENGTH {
            let kind = ResponseKind::Data { offset: self.given() as u64, length: PART as u32 };
            let response = Response { number: STREAM_PEER, source_number: 5, psn: *psn, attempt: 0, kind };
            if carrier.put(&Packet::Response(response), Payload::Bytes(&[7; PART])) == Err(Stuck::Full) {
                return carrier.wake(self.this.clone());
            }
            self.given.fetch_add(PART as u32, Ordering::SeqCst);
            while self.peer.lock().unwrap().read(&mut [0; 4 * PART]).is_ok_and(|length| length > 0) {}
        }
    }
}

impl Wake for Source {
    fn wake(&self) {
        self.give();
    }
}

impl Deliver for Arc<Source> {
    fn part(&self, part: &Part, _payload: &[Segment], back: &Arc<dyn Carrier>) {
        *self.read.lock().unwrap() = Some((Arc::clone(back), part.request.psn));
        self.give();
    }

    fn response(&self, _response: &Response, _payload: &[Segment]) -> bool {
        true
    }

    fn is_settled(&self, _number: u32) -> bool {
        true
    }

    fn lost(&self, _carrier: &Arc<dyn Carrier>) {}

    fn ended(&self, _number: u32, _carrier: &Arc<dyn Carrier>, _refusal: Option<Refusal>) {}
}

/// Returns a connection whose peer has requested a read, and its QP.
fn reading() -> (&'static Engine, Arc<Connection>, Arc<Source>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let bytes =
        ReadRequest { sink_stag: 1, sink_offset: 0, length: LENGTH as u32, source_stag: 1, source_offset: 0 }.bytes();
    let placement = Placement::Untagged { invalidate: 0, queue: 1, msn: 1, offset: 0 };
    let mut frame = Vec::new();
    let header = Header { opcode: Opcode::ReadRequest, is_last: true, placement };
    fpdu::emit(&header.bytes(), &bytes, true, &mut frame);
    peer.write_all(&frame).unwrap();
    peer.set_nonblocking(true).unwrap();
    let source = Arc::new_cyclic(|this| Source {
        this: this.clone(),
        peer: Mutex::new(peer),
        read: Mutex::new(None),
        given: AtomicU32::new(0),
    });
    let engine = Engine::new(Box::leak(Box::new(Arc::clone(&source))), Reactor::of_test);
    let engine: &'static Engine = Box::leak(Box::new(engine));
    (engine, connection(engine, listener.accept().unwrap().0), source)
}

#[test]
fn long_read_ends_its_turn() {
    let (_, connection, source) = reading();
    let mut turns = 0;
    wait("the data", || {
        let before = source.given();
        connection.serve(true);
        assert!(source.given() - before <= TURN, "{} bytes in a turn", source.given() - before);
        turns += usize::from(source.given() > before);
        source.given() == LENGTH
    });
    assert_eq!(turns, LENGTH / TURN);
}

#[test]
fn long_read_continues_after_its_turn() {
    for is_polled in [false, true] {
        let (engine, connection, source) = reading();
        engine.begin(&connection).unwrap();
        wait("the data", || {
            if is_polled {
                engine.progress();
            }
            source.given() == LENGTH
        });
    }
}
