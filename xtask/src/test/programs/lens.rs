//! The rows for `lens run` with C programs, whose requests it must count or trace.

use super::rows::{always, row};
use super::table::Way::Preload;
use super::table::{Row, Shape};

/// A row whose client runs under a lens: the server, the client with what the lens does, and what it prints.
macro_rules! seen {
    ($name:literal, $server:literal, $client:literal, $expected:literal) => {
        always(row($name, Preload, Shape::Pair(concat!("{run} ", $server), concat!("{lens} run ", $client)), $expected))
    };
}

pub(super) const ROWS: &[Row] = &[
    seen!(
        "lens_counts_ibv_rc_pingpong",
        "ibv_rc_pingpong -g 0 -n 500 -p {port}",
        "-c {run} ibv_rc_pingpong -g 0 -n 500 -p {port} 127.0.0.1",
        "receive         500"
    ),
    seen!(
        "lens_traces_ib_write_bw",
        "ib_write_bw -d soft0 -x 0 -F -n 100 -p {port}",
        "{run} ib_write_bw -d soft0 -x 0 -F -n 100 -p {port} 127.0.0.1",
        "RDMA_WRITE wr_id 0 65536 bytes = SUCCESS"
    ),
    seen!(
        "lens_traces_fi_pingpong",
        "fi_pingpong -p verbs -d soft0 -e msg -B {port}",
        "{run} fi_pingpong -p verbs -d soft0 -e msg -P {port} 127.0.0.1",
        "post qp"
    ),
    seen!(
        "lens_counts_ucx_perftest",
        "env UCX_TLS=rc_v ucx_perftest -p {port}",
        "-c {run} env UCX_TLS=rc_v ucx_perftest 127.0.0.1 -p {port} -w 10 -t tag_lat -n 100",
        "ibv_create_srq"
    ),
    seen!(
        "lens_traces_rping",
        "rping -s -C 10 -a 127.0.0.1 -p {port}",
        "{run} rping -c -a 127.0.0.1 -C 10 -p {port}",
        "event ESTABLISHED, status"
    ),
    row(
        "lens_counts_wheel_mooncake",
        Preload,
        Shape::One(
            "{lens} run -c --libraries {run} --libraries sh {build}/wheels.sh mooncake \
             mooncake-transfer-engine-non-cuda==0.3.13.post1",
        ),
        "write             8",
    ),
    always(row("lens_keeps_standard_error", Preload, Shape::One("{lens} run {run} {build}/closes"), "all is well")),
];
