//! A child process that is forked while another thread loads the driver.
#![expect(clippy::unwrap_used, reason = "a helper of the test: a panic fails it")]

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use rdma_cuda::Driver;
use sideway_test_names::Folder;

/// If set, the test is in a process of its own. The value is the descriptor to which the library writes.
const DESCRIPTOR: &str = "RDMA_CUDA_TEST_FORK";
/// How long the process may run, in seconds.
const LONG: u32 = 60;
/// A library that takes its time, and has no function.
const LIBRARY: &str = r#"
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void)
{
    if (write(atoi(getenv("RDMA_CUDA_TEST_FORK")), "", 1) == 1)
        usleep(200000);
}
"#;

#[test]
fn child_that_is_forked_while_the_driver_loads_can_ask_for_it() {
    if env::var_os(DESCRIPTOR).is_some() {
        return fork_while_loading();
    }
    let folder = Folder::new_in(env::current_exe().unwrap().parent().unwrap());
    let source = folder.join("libcuda.c");
    fs::write(&source, LIBRARY).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libcuda.so.1")).arg(&source);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{compiler:?}"),
        Err(error) => return eprintln!("left out: cc: {error}"),
    }
    let (reader, writer) = io::pipe().unwrap();
    // SAFETY: the descriptors are open, and the flags have no other effect than that the new process inherits them.
    unsafe {
        libc::fcntl(reader.as_raw_fd(), libc::F_SETFD, 0);
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, 0);
    }
    let mut test = Command::new(env::current_exe().unwrap());
    test.args(["child_that_is_forked_while_the_driver_loads_can_ask_for_it", "--exact", "--nocapture"]);
    test.env(DESCRIPTOR, writer.as_raw_fd().to_string()).env("LD_LIBRARY_PATH", folder.join(""));
    let ran = test.stdin(reader).output().unwrap();
    let text = [ran.stdout, ran.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(ran.status.success() && text.contains("1 passed"), "{}: {text}", ran.status);
}

fn fork_while_loading() {
    // SAFETY: the signal of the alarm ends the process.
    unsafe { libc::alarm(LONG) };
    let loading = thread::spawn(|| Driver::get().map(drop));
    File::open("/dev/stdin").unwrap().read_exact(&mut [0]).unwrap();
    // SAFETY: the child only loads the library, which takes no lock of this process but those that are free in a child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. An alarm is not inherited.
        unsafe { libc::alarm(LONG / 2) };
        let is_well = Driver::get().is_err();
        // SAFETY: ends the child without its parent's handlers.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended with this status");
    loading.join().unwrap().unwrap_err();
}
