//! What the commands of documents need that a test machine does not have: what takes its place, or why they do not run.

/// Starts of commands that do not run, each with the reason.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    ("cargo xtask softroce", "boots a guest, as the ring softroce does"),
    ("cargo xtask demo", "boots a guest, as the ring softroce does"),
    ("rdma link", "needs a NIC"),
    ("ls -l /dev/infiniband", "needs a NIC"),
    ("cat /sys/class/infiniband/", "needs a NIC"),
    ("stride-perf write bw --use-cuda", "needs a GPU; the ring gpu has such a test"),
    ("sudo sysctl", "changes the host"),
    ("stride-perf write bw --huge-pages", "needs reserved huge pages"),
    ("numactl", "needs a service of the reader's"),
    ("docker run", "needs an image of the reader's"),
    ("srun", "needs a cluster"),
    ("mpirun", "needs a cluster"),
    ("python3 -m venv", "downloads a module"),
    ("target/preload/softrnic-run venv/", "needs that module"),
    ("pip install", "installs a wheel, as the ring programs does in a folder"),
    ("softrnic-run python", "needs the installed wheel"),
    ("SOFTRNIC_CONTROL=", "needs a service of the reader's; softrnic's test `control` sends commands"),
    ("ip ", "needs root; `hosts::documented` runs the recipe of softrnic"),
    ("until ip netns", "needs root; `hosts::documented` runs the recipe of softrnic"),
];

/// What takes the place of a part of a command.
pub(super) const STAND_INS: &[(&str, &str)] = &[
    ("mlx5_0,mlx5_1", "soft0,soft1"),
    ("mlx5_0", "soft0"),
    // A test machine is slower than a NIC, and has less time than a reader.
    ("--min-gbps 180", "--min-gbps 0.0001"),
    ("--threshold 3", "--threshold 99"),
    ("h1,h2,h3,h4 write bw -a", "127.0.0.1,127.0.0.2 write bw -a -n 100"),
    ("h1,h2,h3,h4", "127.0.0.1,127.0.0.2"),
    ("write bw -a server.example.org", "write bw -a -n 100 127.0.0.1"),
    ("-D 10s", "-D 200ms"),
    ("-D 5s", "-D 200ms"),
    ("iperf3 -c 127.0.0.1", "iperf3 -t 1 -c 127.0.0.1"),
];

/// The files that the commands of a document use, as the shell makes them before. `$ROOT` is the repository.
pub(super) const FILES: &[(&str, &str)] = &[
    ("rdma-mummy-sys/capi/README.md", "cp $ROOT/rdma-mummy-sys/capi/examples/devices.c hello.c"),
    ("docs/testing.md", "sed -n '/^```c$/,/^```$/{/^```/d;p}' $ROOT/docs/testing.md > test.c"),
    (
        "rdma-pipe/README.md",
        "mkdir weights tree videos hosts/127.0.0.1 hosts/127.0.0.1/model hosts/127.0.0.1/videos
        echo Text | tee big_file file textfile FILE weights/a tree/a tree/b hosts/127.0.0.1/textfile
        cp textfile hosts/127.0.0.1/model; cp textfile hosts/127.0.0.1/videos",
    ),
    (
        "stride/README.md",
        "stride-perf write bw --loopback -s 64K -n 100 --json before.json
        cp before.json after.json; cp before.json baseline.json
        cp $ROOT/stride/schema/mesh-example.json mesh.json
        echo '                    RDMA_Write BW Test
         #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
         65536      5000           90.1               90.0                 0.17' > perftest.txt",
    ),
];

/// The names of hosts in the documents, each with an address of this host.
pub(super) fn hosts() -> impl Iterator<Item = (&'static str, &'static str)> {
    const NAMES: [(&str, &str); 16] = [
        ("server.example.org", "127.0.0.1"),
        ("192.0.2.7", "127.0.0.1"),
        ("HOST", "127.0.0.1"),
        ("host", "127.0.0.1"),
        ("host1", "127.0.0.1"),
        ("backup", "127.0.0.1"),
        ("server", "127.0.0.1"),
        ("worker", "127.0.0.2"),
        ("store", "127.0.0.1"),
        ("caps", "127.0.0.1"),
        ("fs1", "127.0.0.1"),
        ("fs2", "127.0.0.2"),
        ("ingest", "127.0.0.1"),
        ("h1", "127.0.0.1"),
        ("h2", "127.0.0.2"),
        ("h3", "127.0.0.3"),
    ];
    NAMES.into_iter()
}
