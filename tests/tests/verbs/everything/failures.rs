//! Each call fails once, in every way that C has.

use std::error::Error;

use sideway_tests::recording::{Failure, Recording, Warnings};

use super::acts::Unexpected;
use super::{ACTS, ends, whole};

/// The ways: as documented, as drivers do it that do not read documentation, without a reason, and for a reason that no
/// header knows.
const FAILURES: [Failure; 6] = [
    Failure::documented(libc::EIO),
    Failure::negative(libc::EIO),
    Failure::minus_one(libc::EIO),
    Failure::silent(),
    Failure::documented(i32::MAX),
    Failure::negative(i32::MAX),
];

/// What a program need not hear of: which programs, which calls, and why.
const OTHER_WAYS: &[(&[&str], &[&str], &str)] = &[
    (
        &["completions", "domains"],
        &["create_cq_ex"],
        "null without a reason may be an EOPNOTSUPP of before: fewer fields are tried",
    ),
    (&["receives"], &["query_device_ex"], "how many entries a tag may have: one, where the device does not say"),
    (&["connections", "datagrams"], &["query_ece", "set_ece"], "calls of librdmacm's own, which does without"),
    (&["connections", "datagrams"], &["rdma_get_devices"], "the identifier keeps its device open instead"),
    (&["connections", "addresses"], &["rdma_get_src_port", "rdma_get_dst_port"], "0 is a port that nobody has"),
    (&["addresses"], &["query_port"], "the link layer is asked for to explain a refusal before it comes"),
];

/// The programs whose verbs librdmacm calls.
const OF_CONNECTIONS: &[&str] = &["connections", "datagrams", "addresses"];

/// Whether an error says what failed: the verb, or that of librdmacm's which called it, or what an event told.
fn tells(error: &(dyn Error + 'static), act: &str, verb: &str) -> bool {
    let text = error.to_string();
    // As libibverbs has it for programs of old.
    let verb = verb.strip_suffix("_basic").unwrap_or(verb);
    text.contains(verb) || (OF_CONNECTIONS.contains(&act) && text.contains("rdma_")) || error.is::<Unexpected>()
}

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
                // A queue pair that librdmacm leaves in its group cannot be destroyed.
                let stays = failed.verb == "detach_mcast" && !recording.live().is_empty();
                if ends(failed) || stays {
                    let reported = usize::from(result.is_err());
                    let refused = log.iter().filter(|call| call.failed.is_some()).count();
                    // librdmacm ends its own domain with the last identifier, and tells nobody.
                    let is_manager = failed.verb == "dealloc_pd" && log[at - 1].verb.starts_with("rdma_");
                    assert!(lines.len() + reported >= 1 || is_manager, "silent: {what}");
                    assert!(lines.len() <= refused, "{what}: {lines:?}");
                    assert!(!recording.live().is_empty(), "it failed, and is gone: {what}");
                    // An identifier that could not be destroyed is there when its channel goes.
                    let excused = recording.violations();
                    assert!(excused.is_empty() || failed.verb == "rdma_destroy_id", "{what}: {excused:?}");
                    continue;
                }
                assert_eq!(recording.violations(), [""; 0], "{what}");
                assert_eq!(recording.live(), [], "left over: {what}");
                match result {
                    // What is given back by dropping is logged.
                    Ok(()) if lines.is_empty() => assert!(has_other_way(act.name, failed.verb), "silent: {what}"),
                    Ok(()) => assert!(lines.iter().any(|line| line.contains(failed.verb)), "{what}: {lines:?}"),
                    Err(error) => assert!(tells(&*error, act.name, failed.verb), "{what}: {error}"),
                }
            }
        }
    }
    assert!(failed_calls > 1000, "{failed_calls} calls failed");
}
