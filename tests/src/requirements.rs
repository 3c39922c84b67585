//! What a test requires of the machine beyond `cargo`, and the result if it is missing.
//!
//! A test that cannot run reports so on standard error and passes. With `SIDEWAY_REQUIRE_C_TESTS=1` it fails instead,
//! so that a machine that must run all of them cannot silently run none.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that turns "did not run" into a failure if it is `1`.
pub const REQUIRE_C_TESTS: &str = "SIDEWAY_REQUIRE_C_TESTS";

/// Reports that a test did not run because `what` is missing; call it and return.
///
/// # Panics
///
/// If [`REQUIRE_C_TESTS`] is `1`.
#[track_caller]
pub fn did_not_run(what: &str) {
    assert!(env::var_os(REQUIRE_C_TESTS).is_none_or(|value| value != "1"), "{REQUIRE_C_TESTS}=1, but {what}");
    may_not_run(&format!("{what} ({REQUIRE_C_TESTS}=1 makes this a failure)"));
}

/// Reports that an optional test did not run, because the machine does not permit it.
pub fn may_not_run(what: &str) {
    let alone = env::var(crate::process::ALONE).ok();
    let name = alone.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    // Not `eprintln!`, which the test harness hides when a test passes.
    let _ = writeln!(std::io::stderr(), "DID NOT RUN: {name}: {what}");
}

/// Whether this machine has IPv6 addresses. If not, reports that the part of the test that needs them did not run.
pub fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        may_not_run("this machine has no IPv6");
    }
    has
}

/// The C compiler of this machine: `$CC`, else `cc`. `None`, after [`did_not_run`], if it does not start.
///
/// # Panics
///
/// If there is no compiler and [`REQUIRE_C_TESTS`] is `1`.
#[track_caller]
pub fn c_compiler() -> Option<CCompiler> {
    let program = env::var_os("CC").filter(|value| !value.is_empty()).unwrap_or_else(|| "cc".into());
    match Command::new(&program).arg("--version").output() {
        Ok(output) if output.status.success() => Some(CCompiler { program }),
        _ => {
            did_not_run(&format!("there is no C compiler `{}`", program.display()));
            None
        }
    }
}

/// A working C compiler.
#[derive(Debug)]
pub struct CCompiler {
    program: OsString,
}

impl CCompiler {
    /// Whether a C file that includes `header`, e.g. `infiniband/verbs.h`, compiles; if not, reports it with
    /// [`did_not_run`].
    ///
    /// # Panics
    ///
    /// If the file does not compile and [`REQUIRE_C_TESTS`] is `1`.
    #[track_caller]
    pub fn has_header(&self, directory: &Path, header: &str) -> bool {
        let name = format!("has-{}", header.replace(['/', '.'], "-"));
        let found = self.shared_object(directory, &name, &format!("#include <{header}>\n"), &[]).is_ok();
        if !found {
            did_not_run(&format!("the C header {header} is not installed"));
        }
        found
    }

    /// Compiles the C text `source` into `directory/lib{name}.so` and returns its path. `directory` belongs to the
    /// caller: `env!("CARGO_TARGET_TMPDIR")` in an integration test. Each test uses its own `name`.
    ///
    /// # Errors
    ///
    /// The compiler's output, or why it did not start or a file could not be written.
    pub fn shared_object(
        &self,
        directory: &Path,
        name: &str,
        source: &str,
        arguments: &[&str],
    ) -> Result<PathBuf, String> {
        let c_file = directory.join(format!("{name}.c"));
        let object = directory.join(format!("lib{name}.so"));
        fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        fs::write(&c_file, source).map_err(|error| format!("{}: {error}", c_file.display()))?;
        let output = Command::new(&self.program)
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&object)
            .arg(&c_file)
            .args(arguments)
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        if output.status.success() { Ok(object) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// Compiles like [`shared_object`](Self::shared_object) and loads the result.
    ///
    /// # Panics
    ///
    /// If the text does not compile or the object does not load. A compiler exists, so the mistake is in the test.
    #[track_caller]
    pub fn load(&self, directory: &Path, name: &str, source: &str, arguments: &[&str]) -> libloading::Library {
        let object = self.shared_object(directory, name, source, arguments).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: loading runs only the compiler's own code, because the sources of these tests have no constructors.
        let library = unsafe { libloading::Library::new(&object) };
        library.unwrap_or_else(|error| panic!("{}: {error}", object.display()))
    }
}
