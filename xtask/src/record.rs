//! The record of passed steps and tests, by the content of their input files.
//!
//! A key is a hash of these files, of xtask, of the root's manifests and lock file, of the compiler and of the system.
//! The record is in the user's cache folder, so a fresh clone finds it; a checkout without git records nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::repo::{self, Package};
use crate::test::Results;

/// The inputs of every key.
const COMMON: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml", ".cargo", "xtask"];

/// The record of passed steps and tests.
#[derive(Debug)]
pub(crate) struct Record {
    /// The folder of the record; without one nothing is recorded.
    folder: Option<PathBuf>,
    /// Whether to run everything, even if it has passed before.
    again: bool,
    root: PathBuf,
    /// The hash of each file of the checkout.
    files: BTreeMap<String, String>,
    /// The compiler, the system, its kernel, and the variables that affect builds and tests.
    machine: String,
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
}

/// The inputs of one step or test program, as a name in the record.
#[derive(Clone, Debug)]
pub(crate) struct Key(Option<String>);

impl Record {
    /// Reads the checkout. With `again`, nothing counts as passed.
    pub(crate) fn open(root: &Path, again: bool) -> Result<Self> {
        let home = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let home = home.or_else(|| Some(env::home_dir()?.join(".cache")));
        let files = files(root).unwrap_or_default();
        let folder = home.filter(|_| !files.is_empty()).map(|home| home.join("sideway-xtask/passed"));
        let mut compiler = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let compiler = compiler.arg("-vV").output().context("cannot run rustc")?;
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let variables: BTreeMap<_, _> = env::vars_os().filter(|(name, _)| decides(&name.to_string_lossy())).collect();
        let machine = format!("{}{system}{kernel}{variables:?}", String::from_utf8_lossy(&compiler.stdout));
        Ok(Self { folder, again, root: root.to_path_buf(), files, machine, packages: repo::packages(root)? })
    }

    /// The key of `what`, from these packages, their dependencies, and these additional files or folders. Without
    /// packages, the key covers the whole checkout.
    pub(crate) fn key(&self, what: &str, packages: &[&str], besides: &[&str]) -> Key {
        if self.folder.is_none() {
            return Key(None);
        }
        let closure = self.closure(packages);
        let is_part = |file: &str| {
            let is_below =
                |place: &&str| file.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            packages.is_empty()
                || COMMON.iter().chain(besides).any(is_below)
                || self.owner(file).is_some_and(|owner| closure.contains(owner))
        };
        let mut text = format!("{what}\n{}\n", self.machine);
        for (file, hash) in self.files.iter().filter(|(file, _)| is_part(file)) {
            text.push_str(&format!("{hash} {file}\n"));
        }
        Key(git(&self.root, &["hash-object", "--stdin"], &text).ok().map(|hash| hash.trim().to_owned()))
    }

    /// The recorded results of this key.
    pub(crate) fn find(&self, key: &Key) -> Option<Results> {
        let file = self.folder.as_ref()?.join(key.0.as_ref()?);
        let text = fs::read_to_string(file).ok().filter(|_| !self.again)?;
        let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Some(Results { passed: next(), skipped: next(), for_device: next(), ..Results::default() })
    }

    /// Records a pass, unless the checkout has changed since. Without a writable folder, nothing is recorded.
    pub(crate) fn keep(&self, key: &Key, results: &Results) {
        let (Some(folder), Some(name)) = (&self.folder, &key.0) else { return };
        if files(&self.root).is_ok_and(|files| files == self.files) {
            let Results { passed, skipped, for_device, .. } = results;
            let text = format!("{passed} {skipped} {for_device}\n");
            if let Err(error) = fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(name), text)) {
                eprintln!("cannot write to the record in {}: {error}", folder.display());
            }
        }
    }

    /// The packages, their dependencies for tests, and the dependencies of all of these packages.
    fn closure(&self, packages: &[&str]) -> BTreeSet<&str> {
        let find = |name: &str| self.packages.iter().find(|package| package.name == name);
        let mut open: Vec<&Package> = packages.iter().filter_map(|name| find(name)).collect();
        let tests = open.iter().flat_map(|package| &package.dependencies);
        let tests: Vec<&Package> = tests.filter_map(|(name, _)| find(name)).collect();
        open.extend(tests);
        let mut closure = BTreeSet::new();
        while let Some(package) = open.pop() {
            if closure.insert(package.name.as_str()) {
                let needed = package.dependencies.iter().filter(|(_, for_tests)| !for_tests);
                open.extend(needed.filter_map(|(name, _)| find(name)));
            }
        }
        closure
    }

    /// The package that owns a file: the one with the longest matching folder.
    fn owner(&self, file: &str) -> Option<&str> {
        let path = self.root.join(file);
        let owners = self.packages.iter().filter(|package| path.starts_with(&package.folder));
        owners.max_by_key(|package| package.folder.as_os_str().len()).map(|package| package.name.as_str())
    }
}

/// Whether this variable affects a build or a test.
fn decides(name: &str) -> bool {
    // cargo's target folder and number of jobs do not affect results.
    !["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_BUILD_JOBS"].contains(&name)
        && (["RUSTFLAGS", "RUSTDOCFLAGS", "MIRIFLAGS", "CC", "CXX", "CFLAGS"].contains(&name)
            || ["CARGO_ENCODED_", "CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_"]
                .iter()
                .any(|start| name.starts_with(start))
            || ["PROPTEST_", "SOFTRNIC_", "SIDEWAY_", "STRIDE_", "TRESPASS_", "RDPIPE_"]
                .iter()
                .any(|start| name.starts_with(start)))
}

/// The files of the checkout that git does not ignore, and the fuzzer's additions to the corpus, which tests read too;
/// each with its hash.
fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"], "")?;
    listed += &git(root, &["ls-files", "-z", "--others", "--", "fuzz/corpus"], "")?;
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| root.join(name).is_file()).collect();
    let words = names.iter().flat_map(|name| [name, "\n"]).collect::<String>();
    let hashes = git(root, &["hash-object", "--stdin-paths"], &words)?;
    ensure!(hashes.lines().count() == names.len(), "git hashed a different set of files");
    Ok(names.into_iter().map(str::to_owned).zip(hashes.lines().map(str::to_owned)).collect())
}

/// The output of git for this input.
fn git(root: &Path, words: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(root).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot run git")?;
    let mut stdin = child.stdin.take().context("git has no standard input")?;
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().context("cannot wait for git")?;
    // git may not read all input, so only its exit status counts.
    writer.join().ok();
    ensure!(output.status.success(), "`git {}` ended with {}", words.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, for_tests)| ((*name).to_owned(), *for_tests)).collect();
        Package { name: name.into(), folder: folder.into(), dependencies, ..Package::default() }
    }

    fn record(folder: Option<PathBuf>) -> Record {
        let files = ["Cargo.lock", "nic/src/a.rs", "nic/tool/b.rs", "perf/c.rs", "tests/d.rs", "README.md"];
        Record {
            folder,
            again: false,
            root: env::temp_dir(),
            files: files.map(|file| (file.to_owned(), "1".to_owned())).into(),
            machine: String::new(),
            packages: vec![
                package("nic", "nic", &[("tests", true)]),
                package("tool", "nic/tool", &[("nic", false)]),
                package("perf", "perf", &[("nic", false)]),
                package("tests", "tests", &[("nic", false)]),
            ]
            .into_iter()
            .map(|one| Package { folder: env::temp_dir().join(&one.folder), ..one })
            .collect(),
        }
    }

    #[test]
    fn file_changes_the_keys_of_its_dependents() {
        let old = record(Some("/nonexistent".into()));
        let changed = |file: &str, packages: &[&str], besides: &[&str]| {
            let mut new = record(Some("/nonexistent".into()));
            new.files.insert(file.to_owned(), "2".to_owned());
            new.key("t", packages, besides).0 != old.key("t", packages, besides).0
        };
        assert!(changed("nic/src/a.rs", &["perf"], &[]) && changed("Cargo.lock", &["perf"], &[]));
        assert!(!changed("nic/tool/b.rs", &["perf"], &[]) && !changed("README.md", &["perf"], &[]));
        // The tests of a dependency do not count.
        assert!(changed("tests/d.rs", &["nic"], &[]) && !changed("tests/d.rs", &["perf"], &[]));
        assert!(changed("README.md", &["perf"], &["README.md"]) && changed("README.md", &[], &[]));
        assert_ne!(old.key("t", &["perf"], &[]).0, old.key("u", &["perf"], &[]).0);
    }

    #[test]
    fn ignored_files_of_the_corpus_are_hashed() {
        let root = env::temp_dir().join(format!("xtask-record-{}", std::process::id()));
        let found = ["fuzz/corpus/a/new", "target/new"];
        for file in found {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), file).unwrap();
        }
        fs::write(root.join(".gitignore"), "new\n").unwrap();
        git(&root, &["init", "--quiet"], "").unwrap();
        let files = files(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), [".gitignore", "fuzz/corpus/a/new"]);
    }

    #[test]
    fn variables_that_affect_results_are_in_keys() {
        for name in ["RUSTFLAGS", "CC", "CARGO_PROFILE_DEV_OPT_LEVEL", "PROPTEST_CASES", "SOFTRNIC_KILLS"] {
            assert!(decides(name), "{name}");
        }
        // The same tree is found from another folder, and by `.ci/run` as by `cargo xtask ci`.
        for name in ["CARGO_MANIFEST_DIR", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "CI", "PATH"] {
            assert!(!decides(name), "{name}");
        }
    }

    #[test]
    fn record_without_a_folder_is_empty() {
        let record = record(None);
        let key = record.key("t", &["perf"], &[]);
        record.keep(&key, &Results::default());
        assert!(key.0.is_none() && record.find(&key).is_none());
    }
}
