//! A random machine: changes a tree and its copy, runs rdcp with random options, and kills some runs. After each run
//! that is not killed and mirrors the tree, the copy is equal; nothing outside ever changes, and what a pattern protects
//! stays.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use twox_hash::XxHash3_128;

use crate::common::{Place, Ran, bytes};

/// The names of all entries, so that they meet. Patterns protect the last one.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "-e\n\u{e9}", "keep"];
/// Above this length, an interrupted file is continued.
const LARGE: usize = 9 << 20;

struct Machine {
    place: Place,
    random: u64,
    /// The time of the next change, so that no two files have the same time by accident.
    time: u64,
    /// The contents of files.
    data: Vec<u8>,
    log: Vec<String>,
}

impl Machine {
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit as u64) as usize
    }

    /// A path below one of the two trees, which may exist.
    fn any(&mut self, tree: &str) -> PathBuf {
        let mut path = self.place.path(tree);
        loop {
            path.push(NAMES[self.below(NAMES.len())]);
            let enters = path.symlink_metadata().is_ok_and(|found| found.is_dir()) && self.below(4) != 0;
            if !enters {
                return path;
            }
        }
    }

    fn remove(&self, path: &Path) {
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
            Ok(_) => fs::remove_file(path).unwrap(),
            Err(_) => {}
        }
    }

    fn write(&mut self, path: &Path, length: usize) {
        self.remove(path);
        let start = self.time as usize % 97;
        fs::write(path, &self.data[start..start + length]).unwrap();
        self.touch(path);
    }

    fn touch(&mut self, path: &Path) {
        self.time += 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + self.time);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }

    /// Changes an entry of a tree.
    fn change(&mut self, tree: &str) {
        let path = self.any(tree);
        let kind = path.symlink_metadata().ok().map(|found| found.file_type());
        let does = self.below(12);
        self.log.push(format!("{does} {}", path.display()));
        match (does, kind) {
            (0 | 1, _) => {
                let length = [0, 1, 3_000, 70_000, LARGE][self.below(5)];
                self.write(&path, length);
            }
            (2 | 3, _) => {
                self.remove(&path);
                fs::create_dir(&path).unwrap();
                self.write(&path.join("inner"), 5);
            }
            (4, _) => self.remove(&path),
            (5 | 6, _) => {
                let targets = ["..", "../out", "a", "../..", "nowhere"].map(PathBuf::from);
                let target = targets.into_iter().chain([self.place.path("out")]).nth(self.below(6));
                self.remove(&path);
                symlink(target.unwrap(), &path).unwrap();
            }
            (7, Some(kind)) if !kind.is_symlink() => {
                let mode = [0o755, 0o700, 0o711, 0o2750][self.below(4)];
                fs::set_permissions(&path, Permissions::from_mode(if kind.is_dir() { mode } else { mode & 0o666 }))
                    .unwrap();
            }
            (8, Some(kind)) if kind.is_file() => {
                let other = self.any(tree);
                if other != path && !path.starts_with(&other) {
                    self.remove(&other);
                    fs::hard_link(&path, &other).unwrap();
                }
            }
            (9, Some(_)) => {
                let other = self.any(tree);
                if !path.starts_with(&other) && !other.starts_with(&path) {
                    self.remove(&other);
                    fs::rename(&path, &other).unwrap();
                }
            }
            // Other contents of the same length, and a hole.
            (10, Some(kind)) if kind.is_file() => {
                let file = fs::File::options().write(true).open(&path).unwrap();
                let length = file.metadata().unwrap().len();
                std::os::unix::fs::FileExt::write_all_at(&file, b"!", length / 2).unwrap();
                file.set_len(length.max(1) + self.below(2) as u64 * 100_000).unwrap();
                self.touch(&path);
            }
            (11, Some(kind)) if !kind.is_symlink() => {
                _ = rustix::fs::setxattr(&path, "user.k", b"value", rustix::fs::XattrFlags::empty());
                if kind.is_file() {
                    self.touch(&path);
                }
            }
            _ => {}
        }
    }

    /// All entries below a folder, with what a mirror keeps. Names of one file have the first of them.
    fn entries(&self, tree: &str) -> BTreeMap<PathBuf, String> {
        let (top, mut found) = (self.place.path(tree), BTreeMap::new());
        let (mut folders, mut firsts) = (vec![top.clone()], BTreeMap::new());
        while let Some(folder) = folders.pop() {
            let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.sort();
            for path in names {
                let facts = path.symlink_metadata().unwrap();
                let below = path.strip_prefix(&top).unwrap().to_owned();
                let same = firsts.entry(facts.ino()).or_insert_with(|| below.clone()).clone();
                let what = if facts.is_symlink() {
                    format!("link to {:?}", fs::read_link(&path).unwrap())
                } else if facts.is_dir() {
                    folders.push(path.clone());
                    "directory".to_owned()
                } else {
                    let contents = fs::read(&path).unwrap();
                    format!("{} bytes {:x}", contents.len(), XxHash3_128::oneshot(&contents))
                };
                let mode = if facts.is_symlink() { 0 } else { facts.mode() };
                let time = (facts.mtime(), facts.mtime_nsec());
                found.insert(below, format!("{what}, {mode:o}, {time:?}, {same:?}"));
            }
        }
        found
    }

    fn protected(&self) -> BTreeMap<PathBuf, String> {
        let mut found = self.entries("d");
        found.retain(|path, what| path.ends_with("keep") && what.contains(" bytes "));
        found
    }

    fn run(&mut self, words: &[&str]) -> Ran {
        self.log.push(words.join(" "));
        let to = self.place.on_host("d");
        let words: Vec<&str> = words.iter().copied().chain(["s/", &to]).collect();
        let is_killed = self.below(4) == 0;
        let mut command = self.place.command("rdcp", &words);
        let mut child = command.spawn().unwrap();
        if is_killed {
            std::thread::sleep(Duration::from_millis(self.below(80) as u64));
            child.kill().unwrap();
            self.log.push("killed".to_owned());
        }
        let ran = Ran::from(&mut child, b"");
        while self.place.far_side("h").is_some() {
            std::thread::sleep(Duration::from_millis(2));
        }
        ran
    }

    fn step(&mut self) {
        for _ in 0..1 + self.below(6) {
            let tree = if self.below(3) == 0 { "d" } else { "s" };
            self.change(tree);
        }
        let outside = self.entries("out");
        let mirror = ["-a", "--sync", "--delete"];
        match self.below(3) {
            0 => {
                let before = self.protected();
                let ran = self.run(&["-rH", "--sync", "--delete", "--exclude", "keep"]);
                let after = self.protected();
                // The number of names of a file, and the first of them, may change.
                let contents = |what: &String| what.split(", ").take(3).collect::<Vec<_>>().join(", ");
                for (path, what) in &before {
                    assert_eq!(after.get(path).map(contents), Some(contents(what)), "{path:?} {ran:?} {:#?}", self.log);
                }
            }
            1 => _ = self.run(&["-r"]),
            _ => {
                let ran = self.run(&mirror);
                if ran.status == 0 {
                    assert_eq!(self.entries("d"), self.entries("s"), "{:#?}", self.log);
                }
                assert!(matches!(ran.status, -1 | 0), "{ran:?} {:#?}", self.log);
            }
        }
        assert_eq!(self.entries("out"), outside, "{:#?}", self.log);
    }
}

/// `RDPIPE_MACHINES` sets the number of machines, `RDPIPE_MACHINE` the first seed.
#[test]
fn random_trees_are_mirrored_and_nothing_else_changes() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first: u64 = number("RDPIPE_MACHINE", 1);
    for seed in first..first + number("RDPIPE_MACHINES", 6) {
        let place = Place::new();
        for name in ["s/a/f", "d/keep", "out/a/secret", "out/keep", "out/inner"] {
            place.write(name, name);
        }
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut machine =
            Machine { place, random, time: seed, data: bytes(LARGE + 97), log: vec![format!("seed {seed}")] };
        for _ in 0..25 {
            machine.step();
        }
        let done = (0..20).any(|_| machine.run(&["-a", "--sync", "--delete"]).status == 0);
        assert!(done, "{:#?}", machine.log);
        assert_eq!(machine.entries("d"), machine.entries("s"), "{:#?}", machine.log);
    }
}
