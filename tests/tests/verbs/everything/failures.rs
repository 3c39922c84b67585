//! Each call fails once, in every way that C functions can fail.

use sideway_tests::recording::{Failure, Recording, Warnings};

use super::{ACTS, ends, whole};

/// The failures: as documented, as in drivers that deviate from the documentation, without errno, and with an errno
/// that no header defines.
const FAILURES: [Failure; 6] = [
    Failure::documented(libc::EIO),
    Failure::negative(libc::EIO),
    Failure::minus_one(libc::EIO),
    Failure::silent(),
    Failure::documented(i32::MAX),
    Failure::negative(i32::MAX),
];

/// Failures that a program need not report: the programs, the calls, and the reason.
const OTHER_WAYS: &[(&[&str], &[&str], &str)] = &[
    (
        &["completions", "domains"],
        &["create_cq_ex"],
        "null without a reason may be an EOPNOTSUPP of before: fewer fields are tried",
    ),
    (&["receives"], &["query_device_ex"], "the number of entries of a tag is one if the device does not report it"),
];

fn has_other_way(act: &str, verb: &str) -> bool {
    OTHER_WAYS.iter().any(|(acts, verbs, _why)| acts.contains(&act) && verbs.contains(&verb))
}

#[test]
fn each_call_may_fail_in_every_way() {
    let warnings = Warnings::listen();
    let mut failed_calls = 0;
    for &act in ACTS {
        let calls = whole(act, Recording::failable);
        for failure in FAILURES {
            for index in 0..calls {
                let recording = Recording::new();
                recording.fail_any(index, failure);
                let result = (act.run)(&recording);
                let log = recording.calls();
                let injected = log.iter().position(|call| call.failed == Some(failure.errno()));
                let at = injected.unwrap_or_else(|| panic!("{}, call {index}: {log:?}", act.name));
                let failed = &log[at];
                let what = format!("{}, call {index}, {}: {failure:?}", act.name, failed.verb);
                let lines = warnings.take();
                failed_calls += 1;
                if ends(failed) {
                    let reported = usize::from(result.is_err());
                    let refused = log.iter().filter(|call| call.failed.is_some()).count();
                    assert!(lines.len() + reported >= 1, "silent: {what}");
                    assert!(lines.len() <= refused, "{what}: {lines:?}");
                    assert!(
                        !recording.live().is_empty(),
                        "the object whose destruction failed no longer exists: {what}"
                    );
                    assert_eq!(recording.violations(), [""; 0], "{what}");
                    continue;
                }
                assert_eq!(recording.violations(), [""; 0], "{what}");
                assert_eq!(recording.live(), [], "left over: {what}");
                match result {
                    // Failures in drop are logged.
                    Ok(()) if lines.is_empty() => assert!(has_other_way(act.name, failed.verb), "silent: {what}"),
                    Ok(()) => assert!(lines.iter().any(|line| line.contains(failed.verb)), "{what}: {lines:?}"),
                    // As in libibverbs for old programs.
                    Err(error) => {
                        let verb = failed.verb.strip_suffix("_basic").unwrap_or(failed.verb);
                        assert!(error.to_string().contains(verb), "{what}: {error}");
                    }
                }
            }
        }
    }
    assert!(failed_calls > 1000, "{failed_calls} calls failed");
}
