//! The step `unsafe`: unsafe code is only in the places that `UNSAFE.md` lists.
//!
//! A row of its tables is a folder or a file. Unsafe code outside all rows is a fault, and so is a row without unsafe
//! code. clippy demands a proof for each block (`undocumented_unsafe_blocks`), in macros and `unsafe impl` as well;
//! only the generated bindings may switch that lint off.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::repo;

/// The page with the tables, in the root of the repository.
const PAGE: &str = "UNSAFE.md";
/// The lint that demands the proofs.
const LINT: &str = "undocumented_unsafe_blocks";
const GENERATED: &str = "rdma-mummy-sys/src/bindings/mod.rs";

/// Compares the tables with the sources.
pub(super) fn check(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let faults = compare(&page, &files(root)?);
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The files with unsafe code, by their paths from the root.
fn files(root: &Path) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    for path in repo::files(root)? {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let from_root = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let is_of_the_gate = from_root.starts_with("xtask/src/ci");
        ensure!(
            !source.contains(LINT) || from_root == GENERATED || is_of_the_gate,
            "{from_root} names clippy's {LINT}: only generated code may switch it off"
        );
        if is_unsafe(&source).with_context(|| path.display().to_string())? {
            files.insert(from_root);
        }
    }
    Ok(files)
}

/// Whether a file has unsafe code, macros included. Comments, string literals and function pointer types are ignored.
fn is_unsafe(source: &str) -> Result<bool> {
    let tokens: TokenStream = source.parse().map_err(|error| anyhow!("cannot parse its Rust tokens: {error}"))?;
    Ok(has_unsafe(tokens))
}

fn has_unsafe(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    tokens.iter().enumerate().any(|(index, token)| match token {
        TokenTree::Group(group) => has_unsafe(group.stream()),
        TokenTree::Ident(ident) if ident == "unsafe" => !is_pointer_type(&tokens[index + 1..]),
        _ => false,
    })
}

/// Whether the tokens after `unsafe` continue a function pointer type: `extern "C" fn (…)`, without a name.
fn is_pointer_type(rest: &[TokenTree]) -> bool {
    let of_function = rest.iter().position(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let Some(at @ 0..=2) = of_function else { return false };
    matches!(rest.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

/// The faults of the page.
fn compare(page: &str, files: &BTreeSet<String>) -> Vec<String> {
    let rows: Vec<&str> = page.lines().filter_map(path_of).collect();
    let is_in =
        |file: &str, row: &str| file.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let without_row = files.iter().filter(|file| !rows.iter().any(|row| is_in(file, row)));
    let empty = rows.iter().filter(|row| !files.iter().any(|file| is_in(file, row)));
    without_row
        .map(|file| format!("{file} has unsafe code, and {PAGE} has no row for it"))
        .chain(empty.map(|row| format!("{PAGE} has a row for {row}, which has no unsafe code")))
        .collect()
}

/// The path of a row.
fn path_of(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once('`').map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_functions_impls_and_linkage_are_unsafe_in_macros_too() {
        for source in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f();",
            "pub unsafe extern \"C\" fn g() {}",
            "unsafe trait T {}",
            "unsafe impl<X> T for X {}",
            "unsafe extern \"C\" { fn f(); }",
            "#[unsafe(no_mangle)] fn g() {}",
            "macro_rules! m { ($n:ident) => { unsafe fn $n() {} }; }",
            "m!(unsafe { f() });",
        ] {
            assert!(is_unsafe(source).unwrap(), "{source}");
        }
    }

    #[test]
    fn pointer_types_strings_and_comments_are_not_unsafe() {
        for source in [
            "type F = unsafe extern \"C\" fn(u8); type G = unsafe fn(); type H = unsafe extern fn(); // unsafe { }",
            "/// unsafe { }\nconst TEXT: &str = \"unsafe { }\"; fn unsafe_(r#unsafe_: u8) {}",
        ] {
            assert!(!is_unsafe(source).unwrap(), "{source}");
        }
        assert!(is_unsafe("fn f( {").is_err());
    }

    #[test]
    fn files_without_a_row_and_rows_without_files_are_faults() {
        let files: BTreeSet<String> = ["a/b.rs", "a/c/d.rs", "ab/c.rs"].map(str::to_owned).into();
        let page =
            "# Title\n\n| where | why |\n|---|---|\n| `a` | a reason |\n| `a/b.rs` | another |\n| `e` | none |\n";
        assert_eq!(
            compare(page, &files),
            [
                "ab/c.rs has unsafe code, and UNSAFE.md has no row for it",
                "UNSAFE.md has a row for e, which has no unsafe code"
            ]
        );
    }
}
