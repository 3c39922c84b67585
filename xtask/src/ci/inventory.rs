//! The step `unsafe`: unsafe code is where `UNSAFE.md` has it, and there is as much of it as it says.
//!
//! A row of its tables is a folder or a file, and the longest that fits a file is its own. A file without a row may have
//! nothing unsafe. What is not published has rows without numbers, as its tests come and go. That each block proves what it does is clippy's to demand (`undocumented_unsafe_blocks`), in macros and
//! for `unsafe impl` too; here nobody but the generated bindings may switch that off.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::tokens::Counts;

/// The table, in the root of the repository.
const PAGE: &str = "UNSAFE.md";
/// What demands the proofs; only generated code does without.
const LINT: &str = "undocumented_unsafe_blocks";
const GENERATED: &str = "rdma-mummy-sys/src/bindings/mod.rs";

/// Compares the table with the sources, or with `write` makes it right where that is a matter of numbers.
pub(super) fn check(root: &Path, write: bool) -> Result<()> {
    let files = count(root)?;
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (right, faults) = compare(&page, &files);
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    if write {
        return fs::write(&path, right).with_context(|| format!("cannot write {PAGE}"));
    }
    let differing = right.lines().zip(page.lines()).filter(|(right, page)| right != page);
    let differing: Vec<String> = differing.map(|(right, page)| format!("- {page}\n+ {right}")).collect();
    ensure!(
        differing.is_empty(),
        "{PAGE} is not what the sources are; look at what was added, and then: cargo xtask ci unsafe --write\n{}",
        differing.join("\n")
    );
    Ok(())
}

/// The files with something unsafe in them, by their paths from the root.
fn count(root: &Path) -> Result<BTreeMap<String, Counts>> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                // Not what is built, nor what is hidden.
                if name != "target" && !name.starts_with('.') {
                    open.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let counts = Counts::of(&source).with_context(|| path.display().to_string())?;
            let from_root = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let is_of_the_gate = from_root.starts_with("xtask/src/ci");
            ensure!(
                !source.contains(LINT) || from_root == GENERATED || is_of_the_gate,
                "{from_root} speaks of clippy's {LINT}: only generated code may switch it off"
            );
            if !counts.is_zero() {
                files.insert(from_root, counts);
            }
        }
    }
    Ok(files)
}

/// The page with the numbers that are, and what is wrong beyond numbers.
fn compare(page: &str, files: &BTreeMap<String, Counts>) -> (String, Vec<String>) {
    let rows: Vec<&str> = page.lines().filter_map(path_of).collect();
    let mut sums: BTreeMap<&str, Counts> = rows.iter().map(|row| (*row, Counts::default())).collect();
    let mut faults = Vec::new();
    for (file, counts) in files {
        let fits = |row: &&&str| file == **row || file.strip_prefix(**row).is_some_and(|rest| rest.starts_with('/'));
        match rows.iter().filter(fits).max_by_key(|row| row.len()).and_then(|row| sums.get_mut(row)) {
            Some(sum) => sum.add(*counts),
            None => faults.push(format!("{file} has unsafe code ({counts:?}), and {PAGE} has no row for it")),
        }
    }
    let published = page.split("\n## Not published").next().unwrap_or_default();
    for line in published.lines().filter(|line| path_of(line).is_some()) {
        if cells(line).len() != 6 {
            faults.push(format!("{PAGE} has a row of another form than the table: {line}"));
        }
    }
    let nothing = sums.iter().filter(|(_, sum)| sum.is_zero());
    faults.extend(nothing.map(|(row, _)| format!("{PAGE} has a row for {row}, where nothing is unsafe")));
    let lines = page.lines().map(|line| match (path_of(line).and_then(|path| sums.get(path)), &cells(line)[..]) {
        (Some(Counts { blocks, functions, impls, linkage }), [path, _, _, _, _, why]) => {
            format!("| {path} | {blocks} | {functions} | {impls} | {linkage} | {why} |\n")
        }
        _ => format!("{line}\n"),
    });
    (lines.collect(), faults)
}

/// What stands in the cells of a row.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// The path that a row of the table is of.
fn path_of(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once('`').map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "# Title\n\n| where | blocks | functions | impls | linkage | why |\n|---|---|---|---|---|---|\n";

    fn files(blocks: &[(&str, usize)]) -> BTreeMap<String, Counts> {
        blocks.iter().map(|&(file, blocks)| (file.to_owned(), Counts { blocks, ..Counts::default() })).collect()
    }

    #[test]
    fn the_longest_row_that_fits_is_the_files_own() {
        let rest = "| `a/b.rs` | 2 | 0 | 0 | 0 | a reason |\n\n## Not published\n\n| `t` | places alone |\n";
        let page = format!("{TABLE}| `a` | 9 | 9 | 9 | 9 | why not |\n{rest}");
        let (right, faults) = compare(&page, &files(&[("a/b.rs", 2), ("a/c/d.rs", 3), ("a/e.rs", 4), ("t/f.rs", 5)]));
        assert_eq!(faults, [""; 0]);
        assert_eq!(right, format!("{TABLE}| `a` | 7 | 0 | 0 | 0 | why not |\n{rest}"));
    }

    #[test]
    fn files_without_a_row_and_rows_without_files_are_faults() {
        let page = format!("{TABLE}| `a` | 1 | 0 | 0 | 0 | why not |\n");
        let (_, faults) = compare(&page, &files(&[("ab/c.rs", 1)]));
        assert!(faults[0].starts_with("ab/c.rs has unsafe code"), "{faults:?}");
        assert_eq!(faults[1], "UNSAFE.md has a row for a, where nothing is unsafe");
        let page = format!("{TABLE}| `a` | 1 | 0 | 0 | why not |\n");
        let (_, faults) = compare(&page, &files(&[("a/c.rs", 1)]));
        assert!(matches!(&faults[..], [fault] if fault.contains("of another form")), "{faults:?}");
    }
}
