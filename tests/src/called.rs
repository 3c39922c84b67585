//! The C functions that sideway calls, from its sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The texts of the Rust files in a folder and its subfolders.
fn texts(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{error}")) {
        let path = entry.unwrap_or_else(|error| panic!("{error}")).path();
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}")));
        }
    }
    texts
}

/// The functions of C that the bindings have.
fn functions() -> BTreeSet<String> {
    let source = repository().join("rdma-mummy-sys/src");
    let mut all = ["bindings/prototypes.rs", "load/ibverbs.rs", "load/rdmacm/mod.rs"]
        .map(|file| fs::read_to_string(source.join(file)).unwrap_or_else(|error| panic!("{error}")))
        .to_vec();
    all.extend(["inline", "since_v44"].iter().flat_map(|folder| texts(&source.join(folder))));
    let declared = all.iter().flat_map(|text| text.split("fn ").skip(1)).map(|rest| word(rest).to_owned());
    let is_of_c =
        |name: &String| name.starts_with("ibv_") || name.contains("_to_ibv_rate") || name.starts_with("rdma_");
    declared.filter(is_of_c).collect()
}

/// The identifier at the start of a text.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The functions of libibverbs and librdmacm that sideway calls: their names in its code.
///
/// # Panics
///
/// If the sources do not exist.
pub fn called() -> BTreeSet<String> {
    let functions = functions();
    assert!(functions.len() > 230, "{} functions", functions.len());
    let mut called = BTreeSet::new();
    for text in texts(&repository().join("sideway/src/ibverbs"))
        .into_iter()
        .chain(texts(&repository().join("sideway/src/rdmacm")))
    {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let line = line.split(" // ").next().unwrap_or_default();
            let outside = line.split('"').step_by(2);
            let words = outside.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
            called.extend(words.filter(|word| functions.contains(*word)).map(str::to_owned));
        }
    }
    called
}
