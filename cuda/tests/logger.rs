//! A logger that uses the crate itself, in a process whose driver is too old.
#![expect(clippy::unwrap_used, reason = "a helper of the test: a panic fails it")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};
use rdma_cuda::Driver;
use sideway_test_names::Folder;

/// A time limit that only a hung call reaches.
const LONG: Duration = Duration::from_secs(60);

static LINES: Mutex<Option<Sender<String>>> = Mutex::new(None);

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert!(Driver::of_process().is_none());
        if let Some(lines) = &*LINES.lock().unwrap_or_else(PoisonError::into_inner) {
            lines.send(record.args().to_string()).unwrap();
        }
    }

    fn flush(&self) {}
}

#[test]
fn logger_may_use_the_driver_whose_failure_it_reports() {
    let folder = Folder::new();
    let (source, library) = (folder.join("empty.c"), folder.join("libcuda.so.1"));
    std::fs::write(&source, "").unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&library).arg(&source);
    match command.status() {
        Ok(status) => assert!(status.success(), "{command:?}"),
        Err(error) => return eprintln!("left out: cc: {error}"),
    }
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a nul byte, and the library has no code.
    assert!(!unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) }.is_null());
    let (sender, lines) = channel();
    *LINES.lock().unwrap() = Some(sender);
    log::set_logger(&Logger).unwrap();
    log::set_max_level(LevelFilter::Debug);
    thread::spawn(|| assert!(Driver::of_process().is_none()));
    let line = lines.recv_timeout(LONG).expect("the logger, or the call that it makes, hangs");
    assert!(line.contains("libcuda.so.1 has no "), "{line}");
}
