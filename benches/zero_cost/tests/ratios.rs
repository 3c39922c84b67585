//! No loop through sideway costs more instructions than it may beside C's, and none asks anything of the heap.

use std::io::Write;
use std::process::Command;

use sideway_zero_cost::c;

#[test]
fn no_loop_costs_more_than_it_may() {
    let did_not_run = |what: &str| {
        let required = std::env::var_os("SIDEWAY_REQUIRE_C_TESTS").is_some_and(|value| value == "1");
        assert!(!required || cfg!(debug_assertions), "SIDEWAY_REQUIRE_C_TESTS=1, but {what}");
        // Not `eprintln!`, which the test harness hides when a test passes.
        let _ = writeln!(std::io::stderr(), "DID NOT RUN: no_loop_costs_more_than_it_may: {what}");
    };
    if cfg!(debug_assertions) {
        return did_not_run("built without optimisation: cargo xtask test --ring cost");
    }
    for program in ["valgrind".into(), c::compiler()] {
        if !Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return did_not_run(&format!("there is no {}", program.display()));
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_zero_cost")).output().unwrap();
    let (table, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let _ = writeln!(std::io::stderr(), "{table}");
    assert!(output.status.success(), "{faults}");
    assert!(table.contains("sideway"), "{table}");
}
