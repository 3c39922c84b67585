//! The pages `sideway/src/manual/coverage*.md` have a row for every function of libibverbs and librdmacm, and the tests
//! that they name exist. rustdoc checks the links to Rust items.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One line of a table.
struct Row {
    functions: Vec<String>,
    rust: String,
    tests: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows() -> Vec<Row> {
    let pages =
        ["coverage.md", "coverage_rdmacm.md"].map(|page| read(&repository().join("sideway/src/manual").join(page)));
    let rows: Vec<Row> = pages
        .iter()
        .flat_map(|page| page.lines())
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [functions, rust, tests] = cells[..] else { panic!("three cells: {line}") };
            Row { functions: codes(functions), rust: rust.to_owned(), tests: tests.to_owned() }
        })
        .collect();
    assert!(rows.len() > 50, "{} rows", rows.len());
    rows
}

/// The text in backticks.
fn codes(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The files of a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{error}")).path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

/// Whether the name belongs to libibverbs or librdmacm.
fn is_wrapped_library(name: &str) -> bool {
    name.starts_with("ibv_") || name.contains("_to_ibv_rate") || name.starts_with("rdma_")
}

/// Every function of libibverbs and librdmacm that `rdma-mummy-sys` has: exported, inline, and those of later releases.
fn functions() -> BTreeSet<String> {
    let source = repository().join("rdma-mummy-sys/src");
    let mut texts =
        ["bindings/prototypes.rs", "load/ibverbs.rs", "load/rdmacm/mod.rs"].map(|file| source.join(file)).to_vec();
    texts.extend(files(&source.join("inline")));
    texts.extend(files(&source.join("since_v44")));
    let declared = |text: &str| -> Vec<String> {
        let after = text.split("fn ").skip(1);
        let names = after.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect());
        names.filter(|name: &String| is_wrapped_library(name)).collect()
    };
    let found: BTreeSet<String> = texts.iter().flat_map(|path| declared(&read(path))).collect();
    assert!(found.len() > 230, "{} functions", found.len());
    found
}

#[test]
fn every_function_has_one_row() {
    let mut seen = BTreeSet::new();
    for row in rows() {
        for function in row.functions {
            assert!(seen.insert(function.clone()), "{function} has two rows");
        }
    }
    let functions = functions();
    let missing: Vec<_> = functions.difference(&seen).collect();
    assert!(missing.is_empty(), "without a row: {missing:#?}");
    let unknown: Vec<_> = seen.difference(&functions).collect();
    assert!(unknown.is_empty(), "no such function: {unknown:#?}");
}

#[test]
fn every_row_has_a_rust_item_or_the_reason_for_none() {
    for row in rows() {
        let linked = row.rust.contains("[`") && row.rust.contains("](");
        let reason = row.rust.strip_prefix("not wrapped: ").is_some_and(|reason| reason.len() > 10);
        assert!(linked != reason, "{:?}: {}", row.functions, row.rust);
    }
}

#[test]
fn every_named_test_exists() {
    let folder = repository().join("tests/tests");
    let mut named = 0;
    for row in rows() {
        let tests = codes(&row.tests);
        if tests.is_empty() {
            let reason = row.tests.strip_prefix("untested: ").is_some_and(|reason| reason.len() > 10);
            let wrapped = !row.rust.starts_with("not wrapped");
            assert!(reason || (!wrapped && row.tests == "–"), "{:?}: {}", row.functions, row.tests);
        }
        for test in tests {
            let (module, function) = test.rsplit_once("::").unwrap_or_else(|| panic!("program::module::test: {test}"));
            let module = folder.join(module.replace("::", "/"));
            let sources = if module.is_dir() { files(&module) } else { vec![module.with_extension("rs")] };
            let signature = format!("fn {function}(");
            assert!(sources.iter().any(|source| read(source).contains(&signature)), "{test} is not there");
            named += 1;
        }
    }
    assert!(named > 50, "{named} tests");
}
