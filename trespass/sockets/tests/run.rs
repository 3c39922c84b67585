//! The command `trespass-run`.

use std::process::Command;

/// Settings that cannot be read are refused, because the library would print nothing.
#[test]
fn settings_that_are_no_numbers_are_refused() {
    for (name, value, is_right) in [
        ("TRESPASS_SOCKETS_PORTS", "80,x", false),
        ("TRESPASS_SOCKETS_PORTS", "9-8", false),
        ("TRESPASS_SOCKETS_PORTS", "", false),
        ("TRESPASS_SOCKETS_SHIFT", "65536", false),
        ("TRESPASS_SOCKETS_PORTS", "80,8000-8010", true),
        ("TRESPASS_SOCKETS_SHIFT", "65535", true),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_trespass-run")).arg("true").env(name, value).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        // The library may stand in another folder, which is the next check.
        assert_eq!(ran.status.code() != Some(2), is_right, "{value}: {text}");
        assert!(is_right || text.contains(name), "{text}");
    }
}
