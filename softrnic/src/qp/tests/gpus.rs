//! Tests of messages from and to GPU memory, and of errors of this memory.

use rdma_cuda::Fake;
use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::Link;
use super::*;

/// GPU memory that is registered in the domain of an end.
struct OnDevice {
    start: u64,
    region: Arc<Region>,
}

const SIZE: usize = 512;

impl OnDevice {
    fn new(end: &End) -> Self {
        let fake = Fake::load();
        let start = fake.allocate(fake.context(), SIZE);
        let backing = Backing::Host(start as usize);
        let region = Memory::of_process().register(&end.domain, backing, SIZE as u64, start, ALL).unwrap();
        Self { start, region }
    }

    fn piece(&self, offset: usize, length: usize) -> Piece {
        Piece { address: self.start + offset as u64, length: length as u32, lkey: self.region.key() }
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        Memory::of_process().deregister(&self.region).unwrap();
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 13 + 5) as u8).collect()
}

#[test]
fn every_operation_reaches_gpu_memory() {
    let fake = Fake::load();
    let (a, b) = reliable();
    let (from, to) = (OnDevice::new(&a), OnDevice::new(&b));
    let (address, rkey) = (to.start, to.region.key());
    let data = pattern(SIZE);
    fake.set(from.start, &data);

    b.receive(21, &[b.bytes.piece(0, 10), to.piece(100, 90)]);
    a.post(1, Operation::Send, |work| work.pieces.extend([from.piece(7, 60), a.bytes.piece(0, 40)]));
    assert_eq!((a.sent_statuses(), b.received_statuses()), (vec![(1, SUCCESS)], vec![(21, SUCCESS)]));
    assert_eq!(b.bytes.get(0, 10), data[7..17]);
    assert_eq!(fake.get(to.start + 100, 50), data[17..67]);

    a.post(2, Operation::Write { address, rkey }, |work| work.pieces.push(from.piece(0, SIZE)));
    assert_eq!((a.sent_statuses(), fake.get(to.start, SIZE) == data), (vec![(2, SUCCESS)], true));
    a.post(3, Operation::Read { address: address + 64, rkey }, |work| work.pieces.push(a.bytes.piece(512, 200)));
    assert_eq!((a.sent_statuses(), a.bytes.get(512, 200)), (vec![(3, SUCCESS)], data[64..264].to_vec()));

    fake.set(to.start, &[0; 8]);
    a.post(4, Operation::FetchAdd { address, rkey, add: 41 }, |work| work.pieces.push(from.piece(8, 8)));
    a.post(5, Operation::CompareSwap { address, rkey, compare: 41, swap: 6 }, |work| {
        work.pieces.push(from.piece(16, 8))
    });
    assert_eq!(a.sent_statuses(), [(4, SUCCESS), (5, SUCCESS)]);
    assert_eq!(fake.get(to.start, 8), 6u64.to_ne_bytes());
    assert_eq!(fake.get(from.start + 8, 16), [0u64.to_ne_bytes(), 41u64.to_ne_bytes()].concat());
    assert!(fake.current().is_empty());
}

#[test]
fn failed_memory_is_an_error_of_its_owner() {
    let fake = Fake::load();
    // The memory of the requester is freed.
    for is_read in [false, true] {
        let (a, b) = reliable();
        let own = OnDevice::new(&a);
        let (address, rkey) = b.at(0);
        fake.free(own.start);
        let operation = if is_read { Operation::Read { address, rkey } } else { Operation::Write { address, rkey } };
        a.post(1, operation, |work| work.pieces.push(own.piece(0, 8)));
        assert_eq!(a.sent_statuses(), [(1, Status::IBV_WC_LOC_PROT_ERR)], "{operation:?}");
        assert_eq!((a.pair.state(), b.pair.state()), (State::Error, State::ReadyToSend), "{operation:?}");
    }
    // The memory of the responder is freed.
    type Make = fn(u64, u32) -> Operation;
    let operations: [Make; 4] = [
        |address, rkey| Operation::Write { address, rkey },
        |address, rkey| Operation::Read { address, rkey },
        |address, rkey| Operation::FetchAdd { address, rkey, add: 1 },
        |address, rkey| Operation::AtomicWrite { address, rkey },
    ];
    for make in operations {
        let (a, b) = reliable();
        let theirs = OnDevice::new(&b);
        fake.free(theirs.start);
        let operation = make(theirs.start, theirs.region.key());
        a.post(1, operation, |work| work.pieces.push(a.bytes.piece(0, 8)));
        assert_eq!(a.sent_statuses(), [(1, Status::IBV_WC_REM_OP_ERR)], "{operation:?}");
        assert_eq!(b.pair.state(), State::Error, "{operation:?}");
    }
    // The memory of a receive is freed.
    let (a, b) = reliable();
    let theirs = OnDevice::new(&b);
    fake.free(theirs.start);
    b.receive(21, &[theirs.piece(0, 8)]);
    a.post_bytes(1, Operation::Send, 0, 8);
    assert_eq!(a.sent_statuses(), [(1, Status::IBV_WC_REM_OP_ERR)]);
    assert_eq!(b.received_statuses(), [(21, Status::IBV_WC_LOC_PROT_ERR)]);
}

#[test]
fn failed_memory_is_reported_across_processes() {
    let fake = Fake::load();
    // The memory of the requester is freed after a successful request, on a reliable and on an unreliable service.
    for service in [Service::ReliableConnection, Service::UnreliableConnection] {
        let link = Link::with(service, |_| {});
        let own = OnDevice::new(&link.a);
        let (address, rkey) = link.b.at(0);
        fake.free(own.start);
        link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
        link.a.post(2, Operation::Write { address, rkey }, |work| work.pieces.push(own.piece(0, 8)));
        link.settle();
        assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, Status::IBV_WC_LOC_PROT_ERR)]);
        assert_eq!(link.b.pair.state(), State::ReadyToSend);
    }
    // The memory into which a read writes is freed.
    let link = Link::reliable();
    let theirs = OnDevice::new(&link.b);
    fake.free(theirs.start);
    let (address, rkey) = (theirs.start, theirs.region.key());
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, Status::IBV_WC_REM_OP_ERR)]);
    assert_eq!((link.b.pair.state(), link.b.log.events()), (State::Error, vec![PairEvent::AccessError]));
}

#[test]
fn failed_driver_is_an_error_of_the_request() {
    let fake = Fake::load();
    let (a, b) = reliable();
    let theirs = OnDevice::new(&b);
    fake.fails(Some(("cuStreamSynchronize", 700)));
    let (address, rkey) = (theirs.start, theirs.region.key());
    a.post(1, Operation::Write { address, rkey }, |work| work.pieces.push(a.bytes.piece(0, 8)));
    fake.fails(None);
    assert_eq!(a.sent_statuses(), [(1, Status::IBV_WC_REM_OP_ERR)]);
    assert!(fake.current().is_empty());
}
