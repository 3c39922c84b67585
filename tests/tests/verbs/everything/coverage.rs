//! The programs together call every function that the library calls.

use std::collections::BTreeSet;

use sideway_tests::called::called;
use sideway_tests::recording::{Recording, loose_calls};

use super::ACTS;

/// Functions that the library calls and the recording device does not log.
const NOT_WRITTEN_DOWN: &[(&str, &[&str])] = &[
    (
        "they compute, and make no call",
        &[
            "ibv_event_type_str",
            "ibv_flow_label_to_udp_sport",
            "ibv_inc_rkey",
            "ibv_rate_to_mbps",
            "ibv_rate_to_mult",
            "ibv_wc_status_str",
            "mbps_to_ibv_rate",
            "mult_to_ibv_rate",
        ],
    ),
    ("they are called on a device that is not open, and cannot fail", &["ibv_get_device_guid", "ibv_get_device_index"]),
    (
        "they involve no device, and fail in their own tests (memory::fork, memory::imports)",
        &["ibv_dofork_range", "ibv_dontfork_range", "ibv_fork_init", "ibv_import_device", "ibv_is_fork_initialized"],
    ),
];

/// The recording device's name for a function, if it differs from the function's name.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("ibv_query_port", "query_port_basic"),
    ("ibv_query_port_since_v44", "query_port"),
    ("ibv_query_rt_values_ex", "query_rt_values"),
    ("ibv_reg_mr_iova", "reg_mr"),
    ("ibv_wc_read_invalidated_rkey", "read_imm_data"),
];

#[test]
fn programs_cover_every_called_function() {
    let mut written = BTreeSet::new();
    for act in ACTS {
        let recording = Recording::new();
        (act.run)(&recording).unwrap();
        written.extend(recording.verbs());
    }
    assert_eq!(loose_calls(), []);
    let is_written = |function: &str| {
        let own = function.strip_prefix("ibv_").unwrap_or(function);
        let reader = own.strip_prefix("wc_").unwrap_or(own);
        let other = OTHER_NAMES.iter().find(|(name, _)| *name == function).map_or(own, |(_, other)| other);
        [own, reader, other].iter().any(|name| written.contains(name))
    };
    let excused: BTreeSet<String> =
        NOT_WRITTEN_DOWN.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect();
    // Other programs call the functions of connections: `cm::everything`.
    let called: BTreeSet<String> = called().into_iter().filter(|name| !name.starts_with("rdma_")).collect();
    assert!(called.len() > 150, "{} functions are called", called.len());
    let left_out: BTreeSet<String> = called.iter().filter(|function| !is_written(function)).cloned().collect();
    assert_eq!(left_out, excused, "left: what no program calls; right: what is excused");
}
