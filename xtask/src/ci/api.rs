//! The step `api`: the public items of the crates match `api/`, which has one item per line.
//!
//! A change of the API thus shows in the diff. The items come from rustdoc's JSON, which only a public-api of the same
//! months can parse, so the nightly toolchain is pinned by date. Derived traits are not listed. rdma-mummy-sys is left
//! out: its types are generated from the headers, which the step `bindings` compares.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use public_api::{Builder, PublicApi};

use crate::{repo, toolchain};

/// The lists and their crates.
const FOLDER: &str = "api";
const CRATES: [&str; 6] = ["canter", "sideway", "softrnic", "trespass", "trespass-rpc", "xsk"];

/// The items that every bitflags type has from its macro, which would hide the rest.
const OF_FLAGS: &str = "\
    all all_named bitand bitand_assign bitor bitor_assign bits bitxor bitxor_assign complement contains \
    difference empty extend from_bits from_bits_retain from_bits_truncate from_iter from_name insert \
    intersection intersects into_iter is_all is_empty iter iter_names not remove set sub sub_assign \
    symmetric_difference toggle truncate union";

/// Compares the lists, or writes them.
pub(super) fn check(root: &Path, write: bool) -> Result<()> {
    let nightly = toolchain::nightly(root, &[])?;
    let mut rustdoc = repo::toolchain_cargo(root, &nightly);
    rustdoc.args(["doc", "--no-deps", "--all-features", "--lib", "--quiet"]);
    rustdoc.args(CRATES.iter().flat_map(|name| ["--package", name]));
    rustdoc.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    // The folder of another toolchain, because these files are not documentation.
    let folder = repo::target_folder(root)?.join("nightly");
    rustdoc.arg("--target-dir").arg(&folder);
    repo::build(rustdoc)?;
    for name in CRATES {
        let json = folder.join("doc").join(name.replace('-', "_")).with_extension("json");
        let api = Builder::from_rustdoc_json(&json).omit_auto_derived_impls(true).omit_auto_trait_impls(true);
        let api = api.omit_blanket_impls(true).build().with_context(|| format!("rustdoc's JSON of {name}"))?;
        compare(root, name, &list(&api), write)?;
    }
    Ok(())
}

/// The items, except those that every type has.
fn list(api: &PublicApi) -> String {
    let lines: Vec<String> = api.items().map(ToString::to_string).collect();
    let sets: BTreeSet<&str> = lines.iter().filter_map(|line| function(line)).filter_map(of_set).collect();
    lines.iter().filter(|line| tells(line, &sets)).flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// The type of a function, and its name.
fn function(line: &str) -> Option<(&str, &str)> {
    let before = line.split('(').next().filter(|_| line.contains('('))?;
    let (_, path) = before.split_once(" fn ")?;
    let (of, name) = path.rsplit_once("::")?;
    Some((of, name.split('<').next().unwrap_or(name)))
}

/// The type, if the function is one that only bitflags types have.
fn of_set<'l>((of, name): (&'l str, &'l str)) -> Option<&'l str> {
    (name == "from_bits_retain").then_some(of)
}

/// Whether a line is an item that not every bitflags or printable type has.
fn tells(line: &str, sets: &BTreeSet<&str>) -> bool {
    let is_usual = function(line).is_some_and(|(of, name)| {
        name == "fmt" || sets.contains(of) && OF_FLAGS.split(' ').any(|of_flags| of_flags == name)
    });
    !(is_usual
        || ["impl core::ops::", "impl core::iter::", "impl core::fmt::"].iter().any(|prefix| line.starts_with(prefix))
        || line.contains("InternalBitFlags")
        || line.starts_with("impl bitflags::"))
}

fn compare(root: &Path, name: &str, list: &str, write: bool) -> Result<()> {
    let file = format!("{FOLDER}/{name}.txt");
    let path = root.join(&file);
    if write {
        return fs::write(&path, list).with_context(|| format!("cannot write {file}"));
    }
    let committed = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
    let (gone, new) = differences(&committed, list);
    ensure!(
        gone.is_empty() && new.is_empty(),
        "{file} differs from the public items of {name}; if this is intended, run cargo xtask ci api --write\n{}{}",
        gone.iter().map(|line| format!("- {line}\n")).collect::<String>(),
        new.iter().map(|line| format!("+ {line}\n")).collect::<String>(),
    );
    Ok(())
}

/// The lines of each list that the other lacks.
fn differences<'l>(one: &'l str, other: &'l str) -> (Vec<&'l str>, Vec<&'l str>) {
    let lines = |text: &'l str| text.lines().collect::<BTreeSet<_>>();
    let (one, other) = (lines(one), lines(other));
    (one.difference(&other).copied().collect(), other.difference(&one).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_every_type_are_left_out() {
        for line in [
            "pub const fn a::Flags::empty() -> Self",
            "pub fn a::Flags::set(&mut self, Self, bool)",
            "pub fn a::Other::fmt(&self, &mut core::fmt::Formatter<'_>) -> core::fmt::Result",
            "impl core::ops::bit::BitXor for a::Flags",
            "pub type a::Flags::Internal = InternalBitFlags",
        ] {
            assert!(!tells(line, &BTreeSet::from(["a::Flags"])), "{line}");
        }
        for line in [
            "pub struct a::Flags(_)",
            "pub const a::Flags::Write: Self",
            "pub fn a::Queue::resize(&mut self, u32) -> core::result::Result<(), a::Error>",
            "pub a::Error::set: bool",
            "pub fn a::List::is_empty(&self) -> bool",
            "pub fn a::List::iter(&self) -> impl core::iter::traits::iterator::Iterator",
        ] {
            assert!(tells(line, &BTreeSet::from(["a::Flags"])), "{line}");
        }
    }

    #[test]
    fn lines_in_one_list_only_are_reported() {
        assert_eq!(differences("a\nb\n", "b\nc\n"), (vec!["a"], vec!["c"]));
        assert_eq!(differences("a\n", "a\n"), (vec![], vec![]));
    }
}
