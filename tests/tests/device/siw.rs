//! softrnic's iWARP device and the kernel's siw as peers, in two network namespaces: one has siw, the other only TCP.

use sideway_tests::hosts::Hosts;

use crate::kernel_peer::errors::{CASES, results};
use crate::kernel_peer::{self, LIMIT, Peer, Peers};

/// Returns `None`, and reports that the test did not run, if the kernel has no siw.
fn peers() -> Option<Peers> {
    kernel_peer::has("siw").then(Hosts::new)?.map(|hosts| Peers::new(hosts, "softiw0", ("siw_0", "siw")))
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn programs_connect_in_both_roles() {
    let Some(peers) = peers() else { return };
    for programs in [
        ["rping -s -C 20 -v", "our rping -c -C 20 -v -a"],
        ["our rping -s -C 5 -S 65000", "rping -c -C 5 -S 65000 -a"],
        ["ib_send_bw -R -F -n 100 -s 65536", "ib_send_bw -R -F -n 100 -s 65536"],
        ["ib_write_bw -R -F -n 100 -s 65536", "ib_write_bw -R -F -n 100 -s 65536"],
        ["ib_read_lat -R -F -n 100 -s 64", "ib_read_lat -R -F -n 100 -s 64"],
    ] {
        peers.play(programs);
    }
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn messages_of_every_kind_and_size_arrive() {
    let Some(peers) = peers() else { return };
    let all = [
        "write bw -R -s 1,1443,64K",
        "read bw -R -s 1,1443,64K -q 4",
        "send bw -R -s 1,1443,64K",
        "send lat -R -s 64,4K -e",
    ];
    peers.measure(&all, "over iWARP");
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn messages_arrive_in_both_directions() {
    let Some(peers) = peers() else { return };
    peers.exchange(3_000, LIMIT);
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn hundred_thousand_messages_arrive() {
    let Some(peers) = peers() else { return };
    peers.exchange(100_000, 5 * LIMIT);
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn connections_are_set_up_while_the_programs_poll() {
    let Some(peers) = peers() else { return };
    // If the kernel connects first, the peer's MAC address is not known yet.
    for connecting in [Peer::Kernel, Peer::Soft] {
        peers.perform(connecting, "connects", LIMIT);
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

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn refused_requests_have_the_errors_of_the_rfc() {
    let Some(peers) = peers() else { return };
    // siw checks neither the right to read nor the key to invalidate.
    let checked = CASES.replace(",read-right", "").replace(",send-invalidate", "");
    for (connecting, cases, expected) in [(Peer::Soft, &*checked, &AS_CLIENT[..]), (Peer::Kernel, CASES, &AS_SERVER)] {
        let ended = peers.perform(connecting, cases, LIMIT);
        let [listened, connected] = [0, 1].map(|end| results(&ended[end].output));
        let (soft, kernel) =
            if matches!(connecting, Peer::Soft) { (connected, listened) } else { (listened, connected) };
        assert_eq!(soft, expected, "{connecting:?} connects: {ended:#?}");
        assert_eq!(kernel.len(), expected.len(), "{kernel:?}");
        for result in kernel {
            assert!(result.contains("1=WorkRequestFlushedError") || result.contains("1=LocalLengthError"), "{result}");
        }
    }
}
