//! Tests the examples in C and C++, which are compiled against the header and linked to the static library.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a helper of tests: a panic fails the test, and its output is for the developer"
)]

use std::collections::BTreeSet;
use std::env;
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sideway_test_names::{Folder, Turn};

/// Compiles a program into a folder, from a file of this package. If there is no compiler, prints a line and returns
/// `None`.
fn compile(compiler: &str, source: &str, flags: &[&str], to: &Folder) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo puts the static library beside the programs of the tests.
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let program = to.join(Path::new(source).file_name().unwrap()).with_extension("example");
    let mut command = Command::new(compiler);
    command.args(["-g", "-Wall", "-Wextra", "-Werror", "-I"]).arg(sources.join("include")).args(flags);
    command.arg(sources.join(source)).arg(folder.join("libtrespass_c.a"));
    command.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    match command.status() {
        Ok(status) => assert!(status.success(), "{command:?}"),
        Err(error) => {
            eprintln!("left out: {compiler}: {error}");
            return None;
        }
    }
    Some(program)
}

/// Returns the flags for AddressSanitizer and UndefinedBehaviorSanitizer. If the compiler lacks them, prints a line and
/// returns no flags.
fn sanitizers(folder: &Folder) -> &'static [&'static str] {
    const FLAGS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let (source, program) = (folder.join("empty.c"), folder.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let compiled = Command::new("cc").args(FLAGS).arg(&source).arg("-o").arg(&program).output();
    let runs = compiled.is_ok_and(|output| output.status.success())
        && Command::new(&program).status().is_ok_and(|status| status.success());
    if !runs {
        eprintln!("without AddressSanitizer: cc has no library for it");
        return &[];
    }
    FLAGS
}

/// Returns a folder for programs. It is beside the tests, because programs in the directory for temporary files may not
/// be executable.
fn folder() -> Folder {
    Folder::new_in(env::current_exe().unwrap().parent().unwrap())
}

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn library_is_not_unloaded() {
    // Cargo puts the shared library beside the programs of the tests.
    let library = env::current_exe().unwrap().with_file_name("libtrespass_c.so");
    let name = CString::new(library.into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the name ends with a zero byte, and the library has no functions that run when it is loaded. No pointer
    // into it is used.
    unsafe {
        let first = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!first.is_null());
        assert_eq!(libc::dlclose(first), 0);
        assert!(!libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null());
    }
}

#[test]
fn c_programs_of_two_processes_echo_over_softrnic() {
    let folder = folder();
    let Some(echo) = compile("cc", "examples/echo.c", &[], &folder) else { return };
    // The example has no option for its port.
    let _turn = Turn::wait_for("echo.c").unwrap();
    let server = Command::new(&echo).arg("--soft").stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Ended(server);
    // Retries, because connecting is refused until the server listens.
    let answered = (0..2000).find_map(|_| {
        let output = Command::new(&echo).args(["--soft", "127.0.0.1"]).output().unwrap();
        if !output.status.success() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    let text = answered.expect("an answer");
    assert!(text.starts_with("hello, over "), "{text}");
    let mut first = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("connected over "), "{first}");
}

#[test]
fn a_cpp_program_polls_several_connections() {
    let folder = folder();
    let Some(fan) = compile("c++", "examples/fan.cpp", &[], &folder) else { return };
    let output = Command::new(&fan).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 3, "{text}");
}

/// Runs the program that uses the functions wrongly, with these arguments, over TCP and softrnic.
fn misuse(flags: &[&str], arguments: &[&str]) {
    let folder = folder();
    let Some(misuse) = compile("cc", "tests/misuse.c", flags, &folder) else { return };
    for device in [None, Some("--soft")] {
        let mut command = Command::new(&misuse);
        // Objects that are open at the end of the program are no leaks.
        let output = command.args(device).args(arguments).env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
        assert_eq!(output.stdout, b"every call returned\n");
    }
}

#[test]
fn misuse_returns_errors_and_neither_crashes_nor_hangs() {
    misuse(sanitizers(&folder()), &[]);
}

#[test]
fn handles_of_the_parent_are_invalid_in_a_child() {
    // The allocator of AddressSanitizer does not work in a child if another thread of its parent was using it.
    misuse(&[], &["fork"]);
}

/// Returns the names of the functions that are declared in the lines for which `is_one` returns true.
fn functions<'t>(texts: impl IntoIterator<Item = &'t String>, is_one: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let lines = texts.into_iter().flat_map(|text| text.lines()).filter(|line| is_one(line));
    let names = lines.filter_map(|line| {
        let from = &line[line.find("tr_")?..];
        Some(from[..from.find('(')?].to_owned())
    });
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).collect()
}

#[test]
fn header_declares_the_exported_functions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sources = ["src/connection.rs", "src/error.rs", "src/handle.rs", "src/poll.rs", "src/lib.rs"].map(read);
    let exported = functions(&sources, |line| line.contains("extern \"C\" fn "));
    // A declaration is a line that begins with the return type.
    let declared = functions([&read("include/trespass.h")], |line| {
        line.ends_with([';', ',']) && line.starts_with(|first: char| first.is_ascii_alphabetic())
    });
    assert!(exported.len() > 10, "{exported:?}");
    assert_eq!(declared, exported);
}
