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

/// Each failure names its cause and what to do.
#[test]
fn errors_name_the_cause_and_the_remedy() {
    let prefix = Folder::new();
    let place = |folder: &str| {
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("trespass-run");
        // A process that another test starts could hold a file open that this one writes.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_trespass-run")).arg(&program).status().unwrap();
        assert!(copied.success());
        program
    };
    let (whole, spaced, alone) = (place("whole"), place("with space"), place("alone"));
    for program in [&whole, &spaced] {
        fs::write(program.with_file_name("libtrespass_sockets.so"), "").unwrap();
    }
    for (program, words, code, cause, remedy) in [
        (&whole, &[][..], 2, "no command given", "see `trespass-run --help`"),
        (&whole, &["-x", "true"], 2, "unknown option -x", "see `trespass-run --help`"),
        (&whole, &["no-such-program"], 127, "cannot run no-such-program", "install it, or give its path"),
        (&whole, &["/etc/passwd"], 126, "cannot run /etc/passwd", "give the path of an executable file"),
        (&alone, &["true"], 126, "no such file", "build it with `cargo build"),
        (&spaced, &["true"], 126, "splits paths at spaces", "move both files"),
    ] {
        let ran = Command::new(program).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{text}");
        assert!(text.contains(cause) && text.contains(remedy), "{text}");
    }
}
