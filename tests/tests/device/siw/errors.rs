//! Requests that the peer refuses: which error both ends report, and which code the Terminate message has.
#![expect(clippy::print_stdout, reason = "the test that started the program reads its output")]

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::CompletionRecord;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::Listener;
use sideway_tests::connections::LONG;
use sideway_tests::loopback::{Give, Memory, Range};

use super::peer::{End, connector, parameters};
use super::{LIMIT, Peer, peers};

/// The requests, each on a connection of its own.
const CASES: [&str; 8] = [
    "write-key",
    "write-bounds",
    "write-right",
    "read-key",
    "read-bounds",
    "read-right",
    "send-length",
    "send-invalidate",
];
/// Returns the requests that the listening peer refuses. siw checks neither the right to read nor the key to invalidate.
fn cases(listening: Peer) -> impl Iterator<Item = &'static str> {
    CASES
        .into_iter()
        .filter(move |case| matches!(listening, Peer::Soft) || !["read-right", "send-invalidate"].contains(case))
}

/// The length of the memory that the peer may access, of its receive, and of a request.
const MEMORY: usize = 4096;
const RECEIVE: usize = 64;
const LENGTH: usize = 32;

fn statuses(records: &[CompletionRecord]) -> String {
    records.iter().map(|record| format!("{}={:?}", record.wr_id, record.status)).collect::<Vec<_>>().join(" ")
}

fn events(end: &End) -> String {
    let events = end.context.async_events().expect("the device has events");
    let mut found = Vec::new();
    while let Some(event) = events.try_get_async_event().unwrap_or_else(|error| panic!("{error}")) {
        found.push(format!("{:?}", event.event_type()));
    }
    found.join(" ")
}

pub(super) fn suffer_all(listener: &Listener, listening: Peer) {
    for case in cases(listening) {
        let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(request.identifier());
        let rights = match case {
            "write-right" => AccessFlags::LocalWrite | AccessFlags::RemoteRead,
            "read-right" => AccessFlags::LocalWrite | AccessFlags::RemoteWrite,
            _ => AccessFlags::LocalWrite | AccessFlags::RemoteWrite | AccessFlags::RemoteRead,
        };
        let memory = Memory::new(&end.pd, MEMORY, rights);
        end.expect_peer();
        end.receive(1, &memory, 0, RECEIVE);
        let place = [&memory.addr().to_be_bytes()[..], &u32::from(memory.rkey()).to_be_bytes()].concat();
        let connection =
            request.accept(parameters().setup_private_data(&place)).unwrap_or_else(|error| panic!("{error}"));
        end.meet(false);
        let ended = connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let _ = connection.disconnect(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let records = end.completions_until(|record| record.wr_id == 1);
        let mut bytes = [0; MEMORY];
        memory.read(0, &mut bytes);
        assert_eq!(bytes, [0; MEMORY], "{case} changed the memory");
        println!("CASE {case}: {}; {}; {ended:?}", statuses(&records), events(&end));
    }
}

pub(super) fn make_all(address: &str, listening: Peer) {
    for case in cases(listening) {
        let resolved = connector().resolve(address).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(resolved.identifier());
        let mut memory = Memory::new(&end.pd, MEMORY, AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
        memory.write(0, &[7; MEMORY]);
        end.expect_peer();
        end.receive(1, &memory, 0, RECEIVE);
        let connection = resolved.connect(&parameters()).unwrap_or_else(|error| panic!("{error}"));
        end.meet(true);
        let place = connection.info().private_data();
        let at = u64::from_be_bytes(place[..8].try_into().expect("it has eight bytes"));
        let key = u32::from_be_bytes(place[8..12].try_into().expect("it has four bytes"));
        // The lowest byte of a key is that which a program may choose.
        let (key, wrong, beyond) =
            (RemoteKey::from(key), RemoteKey::from(key ^ 0xff), at + (MEMORY - LENGTH / 2) as u64);
        let mut batch = end.qp.start_post_send();
        let request = batch.construct_wr(2, WorkRequestFlags::Signaled);
        let range = Range::of(&memory, 0, LENGTH);
        match case {
            "write-key" => request.setup_write(wrong, at).give(range),
            "write-bounds" => request.setup_write(key, beyond).give(range),
            "write-right" => request.setup_write(key, at).give(range),
            "read-key" => request.setup_read(wrong, at).give(range),
            "read-bounds" => request.setup_read(key, beyond).give(range),
            "read-right" => request.setup_read(key, at).give(range),
            "send-length" => request.setup_send().give(Range::of(&memory, 0, 2 * RECEIVE)),
            _ => request.setup_send_inv(wrong).give(Range::of(&memory, 0, 0)),
        }
        batch.post().unwrap_or_else(|error| panic!("{error}"));
        let records = end.completions_until(|record| record.wr_id == 1);
        let ended = connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        println!("CASE {case}: {}; {}; {ended:?}", statuses(&records), events(&end));
    }
}

/// What softrnic reports: the reason in the Terminate message, the statuses of the requests (2) and the receive (1), and
/// the asynchronous event. siw sends the layer and the type of the reason in the opposite order, and reports a missing
/// right to write as a wrong key.
const AS_CLIENT: [&str; 6] = [
    "write-key: DDP: invalid STag; 2=Success 1=WorkRequestFlushedError; QueuePairFatal; Disconnected",
    "write-bounds: DDP: bounds of the tagged buffer; 2=Success 1=WorkRequestFlushedError; QueuePairFatal; Disconnected",
    "write-right: DDP: invalid STag; 2=Success 1=WorkRequestFlushedError; QueuePairFatal; Disconnected",
    "read-key: unknown error 0x1000; 2=RemoteAccessError 1=WorkRequestFlushedError; ; Disconnected",
    "read-bounds: unknown error 0x1001; 2=RemoteAccessError 1=WorkRequestFlushedError; ; Disconnected",
    "send-length: unknown error 0x2102; 2=Success 1=WorkRequestFlushedError; QueuePairFatal; Disconnected",
];
const AS_SERVER: [&str; 8] = [
    "write-key: DDP: invalid STag; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "write-bounds: DDP: bounds of the tagged buffer; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "write-right: RDMAP: access rights; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "read-key: RDMAP: invalid STag; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "read-bounds: RDMAP: base or bounds; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "read-right: RDMAP: access rights; 1=WorkRequestFlushedError; QueuePairAccessError; Disconnected",
    "send-length: DDP: message too long for its buffer; 1=LocalLengthError; ; Disconnected",
    "send-invalidate: RDMAP: STag cannot be invalidated; 1=RemoteInvalidRequestError; ; Disconnected",
];

/// The results in the output of a program, each with the reason that was logged before.
fn results(output: &str) -> Vec<String> {
    let mut reason = "";
    let mut results = Vec::new();
    for line in output.lines() {
        for start in ["the peer has ended the connection: ", "sent a Terminate message: "] {
            reason = line.split_once(start).map_or(reason, |(_, reason)| reason);
        }
        if let Some((case, result)) = line.split_once("CASE ").and_then(|(_, line)| line.split_once(": ")) {
            results.push(format!("{case}: {reason}; {result}"));
        }
    }
    results
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn refused_requests_have_the_errors_of_the_rfc() {
    let Some(peers) = peers() else { return };
    for (connecting, expected) in [(Peer::Soft, &AS_CLIENT[..]), (Peer::Kernel, &AS_SERVER)] {
        let [listened, connected] = peers.perform(connecting, "errors", LIMIT).map(|ended| results(&ended.output));
        let (soft, kernel) =
            if matches!(connecting, Peer::Soft) { (connected, listened) } else { (listened, connected) };
        assert_eq!(soft, expected, "{connecting:?} connects");
        assert_eq!(kernel.len(), expected.len(), "{kernel:?}");
        for result in kernel {
            assert!(result.contains("1=WorkRequestFlushedError") || result.contains("1=LocalLengthError"), "{result}");
        }
    }
}
