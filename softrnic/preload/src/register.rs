//! Registers softrnic once, installs the lens if there is one, and marks the threads that are in its functions.

use std::cell::Cell;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rdma_lens::Devices;
use rdma_lens::environment::{self, Environment};
use rdma_mummy_exports::rdma_mummy_sys::load::front;
use softrnic::control::Command;

/// This is a flag instead of a `Once`. If the process forked while another thread ran a `Once`, the child would block
/// in it forever.
static REGISTERED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in a function of this library.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A thread is in a function of this library, which may call the system's library. Its own calls of the C library then
/// reach the C library itself: `files` and `dlopen` serve only the program.
pub(crate) struct Inside {
    before: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Marks that a jump takes the thread out of all functions of this library, without dropping [`Inside`].
pub(crate) fn leave() {
    front::leave();
    INSIDE.set(false);
}

pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Registers softrnic on the first call. Registration starts no thread and opens no file, so a process that forks,
/// closes all its descriptors or never calls a verb is not affected.
#[inline]
pub(crate) fn ready() -> Inside {
    let inside = Inside { before: INSIDE.replace(true) };
    if !REGISTERED.load(Ordering::Acquire) {
        register();
    }
    inside
}

#[cold]
fn register() {
    // If several threads call this function at the same time, they wait in `register` for the first one. Only one of
    // them prints the error.
    // The program has no logger for softrnic, and prints the error number of a verb at most.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let wants_devices = env::var_os(RUN).is_some() || !environment::is_set();
    let registered = if wants_devices {
        softrnic::serve_files();
        softrnic::register()
    } else {
        Ok(())
    };
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        if let Err(error) = registered {
            print_error(&format!("softrnic: cannot add soft devices: {error}"));
        }
        install_lens(wants_devices);
    }
}

/// Prints warnings and errors of softrnic.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        print_error(&format!("softrnic: {}", record.args()));
    }

    fn flush(&self) {}
}

/// `softrnic-run` sets this variable. Without it, a program under `lens run` has only the devices of the system.
const RUN: &str = "SOFTRNIC_RUN";

static LENS: Mutex<Option<Environment>> = Mutex::new(None);

/// Runs when the library is loaded, before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = {
    extern "C" fn loaded() {
        environment::keep_standard_error();
    }
    loaded
};

/// Installs the lens that the environment describes, until the process exits.
fn install_lens(wants_devices: bool) {
    extern "C" fn at_exit() {
        // A child of fork(2) has no lens: the lock may be held in it forever.
        let ended = LENS.try_lock().ok().and_then(|mut lens| lens.take()).map_or(Ok(()), Environment::finish);
        if let Err(error) = ended {
            print_error(&format!("lens: {error}"));
        }
    }
    match Environment::install(wants_devices.then_some(SoftDevices)) {
        Ok(None) => {}
        Ok(lens) => {
            for warning in lens.as_ref().map_or(&[][..], Environment::warnings) {
                print_error(&format!("lens: {warning}"));
            }
            *LENS.lock().unwrap_or_else(PoisonError::into_inner) = lens;
            // SAFETY: the handler stays valid, because the library is never unloaded.
            unsafe { libc::atexit(at_exit) };
        }
        Err(error) => {
            print_error(&format!("lens: {error}"));
            if environment::has_faults() {
                // The program would run as if there were no faults.
                // SAFETY: the function ends the process; buffers of the program are lost.
                unsafe { libc::_exit(CANNOT_RUN) };
            }
        }
    }
}

/// The exit status that shells use for a command that cannot be run.
const CANNOT_RUN: libc::c_int = 126;

/// softrnic's devices, for commands of a schedule.
struct SoftDevices;

impl Devices for SoftDevices {
    fn check(&self, command: &str) -> Result<(), String> {
        command.parse::<Command>().map(|_| ()).map_err(|error| error.to_string())
    }

    fn run(&self, command: &str) -> Result<(), String> {
        let command = command.parse::<Command>().map_err(|error| error.to_string())?;
        command.run().map(drop).map_err(|error| error.to_string())
    }
}

/// The error is printed here, because the program does not use the API of softrnic and cannot report the error itself. An
/// error of the print does not matter to the program, so nothing of it may reach the program, and SIGPIPE neither.
fn print_error(text: &str) {
    let line = format!("{text}\n");
    // SAFETY: the sets have space for signals, and the first call fills the first one.
    unsafe {
        let mut pipe = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        if environment::write_error(&line).is_err() {
            // Takes the signal, if the write has raised it.
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
