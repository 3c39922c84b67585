//! A random machine: changes a tree and its copy, runs rdcp with random options, and stops or kills some runs. In some
//! machines, another user receives. After each run that exits with 0, the copy has what the options promise; nothing
//! outside ever changes, what a pattern protects stays, and no entry is open to more users than its source. At the end,
//! the tree is copied to a file system that may be too small for it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use twox_hash::XxHash3_128;

use crate::common::{Place, Ran, bytes, flip, may_not_run};

/// The names of all entries, so that they meet. Each of the patterns matches the last one alone.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "-e\n\u{e9}", "keep"];
const PATTERNS: [&str; 10] =
    ["keep", "k*", "kee?", "*[k]e*", "[!a-d-]*", "[[:lower:]]?ep", "**/keep", "\\k*", "*ep", "- [j-l]eep"];
/// The user and the group that receive, if this is root.
const OTHER: u32 = 12_345;
/// Above this length, an interrupted file is continued.
const LARGE: usize = 9 << 20;

struct Machine {
    place: Place,
    random: u64,
    /// The time of the next change, so that no two files have the same time by accident.
    time: u64,
    /// The contents of files.
    data: Vec<u8>,
    /// Whether another user receives.
    is_other: bool,
    log: Vec<String>,
}

/// What an entry is. Names of one file have the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    what: String,
    mode: u32,
    time: (i64, i64),
    first: PathBuf,
    owner: (u32, u32),
    attributes: Vec<(String, Vec<u8>)>,
}

type Entries = BTreeMap<PathBuf, Found>;

/// Whether this user is root, and is not limited by permissions, as in some containers.
pub(crate) fn is_root() -> bool {
    let overrides =
        |all: CapabilitySets| all.effective.contains(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    rustix::process::geteuid().is_root() && capabilities(None).is_ok_and(overrides)
}

/// The permissions that the umask takes from new entries.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
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
        let does = self.below(14);
        self.log.push(format!("{does} {}", path.display()));
        match (does, kind) {
            (0 | 1, _) => {
                let length = [0, 1, 3_000, 70_000, LARGE][self.below(5)];
                self.write(&path, length);
            }
            (2 | 3, _) => {
                self.remove(&path);
                fs::create_dir(&path).unwrap();
                let inner = path.join(NAMES[self.below(NAMES.len())]);
                self.write(&inner, 5);
                let mode = [0o755, 0o700, 0o750][self.below(3)];
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
            (4, _) => self.remove(&path),
            (5 | 6, _) => {
                let targets = ["..", "../out", "a", "../..", "nowhere"].map(PathBuf::from);
                let target = targets.into_iter().chain([self.place.path("out")]).nth(self.below(6));
                self.remove(&path);
                symlink(target.unwrap(), &path).unwrap();
            }
            (7, Some(kind)) if !kind.is_symlink() => {
                // An ordinary user could not change what is in the last two.
                let modes = [0o755, 0o700, 0o711, 0o2750, 0o555, 0o500];
                let mode = modes[self.below(if is_root() { modes.len() } else { 4 })];
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
            // Some of these changes leave the time as it is.
            (11, Some(kind)) if !kind.is_symlink() => {
                let name = ["user.k", "user.other"][self.below(2)];
                // The file system may have no attributes.
                _ = match self.below(3) {
                    0 => rustix::fs::removexattr(&path, name),
                    value => rustix::fs::setxattr(&path, name, &[value as u8], rustix::fs::XattrFlags::empty()),
                };
            }
            (12, Some(_)) if is_root() => {
                let owner = [0, OTHER][self.below(2)];
                lchown(&path, Some(owner), Some(owner)).unwrap();
            }
            // The copy of a file with the same length and time.
            (13, Some(kind)) if kind.is_file() => self.touch(&path),
            _ => {}
        }
    }

    fn entries(&self, tree: &str) -> Entries {
        let (top, mut found) = (self.place.path(tree), BTreeMap::new());
        let (mut folders, mut firsts) = (vec![top.clone()], BTreeMap::new());
        while let Some(folder) = folders.pop() {
            let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.sort();
            for path in names {
                let facts = path.symlink_metadata().unwrap();
                let below = path.strip_prefix(&top).unwrap().to_owned();
                let first = firsts.entry(facts.ino()).or_insert_with(|| below.clone()).clone();
                let what = if facts.is_symlink() {
                    format!("link to {:?}", fs::read_link(&path).unwrap())
                } else if facts.is_dir() {
                    folders.push(path.clone());
                    "directory".to_owned()
                } else {
                    let contents = fs::read(&path).unwrap();
                    format!("{} bytes {:x}", contents.len(), XxHash3_128::oneshot(&contents))
                };
                let value = |name: &str| {
                    let mut value = vec![0; 100];
                    let length = rustix::fs::lgetxattr(&path, name, value.as_mut_slice()).ok()?;
                    Some((name.to_owned(), value[..length].to_vec()))
                };
                let attributes = ["user.k", "user.other"].into_iter().filter_map(value).collect();
                let mode = if facts.is_symlink() { 0 } else { facts.mode() & 0o7777 };
                let (time, owner) = ((facts.mtime(), facts.mtime_nsec()), (facts.uid(), facts.gid()));
                found.insert(below, Found { what, mode, time, first, owner, attributes });
            }
        }
        found
    }

    /// What a mirror keeps of the entries.
    fn mirrored(&self, tree: &str) -> Entries {
        let mut all = self.entries(tree);
        if self.is_other {
            // Only the owner and root can have these.
            all.values_mut().for_each(|found| (found.owner, found.mode) = ((0, 0), found.mode & 0o777));
        }
        all
    }

    /// Changes a byte of each large file of the source, which a killed copy may have left in part.
    fn change_large(&mut self) {
        for (path, found) in self.entries("s") {
            let path = self.place.path("s").join(path);
            if found.what.contains(" bytes ") && path.metadata().unwrap().len() >= LARGE as u64 && self.below(3) != 0 {
                let at = self.below(LARGE / 2);
                flip(&path, at);
                self.touch(&path);
            }
        }
    }

    /// Stops or kills the copy or its far side at a random time. Returns whether the copy can complete.
    fn disturb(&mut self, child: &mut Child, does: usize) -> bool {
        if does > 3 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(self.below(250) as u64));
        let (ours, theirs) = (Pid::from_child(child), self.place.far_side("h"));
        // A process may have exited, but its number is not free before it was waited for.
        let pid = if self.below(2) == 0 { ours } else { theirs.unwrap_or(ours) };
        let signal = match does {
            0 => [Signal::TERM, Signal::INT][self.below(2)],
            1 | 2 => Signal::KILL,
            _ => Signal::STOP,
        };
        self.log.push(format!("{signal:?} {}", if pid == ours { "here" } else { "there" }));
        _ = kill_process(pid, signal);
        if signal == Signal::STOP {
            std::thread::sleep(Duration::from_millis(self.below(80) as u64));
            _ = kill_process(pid, Signal::CONT);
        }
        signal == Signal::STOP
    }

    /// Runs a copy, and checks what holds after each. Returns the status; `None` if a signal ended one of the sides.
    fn run(&mut self, words: &[&str], from: &str) -> Option<i32> {
        self.log.push(words.join(" "));
        let to = self.place.on_host("d");
        let (outside, before, source) = (self.entries("out"), self.entries("d"), self.entries("s"));
        let does = self.below(12);
        // Slow enough to be killed within a large file.
        let limit = if does > 3 { "0" } else { "60M" };
        let words: Vec<&str> = words.iter().copied().chain(["--bwlimit", limit, from, &to]).collect();
        let mut child = self.place.command("rdcp", &words).spawn().unwrap();
        let completes = self.disturb(&mut child, does);
        let ran = Ran::from(&mut child, b"");
        while self.place.far_side("h").is_some() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let after = self.entries("d");
        assert_eq!(self.entries("out"), outside, "{:#?}", self.log);
        let kind = |found: &Found| found.what.split(' ').nth(1).map(str::to_owned);
        for (path, now) in &after {
            let is_new = before.get(path).is_none_or(|old| kind(old) != kind(now));
            if let Some(source) = source.get(path).filter(|source| is_new && kind(source) == kind(now)) {
                let more = now.mode & 0o077 & !source.mode;
                assert_eq!(more, 0, "{path:?} is open to others: {now:?} {source:?} {:#?}", self.log);
            }
        }
        if ran.status != 0 {
            let is_expected = !completes || ran.status == 23;
            assert!(is_expected, "{ran:?} {:#?}", self.log);
        }
        self.log.extend(ran.err.lines().map(str::to_owned));
        if !completes && ran.status != 0 {
            self.change_large();
        }
        (completes || ran.status == 0).then_some(ran.status)
    }

    fn mirror(&mut self) -> Option<i32> {
        let options = if self.is_other { "-rpHX" } else { "-a" };
        let status = self.run(&[options, "--sync", "--delete"], "s/");
        if status == Some(0) {
            assert_eq!(self.mirrored("d"), self.mirrored("s"), "{:#?}", self.log);
        }
        status
    }

    /// After a copy without `-p`, all entries of the source are here; new ones have its permissions without those of the
    /// umask, others keep theirs.
    fn assert_copied(&self, before: &Entries, is_copied: impl Fn(&Path) -> bool) {
        let (after, umask) = (self.entries("d"), umask());
        for (path, source) in self.entries("s").into_iter().filter(|(path, _)| is_copied(path)) {
            let now = after.get(&path);
            assert_eq!(now.map(|now| &now.what), Some(&source.what), "{path:?} {:#?}", self.log);
            let same_type = |old: &&Found| old.what.contains(" bytes ") == source.what.contains(" bytes ");
            let expected = match before.get(&path).filter(|old| old.mode != 0).filter(same_type) {
                Some(old) => old.mode & 0o777,
                None => source.mode & 0o777 & !umask,
            };
            if source.mode != 0 {
                assert_eq!(now.unwrap().mode & 0o777, expected, "{path:?} {:#?}", self.log);
            }
        }
    }

    fn step(&mut self) {
        for _ in 0..1 + self.below(6) {
            let tree = if self.below(3) == 0 { "d" } else { "s" };
            self.change(tree);
        }
        let is_foreign = self.is_other && self.below(4) == 0;
        if self.is_other {
            self.give(if is_foreign { 0 } else { OTHER });
        }
        let before = self.entries("d");
        match self.below(3) {
            0 => {
                let is_kept = |path: &Path| path.components().any(|part| part.as_os_str() == "keep");
                let kept = |all: Entries| {
                    let kept = all.into_iter().filter(|(path, _)| is_kept(path));
                    kept.map(|(path, found)| (path, found.what)).collect::<BTreeMap<_, _>>()
                };
                let pattern = PATTERNS[self.below(PATTERNS.len())];
                let status = self.run(&["-r", "--sync", "--delete", "--exclude", pattern], "s/");
                let after = self.entries("d");
                assert_eq!(kept(after), kept(before.clone()), "{:#?}", self.log);
                if status == Some(0) {
                    self.assert_copied(&before, |path| !is_kept(path));
                }
            }
            1 => {
                if self.run(&["-r"], "s/.") == Some(0) {
                    self.assert_copied(&before, |_| true);
                }
            }
            _ => {
                let status = self.mirror();
                assert!(is_foreign || status != Some(23), "{:#?}", self.log);
            }
        }
    }

    /// Gives the copy to the other user, and all but its directories to this one.
    fn give(&mut self, owner: u32) {
        self.log.push(format!("{owner} owns the files of the copy"));
        let script = format!("chown -hR {OTHER}:{OTHER} d && find d ! -type d -exec chown -h {owner}:{owner} {{}} +");
        self.place.shell(&script).expect(0);
    }

    /// Copies to a small file system, then to one that is large enough. Returns false if this user may mount none.
    fn fill(&mut self) -> bool {
        fs::create_dir(self.place.path("small")).unwrap();
        let size = [64, 1_000, 12_000][self.below(3)];
        let script = "mount -t tmpfs -o size=$0k,uid=$1 none small || exit 77
            rdcp -qrpH --sync --delete s/ h:$PWD/small; status=$?
            [ $status = 0 ] || [ $status = 23 ] || exit 3
            [ $status = 23 ] || diff -r --no-dereference s small || exit 4
            [ -z \"$(find small -name '.*.rdcp-*')\" ] || exit 5
            ! diff -rq --no-dereference s small | grep -a ' differ$' || exit 6
            mount -t tmpfs -o remount,size=1g none small && rdcp -rpH --sync --delete s/ h:$PWD/small || exit 7
            diff -r --no-dereference s small";
        let owner = if self.is_other { OTHER } else { 0 };
        let namespaces = if is_root() { "-m" } else { "-rm" };
        let ran = self.place.shell(&format!(
            "unshare {namespaces} true && unshare {namespaces} sh -c '{}' {size} {owner}",
            script.replace('\'', "'\\''")
        ));
        match ran.status {
            0 => true,
            77 => false,
            1 if ran.err.contains("unshare") => false,
            _ => panic!("{size} KiB: {ran:?} {:#?}", self.log),
        }
    }
}

/// Lets another user receive. Returns false if this user may not change to it.
pub(crate) fn receive_as_other(place: &Place) -> bool {
    let user = format!("setpriv --reuid {OTHER} --regid {OTHER} --clear-groups");
    if !is_root() || place.shell(&format!("{user} true")).status != 0 {
        return false;
    }
    // The programs may stand in a folder that is closed to other users, such as /root.
    place.shell("chmod 755 . && cp \"$(command -v rdcp)\" bin/").expect(0);
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    place.write("bin/ssh", ssh.replace("exec sh", &format!("exec {user} sh")));
    place.shell(&format!("chown {OTHER}:{OTHER} d d/keep")).expect(0);
    true
}

/// `RDPIPE_MACHINES` sets the number of machines, `RDPIPE_MACHINE` the first seed.
#[test]
fn random_trees_are_mirrored_and_nothing_else_changes() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first: u64 = number("RDPIPE_MACHINE", 1);
    for seed in first..first + number("RDPIPE_MACHINES", 6) {
        let place = Place::new();
        for name in ["s/a/c", "d/keep", "out/a/secret", "out/keep", "out/b"] {
            place.write(name, name);
        }
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let is_other = seed % 3 == 2 && receive_as_other(&place);
        if seed % 3 == 2 && !is_other {
            may_not_run("no other user can receive here");
        }
        let data = bytes(LARGE + 97);
        let mut machine = Machine { place, random, time: seed, data, is_other, log: vec![format!("seed {seed}")] };
        for _ in 0..25 {
            machine.step();
        }
        if is_other {
            machine.give(OTHER);
        }
        let done = (0..20).any(|_| machine.mirror() == Some(0));
        assert!(done, "{:#?}", machine.log);
        if !machine.fill() {
            may_not_run("no file system of its own here");
        }
    }
}
