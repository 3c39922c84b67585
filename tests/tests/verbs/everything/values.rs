//! Each number from C is replaced by one that no header defines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sideway_tests::recording::{Recording, Warnings};

use super::{ACTS, whole};

/// The smallest and largest values, unsigned and signed.
const BYTES: [u8; 5] = [0, 1, 0x7f, 0x80, 0xff];

#[test]
fn each_output_may_be_invalid() {
    let warnings = Warnings::listen();
    let mut spoiled = 0;
    for &act in ACTS {
        let outputs = whole(act, Recording::outputs);
        spoiled += outputs.len();
        for (index, output) in (0..).zip(&outputs) {
            for byte in BYTES {
                let recording = Recording::new();
                recording.spoil(index, byte);
                let what = format!("{}, output {index}, {output}: {byte:#x}", act.name);
                let result = (act.run)(&recording);
                warnings.take();
                assert_eq!(recording.violations(), [""; 0], "{what}: {result:?}");
                assert_eq!(recording.live(), [], "left over: {what}: {result:?}");
            }
        }
    }
    assert!(spoiled > 100, "{spoiled} outputs");
}

#[test]
fn every_output_is_covered() {
    let seen: BTreeSet<&'static str> = ACTS.iter().flat_map(|&act| whole(act, Recording::outputs)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/recording");
    let missing: Vec<_> = named(&folder).into_iter().filter(|name| !seen.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "no program covers these outputs: {missing:?}");
}

/// The outputs by name in the sources of a folder, except the vendors', which have their own tests (`vendors::faults`).
fn named(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(named(&path));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for call in ["fill(\"", "output(\"", "tag(\"", "number(\"", "list(\""] {
            let rest = source.split(call).skip(1);
            let found = rest.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned());
            names.extend(found.filter(|name| !name.contains("dv_")));
        }
    }
    assert!(!names.is_empty(), "{}", folder.display());
    names
}
