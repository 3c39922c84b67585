//! `?` converts every error of the public interfaces to `std::io::Error`.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_error_converts_to_io_error() {
    // Has no conversion, because that would leak the buffers that the error contains.
    let mut found: BTreeSet<String> = ["TearDownError".to_owned()].into();
    let mut expected = BTreeSet::new();
    for name in ["sideway", "softrnic", "xsk"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api").join(name).with_extension("txt");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let last = |path: &str| {
            let name = path.rsplit("::").next().unwrap_or(path);
            name.split(['<', '(', ' ']).next().unwrap_or(name).to_owned()
        };
        for line in text.lines() {
            let line = line.strip_prefix("#[non_exhaustive] ").unwrap_or(line);
            let item = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
            if let Some(item) = item.map(last).filter(|item| item.ends_with("Error") || item == "FieldNotEnabled") {
                expected.insert(item);
            }
            let conversion = line.strip_prefix("impl core::convert::From<");
            if let Some(from) = conversion.and_then(|line| line.strip_suffix("> for std::io::error::Error")) {
                found.insert(last(from));
            }
        }
    }
    assert!(expected.len() > 15, "{expected:?}");
    assert_eq!(found, expected);
}
