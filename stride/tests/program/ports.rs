//! Tests of bandwidth over the ports of several softrnic devices.

use serde_json::Value;

use super::{ends, program};

/// Runs the program with this number of softrnic devices. Returns its standard output and standard error.
#[track_caller]
fn run(words: &str, devices: &str, status: i32) -> (String, String) {
    ends(&program(words).env("SOFTRNIC_DEVICES", devices).output().unwrap(), status)
}

#[test]
fn each_port_has_a_line_below_the_total() {
    for words in ["write bw", "write bw -b", "read bw", "write bw --reversed", "send bw", "atomic bw", "send bw -c ud"]
    {
        let amount = if words.contains("ud") { "-D 200ms" } else { "-n 300 --validate" };
        let words = format!("{words} {amount} -q 4 -d soft0,soft1 --loopback");
        let (out, _) = run(&words, "2", 0);
        assert!(out.contains(" 4 queue pairs, 2 on each of 2 ports, MTU "), "{words}: {out}");
        for line in ["  client: soft0 port 1 on ", "          soft1 port 1 on ", "  server: soft0 port 1 on "] {
            assert!(out.contains(line), "{words}: {out}");
        }
        for port in ["\n    soft0 port 1: ", "\n    soft1 port 1: "] {
            let (_, figures) = out.split_once(port).unwrap();
            let gigabits: f64 = figures.split_whitespace().next().unwrap().parse().unwrap();
            assert!(gigabits > 0.0, "{words}: {out}");
        }
    }
}

#[test]
fn several_ports_may_connect_to_one() {
    let (out, _) = run("write bw -n 300 -d soft0,soft1 --remote-device soft1 --loopback", "2", 0);
    assert!(out.contains("    soft0 port 1 to soft1 port 1: ") && out.contains("    soft1 port 1: "), "{out}");
}

#[test]
fn unnamed_ports_are_the_first_active_ones() {
    let (out, _) = run("write bw -n 300 -x 0,0 --loopback --json-stream", "3", 0);
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for side in ["client", "server"] {
        let side = &events[0]["environment"][side];
        assert_eq!((&side["device"], &side["others"][0]["device"]), (&"soft0".into(), &"soft1".into()), "{side}");
    }
    let row = &events[1];
    assert_eq!(row["messages"], 600);
    assert_eq!((&row["ports"][0]["messages"], &row["ports"][1]["messages"]), (&300.into(), &300.into()), "{row}");
    assert!(row["port_averages"][1]["gigabits_per_second"].as_f64().unwrap() > 0.0, "{row}");
    let (_, err) = run("write bw -x 0,0 --loopback", "1", 1);
    let expected =
        "error: the test uses 2 ports, and none is left for number 2; name one device for all with --device: ";
    assert!(err.contains(expected) && err.contains("port 1 of soft0 is already one of the test's ports"), "{err}");
}

#[test]
fn port_rates_of_a_timed_test_add_up() {
    let (out, _) = run("write bw -D 300ms -d soft0,soft1 --loopback --json-stream", "2", 0);
    let row: Value = serde_json::from_str(out.lines().rev().nth(1).unwrap()).unwrap();
    let rate = |rates: &Value| rates["messages_per_second"].as_f64().unwrap();
    let sum: f64 = row["port_averages"].as_array().unwrap().iter().map(rate).sum();
    let all = rate(&row["average"]);
    assert!((sum / all - 1.0).abs() < 1e-6, "{sum} {all}");
}

#[test]
fn missing_second_port_error_names_the_alternative() {
    let (_, err) = run("write bw -O -d soft0 --loopback", "1", 1);
    assert!(err.contains("error: soft0 has no port 2 (only port 1); if each port"), "{err}");
    assert!(err.contains("give them with -d, such as mlx5_0,mlx5_1, instead of --ib-port or -O"), "{err}");
    let (_, err) = run("write bw -i 2 -d soft0 --loopback", "1", 1);
    assert!(
        err.contains("is a device of its own, name that device with -d (`stride-perf devices` lists the ports)"),
        "{err}"
    );
}

#[test]
fn dualport_on_single_port_devices_error_suggests_devices() {
    let (_, err) = run("write bw -O --loopback", "2", 1);
    let expected = "error: no device has all ports of --ib-port 1,2 (or -O) active (soft0 has no port 2 (only port 1); soft1 has no port 2 \
                (only port 1)); if each port of the NIC is a device of its own, give them with -d, such as mlx5_0,mlx5_1, \
                instead of --ib-port or -O\n";
    assert!(err.contains(expected), "{err}");
    let (_, err) = run("write bw -O -d soft0,soft1 --loopback", "2", 1);
    let expected = "error: soft1 has no port 2 (only port 1); leave out --ib-port and -O, or give --ib-port 1, which applies \
                to each device (`stride-perf devices` lists the ports)";
    assert!(err.contains(expected), "{err}");
    let (_, err) = run("write bw -R -i 2 --loopback", "1", 1);
    assert!(err.contains("error: no usable device with --ib-port 2 ("), "{err}");
    let (_, err) = run("-O", "2", 1);
    assert!(err.contains("error: no device has all ports of --ib-port 1,2 (or -O) active ("), "{err}");
}

#[test]
fn missing_port_error_suggests_leaving_it_out() {
    let expected = "error: no usable device with --ib-port 2 (soft0 has no port 2 (only port 1)); leave it out to use the first \
                active port (`stride-perf devices` lists the ports)\n";
    for words in ["write bw -i 2 --loopback", "-i 2"] {
        let (_, err) = run(words, "1", 1);
        assert!(err.contains(expected), "{words}: {err}");
    }
}
