//! The kernel's soft-RoCE as the peer.

use std::process::Command;

use sideway_tests::child;
use sideway_tests::hosts::Hosts;

use super::DEVICE;
use crate::kernel_peer::errors::{CASES, results};
use crate::kernel_peer::{self, LIMIT, Peer, Peers, RUN, named};

/// The environment of UCX. Without the last variable, it does not accept datagrams between two hosts with IPv4 addresses.
macro_rules! ucx {
    () => {
        "env UCX_NET_DEVICES={device}:1 UCX_IB_GID_INDEX={gid} UCX_UD_ETH_DGID_CHECK=n UCX_TLS="
    };
}

/// The kernel's device in the namespace of this process, and the soft one in another.
///
/// Returns `None`, and reports that the test did not run, if the kernel has no soft-RoCE.
fn peers() -> Option<Peers> {
    let hosts = kernel_peer::has("rdma_rxe").then(Hosts::beside_this)?;
    hosts.map(|hosts| Peers::new(hosts, DEVICE, ("rxe_peer", "rxe")))
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn programs_connect_with_the_kernel_in_both_roles() {
    let Some(peers) = peers() else { return };
    for programs in [
        ["rping -s -C 20 -v", "our rping -c -C 20 -v -a"],
        ["our rping -s -C 5 -S 65000", "rping -c -C 5 -S 65000 -a"],
        ["ucmatose -c 10 -b 0.0.0.0", "ucmatose -c 10 -s"],
        ["ib_send_bw -R -F -n 100 -s 65536", "ib_send_bw -R -F -n 100 -s 65536"],
        ["ib_write_bw -F -n 100 -s 65536", "ib_write_bw -F -n 100 -s 65536"],
        ["ib_read_bw -R -F -n 100 -s 65536", "ib_read_bw -R -F -n 100 -s 65536"],
        ["ib_atomic_lat -R -F -n 100", "ib_atomic_lat -R -F -n 100"],
        ["ib_send_lat -R -c UD -F -n 100 -s 64", "ib_send_lat -R -c UD -F -n 100 -s 64"],
        [
            concat!(ucx!(), "rc_v ucx_perftest -p {port}"),
            concat!(ucx!(), "rc_v ucx_perftest -p {port} -w 10 -n 100 -t tag_lat"),
        ],
        [
            concat!(ucx!(), "ud_v ucx_perftest -p {port}"),
            concat!(ucx!(), "ud_v ucx_perftest -p {port} -w 10 -n 100 -t tag_lat"),
        ],
    ] {
        peers.play(programs);
    }
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn program_prints_why_there_is_no_device_beside_the_kernels() {
    let Some(_peers) = peers() else { return };
    let mut command = Command::new(named(RUN));
    command.args(["ibv_rc_pingpong", "-g", "0", "-d", DEVICE]).env(softrnic::DEVICES_VARIABLE, DEVICE);
    let ended = child::run(command, LIMIT);
    assert!(!ended.status.success() && ended.output.contains("UDP port 4791"), "{}", ended.output);
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn messages_of_every_kind_arrive_at_the_kernel() {
    let Some(peers) = peers() else { return };
    let all = [
        "write bw -R -s 1,1443,64K",
        "read bw -R -s 1,1443,64K -q 4",
        "send bw -R -s 1,1443,64K",
        "send lat -R -s 64,4K -e",
        "atomic bw -R",
        "send bw -c uc -s 64",
        "send lat -c ud -s 64",
    ];
    peers.measure(&all, DEVICE);
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn messages_arrive_in_both_directions() {
    let Some(peers) = peers() else { return };
    peers.exchange(3_000, LIMIT);
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn hundred_thousand_messages_arrive() {
    let Some(peers) = peers() else { return };
    peers.exchange(100_000, 5 * LIMIT);
}

/// What the client and the server report. rdma_rxe raises no event for the first ones. It reports the last two by other
/// statuses than NICs, and does not refuse the last one.
const REFUSED: [(&str, [&str; 2]); 8] = [
    ("write-key", ACCESS),
    ("write-bounds", ACCESS),
    ("write-right", ACCESS),
    ("read-key", ACCESS),
    ("read-bounds", ACCESS),
    ("read-right", ACCESS),
    ("send-length", ["2=RemoteInvalidRequestError 1=WorkRequestFlushedError; ", "1=LocalLengthError; "]),
    ("send-invalidate", ["2=RemoteAccessError 1=WorkRequestFlushedError; ", "1=RemoteInvalidRequestError; "]),
];
const ACCESS: [&str; 2] =
    ["2=RemoteAccessError 1=WorkRequestFlushedError; ", "1=WorkRequestFlushedError; QueuePairAccessError"];
const BY_THE_KERNEL: [[&str; 2]; 3] = [
    [ACCESS[0], "1=WorkRequestFlushedError; "],
    ["2=RemoteOperationError 1=WorkRequestFlushedError; ", "1=LocalQueuePairOperationError; "],
    ["2=Success 1=WorkRequestFlushedError; ", "1=RemoteInvalidRequestError; "],
];

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn refused_requests_have_the_errors_of_a_nic() {
    let Some(peers) = peers() else { return };
    for (connecting, is_kernel) in [(Peer::Soft, true), (Peer::Kernel, false)] {
        let [listened, connected] = peers.perform(connecting, CASES, LIMIT).map(|ended| results(&ended.output));
        for (end, found) in [connected, listened].into_iter().enumerate() {
            let expected = REFUSED.iter().enumerate().map(|(place, (case, by_soft))| {
                let expected = if is_kernel { BY_THE_KERNEL[place.saturating_sub(5)] } else { *by_soft };
                format!("{case}: ; {}; Disconnected", expected[end])
            });
            assert_eq!(found, expected.collect::<Vec<_>>(), "{connecting:?} connects");
        }
    }
}
