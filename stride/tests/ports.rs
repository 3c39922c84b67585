//! Bandwidths over several ports: of two of softrnic's devices, and of two ports of a device that only writes down what is done with it.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, also outside of a function marked as one")]

use std::process::Command;

use rdma_mummy_sys::{ibv_gid_entry, ibv_qp_state};
use serde_json::Value;
use sideway_tests::recording::{Call, Recording};
use stride_perf::fabric::{Fabric, Path, Role, Side, Verbs};
use stride_perf::plan::{Amount, Place, Plan, Spot};

/// What a run with so many of softrnic's devices says: on standard output, and beside it.
#[track_caller]
fn run(words: &str, devices: &str, status: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stride-perf"));
    command.args(words.split_whitespace()).env("NO_COLOR", "1").env("SOFTRNIC_DEVICES", devices);
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    assert_eq!(output.status.code(), Some(status), "{out}\n{err}");
    (out, err)
}

#[test]
fn each_port_is_told_of_below_the_row_of_all() {
    for words in ["write bw", "write bw -b", "read bw", "write bw --reversed", "send bw", "atomic bw", "send bw -c ud"]
    {
        let amount = if words.contains("ud") { "-D 200ms" } else { "-n 300 --validate" };
        let words = format!("{words} {amount} -q 4 -d soft0,soft1 --loopback");
        let (out, _) = run(&words, "2", 0);
        assert!(out.contains(" 4 queue pairs, 2 at each of 2 ports, MTU "), "{words}: {out}");
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
    let (out, _) = run("write bw -n 300 -i 1,1 --loopback --json-stream", "3", 0);
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for side in ["client", "server"] {
        let side = &events[0]["environment"][side];
        assert_eq!((&side["device"], &side["others"][0]["device"]), (&"soft0".into(), &"soft1".into()), "{side}");
    }
    let row = &events[1];
    assert_eq!(row["messages"], 600);
    assert_eq!((&row["ports"][0]["messages"], &row["ports"][1]["messages"]), (&300.into(), &300.into()), "{row}");
    assert!(row["port_averages"][1]["gigabits_per_second"].as_f64().unwrap() > 0.0, "{row}");
    let (_, err) = run("write bw -i 1,1 --loopback", "1", 1);
    let said =
        "error: the test goes over 2 ports, and there is none for number 2: name one device for all with --device: ";
    assert!(err.contains(said) && err.contains("port 1 of soft0 is one of the test's ports already"), "{err}");
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
    assert!(err.contains("error: soft0 has no port 2, but port 1 alone: "), "{err}");
    assert!(err.contains("give these with -d, such as mlx5_0,mlx5_1"), "{err}");
}

/// A device with two ports, of which each has a GID.
fn of_two_ports() -> Recording {
    let recording = Recording::of_system();
    recording.edit(|facts| {
        facts.device.orig_attr.phys_port_cnt = 2;
        let second = ibv_gid_entry { gid_index: 1, port_num: 2, ..facts.gids[0] };
        facts.gids.push(second);
    });
    recording
}

fn plan(recording: &Recording) -> Plan {
    let spot = |port| Spot { device: Some(recording.name()), port: Some(port), gid_index: None };
    let place = Place::default().at(vec![spot(1), spot(2)]);
    Plan {
        sizes: vec![8],
        amount: Amount::Messages { count: 20, warm_up: 5 },
        queue_pairs: 4,
        threads: 2,
        tx_depth: 8,
        rx_depth: 16,
        client: place.clone(),
        server: place,
        ..Plan::example()
    }
}

/// What queue pairs were told in one of their three states, in the order of the queue pairs.
fn told(calls: &[Call], state: ibv_qp_state, argument: &str) -> Vec<u64> {
    let moves = calls.iter().filter(|call| call.verb == "modify_qp" && call.argument("state") == u64::from(state.0));
    moves.map(|call| call.argument(argument)).collect()
}

#[test]
fn half_of_the_queue_pairs_are_at_each_port_of_a_device() {
    let recording = of_two_ports();
    let plan = plan(&recording);
    plan.check().unwrap();
    let open = |place: &Place, role| Verbs.open(&plan, place, role).unwrap();
    let (mut client, mut server) = (open(&plan.client, Role::Client), open(&plan.server, Role::Server));
    assert_eq!(client.facts().all().map(|facts| facts.port).collect::<Vec<_>>(), [1, 2]);
    let gids = |side: &dyn Side| side.facts().all().map(|facts| facts.gids[0].index).collect::<Vec<_>>();
    assert_eq!(gids(&*client), [0, 1], "each has its own table");
    let way = |gid| Path { client_gid: Some(gid), server_gid: Some(gid), mtu: 1024, others: Vec::new() };
    let path = Path { others: vec![way(1)], ..way(0) };
    let (_, far) = (client.make_ends(&path).unwrap(), server.make_ends(&path).unwrap());
    assert_eq!(far.all().map(|ends| ends.queue_pairs.len()).collect::<Vec<_>>(), [2, 2]);
    recording.calls();
    client.connect(&path, &far).unwrap();
    let calls = recording.calls();
    assert_eq!(told(&calls, ibv_qp_state::IBV_QPS_INIT, "port"), [1, 1, 2, 2]);
    assert_eq!(told(&calls, ibv_qp_state::IBV_QPS_RTR, "sgid_index"), [0, 0, 1, 1]);
    // A side that has fewer ports than there are ways is told from one that has not.
    let message = client.make_ends(&way(0)).unwrap_err().to_string();
    assert_eq!(message, "there are 1 ways between the sides, and 2 ports of this one");
}

#[test]
fn a_port_that_is_down_is_named() {
    let recording = of_two_ports();
    recording.edit(|facts| facts.port.state = rdma_mummy_sys::ibv_port_state::IBV_PORT_DOWN);
    let plan = plan(&recording);
    let error = Verbs.open(&plan, &plan.client, Role::Client).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&format!("port 1 of {} is ", recording.name())), "{error}");
}
