//! The main tests on devices with the limits of a NIC.

use std::env;
use std::process::Command;

use sideway_tests::requirements::may_not_run;

/// The modules whose tests run in the child process. Together they take a few seconds.
const MODULES: [&str; 6] = ["connections::", "ends::", "event_loops::", "nonblocking::", "regions::", "tasks::"];

#[test]
fn main_tests_pass_with_the_limits_of_a_nic() {
    if env::var_os("SIDEWAY_TEST_DEVICE").is_some() {
        return may_not_run("the tests use a device that is not softrnic's");
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(MODULES).env(softrnic::PROFILE_VARIABLE, "connectx");
    let ran = command.output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}: {text}{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    for module in MODULES {
        assert!(text.contains(&format!("test {module}")), "{module} has no tests: {text}");
    }
}
