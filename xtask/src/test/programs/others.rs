//! The rows for programs with few options, and for those that a script of ours runs.

use super::rows::{always, row};
use super::table::Way::Preload;
use super::table::{Row, Shape};

/// A row of NetPIPE with Debian's MPICH, which uses UCX: the transport. `-i` compares the data.
macro_rules! netpipe {
    ($name:literal, $transport:literal) => {
        row(
            $name,
            Preload,
            Shape::One(concat!(
                "env UCX_TLS=",
                $transport,
                ",self mpiexec.mpich -n 2 NPmpich2 -i -u 65536 -n 20 -o /dev/null"
            )),
            "49153 bytes 20 times --> Integrity check passed",
        )
    };
}

/// A row with one process that compares its data.
macro_rules! checked {
    ($name:literal, $line:literal) => {
        always(row($name, Preload, Shape::One($line), "all is well"))
    };
}

pub(crate) const ROWS: &[Row] = &[
    row(
        "dapltest",
        Preload,
        Shape::Serving(
            "env DAT_OVERRIDE={build}/dat.conf dapltest -T S -D soft",
            "env DAT_OVERRIDE={build}/dat.conf dapltest -T T -V -s 127.0.0.1 -D soft -i 100 -t 1 -w 2 client SR 4096 \
             server SR 4096 client RW 65536 server RR 65536",
        ),
        "Total RDMA Write :",
    ),
    row(
        "iperf",
        Preload,
        Shape::Retried(
            "env LD_PRELOAD=/usr/$LIB/rsocket/librspreload.so {run} iperf -s -P 1 -p {port}",
            "env LD_PRELOAD=/usr/$LIB/rsocket/librspreload.so {run} iperf -c 127.0.0.1 -p {port} -n 64M",
        ),
        "64.0 MBytes",
    ),
    netpipe!("netpipe_mpich_rc", "rc_v"),
    netpipe!("netpipe_mpich_ud", "ud_v"),
    row("ibstat", Preload, Shape::One("/usr/sbin/ibstat"), "CA 'soft0'"),
    row("ibstatus", Preload, Shape::One("/usr/sbin/ibstatus"), "rate: 100 Gb/sec (4X EDR)"),
    checked!("gloo", "{build}/gloo"),
    checked!("pyverbs", "/usr/bin/python3 {build}/verbs.py"),
    checked!("qemu", "sh {build}/qemu.sh {port}"),
    checked!("qemu_over_tcp", "env SOFTRNIC_DEVICES=softiw0 sh {build}/qemu.sh {port}"),
    checked!("tgt", "sh {build}/tgt.sh {port}"),
    checked!("wheel_mooncake", "sh {build}/wheels.sh mooncake mooncake-transfer-engine-non-cuda==0.3.13.post1"),
    checked!("wheel_nixl", "env UCX_TLS=rc_v sh {build}/wheels.sh nixl nixl==1.5.1 nixl-cu12==1.5.1 numpy==2.4.6"),
    checked!("sockets_nginx", "sh {build}/sockets.sh {sockets} {port} nginx"),
    checked!("sockets_python", "sh {build}/sockets.sh {sockets} {port} python3"),
    checked!("sockets_redis", "sh {build}/sockets.sh {sockets} {port} redis-server"),
    checked!("sockets_iperf3", "sh {build}/sockets.sh {sockets} {port} iperf3"),
];
