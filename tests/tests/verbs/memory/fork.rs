use sideway::ibverbs::fork::{ForkStatus, dofork_range, dontfork_range, fork_init, is_fork_initialized};
use sideway_tests::recording::{Recording, answer, loose_calls};

#[test]
fn library_calls_and_results_are_translated() {
    // A device is open, so fork_init is refused.
    let _context = Recording::new().open();
    let error = fork_init().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_fork_init", libc::EINVAL));
    assert!(error.to_string().contains("a device is already open"), "{error}");
    let mut memory = [0_u8; 64];
    let at = memory.as_mut_ptr();
    // SAFETY: nothing forks, and the recording device does nothing.
    unsafe {
        dontfork_range(at, 64).unwrap();
        dofork_range(at, 64).unwrap();
    }
    let calls = loose_calls();
    let at = at.addr();
    let expected = [("is_fork_initialized", 0, 0), ("dontfork_range", at, 64), ("dofork_range", at, 64)];
    assert_eq!(calls, expected);

    for (value, status, text) in [
        (1, ForkStatus::Enabled, "enabled"),
        (2, ForkStatus::Unneeded, "unneeded"),
        (77, ForkStatus::from_raw(77), "77"),
    ] {
        answer("is_fork_initialized", value);
        assert_eq!(is_fork_initialized(), status);
        assert!(status.to_string().contains(text));
        // The call has nothing to do.
        fork_init().unwrap();
    }
    assert!(loose_calls().iter().all(|(verb, ..)| *verb == "is_fork_initialized"));
    for verb in ["dontfork_range", "dofork_range"] {
        answer(verb, libc::EINVAL);
    }
    // SAFETY: as above.
    let errors = unsafe { [dontfork_range(memory.as_mut_ptr(), 64), dofork_range(memory.as_mut_ptr(), 64)] };
    assert_eq!(errors.map(|error| error.unwrap_err().verb()), ["ibv_dontfork_range", "ibv_dofork_range"]);
}
