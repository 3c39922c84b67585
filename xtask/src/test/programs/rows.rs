//! The rows for rdma-core, perftest, libfabric, qperf and fio, and the macros that write them.

use super::table::Way::{self, Alone, Libraries, Preload};
use super::table::{Row, Shape};

pub(super) const fn row(name: &'static str, way: Way, shape: Shape, expected: &'static str) -> Row {
    Row { name, way, shape, expected, always: false }
}

/// Makes the row run in the gate even if another of its kind does.
pub(super) const fn always(row: Row) -> Row {
    Row { always: true, ..row }
}

/// A row of libfabric's `fi_pingpong`: the provider, the endpoint type and the options of both.
macro_rules! fabric {
    ($name:literal, $way:expr, $words:literal, $expected:literal) => {
        row(
            $name,
            $way,
            Shape::Pair(
                concat!("fi_pingpong -p ", $words, " -B {port}"),
                concat!("fi_pingpong -p ", $words, " -P {port} 127.0.0.1"),
            ),
            $expected,
        )
    };
}

/// A row of `ibv_*_pingpong`: the options of both, and its last output if that is unusual.
macro_rules! pingpong {
    ($name:literal, $way:expr, $words:literal) => {
        pingpong!($name, $way, $words, "iters in")
    };
    ($name:literal, $way:expr, $words:literal, $expected:literal) => {
        row(
            $name,
            $way,
            Shape::Pair(concat!($words, " -g 0 -p {port}"), concat!($words, " -g 0 -p {port} 127.0.0.1")),
            $expected,
        )
    };
}

/// A row of perftest, connected over TCP.
macro_rules! perftest {
    ($name:literal, $way:expr, $words:literal, $expected:literal) => {
        row(
            $name,
            $way,
            Shape::Pair(
                concat!($words, " -d soft0 -x 0 -F -p {port}"),
                concat!($words, " -d soft0 -x 0 -F -p {port} 127.0.0.1"),
            ),
            $expected,
        )
    };
}

/// A row of perftest whose output stride-perf reads: its arguments, stride-perf's, and stride-perf's last output.
macro_rules! compared {
    ($name:literal, $words:literal, $stride:literal, $expected:expr) => {
        row(
            $name,
            Preload,
            Shape::Compared(
                concat!($words, " -d soft0 -x 0 -F -p {port}"),
                concat!($words, " -d soft0 -x 0 -F -p {port} 127.0.0.1"),
                $stride,
            ),
            $expected,
        )
    };
}

/// A row of perftest, connected by the connection manager. The client connects twice, and the server listens again
/// before the second time. A client that finds no server the second time dies by SIGSEGV: it retries with freed memory
/// (perftest 4.5).
macro_rules! perftest_cm {
    ($name:literal, $words:literal, $expected:literal) => {
        row(
            $name,
            Preload,
            Shape::Retried(
                concat!($words, " -R -d soft0 -x 0 -F -p {port}"),
                concat!($words, " -R -d soft0 -x 0 -F -p {port} 127.0.0.1"),
            ),
            $expected,
        )
    };
}

/// Like `perftest_cm`, on the iWARP device.
macro_rules! perftest_tcp {
    ($name:literal, $words:literal, $expected:literal) => {
        row(
            $name,
            Preload,
            Shape::Retried(
                concat!("env SOFTRNIC_DEVICES=softiw0 ", $words, " -R -d softiw0 -F -p {port}"),
                concat!("env SOFTRNIC_DEVICES=softiw0 ", $words, " -R -d softiw0 -F -p {port} 127.0.0.1"),
            ),
            $expected,
        )
    };
}

/// A row of rdmacm-utils: the arguments of the server, and of the client.
macro_rules! cm {
    ($name:literal, $way:expr, $server:literal, $client:literal, $expected:literal) => {
        row($name, $way, Shape::Retried($server, $client), $expected)
    };
}

/// A row of the rsocket programs of rdmacm-utils: the program, and the options of both sides. `-T v` checks the data.
macro_rules! rsockets {
    ($name:literal, $way:expr, $program:literal, $words:literal) => {
        row(
            $name,
            $way,
            Shape::Retried(
                concat!($program, " -p {port} ", $words),
                concat!($program, " -p {port} -s 127.0.0.1 ", $words),
            ),
            "custom",
        )
    };
}

/// A row of qperf: its test.
macro_rules! qperf {
    ($name:literal, $test:literal, $expected:literal) => {
        row(
            $name,
            Preload,
            Shape::Serving("qperf -lp {port}", concat!("qperf -lp {port} -cm 1 -t 1 127.0.0.1 ", $test)),
            $expected,
        )
    };
}

/// A row of fio's client with its rdma engine: the transfer method. The server's side is the same for all rows. It has
/// a deeper queue than the client, because fio sets the RNR retry count to 0: with `--verb=send`, a client that
/// overtakes the server's receives fails.
macro_rules! fio {
    ($name:literal, $words:literal) => {
        row(
            $name,
            Preload,
            Shape::Retried(
                "fio --name=s --ioengine=rdma --port={port} --rw=read --bs=16k --size=4m --iodepth=32 \
                 --iodepth_batch_complete=1",
                concat!(
                    "fio --name=c --ioengine=rdma --hostname=127.0.0.1 --port={port} --rw=write --bs=16k --size=4m \
                     --iodepth=8 --iodepth_batch_complete=1 ",
                    $words
                ),
            ),
            "err= 0:",
        )
    };
}

/// All sizes of perftest's `-a` except 64.
const OTHERS: &str = "not measured in this run: 2 B, 4 B, 8 B, 16 B, 32 B, 128 B, 256 B, 512 B, 1 KiB, 2 KiB, 4 KiB, 8 KiB, 16 KiB, 32 KiB, \
                      64 KiB, 128 KiB, 256 KiB, 512 KiB, 1 MiB, 2 MiB, 4 MiB, 8 MiB";

pub(crate) const ROWS: &[Row] = &[
    row("ibv_devices", Preload, Shape::One("ibv_devices"), "soft0"),
    row("ibv_devices_libraries", Libraries, Shape::One("ibv_devices"), "soft0"),
    row("ibv_devices_alone", Alone, Shape::One("ibv_devices"), "soft0"),
    row("ibv_devinfo", Preload, Shape::One("ibv_devinfo -v"), "::ffff:127.0.0.1, RoCE v2"),
    row("ibv_devinfo_libraries", Libraries, Shape::One("ibv_devinfo -v"), "::ffff:127.0.0.1, RoCE v2"),
    row("ibv_devinfo_alone", Alone, Shape::One("ibv_devinfo -v -d soft0"), "max_mtu:\t\t4096 (5)"),
    // stdbuf also preloads a library, which must stay preloaded.
    row("ibv_asyncwatch", Preload, Shape::Waiting("stdbuf -oL {run} ibv_asyncwatch"), "soft0: async event FD"),
    row("own_program", Preload, Shape::One("{build}/one_process"), "all is well"),
    row("own_program_libraries", Libraries, Shape::One("{build}/one_process"), "all is well"),
    row("own_program_alone", Alone, Shape::One("{build}/one_process"), "all is well"),
    row("versions_libraries", Libraries, Shape::One("{build}/by_version"), "all is well"),
    row("versions_alone", Alone, Shape::One("{build}/by_version"), "all is well"),
    always(row("files", Preload, Shape::One("{build}/files"), "all is well")),
    always(row("files_libraries", Libraries, Shape::One("{build}/files"), "all is well")),
    always(row("files_after_dlopen", Preload, Shape::One("{build}/files dlopen"), "all is well")),
    always(row("files_after_dlopen_libraries", Libraries, Shape::One("{build}/files dlopen"), "all is well")),
    row("fork_before_the_first_verb", Preload, Shape::One("{build}/one_process fork"), "all is well"),
    row("threads_that_are_cancelled", Preload, Shape::One("{build}/cancel"), "all is well"),
    //
    pingpong!("rc_pingpong", Preload, "ibv_rc_pingpong -c"),
    pingpong!("rc_pingpong_events", Preload, "ibv_rc_pingpong -c -e"),
    pingpong!("rc_pingpong_new_send", Preload, "ibv_rc_pingpong -c -N"),
    pingpong!("rc_pingpong_timestamps", Preload, "ibv_rc_pingpong -c -t"),
    pingpong!("rc_pingpong_device_memory", Preload, "ibv_rc_pingpong -j -s 1024"),
    pingpong!("rc_pingpong_large", Preload, "ibv_rc_pingpong -c -s 1048576 -n 100"),
    pingpong!("rc_pingpong_libraries", Libraries, "ibv_rc_pingpong -c"),
    pingpong!("rc_pingpong_alone", Alone, "ibv_rc_pingpong -c -e"),
    pingpong!("uc_pingpong", Preload, "ibv_uc_pingpong -c"),
    pingpong!("uc_pingpong_events", Preload, "ibv_uc_pingpong -c -e"),
    pingpong!("ud_pingpong", Preload, "ibv_ud_pingpong -c"),
    pingpong!("ud_pingpong_events", Preload, "ibv_ud_pingpong -c -e"),
    pingpong!("srq_pingpong", Preload, "ibv_srq_pingpong -c"),
    pingpong!("srq_pingpong_events", Preload, "ibv_srq_pingpong -c -e"),
    pingpong!("xsrq_pingpong", Preload, "ibv_xsrq_pingpong", "success"),
    pingpong!("xsrq_pingpong_events", Preload, "ibv_xsrq_pingpong -e", "success"),
    //
    perftest!("write_bw", Preload, "ib_write_bw -n 1000", "65536      1000"),
    perftest!("write_bw_queue_pairs", Preload, "ib_write_bw -n 1000 -q 16", "65536      16000"),
    perftest!("write_bw_all_sizes", Preload, "ib_write_bw -n 5 -a", "8388608    5"),
    perftest!("write_bw_both_ways", Preload, "ib_write_bw -n 1000 -b", "65536      1000"),
    perftest!("write_bw_uc", Preload, "ib_write_bw -n 1000 -c UC", "65536      1000"),
    perftest!("write_bw_inline", Preload, "ib_write_bw -n 1000 -s 64 -I 64", "64         1000"),
    perftest!("write_bw_libraries", Libraries, "ib_write_bw -n 1000", "65536      1000"),
    perftest!("write_bw_alone", Alone, "ib_write_bw -n 1000", "65536      1000"),
    perftest!("write_lat", Preload, "ib_write_lat -n 1000", "2       1000"),
    perftest!("write_lat_all_sizes", Preload, "ib_write_lat -n 5 -a", "8388608 5"),
    perftest!("write_lat_uc", Preload, "ib_write_lat -n 100 -c UC", "2       100"),
    perftest!("read_bw", Preload, "ib_read_bw -n 1000", "65536      1000"),
    perftest!("read_bw_queue_pairs", Preload, "ib_read_bw -n 1000 -q 16", "65536      16000"),
    perftest!("read_bw_all_sizes", Preload, "ib_read_bw -n 5 -a", "8388608    5"),
    perftest!("read_bw_events", Preload, "ib_read_bw -n 1000 -e", "65536      1000"),
    perftest!("read_bw_both_ways", Preload, "ib_read_bw -n 1000 -b", "65536      1000"),
    perftest!("read_lat", Preload, "ib_read_lat -n 1000", "2       1000"),
    perftest!("read_lat_all_sizes", Preload, "ib_read_lat -n 5 -a", "8388608 5"),
    perftest!("read_lat_events", Preload, "ib_read_lat -n 1000 -e", "2       1000"),
    perftest!("send_bw", Preload, "ib_send_bw -n 1000", "65536      1000"),
    perftest!("send_bw_queue_pairs", Preload, "ib_send_bw -n 1000 -q 16", "65536      16000"),
    perftest!("send_bw_all_sizes", Preload, "ib_send_bw -n 5 -a", "8388608    5"),
    perftest!("send_bw_events", Preload, "ib_send_bw -n 1000 -e", "65536      1000"),
    perftest!("send_bw_both_ways", Preload, "ib_send_bw -n 1000 -b", "65536      1000"),
    perftest!("send_bw_uc", Preload, "ib_send_bw -n 1000 -c UC", "65536      1000"),
    perftest!("send_bw_ud", Preload, "ib_send_bw -n 1000 -c UD -s 1024", "1024       1000"),
    perftest!("send_bw_shared_receives", Preload, "ib_send_bw -n 1000 -q 4 -r 64 --use-srq", "65536      4000"),
    perftest!("send_lat", Preload, "ib_send_lat -n 1000", "2       1000"),
    perftest!("send_lat_all_sizes", Preload, "ib_send_lat -n 5 -a", "8388608 5"),
    perftest!("send_lat_events", Preload, "ib_send_lat -n 1000 -e", "2       1000"),
    perftest!("send_lat_uc", Preload, "ib_send_lat -n 1000 -c UC", "2       1000"),
    perftest!("send_lat_ud", Preload, "ib_send_lat -n 1000 -c UD", "2       1000"),
    perftest!("atomic_bw", Preload, "ib_atomic_bw -n 1000", "8          1000"),
    perftest!("atomic_bw_add", Preload, "ib_atomic_bw -n 1000 -A FETCH_AND_ADD", "8          1000"),
    perftest!("atomic_bw_queue_pairs", Preload, "ib_atomic_bw -n 1000 -q 16", "8          16000"),
    perftest!("atomic_bw_events", Preload, "ib_atomic_bw -n 1000 -e", "8          1000"),
    perftest!("atomic_bw_both_ways", Preload, "ib_atomic_bw -n 1000 -b", "8          1000"),
    perftest!("atomic_lat", Preload, "ib_atomic_lat -n 1000", "8       1000"),
    perftest!("atomic_lat_events", Preload, "ib_atomic_lat -n 1000 -e", "8       1000"),
    // Users debug programs under valgrind.
    row(
        "stride_under_valgrind",
        Preload,
        Shape::One("valgrind -q --error-exitcode=9 {stride} write bw -s 64 -n 100 --validate --loopback"),
        "Mmsg/s",
    ),
    // The ranks of a mesh find each other by the launcher's variables, or through the launcher.
    always(row(
        "mesh_open_mpi",
        Preload,
        Shape::One(
            "mpirun --allow-run-as-root --oversubscribe --timeout 110 -n 8 {stride} mesh write bw -d soft0 -s 4K -n 50",
        ),
        "8 ranks, 14 rounds",
    )),
    always(row(
        "mesh_mpich",
        Preload,
        Shape::One("mpiexec.mpich -n 8 {stride} mesh send bw -d soft0 -s 64 -n 50 --at-once 1"),
        "8 ranks, 56 rounds",
    )),
    // stride-perf prints which sizes it has read and does not measure itself.
    compared!("stride_reads_write_bw", "ib_write_bw -n 20 -a", "write bw -s 64", OTHERS),
    compared!("stride_reads_write_bw_gigabits", "ib_write_bw -n 20 -a --report_gbits", "write bw -s 64", OTHERS),
    compared!("stride_reads_write_lat", "ib_write_lat -n 20 -a", "write lat -s 64", OTHERS),
    compared!("stride_reads_read_bw", "ib_read_bw -n 20 -a", "read bw -s 64", OTHERS),
    compared!("stride_reads_read_lat", "ib_read_lat -n 20 -a", "read lat -s 64", OTHERS),
    compared!("stride_reads_send_bw", "ib_send_bw -n 20 -a", "send bw -s 64", OTHERS),
    compared!("stride_reads_send_lat", "ib_send_lat -n 20 -a", "send lat -s 64", OTHERS),
    compared!("stride_reads_send_bw_time", "ib_send_bw -D 1 -s 64", "send bw -s 64,128", "not in the baseline: 128 B"),
    compared!(
        "stride_reads_write_lat_time",
        "ib_write_lat -D 1 -s 64",
        "write lat -s 64,128",
        "not in the baseline: 128 B"
    ),
    compared!(
        "stride_reads_atomic_bw",
        "ib_atomic_bw -n 20 -A FETCH_AND_ADD",
        "atomic bw",
        "Size old Gb/s Gb/s change"
    ),
    compared!(
        "stride_reads_atomic_lat",
        "ib_atomic_lat -n 20 -A CMP_AND_SWAP",
        "atomic lat --atomic cswap",
        "Size old p50 us"
    ),
    //
    cm!(
        "rping",
        Preload,
        "rping -s -C 10 -V -p {port}",
        "rping -c -a 127.0.0.1 -C 10 -v -V -p {port}",
        "ping data: rdma-ping-9:"
    ),
    cm!(
        "rping_libraries",
        Libraries,
        "rping -s -C 10 -V -p {port}",
        "rping -c -a 127.0.0.1 -C 10 -v -V -p {port}",
        "ping data: rdma-ping-9:"
    ),
    cm!(
        "rping_alone",
        Alone,
        "rping -s -C 10 -V -p {port}",
        "rping -c -a 127.0.0.1 -C 10 -v -V -p {port}",
        "ping data: rdma-ping-9:"
    ),
    cm!(
        "rping_own_queue_pair",
        Preload,
        "rping -s -q -C 10 -V -p {port}",
        "rping -c -q -a 127.0.0.1 -C 10 -v -V -p {port}",
        "ping data: rdma-ping-9:"
    ),
    cm!(
        "ucmatose",
        Preload,
        "ucmatose -b 127.0.0.1 -c 5 -C 20 -p {port}",
        "ucmatose -s 127.0.0.1 -c 5 -C 20 -p {port}",
        "return status 0"
    ),
    cm!(
        "ucmatose_migrate",
        Preload,
        "ucmatose -b 127.0.0.1 -c 5 -m -p {port}",
        "ucmatose -s 127.0.0.1 -c 5 -m -p {port}",
        "return status 0"
    ),
    cm!("rdma_client", Preload, "rdma_server -p {port}", "rdma_client -s 127.0.0.1 -p {port}", "rdma_client: end 0"),
    // The iWARP device, over TCP.
    always(cm!(
        "rping_over_tcp",
        Preload,
        "env SOFTRNIC_DEVICES=softiw0 rping -s -C 10 -V -p {port}",
        "env SOFTRNIC_DEVICES=softiw0 rping -c -a 127.0.0.1 -C 10 -v -V -p {port}",
        "ping data: rdma-ping-9:"
    )),
    cm!(
        "ucmatose_over_tcp",
        Preload,
        "env SOFTRNIC_DEVICES=softiw0 ucmatose -b 127.0.0.1 -c 5 -C 20 -p {port}",
        "env SOFTRNIC_DEVICES=softiw0 ucmatose -s 127.0.0.1 -c 5 -C 20 -p {port}",
        "return status 0"
    ),
    row(
        "cmtime_over_tcp",
        Preload,
        Shape::Serving(
            "env SOFTRNIC_DEVICES=softiw0 cmtime -b 127.0.0.1 -c 50 -p {port}",
            "env SOFTRNIC_DEVICES=softiw0 cmtime -s 127.0.0.1 -c 50 -p {port}",
        ),
        "disconnect",
    ),
    perftest_tcp!("write_bw_over_tcp", "ib_write_bw -n 1000", "65536      1000"),
    perftest_tcp!("read_lat_over_tcp", "ib_read_lat -n 1000", "2       1000"),
    always(perftest_tcp!("send_bw_over_tcp", "ib_send_bw -n 1000", "65536      1000")),
    // These two have no option for a port.
    cm!("udaddy", Preload, "udaddy -b 127.0.0.1 -c 5 -C 20", "udaddy -s 127.0.0.1 -c 5 -C 20", "return status 0"),
    row(
        "mckey",
        Preload,
        Shape::Said(
            "stdbuf -oL {run} mckey -m {group} -b 127.0.0.1 -C 10",
            "receiving data transfers",
            "mckey -m {group} -b 127.0.0.1 -C 10 -s",
        ),
        "return status 0",
    ),
    // The distribution's server never exits.
    row(
        "cmtime",
        Preload,
        Shape::Serving("cmtime -b 127.0.0.1 -c 50 -p {port}", "cmtime -s 127.0.0.1 -c 50 -p {port}"),
        "disconnect",
    ),
    // These programs need librdmacm's own identifiers, so softrnic refuses them.
    rsockets!("rsockets", Preload, "rstream", "-S 65536 -C 10 -I 100 -T v"),
    rsockets!("rsockets_libraries", Libraries, "rstream", "-S 65536 -C 10 -I 100 -T v"),
    rsockets!("rsockets_iwarp", Preload, "env SOFTRNIC_DEVICES=softiw0 rstream", "-S 65536 -C 10 -I 100 -T v"),
    rsockets!("rsockets_io", Preload, "riostream", "-S 4096 -C 10 -I 10 -T v"),
    perftest_cm!("write_bw_by_address", "ib_write_bw -n 1000", "65536      1000"),
    perftest_cm!("write_lat_by_address", "ib_write_lat -n 1000", "2       1000"),
    perftest_cm!("read_bw_by_address", "ib_read_bw -n 1000", "65536      1000"),
    perftest_cm!("read_lat_by_address", "ib_read_lat -n 1000", "2       1000"),
    perftest_cm!("send_bw_by_address", "ib_send_bw -n 1000", "65536      1000"),
    perftest_cm!("send_lat_by_address", "ib_send_lat -n 1000", "2       1000"),
    perftest_cm!("send_bw_ud_by_address", "ib_send_bw -n 1000 -c UD -s 1024", "1024       1000"),
    perftest_cm!("atomic_bw_by_address", "ib_atomic_bw -n 1000", "8          1000"),
    perftest_cm!("atomic_lat_by_address", "ib_atomic_lat -n 1000", "8       1000"),
    //
    row("fi_info", Preload, Shape::One("fi_info -p verbs -t FI_EP_MSG"), "domain: soft0"),
    always(fabric!("fabric_msg", Preload, "verbs -e msg -c", "1m      10      =10      20m")),
    always(fabric!("fabric_rdm", Preload, "verbs;ofi_rxm -e rdm -c", "1m      10      =10      20m")),
    always(fabric!("fabric_dgram", Preload, "verbs -e dgram -c", "4k      10      =10      80k")),
    fabric!("fabric_msg_all_sizes", Preload, "verbs -e msg -S all", "6m      10      =10      120m"),
    fabric!("fabric_msg_one_size", Preload, "verbs -e msg -S 1", "1       10      =10      20"),
    fabric!("fabric_msg_many", Preload, "verbs -e msg -S 1024 -I 10000", "1k      10k     =10k     19m"),
    fabric!("fabric_msg_libraries", Libraries, "verbs -e msg", "1m      10      =10      20m"),
    fabric!("fabric_rdm_all_sizes", Preload, "verbs;ofi_rxm -e rdm -S all", "6m      10      =10      120m"),
    fabric!("fabric_rdm_tagged", Preload, "verbs;ofi_rxm -e rdm -m tagged -S 65536", "64k     10      =10      1.2m"),
    fabric!("fabric_rdm_many", Preload, "verbs;ofi_rxm -e rdm -S 64 -I 10000", "64      10k     =10k     1.2m"),
    fabric!("fabric_dgram_all_sizes", Preload, "verbs -e dgram -S all", "4k      10      =10      80k"),
    fabric!("fabric_dgram_one_size", Preload, "verbs -e dgram -S 4096", "4k      10      =10      80k"),
    fabric!("fabric_dgram_many", Preload, "verbs -e dgram -S 1024 -I 10000", "1k      10k     =10k     19m"),
    //
    qperf!("qperf_rc_bw", "rc_bw", "bw ="),
    qperf!("qperf_rc_bi_bw", "rc_bi_bw", "bw ="),
    qperf!("qperf_rc_lat", "rc_lat", "latency ="),
    qperf!("qperf_rc_rdma_write_bw", "rc_rdma_write_bw", "bw ="),
    qperf!("qperf_rc_rdma_write_lat", "rc_rdma_write_lat", "latency ="),
    qperf!("qperf_rc_rdma_write_poll_lat", "rc_rdma_write_poll_lat", "latency ="),
    qperf!("qperf_rc_rdma_read_bw", "rc_rdma_read_bw", "bw ="),
    qperf!("qperf_rc_rdma_read_lat", "rc_rdma_read_lat", "latency ="),
    qperf!("qperf_rc_compare_swap_mr", "rc_compare_swap_mr", "msg_rate ="),
    qperf!("qperf_rc_fetch_add_mr", "rc_fetch_add_mr", "msg_rate ="),
    qperf!("qperf_ver_rc_compare_swap", "ver_rc_compare_swap", "msg_rate ="),
    qperf!("qperf_ver_rc_fetch_add", "ver_rc_fetch_add", "msg_rate ="),
    //
    fio!("fio_write", "--verb=write"),
    fio!("fio_read", "--verb=read"),
    fio!("fio_send", "--verb=send"),
];
