//! Helpers for child processes of tests.

use std::env;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Runs `child` in a forked process, and returns its exit status. A panic of `child` is a failure.
pub(crate) fn forked(child: impl FnOnce()) -> i32 {
    // SAFETY: the child runs only the code under test, and ends without the exit handlers of its parent. An alarm ends
    // a child that hangs.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(60);
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                libc::_exit(i32::from(ended.is_err()));
            }
            child => {
                assert!(child > 0);
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    }
}

/// Runs the test with this name in a process of its own. Only one such test runs at a time. In that process, this
/// function returns `true`.
///
/// # Panics
///
/// Panics if the test fails in its process, or if no test has this name.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "SOFTRNIC_TEST_ALONE";
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    // Some of these tests count resources or measure the times of their peers, which another test would disturb.
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", test, "--nocapture"]).env(ALONE, test).stderr(Stdio::inherit());
    let output = command.output().expect("the program starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{test}: {}\n{stdout}", output.status);
    // The test harness also succeeds if no test has this name.
    assert!(stdout.contains(". 1 passed"), "{test} did not run:\n{stdout}");
    false
}

#[test]
#[should_panic(expected = "child::no_such_test did not run")]
fn is_alone_panics_if_no_test_has_the_name() {
    is_alone("child::no_such_test");
}
