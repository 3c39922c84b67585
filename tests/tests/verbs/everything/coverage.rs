//! The programs together call every function that the library calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sideway_tests::recording::{Recording, loose_calls};

use super::ACTS;

/// Functions that the library uses and the recording device does not write down.
const NOT_WRITTEN_DOWN: &[(&str, &[&str])] = &[
    (
        "they compute, and ask nobody",
        &[
            "ibv_event_type_str",
            "ibv_flow_label_to_udp_sport",
            "ibv_inc_rkey",
            "ibv_rate_to_mbps",
            "ibv_rate_to_mult",
            "ibv_wc_status_str",
            "mbps_to_ibv_rate",
            "mult_to_ibv_rate",
            "rdma_get_local_addr",
            "rdma_get_peer_addr",
        ],
    ),
    (
        "they are asked of a device that nobody has opened, and cannot fail",
        &["ibv_get_device_guid", "ibv_get_device_index"],
    ),
    (
        "they are asked of no device, and fail in tests of their own (memory::fork, memory::imports)",
        &["ibv_dofork_range", "ibv_dontfork_range", "ibv_fork_init", "ibv_import_device", "ibv_is_fork_initialized"],
    ),
];

/// Under which name the recording device writes a function down, where that is not its own.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("ibv_query_port", "query_port_basic"),
    ("ibv_query_port_since_v44", "query_port"),
    ("ibv_query_rt_values_ex", "query_rt_values"),
    ("ibv_reg_mr_iova", "reg_mr"),
    ("ibv_wc_read_invalidated_rkey", "read_imm_data"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The texts of the Rust files of a folder and those below it.
fn texts(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// The functions of C that the bindings have.
fn functions() -> BTreeSet<String> {
    let source = repository().join("rdma-mummy-sys/src");
    let mut all = ["bindings/prototypes.rs", "load/ibverbs.rs", "load/rdmacm/mod.rs"]
        .map(|file| fs::read_to_string(source.join(file)).unwrap())
        .to_vec();
    all.extend(["inline", "since_v44"].iter().flat_map(|folder| texts(&source.join(folder))));
    let declared = all.iter().flat_map(|text| text.split("fn ").skip(1)).map(|rest| word(rest).to_owned());
    let is_of_c =
        |name: &String| name.starts_with("ibv_") || name.contains("_to_ibv_rate") || name.starts_with("rdma_");
    declared.filter(is_of_c).collect()
}

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The functions of C that the library calls: what is behind `sys::` or `ffi::`, with an argument list.
fn called() -> BTreeSet<String> {
    let functions = functions();
    assert!(functions.len() > 230, "{} functions", functions.len());
    let mut called = BTreeSet::new();
    for text in texts(&repository().join("sideway/src/ibverbs"))
        .into_iter()
        .chain(texts(&repository().join("sideway/src/rdmacm")))
    {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let line = line.split(" // ").next().unwrap_or_default();
            let outside = line.split('"').step_by(2);
            let words = outside.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
            called.extend(words.filter(|word| functions.contains(*word)).map(str::to_owned));
        }
    }
    called
}

#[test]
fn the_programs_call_everything_that_the_library_calls() {
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
    let called = called();
    assert!(called.len() > 200, "{} functions are called", called.len());
    let left_out: BTreeSet<String> = called.iter().filter(|function| !is_written(function)).cloned().collect();
    assert_eq!(left_out, excused, "left: what no program calls; right: what is excused");
}
