//! The inputs that are kept, run once each. Their names say what comes of them: `good-…` is believed to its end, `bad-…` is not, and of
//! any other name only that nothing panics.

mod seeds;

use std::fs;
use std::path::{Path, PathBuf};

type Target = fn(&[u8]) -> bool;

const TARGETS: [(&str, Target); 3] =
    [("conversation", super::conversation), ("results", super::results), ("command_line", super::command_line)];

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Runs all of a folder; how many were good and bad.
fn replay(name: &str, target: Target) -> [usize; 2] {
    let folder = corpus(name);
    let mut counts = [0; 2];
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let is_believed = target(&fs::read(&path).unwrap());
        let file = path.file_name().unwrap().to_string_lossy();
        for (place, start, expected) in [(0, "good-", true), (1, "bad-", false)] {
            if file.starts_with(start) {
                assert_eq!(is_believed, expected, "{}", path.display());
                counts[place] += 1;
            }
        }
    }
    counts
}

#[test]
fn what_is_kept_comes_out_as_its_name_says() {
    for (name, target) in TARGETS {
        let [good, bad] = replay(name, target);
        assert!(good > 0 && bad > 0, "{name}: {good} good inputs and {bad} bad ones");
    }
}

#[test]
#[ignore = "writes the inputs that are kept: for who changes what they consist of"]
fn write_what_is_kept() {
    for (name, _) in TARGETS {
        fs::create_dir_all(corpus(name)).unwrap();
    }
    for (path, bytes) in seeds::all() {
        fs::write(corpus("").join(path), bytes).unwrap();
    }
}
