//! The loops in C, compiled on demand: `cargo build` requires no C compiler.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libloading::Library;
use rdma_mummy_sys::{ibv_cq, ibv_qp, ibv_qp_ex, ibv_qp_to_qp_ex};
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::queue_pair::QueuePair;

use crate::objects;
use crate::work::{Interface, Task, Values};

const HEADER: (&str, &str) = ("loops.h", include_str!("../c/loops.h"));
const SOURCES: [(&str, &str); 3] = [
    ("posting.c", include_str!("../c/posting.c")),
    ("refilling.c", include_str!("../c/refilling.c")),
    ("reading.c", include_str!("../c/reading.c")),
];

/// Has the layout of `struct work` in loops.h.
#[repr(C)]
struct Work {
    qp: *mut ibv_qp,
    qp_ex: *mut ibv_qp_ex,
    cq: *mut ibv_cq,
    data: *const u8,
    addr: u64,
    remote_addr: u64,
    length: u32,
    lkey: u32,
    rkey: u32,
}

type Loop = unsafe extern "C" fn(*const Work, u64) -> u64;

/// How a program in C prepares its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Each request is initialised where it is posted, as in rdma-core's examples and manual pages.
    Fresh,
    /// Lists are linked before the loop, which writes only the fields that differ between requests.
    Kept,
}

impl Style {
    fn object(self) -> &'static str {
        match self {
            Self::Fresh => "libloops.so",
            Self::Kept => "libloops_kept.so",
        }
    }

    fn define(self) -> &'static str {
        match self {
            Self::Fresh => "-DFRESH",
            Self::Kept => "-DKEPT",
        }
    }
}

/// The compiler: `$CC`, or `cc`.
pub fn compiler() -> OsString {
    env::var_os("CC").filter(|value| !value.is_empty()).unwrap_or_else(|| OsString::from("cc"))
}

/// Compiles the loops into `folder`, in both styles, with the [`compiler`] and `-O2`.
///
/// # Errors
///
/// The compiler or the headers are not installed.
pub fn compile(folder: &Path) -> Result<()> {
    let compiler = compiler();
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in SOURCES.into_iter().chain([HEADER]) {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let sources = SOURCES.map(|(name, _)| folder.join(name));
    for style in [Style::Fresh, Style::Kept] {
        let output = Command::new(&compiler)
            .args(["-O2", "-fPIC", "-shared", style.define(), "-o"])
            .arg(folder.join(style.object()))
            .args(&sources)
            .output()
            .with_context(|| format!("cannot run {}; install gcc", compiler.display()))?;
        ensure!(
            output.status.success(),
            "{} (the package libibverbs-dev has the headers):\n{}",
            compiler.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Runs a loop of the compiled object; returns the sum of the fields of its completions.
///
/// # Errors
///
/// The object does not exist, or the loop failed.
pub fn run(folder: &Path, style: Style, interface: Interface, task: Task, rounds: u64) -> Result<u64> {
    let object = folder.join(style.object());
    // SAFETY: `compile` created the object, which runs no code when it is loaded.
    let library = unsafe { Library::new(&object) }.with_context(|| format!("cannot load {}", object.display()))?;
    let task_name = match task {
        Task::Post1 => "post_1",
        Task::Post32 => "post_32",
        Task::Steps1 => "steps_1",
        Task::Steps32 => "steps_32",
        Task::Prepared1 => "prepared_1",
        Task::Prepared32 => "prepared_32",
        Task::Moved32 => "moved_32",
        // The C loop does not copy data that the driver copies.
        Task::Inline | Task::InlineCopy => "inline",
        Task::Refill => "refill",
        Task::Standard => "standard",
        Task::Fields => "fields",
        Task::Empty => "empty",
    };
    let name = match interface {
        Interface::Extended => format!("extended_{task_name}"),
        Interface::Basic => format!("basic_{task_name}"),
    };
    // SAFETY: each function of these names has this type.
    let run = unsafe { library.get::<Loop>(name.as_bytes())? };
    let sum = match interface {
        Interface::Extended => {
            let (qp, cq) = objects::extended(task)?;
            // SAFETY: the QP and the CQ live until the loop ends, and nothing else uses them meanwhile.
            unsafe {
                let raw = qp.qp().as_ptr();
                run(&work(raw, ibv_qp_to_qp_ex(raw), cq.cq().as_ptr()), rounds)
            }
        }
        Interface::Basic => {
            let (qp, cq) = objects::basic(task)?;
            // SAFETY: as above.
            unsafe { run(&work(qp.qp().as_ptr(), std::ptr::null_mut(), cq.cq().as_ptr()), rounds) }
        }
    };
    ensure!(sum != u64::MAX, "{name} failed");
    Ok(sum)
}

fn work(qp: *mut ibv_qp, qp_ex: *mut ibv_qp_ex, cq: *mut ibv_cq) -> Work {
    let values = Values::new();
    let Values { addr, remote_addr, length, lkey, rkey } = values;
    Work { qp, qp_ex, cq, data: values.data().as_ptr(), addr, remote_addr, length, lkey, rkey }
}
