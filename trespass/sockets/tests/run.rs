//! The command `trespass-run`.

use std::fs;
use std::process::Command;

use sideway_test_names::Folder;

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

#[test]
fn installed_command_finds_its_library_below_the_prefix() {
    let prefix = Folder::new();
    let (program, library) = (prefix.join("bin/trespass-run"), prefix.join("libexec/trespass/libtrespass_sockets.so"));
    for file in [&program, &library] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_trespass-run"), &program).unwrap();
    // The loader reports an empty library and starts the program without it.
    fs::write(&library, "").unwrap();
    let ran = Command::new(&program).args(["sh", "-c", "echo $LD_PRELOAD"]).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), library.display().to_string());
}
