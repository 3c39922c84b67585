//! Memory windows of type 2: bound by a request, invalidated by either side, and the effects for the peer.
#![expect(clippy::unwrap_used, reason = "a test")]

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    WorkCompletionFlags, WorkCompletionOperationType as Operation, WorkCompletionStatus as Status,
};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::queue_pair::{PostSendGuard, SendOperationFlags};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{Completion, Give, Kind, Loopback, QueueKind};
use sideway_tests::{device, on_all_kinds};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
const PEER: AccessFlags = AccessFlags::RemoteRead.union(AccessFlags::RemoteWrite);
const REGION: usize = 4096;
/// The offset of the window in the region.
const OFFSET: usize = 1024;
const WINDOW: usize = 64;
const TEXT: &[u8; 18] = b"through the window";

/// Two connected sides. Peers can access the far side's region only through the window.
struct Fixture<Q> {
    // A bound window uses its queue pair and its region, so it is dropped before both.
    window: MemoryWindow,
    region: OwnedMemoryRegion,
    pair: Loopback<Q>,
}

impl<Q: Kind> Fixture<Q> {
    #[track_caller]
    fn new(queue: QueueKind) -> Self {
        let pair = Loopback::<Q>::with(queue, None, |builder| {
            builder.setup_send_ops_flags(
                SendOperationFlags::Send
                    | SendOperationFlags::Read
                    | SendOperationFlags::Write
                    | SendOperationFlags::BindMemoryWindow
                    | SendOperationFlags::LocalInvalidate
                    | SendOperationFlags::SendWithInvalidate,
            );
        });
        let region = pair.pd.reg_owned_mr(REGION, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind).unwrap();
        let window = pair.pd.alloc_mw(MemoryWindowType::Type2).unwrap();
        Self { window, region, pair }
    }

    /// Binds the window to its part of the region, with a new key.
    #[track_caller]
    fn bind(&mut self, wr_id: u64) -> RemoteKey {
        let Self { window, region, pair } = self;
        let rkey = window.rkey().inc_rkey();
        let part = BindInformation::new(region.region(), region.addr() + OFFSET as u64, WINDOW as u64, PEER);
        let mut batch = pair.far.qp.start_post_send();
        batch.construct_wr(wr_id, SIGNALED).setup_bind_mw(window, rkey, part);
        batch.post().unwrap();
        let bound = pair.far.success();
        assert_eq!((bound.wr_id, bound.opcode), (wr_id, Some(Operation::BindMemoryWindow)), "{}", Q::NAME);
        window.set_rkey(rkey).unwrap();
        rkey
    }

    /// Invalidates a key of the side that posts the request.
    #[track_caller]
    fn invalidate(&mut self, wr_id: u64, rkey: RemoteKey) {
        let far = &mut self.pair.far;
        let mut batch = far.qp.start_post_send();
        batch.construct_wr(wr_id, SIGNALED).setup_local_inv(rkey);
        batch.post().unwrap();
        let done = far.success();
        assert_eq!((done.wr_id, done.opcode), (wr_id, Some(Operation::LocalInvalidate)), "{}", Q::NAME);
    }

    /// The near side writes `text` into the window.
    #[track_caller]
    fn write(&mut self, rkey: RemoteKey, text: &[u8]) -> Status {
        let addr = self.region.addr() + OFFSET as u64;
        let near = &mut self.pair.near;
        near.memory.write(0, text);
        let range = near.range(0, text.len());
        let mut batch = near.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_write(rkey, addr).give(range);
        batch.post().unwrap();
        near.completion().status
    }

    /// The near side reads from the window.
    #[track_caller]
    fn read(&mut self, rkey: RemoteKey) -> (Status, Vec<u8>) {
        let addr = self.region.addr() + OFFSET as u64;
        let near = &mut self.pair.near;
        near.memory.write(100, &[0; TEXT.len()]);
        let range = near.range(100, TEXT.len());
        let mut batch = near.qp.start_post_send();
        batch.construct_wr(2, SIGNALED).setup_read(rkey, addr).give(range);
        batch.post().unwrap();
        (near.completion().status, near.bytes(100, TEXT.len()))
    }

    /// The region contains what a peer has written through the window, and nothing else.
    #[track_caller]
    fn has_text(&self) {
        let mut bytes = vec![1; REGION];
        self.region.read_at(0, &mut bytes).unwrap();
        let mut expected = vec![0; REGION];
        expected[OFFSET..OFFSET + TEXT.len()].copy_from_slice(TEXT);
        assert_eq!(bytes, expected, "{}", Q::NAME);
    }

    /// No window is bound to the region any more, so the region can be deregistered.
    #[track_caller]
    fn end(self) {
        self.region.close().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
        self.window.close().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
    }
}

/// The key that the message has invalidated.
#[track_caller]
fn invalidated(received: &Completion) -> Option<RemoteKey> {
    let mut flags = received.wc_flags.unwrap();
    // Soft-RoCE of Linux 6.1 passes the kernel's flag on unchanged, and the same number has another meaning here.
    if device::is_soft_roce(&device::open()) && flags.contains(WorkCompletionFlags::IpChecksumOk) {
        flags = WorkCompletionFlags::WithInvalidate;
    }
    received.invalidated_rkey.filter(|_| flags.contains(WorkCompletionFlags::WithInvalidate))
}

#[test]
fn window_key_works_until_its_owner_invalidates_it() {
    if !device::has_windows() {
        return;
    }
    on_all_kinds!(local);
}

fn local<Q: Kind>(queue: QueueKind) {
    let mut fixture = Fixture::<Q>::new(queue);
    let rkey = fixture.bind(10);
    assert_eq!(fixture.write(rkey, TEXT), Status::Success);
    fixture.has_text();
    assert_eq!(fixture.read(rkey), (Status::Success, TEXT.to_vec()));

    fixture.invalidate(11, rkey);
    assert_eq!(fixture.read(rkey), (Status::RemoteAccessError, vec![0; TEXT.len()]), "{}", Q::NAME);
    fixture.end();
}

#[test]
fn rebound_window_has_another_key() {
    if !device::has_windows() {
        return;
    }
    on_all_kinds!(anew);
}

fn anew<Q: Kind>(queue: QueueKind) {
    let mut fixture = Fixture::<Q>::new(queue);
    let old = fixture.bind(20);
    fixture.invalidate(21, old);
    let rkey = fixture.bind(22);
    assert_ne!(rkey, old);
    assert_eq!(fixture.write(rkey, TEXT), Status::Success);
    fixture.has_text();
    // The old key no longer belongs to the window.
    assert_eq!(fixture.write(old, b"refused"), Status::RemoteAccessError, "{}", Q::NAME);
    fixture.has_text();
    // The connection broke; the window is still bound, so it is dropped before its region.
    fixture.window.close().unwrap();
    fixture.region.close().unwrap();
}

#[test]
fn window_key_works_until_its_user_invalidates_it() {
    if !device::has_windows() {
        return;
    }
    on_all_kinds!(by_the_peer);
}

fn by_the_peer<Q: Kind>(queue: QueueKind) {
    let mut fixture = Fixture::<Q>::new(queue);
    let rkey = fixture.bind(30);
    assert_eq!(fixture.write(rkey, TEXT), Status::Success);

    let Loopback { near, far, .. } = &mut fixture.pair;
    far.post_receive(31, 0, 100);
    far.post_receive(32, 0, 100);
    let range = near.range(0, 7);
    let mut batch = near.qp.start_post_send();
    batch.construct_wr(33, SIGNALED).setup_send().give(range);
    batch.construct_wr(34, SIGNALED).setup_send_inv(rkey).give(range);
    batch.post().unwrap();
    for (wr_id, invalidated_rkey) in [(31, None), (32, Some(rkey))] {
        let received = far.success();
        assert_eq!((received.wr_id, received.opcode), (wr_id, Some(Operation::Receive)), "{}", Q::NAME);
        assert_eq!(
            (received.byte_len, invalidated(&received)),
            (Some(7), invalidated_rkey),
            "{}: {received:?}",
            Q::NAME
        );
        assert_eq!(received.imm_data, None, "a key is no immediate data");
    }
    for wr_id in [33, 34] {
        assert_eq!(near.success().wr_id, wr_id, "{}", Q::NAME);
    }

    assert_eq!(fixture.write(rkey, b"refused"), Status::RemoteAccessError, "{}", Q::NAME);
    fixture.has_text();
    fixture.end();
}
