//! `fork_init` before the first device of a process.

use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::fork::fork_init;
use sideway_tests::process::alone;
use sideway_tests::recording::{Recording, answer, loose_calls};

#[test]
fn fork_init_is_called_before_a_device_is_opened_and_refused_after() {
    if !alone("fork_init::fork_init_is_called_before_a_device_is_opened_and_refused_after", &[]) {
        return;
    }
    let recording = Recording::new();
    // Reading names does not use a device.
    assert!(DeviceList::new().unwrap().find(&recording.name()).is_ok());
    fork_init().unwrap();
    answer("fork_init", libc::EINVAL);
    let error = fork_init().unwrap_err();
    assert!(error.to_string().contains("registered already"), "{error}");
    let calls = loose_calls();
    assert_eq!(calls.iter().filter(|(verb, ..)| *verb == "fork_init").count(), 2);
    let context = recording.open();
    let error = fork_init().unwrap_err();
    assert!(error.to_string().contains("a device is already open"), "{error}");
    assert!(loose_calls().iter().all(|(verb, ..)| *verb != "fork_init"));
    drop(context);
}
