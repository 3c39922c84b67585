//! No error is silent. Programs that together use all of librdmacm's wrappers run once to count the C calls, and then
//! repeatedly: with each call failing in turn, with every destroy failing, and with each number from C replaced by one
//! that no header defines. Each run gives a typed error that names its verb, or succeeds in another way; every object
//! is destroyed exactly once, or is leaked with a log message if destroying fails; nothing panics. `verbs::everything`
//! does the same for libibverbs.

mod acts;

use std::collections::BTreeSet;
use std::error::Error;

use sideway_tests::called::called;
use sideway_tests::recording::{Call, Failure, Warnings};
use sideway_tests::shim::Shim;

use acts::{ACTS, Act, Unexpected};

/// A documented failure, one without errno, and one with an errno that no header defines.
const FAILURES: [Failure; 3] = [Failure::documented(libc::EIO), Failure::silent(), Failure::documented(i32::MAX)];

/// Failures that a program need not report, with the reason.
const OTHER_WAYS: [(&str, &str); 4] = [
    ("qp_to_qp_ex", "a queue pair with fewer operations is tried"),
    ("rdma_get_devices", "the identifier keeps its device open instead"),
    ("rdma_get_src_port", "0 is a port that no program has"),
    ("rdma_get_dst_port", "0 is a port that no program has"),
];

/// Functions that the library calls and the shim does not log, because they compute without a device.
const NOT_LOGGED: [&str; 2] = ["rdma_get_local_addr", "rdma_get_peer_addr"];

/// Runs a program without faults, and passes its log to `look`.
#[track_caller]
fn whole<T>(act: Act, look: impl FnOnce(&Shim) -> T) -> T {
    let shim = Shim::new();
    (act.run)(&shim).unwrap_or_else(|error| panic!("{}: {error}", act.name));
    assert_eq!(shim.violations(), [""; 0], "{}", act.name);
    assert_eq!(shim.live(), [], "{}", act.name);
    look(&shim)
}

/// Whether the call destroys an object: if it fails, the object can only be leaked.
fn ends(call: &Call) -> bool {
    let verb = call.verb.strip_prefix("rdma_").unwrap_or(call.verb);
    ["destroy", "dealloc", "dereg", "close", "free"].iter().any(|word| verb.starts_with(word))
}

#[test]
fn programs_cover_every_called_function_of_librdmacm() {
    let logged: BTreeSet<&str> = ACTS.iter().flat_map(|&act| whole(act, Shim::verbs)).collect();
    let called: BTreeSet<String> = called().into_iter().filter(|name| name.starts_with("rdma_")).collect();
    assert!(called.len() > 30, "{} functions are called", called.len());
    let left_out: Vec<_> = called.iter().filter(|name| !logged.contains(name.as_str())).collect();
    assert_eq!(left_out, NOT_LOGGED);
}

#[test]
fn each_call_may_fail_in_every_way() {
    let warnings = Warnings::listen();
    let mut failed_calls = 0;
    for act in ACTS {
        let calls = whole(act, Shim::failable);
        for failure in FAILURES {
            for index in 0..calls {
                let shim = Shim::new();
                shim.fail_any(index, failure);
                warnings.take();
                let result = (act.run)(&shim);
                let log = shim.calls();
                let injected = log.iter().find(|call| call.failed == Some(failure.errno()));
                let failed = injected.unwrap_or_else(|| panic!("{}, call {index}: {log:?}", act.name));
                let what = format!("{}, call {index}, {}: {failure:?}", act.name, failed.verb);
                let lines = logged(&warnings);
                let violations = shim.violations();
                failed_calls += 1;
                // A queue pair that stays in a group cannot be destroyed.
                let stays = failed.verb == "rdma_leave_multicast" && !shim.live().is_empty();
                if ends(failed) || stays {
                    assert!(lines.len() + usize::from(result.is_err()) >= 1, "silent: {what}");
                    assert!(!shim.live().is_empty(), "the object whose destruction failed no longer exists: {what}");
                    // An identifier that could not be destroyed still exists when its channel is destroyed.
                    assert!(violations.is_empty() || failed.verb == "rdma_destroy_id", "{what}: {violations:?}");
                    continue;
                }
                assert_eq!(violations, [""; 0], "{what}");
                assert_eq!(shim.live(), [], "left over: {what}");
                let has_other_way = OTHER_WAYS.iter().any(|(verb, _)| *verb == failed.verb);
                match result {
                    Ok(()) if lines.is_empty() => assert!(has_other_way, "silent: {what}"),
                    // Failures in drop are logged.
                    Ok(()) => assert!(lines.iter().any(|line| line.contains(failed.verb)), "{what}: {lines:?}"),
                    Err(error) => assert!(has_other_way || tells(&*error, failed.verb), "{what}: {error}"),
                }
            }
        }
    }
    assert!(failed_calls > 300, "{failed_calls} calls failed");
}

/// sideway's log messages; softrnic logs at a lower level.
fn logged(warnings: &Warnings) -> Vec<String> {
    warnings.take().into_iter().filter(|line| line.starts_with("WARN")).collect()
}

/// Whether an error names the failed verb, or comes from an event.
fn tells(error: &(dyn Error + 'static), verb: &str) -> bool {
    error.to_string().contains(verb) || error.is::<Unexpected>()
}

#[test]
fn object_that_cannot_be_destroyed_is_leaked_once_and_logged() {
    let warnings = Warnings::listen();
    for act in ACTS {
        let calls = whole(act, Shim::calls);
        let can_fail = |call: &&Call| {
            ends(call) && !["rdma_destroy_event_channel", "rdma_free_devices", "rdma_freeaddrinfo"].contains(&call.verb)
        };
        let endings: BTreeSet<&'static str> = calls.iter().filter(can_fail).map(|call| call.verb).collect();
        assert!(!endings.is_empty(), "{}", act.name);
        let shim = Shim::new();
        for &verb in &endings {
            shim.fail_always(verb, Failure::documented(libc::EBUSY));
        }
        warnings.take();
        let reported = usize::from((act.run)(&shim).is_err());
        let log = shim.calls();
        let refused: Vec<_> = log.iter().filter(|call| call.failed.is_some() && ends(call)).collect();
        let what = format!("{}: {refused:?}", act.name);
        assert!(!refused.is_empty(), "{what}");
        // No object is released twice, because C may have destroyed half of it.
        let objects: BTreeSet<_> = refused.iter().map(|call| &call.arguments).collect();
        assert_eq!(objects.len(), refused.len(), "{what}");
        let lines = logged(&warnings);
        assert_eq!(lines.len() + reported, refused.len(), "{what}: {lines:#?}");
        // A refused object still exists, with its parents.
        assert!(shim.live().len() >= refused.len(), "{what}: {:?}", shim.live());
        shim.violations();
    }
}

#[test]
fn each_output_may_be_invalid() {
    let warnings = Warnings::listen();
    let mut spoiled = BTreeSet::new();
    for act in ACTS {
        let outputs = whole(act, Shim::outputs);
        for (index, output) in (0..).zip(&outputs) {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let shim = Shim::new();
                shim.spoil(index, byte);
                let what = format!("{}, output {index}, {output}: {byte:#x}", act.name);
                let result = (act.run)(&shim);
                warnings.take();
                assert_eq!(shim.violations(), [""; 0], "{what}: {result:?}");
                assert_eq!(shim.live(), [], "left over: {what}: {result:?}");
            }
        }
        spoiled.extend(outputs);
    }
    assert!(spoiled.len() > 15, "{spoiled:?}");
}
