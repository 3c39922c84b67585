//! The rows for UCX, and for Open MPI and OpenSHMEM, which use it.

use super::rows::{always, row};
use super::table::Way::{Libraries, Preload};
use super::table::{Row, Shape};

/// A row of ucx_perftest: the transport and the client's arguments.
macro_rules! ucx {
    ($name:literal, $transport:literal, $words:literal) => {
        row(
            $name,
            Preload,
            Shape::Pair(
                concat!("env UCX_TLS=", $transport, " ucx_perftest -p {port}"),
                concat!("env UCX_TLS=", $transport, " ucx_perftest 127.0.0.1 -p {port} -w 10 -t ", $words),
            ),
            "Final:",
        )
    };
}

/// A row of ucx_perftest whose processes sleep while they wait: the transport and the client's arguments.
macro_rules! ucx_asleep {
    ($name:literal, $transport:literal, $words:literal) => {
        row(
            $name,
            Preload,
            Shape::Pair(
                concat!("env UCX_TLS=", $transport, " ucx_perftest -p {port} -E sleep"),
                concat!("env UCX_TLS=", $transport, " ucx_perftest 127.0.0.1 -p {port} -E sleep -w 10 -t ", $words),
            ),
            "Final:",
        )
    };
}

/// A row of ucx_perftest on UCX's lower layer, which has no substitute for what the device lacks: the transport, and
/// the client's arguments.
macro_rules! uct {
    ($name:literal, $transport:literal, $words:literal) => {
        row(
            $name,
            Preload,
            Shape::Pair(
                concat!("ucx_perftest -p {port} -d soft0:1 -x ", $transport),
                concat!("ucx_perftest 127.0.0.1 -p {port} -d soft0:1 -x ", $transport, " -w 10 -n 1000 -t ", $words),
            ),
            "Final:",
        )
    };
}

/// A row of our program for Open MPI with four processes: MPI's options for sending.
macro_rules! mpi {
    ($name:literal, $words:literal) => {
        row(
            $name,
            Preload,
            Shape::One(concat!(
                "mpirun --allow-run-as-root --oversubscribe --timeout 110 -n 4 ",
                $words,
                " {build}/mpi"
            )),
            "all is well",
        )
    };
}

pub(crate) const ROWS: &[Row] = &[
    row("ucx_info", Preload, Shape::One("ucx_info -d"), "Device: soft0:1"),
    row("ucx_info_libraries", Libraries, Shape::One("ucx_info -d"), "Device: soft0:1"),
    ucx!("ucx_rc_tag", "rc_v", "tag_bw -n 1000"),
    ucx!("ucx_rc_tag_latency", "rc_v", "tag_lat -n 1000"),
    ucx!("ucx_rc_tag_large", "rc_v", "tag_bw -n 20 -s 4194304"),
    ucx!("ucx_rc_stream", "rc_v", "stream_bw -n 1000"),
    ucx!("ucx_rc_stream_latency", "rc_v", "stream_lat -n 1000"),
    ucx!("ucx_rc_active_messages", "rc_v", "ucp_am_bw -n 1000"),
    ucx!("ucx_rc_active_messages_latency", "rc_v", "ucp_am_lat -n 1000"),
    ucx!("ucx_rc_put", "rc_v", "ucp_put_bw -n 1000"),
    ucx!("ucx_rc_put_latency", "rc_v", "ucp_put_lat -n 1000"),
    ucx!("ucx_rc_get", "rc_v", "ucp_get -n 1000"),
    ucx!("ucx_rc_add", "rc_v", "ucp_add -n 1000"),
    ucx!("ucx_rc_fetch_and_add", "rc_v", "ucp_fadd -n 1000"),
    ucx!("ucx_rc_swap", "rc_v", "ucp_swap -n 1000"),
    ucx!("ucx_rc_compare_and_swap", "rc_v", "ucp_cswap -n 1000"),
    ucx!("ucx_ud_tag", "ud_v", "tag_bw -n 1000"),
    ucx!("ucx_ud_tag_latency", "ud_v", "tag_lat -n 1000"),
    ucx!("ucx_ud_tag_large", "ud_v", "tag_bw -n 20 -s 4194304"),
    ucx!("ucx_ud_stream", "ud_v", "stream_bw -n 1000"),
    ucx!("ucx_ud_stream_latency", "ud_v", "stream_lat -n 1000"),
    ucx!("ucx_ud_active_messages", "ud_v", "ucp_am_bw -n 1000"),
    ucx!("ucx_ud_active_messages_latency", "ud_v", "ucp_am_lat -n 1000"),
    ucx!("ucx_ud_put", "ud_v", "ucp_put_bw -n 1000"),
    ucx!("ucx_ud_put_latency", "ud_v", "ucp_put_lat -n 1000"),
    ucx!("ucx_ud_get", "ud_v", "ucp_get -n 1000"),
    ucx!("ucx_ud_add", "ud_v", "ucp_add -n 1000"),
    ucx!("ucx_ud_fetch_and_add", "ud_v", "ucp_fadd -n 1000"),
    ucx!("ucx_ud_swap", "ud_v", "ucp_swap -n 1000"),
    ucx!("ucx_ud_compare_and_swap", "ud_v", "ucp_cswap -n 1000"),
    // Both sides sleep until a completion event wakes them.
    always(ucx_asleep!("ucx_rc_asleep", "rc_v", "ucp_am_lat -n 20000")),
    ucx_asleep!("ucx_rc_asleep_large", "rc_v", "tag_lat -n 1000 -s 1000000"),
    ucx_asleep!("ucx_ud_asleep", "ud_v", "tag_lat -n 2000"),
    always(uct!("uct_rc_fetch_and_add", "rc_verbs", "fadd -D bcopy")),
    uct!("uct_rc_add", "rc_verbs", "add_mr -D short"),
    uct!("uct_rc_compare_and_swap", "rc_verbs", "cswap -D bcopy"),
    uct!("uct_rc_send_gathered", "rc_verbs", "am_bw -s 4000 -D zcopy"),
    uct!("uct_rc_put_gathered", "rc_verbs", "put_bw -s 100000 -D zcopy"),
    uct!("uct_rc_get_gathered", "rc_verbs", "get -s 100000 -D zcopy"),
    uct!("uct_ud_send_gathered", "ud_verbs", "am_bw -s 4000 -D zcopy"),
    //
    mpi!("mpi_ucx_rc", "--mca pml ucx --mca osc ucx --mca btl ^openib,ofi --mca mtl ^ofi -x UCX_TLS=rc_v,self"),
    // OpenSHMEM writes to and reads from other processes' memory, with atomics and a lock.
    row(
        "shmem",
        Preload,
        Shape::One(
            "oshrun --allow-run-as-root --oversubscribe --timeout 110 -n 4 --mca spml ucx --mca pml ucx --mca osc ucx \
             --mca btl ^openib,ofi --mca mtl ^ofi -x UCX_TLS=rc_v,self {build}/shmem",
        ),
        "all is well",
    ),
];
