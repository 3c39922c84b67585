//! The softroce ring: the device tests in a guest with the kernel's own rdma_rxe.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;

use super::Finished;
use super::binaries::{self, Binaries};
use super::summary::{Scanner, Tee};
use crate::packages::{self, Install};
use crate::softroce::{self, Guest, Outcome, Request, Sinks};

/// Runs each module in a process of its own: `$1` is the time limit of each, `$2` the program, then come the name of each module and
/// its tests. The completions that the tests take are logged; a module that has logged any is run again, on softrnic's device.
/// [`COMPARISON`] comes last.
const RUN_ALL: &str = r#"
limit=$1
program=$2
shift 2
result=0
export SIDEWAY_COMPARED=/tmp/completions
mkdir -p "$SIDEWAY_COMPARED/kernel" "$SIDEWAY_COMPARED/soft"
while [ $# -gt 0 ]; do
    export SIDEWAY_TEST_COMPLETIONS="$SIDEWAY_COMPARED/kernel/$1"
    echo
    echo "     Running $1 in the guest ($program)"
    timeout --kill-after=5 "$limit" "$program" --include-ignored --test-threads=1 --exact $2
    status=$?
    if [ $status -ne 0 ]; then
        echo "$1 ended with status $status"
        [ $status -ne 124 ] || echo "$1 took longer than $limit s"
        result=1
    fi
    case $1 in
        # Connections by address are the kernel's on a machine that has such a device, and so are programs that want one.
        cm_*|*programs*|*pingpong) rm -f "$SIDEWAY_TEST_COMPLETIONS" ;;
    esac
    if [ -s "$SIDEWAY_TEST_COMPLETIONS" ]; then
        export SIDEWAY_TEST_COMPLETIONS="$SIDEWAY_COMPARED/soft/$1"
        echo "     Running $1 in the guest, on soft0"
        if ! env -u SIDEWAY_TEST_DEVICE timeout --kill-after=5 "$limit" "$program" --test-threads=1 --exact $2; then
            echo "$1 failed on soft0"
            result=1
        fi
    fi
    shift 2
done
exit $result
"#;

/// The module that compares what the others have logged.
const COMPARISON: &str = "both_devices";

/// Boots one guest for all programs.
pub(crate) fn run(guest: &Guest, timeout: u64, root: &Path, built: &mut Option<Binaries>) -> Result<Finished> {
    let needs = [packages::SOFTROCE, packages::SOFTROCE_TESTS, packages::C_EXAMPLES];
    if let Err(error) = packages::require("the softroce ring", &needs, Install::InCiOrAsRoot) {
        return Ok(Finished::did_not_run(error.to_string()));
    }
    let ready = match softroce::ready(guest, Install::InCiOrAsRoot) {
        Ok(ready) => ready,
        Err(error) => return Ok(Finished::did_not_run(format!("{error:#}"))),
    };
    let binaries = binaries::build_once(root, built)?;
    // One module that hangs must not take the others' results with it.
    let limit = (timeout / 2).to_string();
    let mut words: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), RUN_ALL.into(), "sh".into(), limit.into()];
    words.push(binaries.program.clone().into());
    let (last, others): (Vec<_>, Vec<_>) = binaries.modules.iter().partition(|module| module.name == COMPARISON);
    for module in others.into_iter().chain(last) {
        words.extend([OsString::from(&module.name), module.tests.join(" ").into()]);
    }
    let mut request = Request::new(words)?;
    request.environment.extend(binaries.environment());
    request.folder = binaries.folder.clone();

    let scanner = Arc::new(Mutex::new(Scanner::default()));
    let sinks = Sinks {
        stdout: Box::new(Tee { sink: std::io::stdout(), scanner: Arc::clone(&scanner) }),
        stderr: Box::new(std::io::stderr()),
    };
    let fault = match ready.run(&request, sinks, Duration::from_secs(timeout)) {
        Ok(Outcome::Exited(0)) => None,
        Ok(Outcome::Exited(_)) => Some("test programs failed".to_owned()),
        Ok(Outcome::TimedOut) => Some(format!("gave up after {timeout} s")),
        Ok(outcome @ (Outcome::OutputClosed | Outcome::Interrupted(_))) => {
            std::process::exit(outcome.exit_status().into())
        }
        Err(error) => Some(format!("{error:#}")),
    };
    let results = std::mem::take(&mut *scanner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)).finish();
    Ok(binaries.verdict(results, fault))
}
