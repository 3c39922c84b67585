//! Runs a job under a schedule, and checks what holds under each: no panic, no hang, nothing left.

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdma_lens::{Lens, Summary};
use sideway_tests::usage::Usage;

/// A job takes less under each schedule, or it hangs.
const LIMIT: Duration = Duration::from_secs(45);
/// How long the threads of a job may take to release its objects.
const RELEASE: Duration = Duration::from_secs(5);

/// How a job ended: an error is one that a program would print.
pub(crate) type Ended = Result<(), String>;

/// The turn of a test, with the hook that counts panics.
pub(crate) struct Turn {
    _lock: MutexGuard<'static, ()>,
}

static PANICS: AtomicU64 = AtomicU64::new(0);

impl Turn {
    pub(crate) fn take() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static HOOK: Once = Once::new();
        let lock = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICS.fetch_add(1, Ordering::SeqCst);
                before(info);
            }));
        });
        softrnic::register().unwrap();
        Self { _lock: lock }
    }

    /// Runs a job under a schedule. Returns how it ended, and the calls that were made.
    ///
    /// # Errors
    ///
    /// A thread panicked, or the job left objects of the device, threads or descriptors.
    ///
    /// # Panics
    ///
    /// If the job hangs: the faults of its threads cannot be ended.
    pub(crate) fn run(
        &self,
        schedule: &str,
        seed: u64,
        job: fn() -> Ended,
        left: Left,
    ) -> Result<(Ended, Summary), String> {
        let (panics, before) = (PANICS.load(Ordering::SeqCst), Usage::of("self"));
        let lens = Lens::builder().count().faults(schedule.parse().unwrap(), seed).install().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || sender.send(job()));
        let ended = match receiver.recv_timeout(LIMIT) {
            Err(RecvTimeoutError::Timeout) => panic!("hangs under `{schedule}`, seed {seed}"),
            ended => ended,
        };
        // A panic was counted.
        _ = thread.join();
        let started = Instant::now();
        let is_left = || match left {
            Left::Nothing => !is_back(&before) || !live(&lens.summary()).is_empty(),
            Left::Threads => !live(&lens.summary()).is_empty(),
            Left::Anything => false,
        };
        while is_left() && started.elapsed() < RELEASE {
            thread::sleep(Duration::from_millis(1));
        }
        let (leaves, summary) = (is_left(), lens.summary());
        lens.finish().unwrap();
        if PANICS.load(Ordering::SeqCst) != panics {
            return Err(format!("a thread panicked under `{schedule}`, seed {seed}"));
        }
        if leaves {
            let (objects, after, files) = (live(&summary), Usage::of("self"), open_files());
            let text =
                format!("left under `{schedule}`, seed {seed}, {ended:?}: {objects:?}, {before:?}, now {after:?}");
            return Err(format!("{text}, {files:?}"));
        }
        Ok((ended.unwrap(), summary))
    }
}

/// Whether the process has no more threads and descriptors than before. softrnic opens a socket for each 4,096 numbers of
/// queue pairs.
fn is_back(before: &Usage) -> bool {
    let before = Usage { descriptors: before.descriptors + 1, ..*before };
    Usage::of("self").is_back(&before, usize::MAX / 2, usize::MAX / 2)
}

/// The targets of the descriptors of this process.
fn open_files() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

/// What a job may leave.
#[derive(Clone, Copy)]
pub(crate) enum Left {
    Nothing,
    /// Threads and descriptors that exist until the process exits.
    Threads,
    Anything,
}

/// The calls that make an object, and those that destroy one, by the prefix of their names.
const OBJECTS: [(&str, &[&str], &[&str]); 8] = [
    ("contexts", &["ibv_open_device"], &["ibv_close_device"]),
    ("domains", &["ibv_alloc_pd"], &["ibv_dealloc_pd"]),
    ("regions", &["ibv_reg_"], &["ibv_dereg_mr"]),
    ("channels", &["ibv_create_comp_channel"], &["ibv_destroy_comp_channel"]),
    ("completion queues", &["ibv_create_cq"], &["ibv_destroy_cq"]),
    ("receive queues", &["ibv_create_srq", "rdma_create_srq"], &["ibv_destroy_srq", "rdma_destroy_srq"]),
    ("queue pairs", &["ibv_create_qp", "rdma_create_qp"], &["ibv_destroy_qp", "rdma_destroy_qp"]),
    ("event channels", &["rdma_create_event_channel"], &["rdma_destroy_event_channel"]),
];

/// The objects that were made and not destroyed.
fn live(summary: &Summary) -> BTreeMap<&'static str, i64> {
    let count = |prefixes: &[&str]| -> i64 {
        let found = summary.verbs.iter().filter(|verb| prefixes.iter().any(|prefix| verb.verb.starts_with(prefix)));
        // A function that destroys and returns nothing cannot fail.
        found.map(|verb| (verb.calls - verb.errors).cast_signed()).sum()
    };
    let differences = OBJECTS.iter().map(|(name, made, destroyed)| (*name, count(made) - count(destroyed)));
    differences.filter(|(_, left)| *left > 0).collect()
}

/// What a program saw of each class of faults, to print.
#[derive(Default)]
pub(crate) struct Seen(BTreeMap<String, BTreeMap<String, usize>>);

impl Seen {
    pub(crate) fn add(&mut self, class: &str, ended: &Ended) {
        let text = match ended {
            Ok(()) => "passes".to_owned(),
            Err(text) => text.clone(),
        };
        // Ports and numbers of queue pairs differ.
        let mut plain = String::new();
        for letter in text.chars() {
            match letter {
                '0'..='9' if plain.ends_with('#') => {}
                '0'..='9' => plain.push('#'),
                _ => plain.push(letter),
            }
        }
        *self.0.entry(class.to_owned()).or_default().entry(plain).or_default() += 1;
    }

    pub(crate) fn print(&self, job: &str) {
        for (class, texts) in &self.0 {
            println!("{job} | {class}");
            for (text, count) in texts {
                println!("    {count:3} {text}");
            }
        }
    }
}
