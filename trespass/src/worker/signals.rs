//! Threads of the library block the signals of the program.

pub use rdma_mummy_sys::process::without_signals;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use rdma_mummy_sys::process::SYNCHRONOUS;

    use crate::worker::{Handle, Options, Transport};

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn thread_of_a_worker_blocks_asynchronous_signals_and_its_creator_none_more() {
        let mask = |task: &str| {
            let status = fs::read_to_string(format!("{task}/status")).unwrap_or_default();
            status.lines().find_map(|line| Some(line.strip_prefix("SigBlk:")?.trim().to_owned()))
        };
        let before = mask("/proc/thread-self");
        let _handle = Handle::new(&Options { transport: Transport::Tcp, ..Options::default() }).unwrap();
        assert_eq!(mask("/proc/thread-self"), before);
        // Threads of other tests may end at any time.
        let find = || -> Vec<String> {
            let tasks = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
            let own = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "trespass\n"));
            own.filter_map(|task| mask(&task.display().to_string())).collect()
        };
        let begun = Instant::now();
        let own = loop {
            // A new thread sets its name itself.
            let own = find();
            if !own.is_empty() {
                break own;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
        };
        for mask in own {
            let blocked = u64::from_str_radix(&mask, 16).unwrap();
            let synchronous = SYNCHRONOUS.iter().fold(0, |set, signal| set | 1 << (signal - 1));
            assert_eq!(blocked & synchronous, 0, "{mask}");
            // SIGKILL and SIGSTOP cannot be blocked, and the C library uses two signals itself.
            assert_eq!(blocked | synchronous | 1 << 8 | 1 << 18 | 3 << 31, u64::MAX, "{mask}");
        }
    }
}
