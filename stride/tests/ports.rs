//! Bandwidths over several ports: of two of softrnic's devices, and of two ports of a device that only writes down what is done with it.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, also outside of a function marked as one")]

use std::process::Command;

use rdma_mummy_sys::{ibv_gid_entry, ibv_qp_state};
use serde_json::Value;
use sideway_tests::recording::{Call, Recording};
use stride_perf::endpoint::{Endpoint, EndpointFactory, Path, Role, Verbs};
use stride_perf::plan::{Placement, Plan, PortSelector, Queues, RunLength, SideConfig, Workload};

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
    assert!(err.contains("give these with -d, such as mlx5_0,mlx5_1, in place of --ib-port or -O"), "{err}");
    let (_, err) = run("write bw -i 2 -d soft0 --loopback", "1", 1);
    assert!(err.contains("is a device of its own, name that with -d; see `stride-perf devices`"), "{err}");
}

#[test]
fn a_port_that_no_device_has_is_to_be_left_out() {
    let said = "error: no device can be used with --ib-port 2 (soft0 has no port 2, but port 1 alone): leave it out for the first port that \
                is up, which `stride-perf devices` lists\n";
    for words in ["write bw -i 2 --loopback", "-i 2"] {
        let (_, err) = run(words, "1", 1);
        assert!(err.contains(said), "{words}: {err}");
    }
    let plan = Plan::default();
    let (_recording, place) = (Recording::of_system(), SideConfig { port: Some(9), ..SideConfig::default() });
    let error = Verbs.open(&plan, &place, Role::Server).map(drop).unwrap_err().to_string();
    let start = "no device of the server can be used with port 9, of its --ib-port or the client's --remote-ib-port (";
    assert!(error.starts_with(start) && error.contains("): leave that out for the first port that is up"), "{error}");
}

#[test]
fn devices_of_one_port_are_to_be_named_in_place_of_both_ports() {
    let (_, err) = run("write bw -O --loopback", "2", 1);
    let said = "error: no device has the ports of --ib-port 1,2 (or -O) all up (soft0 has no port 2, but port 1 alone; soft1 has no port 2, but \
                port 1 alone): where each port of a NIC is a device of its own, give these with -d, such as mlx5_0,mlx5_1, in place of \
                --ib-port or -O\n";
    assert!(err.contains(said), "{err}");
    let (_, err) = run("write bw -O -d soft0,soft1 --loopback", "2", 1);
    let said = "error: soft1 has no port 2, but port 1 alone: --ib-port has one for each device, and -O is --ib-port 1,2: leave it out, or \
                give --ib-port 1; see `stride-perf devices`";
    assert!(err.contains(said), "{err}");
    let (_, err) = run("write bw -R -i 2 --loopback", "1", 1);
    assert!(err.contains("error: no device can be used with --ib-port 2 ("), "{err}");
    let (_, err) = run("-O", "2", 1);
    assert!(err.contains("error: no device has the ports of --ib-port 1,2 (or -O) all up ("), "{err}");
}

#[test]
fn a_server_of_devices_of_one_port_says_what_its_client_is_to_give() {
    let plan = Plan { queues: Queues { queue_pairs: 2, threads: 2, ..Queues::default() }, ..Plan::default() };
    let said = |devices: [Option<&str>; 2]| {
        let spot = |(device, port): (Option<&str>, u8)| PortSelector {
            device: device.map(str::to_owned),
            port: Some(port),
            gid_index: None,
        };
        let place = SideConfig::default().at(devices.into_iter().zip([1, 2]).map(spot).collect());
        Verbs.open(&plan, &place, Role::Server).map(drop).unwrap_err().to_string()
    };
    let (one, other) = (Recording::of_system(), Recording::of_system());
    let (names, without) = ([one.name(), other.name()], "has no port 2, but port 1 alone");
    let error = said([Some(&names[0]), Some(&names[1])]);
    let way = "the client's --remote-ib-port, or the server's own --ib-port, has one for each device, and -O of either is 1,2 there: leave it out, \
               or give 1";
    assert!(error.starts_with(&format!("{} {without}: {way}", names[1])), "{error}");
    let error = said([Some(&names[0]), Some(&names[0])]);
    let way = "give the client these with --remote-device, such as mlx5_0,mlx5_1, and --remote-ib-port 1";
    assert!(error.starts_with(&format!("{} {without}: ", names[0])) && error.contains(way), "{error}");
    let error = said([None, None]);
    let start = "no device of the server has ports 1,2 all up, of the client's --remote-ib-port or -O or its own --ib-port or -O (";
    assert!(error.starts_with(start) && error.contains(way), "{error}");
}

#[test]
fn ports_of_no_device_that_is_named_are_of_one_that_has_them_all() {
    let (one, two) = (Recording::of_system(), of_two_ports());
    let spot = |port| PortSelector { port: Some(port), ..PortSelector::default() };
    let at = |ports: &[u8]| SideConfig::default().at(ports.iter().copied().map(spot).collect());
    let of = |ports: &[u8], role| {
        let count = ports.len() as u32;
        let plan =
            Plan { queues: Queues { queue_pairs: count, threads: count, ..Queues::default() }, ..Plan::default() };
        let side = Verbs.open(&plan, &at(ports), role).map_err(|error| format!("{error:#}"))?;
        Ok(side.facts().all().map(|facts| (facts.device.clone(), facts.port)).collect::<Vec<_>>())
    };
    let (first, second) = (one.name(), two.name());
    for role in [Role::Client, Role::Server] {
        assert_eq!(of(&[1, 2], role), Ok(vec![(second.clone(), 1), (second.clone(), 2)]));
        assert_eq!(of(&[1, 1], role), Ok(vec![(first.clone(), 1), (second.clone(), 1)]), "port 1 of each");
    }
    let said: Result<_, String> = of(&[1, 2, 1], Role::Server);
    assert!(
        said.clone().is_err_and(|said| said.starts_with("--remote-ib-port 1,2,1 has a port twice, and")),
        "{said:?}"
    );
    Verbs.look(&at(&[1, 2])).unwrap();
    assert!(
        Verbs
            .look(&at(&[1, 3]))
            .unwrap_err()
            .to_string()
            .starts_with("no device has the ports of --ib-port 1,3 all up (")
    );
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
    let spot = |port| PortSelector { device: Some(recording.name()), port: Some(port), gid_index: None };
    let place = SideConfig::default().at(vec![spot(1), spot(2)]);
    Plan {
        workload: Workload {
            sizes: vec![8],
            amount: RunLength::Messages { count: 20, warm_up: 5 },
            ..Workload::default()
        },
        queues: Queues { queue_pairs: 4, threads: 2, tx_depth: 8, rx_depth: 16, ..Queues::default() },
        placement: Placement { client: place.clone(), server: place, ..Placement::default() },
        ..Plan::default()
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
    let open = |place: &SideConfig, role| Verbs.open(&plan, place, role).unwrap();
    let (mut client, mut server) =
        (open(&plan.placement.client, Role::Client), open(&plan.placement.server, Role::Server));
    assert_eq!(client.facts().all().map(|facts| facts.port).collect::<Vec<_>>(), [1, 2]);
    let gids = |side: &dyn Endpoint| side.facts().all().map(|facts| facts.gids[0].index).collect::<Vec<_>>();
    assert_eq!(gids(&*client), [0, 1], "each has its own table");
    let way = |gid| Path { client_gid: Some(gid), server_gid: Some(gid), mtu: 1024, others: Vec::new() };
    let path = Path { others: vec![way(1)], ..way(0) };
    let (_, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
    assert_eq!(far.all().map(|ends| ends.queue_pairs.len()).collect::<Vec<_>>(), [2, 2]);
    recording.calls();
    client.connect(&path, &far).unwrap();
    let calls = recording.calls();
    assert_eq!(told(&calls, ibv_qp_state::IBV_QPS_INIT, "port"), [1, 1, 2, 2]);
    assert_eq!(told(&calls, ibv_qp_state::IBV_QPS_RTR, "sgid_index"), [0, 0, 1, 1]);
    // A side that has fewer ports than there are ways is told from one that has not.
    let message = client.create_queue_pairs(&way(0)).unwrap_err().to_string();
    assert_eq!(message, "there are 1 ways between the sides, and 2 ports of this one");
}

#[test]
fn a_port_that_is_down_is_named() {
    let recording = of_two_ports();
    recording.edit(|facts| facts.port.state = rdma_mummy_sys::ibv_port_state::IBV_PORT_DOWN);
    let plan = plan(&recording);
    let error = Verbs.open(&plan, &plan.placement.client, Role::Client).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&format!("port 1 of {} is ", recording.name())), "{error}");
}
