//! Every inline of the headers, compiled by the C compiler and ported, called with the same arguments on the same
//! objects: the result, `errno`, the operations and library functions that it calls with their arguments, and every
//! byte of the objects afterwards.
#![expect(clippy::unwrap_used, reason = "a test")]

mod bench;
mod control;
mod data_path;
mod mlx5;
mod record;
mod short_verbs;
mod word;
mod world;

use std::io::Write;

use bench::Bench;
use sideway_tests::headers;

/// The functions that the headers define and the port leaves out, with the reason.
const LEFT_OUT: &[(&str, &str)] =
    &[("__ibv_get_device_list", "static linking only: it names the providers to the linker")];

const HEADERS: &[&str] = &[
    "infiniband/verbs.h",
    "infiniband/ib.h",
    "infiniband/mlx5dv.h",
    "infiniband/efadv.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
];

/// One test, because its end counts what the parts have compared.
#[test]
fn ported_inlines_match_the_c_inlines() {
    let Some(mut bench) = Bench::open() else { return };
    data_path::compare(&mut bench);
    control::compare(&mut bench);
    short_verbs::compare(&mut bench);
    mlx5::compare(&mut bench);

    let mut forgotten = Vec::new();
    let mut defined = 0;
    for header in HEADERS {
        let names = headers::inlines(header).unwrap();
        assert!(!names.is_empty(), "{header} defines nothing: is it read right?");
        defined += names.len();
        forgotten.extend(names.into_iter().filter(|name| {
            !bench.compared().contains_key(name.as_str()) && !LEFT_OUT.iter().any(|(left_out, _)| name == left_out)
        }));
    }
    // On other platforms, C has no such function to compare with.
    if cfg!(not(target_arch = "x86_64")) {
        forgotten.retain(|name| !name.contains("_x86_"));
    }
    assert!(forgotten.is_empty(), "inlines that no test compares: {forgotten:?}");

    let runs: usize = bench.compared().values().sum();
    let functions = bench.compared().len();
    let _ = writeln!(
        std::io::stderr(),
        "{functions} functions did as in C in {runs} situations; the headers define {defined}, {} left out",
        LEFT_OUT.len()
    );
}
