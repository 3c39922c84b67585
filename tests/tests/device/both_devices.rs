//! Checks that each test of the device ring has the same completions on the kernel's soft-RoCE and on softrnic. Runs
//! after the other modules, which have logged them on either device.

use std::env;
use std::path::PathBuf;

use sideway_tests::completion_log::{self, Completions};

/// Tests whose completions may differ, with the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "windows::window_key_works_until_its_user_invalidates_it",
        "rxe's completion has the flag of a check sum for IBV_WC_WITH_INV",
    ),
    ("operations::lists_are_gathered_and_scattered", "lists are as long as the device's max_sge"),
    ("errors::full_queue_reports_how_many_were_posted", "rxe rounds queues up"),
    (
        "errors::short_receive_fails_on_both_sides",
        "rxe returns IBV_WC_LOC_QP_OP_ERR and IBV_WC_REM_OP_ERR, the specification requires a length error and an \
        invalid request",
    ),
    ("errors::bad_request_of_a_basic_batch_is_named", "rxe refuses the request when it is posted"),
    (
        "control::unreachable_peer_is_named",
        "the kernel resolves the peer when the state is changed, and refuses the change",
    ),
    ("datagrams::datagram_longer_than_the_mtu_does_not_arrive", "rxe does not check the MTU"),
    (
        "datagrams::datagram_with_a_wrong_key_is_dropped_and_the_next_arrives",
        "rxe treats a Q_Key with the highest bit set like any other",
    ),
];

/// The folder of the logs `kernel` and `soft`.
const COMPARED: &str = "SIDEWAY_COMPARED";

#[test]
#[ignore = "compares the logs of the other modules: cargo xtask test --ring softroce"]
fn completions_are_the_same_on_both_devices() {
    let folder = PathBuf::from(env::var_os(COMPARED).unwrap_or_else(|| panic!("{COMPARED} is not set")));
    let (mut compared, mut completions, mut faults) = (0, 0, Vec::new());
    let [kernel, soft] = ["kernel", "soft"].map(|device| completion_log::read(&folder.join(device)).expect("a file"));
    // Completions without a name belong to threads that a test has started.
    for (test, ours) in soft.iter().filter(|(test, _)| !test.is_empty()) {
        // A test may run on one device only.
        let Some(theirs) = kernel.get(test) else { continue };
        compared += 1;
        completions += ours.values().sum::<usize>();
        let is_known = DIFFERENCES.iter().any(|(known, _)| *known == test);
        match (theirs == ours, is_known) {
            (true, false) | (false, true) => {}
            (true, true) => faults.push(format!("{test} is listed as a difference, but does not differ")),
            (false, false) => faults.push(format!("{test}:\n{}", difference(theirs, ours))),
        }
    }
    println!("{compared} tests, {completions} completions");
    assert!(compared > 40, "only {compared} tests were compared");
    assert!(faults.is_empty(), "the devices differ:\n{}", faults.join("\n"));
}

/// The completions that one of the devices had more often.
fn difference(kernel: &Completions, soft: &Completions) -> String {
    let more = |name: &str, these: &Completions, those: &Completions| {
        let lines = these.iter().filter_map(|(line, count)| {
            let more = count.saturating_sub(those.get(line).copied().unwrap_or(0));
            (more > 0).then(|| format!("  {name} {more} x {line}"))
        });
        lines.collect::<Vec<_>>()
    };
    [more("kernel", kernel, soft), more("soft  ", soft, kernel)].concat().join("\n")
}
