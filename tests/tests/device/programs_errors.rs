//! The errors of the examples: what failed, why, and the option or setting to change.

use sideway_tests::child::{self, example};
use sideway_tests::programs::{LIMIT, port};
use sideway_tests::{device, errors};

/// Command lines that fail, their exit status, and the cause and the remedy in the error. `DEVICE` stands for the
/// device, and `PORT` for a free port.
const FAILURES: [(&str, i32, &str, &str); 44] = [
    ("asyncwatch -d nothing", 1, "no RDMA device is named `nothing`", "choose "),
    ("asyncwatch -d DEVICE --count 1 --timeout 0.1", 1, "0 of 1 events arrived within 0.1 s", "raise --timeout"),
    ("cm_many --at-once 0", 2, "invalid value '0'", "--at-once"),
    ("cm_many --listen -p PORT --timeout 0.1", 1, "not all connections ended within 0.1 s", "raise --timeout"),
    ("cm_many no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", ""),
    ("cm_pingpong --ts --cq basic no-such-host.invalid", 1, "--ts requires an extended", "leave out --cq basic"),
    ("cm_pingpong -b no-such-host.invalid 192.0.2.1", 1, "cannot resolve no-such-host.invalid", "--bind"),
    ("cm_pingpong -s 2G", 2, "a message can have 1 byte to 1G", "--size"),
    ("cm_tokio --listen -p PORT --timeout 0.1", 1, "not all connections ended within 0.1 s", "raise --timeout"),
    ("cm_tokio --connections 0", 2, "invalid value '0'", "--connections"),
    ("cmtime -s no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", ""),
    ("cmtime --patience 1", 2, "required arguments were not provided", ""),
    ("events_tokio -d DEVICE -g 200", 1, "GID index 200 of port 1 of DEVICE is not in use", "give -g with one of 0 ("),
    ("events_tokio -d nothing", 1, "no RDMA device is named `nothing`", "choose "),
    ("ibv_devinfo -d DEVICE -i 9", 1, "port 9 does not exist", "-i can be 1 to 1"),
    ("mckey -m 192.0.2.1", 1, "192.0.2.1 is not a multicast address", ""),
    ("mckey -m 239.1.1.1 -b no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", "--bind"),
    ("mckey -m no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", "--multicast"),
    ("mckey -m 239.1.1.1 -o", 2, "required arguments were not provided", ""),
    ("memory_window -d DEVICE -i 77", 1, "there is no port 77", "use port 1"),
    ("memory_window --by nothing", 2, "invalid value 'nothing'", "--by"),
    ("rc_pingpong -d DEVICE -g 200", 1, "GID index 200 of port 1 of DEVICE is not in use", "give -g with one of 0 ("),
    ("rc_pingpong -d DEVICE -p PORT --timeout 0.1", 1, "no client connected to TCP port", "raise --timeout"),
    ("rc_pingpong -d DEVICE -p 1 localhost", 1, "connection refused", "start the server there first"),
    ("rc_pingpong -d DEVICE -r 100000000", 1, "the device supports at most", ""),
    ("rc_pingpong -d DEVICE no-such-host.invalid", 1, "cannot resolve `no-such-host.invalid`", ""),
    ("rc_pingpong -m 1500", 2, "a path MTU can be 256, 512, 1024, 2048 or 4096", "--mtu"),
    ("rc_pingpong --new-send --qp basic", 1, "--new-send requires an extended", "leave out --qp basic"),
    ("rc_pingpong -l 16", 2, "invalid value '16'", "--sl"),
    ("rc_pingpong_split -d DEVICE -p 1 localhost", 1, "connection refused", "start the server there first"),
    ("rdma_atomic --loopback somewhere", 2, "cannot be used with", "--loopback"),
    ("rdma_atomic -d DEVICE -p PORT --timeout 0.1", 1, "no client connected to TCP port", "raise --timeout"),
    ("rdma_atomic --num-qp 300", 2, "300 is not in 1..=256", "--num-qp"),
    ("rping -c", 2, "required arguments were not provided", ""),
    ("rping -c -a 192.0.2.1 -I no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", "--source"),
    ("rping -s -S 5", 2, "5 is not in 23..=65535", "--size"),
    ("show_gids DEVICE 9", 1, "there is no port 9", "use port 1"),
    ("show_gids nothing", 1, "no RDMA device is named `nothing`", "choose "),
    ("srq_pingpong -q 20 -r 19", 1, "--rx-depth 19 is below --num-qp 20", "give --rx-depth 20 or more"),
    ("uc_pingpong --timeout 1e-10", 2, "below a nanosecond", "give 0 for no limit"),
    ("ud_pingpong -d DEVICE -s 1M", 1, "a datagram is one packet", "give both sides a --size of at most"),
    ("ucmatose -s no-such-host.invalid", 1, "cannot resolve no-such-host.invalid", ""),
    ("ucmatose -p PORT --timeout 0.1", 1, "not all connections were made within 0.1 s", "raise --timeout"),
    ("ucmatose -t 0x100", 2, "not a type of service, 0 to 255 or 0x0 to 0xff", "--tos"),
];

#[test]
fn errors_name_the_cause_and_the_remedy() {
    for (line, status, cause, remedy) in FAILURES {
        let name = device::name();
        let line = line.replace("DEVICE", &name).replace("PORT", &port().to_string());
        let (program, options) = line.split_once(' ').expect("a program with options");
        let mut command = example(program);
        command.args(options.split_whitespace());
        let ended = child::run(command, LIMIT);
        assert_eq!(ended.status.code(), Some(status), "{line}: {}", ended.output);
        let error = errors::text(&ended.output, "error: ");
        for part in [cause, remedy] {
            assert!(error.contains(&part.replace("DEVICE", &name)), "no `{part}` in the error of {line}: {error}");
        }
    }
}

#[test]
fn machine_without_a_device_is_an_error_with_the_remedy() {
    if !device::is_soft() {
        // A device of the kernel cannot be hidden.
        return;
    }
    for (program, cause) in [("show_gids", "no RDMA device found"), ("cm_many", "no RDMA device supports connections")]
    {
        let mut command = example(program);
        command.env(softrnic::DEVICES_VARIABLE, "0");
        let ended = child::run(command, LIMIT);
        assert_eq!(ended.status.code(), Some(1), "{program}: {}", ended.output);
        let error = errors::text(&ended.output, "error: ");
        assert!(error.starts_with(cause) && error.contains("rdma link add rxe_0 type rxe"), "{error}");
    }
}
