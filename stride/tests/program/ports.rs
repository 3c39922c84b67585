//! Bandwidths over ports of several of softrnic's devices.

use serde_json::Value;

use super::{ends, program};

/// What a run with so many of softrnic's devices says: on standard output, and beside it.
#[track_caller]
fn run(words: &str, devices: &str, status: i32) -> (String, String) {
    ends(&program(words).env("SOFTRNIC_DEVICES", devices).output().unwrap(), status)
}

#[test]
fn each_port_is_told_of_below_the_row_of_all() {
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
fn several_ports_may_lead_to_one() {
    let (out, _) = run("write bw -n 300 -d soft0,soft1 --remote-device soft1 --loopback", "2", 0);
    assert!(out.contains("    soft0 port 1 to soft1 port 1: ") && out.contains("    soft1 port 1: "), "{out}");
}

#[test]
fn ports_that_nobody_names_are_the_first_that_are_up() {
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
    let said = "error: the test uses 2 ports, and none is left for number 2; name one device for all with --device: ";
    assert!(err.contains(said) && err.contains("port 1 of soft0 is already one of the test's ports"), "{err}");
}

#[test]
fn rates_of_ports_add_up_where_all_have_the_same_time() {
    let (out, _) = run("write bw -D 300ms -d soft0,soft1 --loopback --json-stream", "2", 0);
    let row: Value = serde_json::from_str(out.lines().rev().nth(1).unwrap()).unwrap();
    let rate = |rates: &Value| rates["messages_per_second"].as_f64().unwrap();
    let sum: f64 = row["port_averages"].as_array().unwrap().iter().map(rate).sum();
    let all = rate(&row["average"]);
    assert!((sum / all - 1.0).abs() < 1e-6, "{sum} {all}");
}

#[test]
fn a_device_without_a_second_port_is_told() {
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
fn devices_of_one_port_are_to_be_named_in_place_of_both_ports() {
    let (_, err) = run("write bw -O --loopback", "2", 1);
    let said = "error: no device has all ports of --ib-port 1,2 (or -O) active (soft0 has no port 2 (only port 1); soft1 has no port 2 \
                (only port 1)); if each port of the NIC is a device of its own, give them with -d, such as mlx5_0,mlx5_1, \
                instead of --ib-port or -O\n";
    assert!(err.contains(said), "{err}");
    let (_, err) = run("write bw -O -d soft0,soft1 --loopback", "2", 1);
    let said = "error: soft1 has no port 2 (only port 1); leave out --ib-port and -O, or give --ib-port 1, which applies \
                to each device (`stride-perf devices` lists the ports)";
    assert!(err.contains(said), "{err}");
    let (_, err) = run("write bw -R -i 2 --loopback", "1", 1);
    assert!(err.contains("error: no usable device with --ib-port 2 ("), "{err}");
    let (_, err) = run("-O", "2", 1);
    assert!(err.contains("error: no device has all ports of --ib-port 1,2 (or -O) active ("), "{err}");
}

#[test]
fn a_port_that_no_device_has_is_to_be_left_out() {
    let said = "error: no usable device with --ib-port 2 (soft0 has no port 2 (only port 1)); leave it out to use the first \
                active port (`stride-perf devices` lists the ports)\n";
    for words in ["write bw -i 2 --loopback", "-i 2"] {
        let (_, err) = run(words, "1", 1);
        assert!(err.contains(said), "{words}: {err}");
    }
}
