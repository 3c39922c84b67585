//! The kernel's soft-RoCE as the peer.

use std::env;
use std::process::Command;

use sideway_tests::child;
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::succeeds;
use sideway_tests::requirements::may_not_run;

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

/// The modules of softrnic's conformance tests that can run with rdma_rxe.
const CONFORMANCE: [&str; 8] =
    ["acknowledgements", "atomics", "attacks", "duplicates", "keys", "order", "reads", "requester"];
/// The cases in which rdma_rxe of Linux 6.1 or 6.12 differs, and how. The modules `congestion` and `counters` are not
/// compared: rdma_rxe has neither notifications nor softrnic's counters. A packet of `invalid` crashes Linux 6.1 in
/// `rxe_mr_copy`.
const DEVIATIONS: [(&str, &str); 23] = [
    ("acknowledgement_of_packets_that_were_not_sent_is_ignored", "completes the requests"),
    ("reserved_syndromes_are_ignored", "completes the requests"),
    ("unaligned_address_is_invalid", "no atomic writes before Linux 6.2"),
    ("psn_far_from_the_expected_one_is_not_executed", "acknowledges another PSN"),
    ("truncated_packet_is_dropped", "6.12: NAK, invalid request"),
    ("duplicate_atomic_write_is_not_executed_again", "no atomic writes before Linux 6.2"),
    ("duplicate_read_of_memory_that_is_gone_is_dropped", "NAK, remote access error"),
    ("duplicate_read_returns_the_data_again", "the first response to a repeated read is one of the middle"),
    ("access_outside_the_memory_of_a_key_is_refused", "6.1: no atomic writes; 6.12: counts the refused message"),
    ("operation_that_the_qp_does_not_allow_is_invalid", "no atomic writes before Linux 6.2"),
    ("refusal_is_sent_again_if_it_was_lost", "sends a refusal once"),
    ("long_send_without_a_receive_is_repeated_from_its_first_packet", "a sequence error follows the RNR NAK"),
    ("send_without_a_receive_is_repeated_after_an_rnr_nak", "a sequence error follows the RNR NAK"),
    ("long_read_has_one_msn_in_all_responses", "its burst exceeds the receive buffer of the peer"),
    ("read_of_no_bytes_ignores_its_key", "6.1: checks the key"),
    ("reads_in_flight_are_all_answered_completely", "its burst exceeds the receive buffer of the peer"),
    ("missing_response_to_a_read_is_requested_again", "waits for the timeout"),
    ("request_without_an_answer_is_sent_again", "waits for the timeout"),
    ("refusal_within_a_read_fails_it", "6.1: completes the read with success"),
    ("response_that_does_not_fit_its_request_fails_it", "no completion within the limit"),
    ("depth_that_was_lowered_also_limits_the_packets_of_a_read", "EINVAL from SQD to RTS"),
    ("path_of_a_connection_stays", "EINVAL from SQD to RTS"),
    ("peer_that_acknowledges_packets_does_not_exhaust_the_retries", "completes before the last acknowledgement"),
];

/// The packets of softrnic's conformance tests, with the kernel as the device.
#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --ring softroce"]
fn kernel_answers_the_packets_of_the_conformance_tests() {
    let Some(peers) = peers() else { return };
    let Some(tests) = env::var_os("SIDEWAY_ROCE_TESTS") else {
        return may_not_run("SIDEWAY_ROCE_TESTS does not name the conformance tests of RoCEv2");
    };
    let (hosts, soft, kernel) = (peers.hosts(), Peer::Soft as usize, Peer::Kernel as usize);
    // The second one is that of another peer.
    for address in ["10.71.9.5/24", "10.71.9.6/24"] {
        let mut ip = hosts.command(soft, "ip");
        ip.args(["addr", "add", address, "dev", hosts.interface(soft)]);
        succeeds(&child::run(ip, LIMIT), &[]);
    }
    let namespace = hosts.namespace(soft).expect("the peer has a namespace");
    let place = [peers.device(Peer::Kernel), Hosts::ADDRESSES[kernel], "10.71.9.5", namespace].join(" ");
    let mut command = peers.command(Peer::Kernel, tests);
    command.args(CONFORMANCE.map(|module| format!("{module}::"))).arg("--test-threads=1");
    command.args(DEVIATIONS.iter().flat_map(|(case, _)| ["--skip", case])).env("SOFTRNIC_TEST_ROCE", place);
    let ended = child::run(command, LIMIT);
    succeeds(&ended, &[]);
    let passed = ended.output.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed >= 40, "{passed} cases have passed\n{}", ended.output);
}
