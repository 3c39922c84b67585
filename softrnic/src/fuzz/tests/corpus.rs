//! Runs and writes the corpus in the folder `fuzz/corpus` of the repository. stride includes this file.
//!
//! The name of an input determines its expected result: an input named `good-…` must be accepted, and one named `bad-…`
//! must be rejected. Any other input may be accepted or rejected, but must not violate a guarantee.

use std::fs;
use std::path::{Path, PathBuf};

/// A function of `fuzz`, which returns whether it accepted the input.
pub(super) type Target = fn(&[u8]) -> bool;

/// Runs all inputs of the targets. Each target must have valid and invalid inputs.
pub(super) fn replay(targets: &[(&str, Target)]) {
    for (name, target) in targets {
        let [good, bad] = replay_one(&corpus().join(name), *target);
        assert!(good > 0 && bad > 0, "{name}: {good} good inputs and {bad} bad ones");
    }
}

/// Writes each input to its path in the corpus. The corpus has a folder for each target.
pub(super) fn write<P: AsRef<Path>>(targets: &[(&str, Target)], inputs: Vec<(P, Vec<u8>)>) {
    for (name, _) in targets {
        fs::create_dir_all(corpus().join(name)).unwrap();
    }
    for (path, bytes) in inputs {
        fs::write(corpus().join(path), bytes).unwrap();
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// Runs all inputs of a folder; returns the numbers of good and bad ones.
fn replay_one(folder: &Path, target: Target) -> [usize; 2] {
    let mut counts = [0; 2];
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let is_accepted = target(&fs::read(&path).unwrap());
        let file = path.file_name().unwrap().to_string_lossy();
        for (place, start, expected) in [(0, "good-", true), (1, "bad-", false)] {
            if file.starts_with(start) {
                assert_eq!(is_accepted, expected, "{}", path.display());
                counts[place] += 1;
            }
        }
    }
    counts
}
