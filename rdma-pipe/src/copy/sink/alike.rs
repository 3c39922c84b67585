//! Names that a file system may take for one, because it ignores the case of letters, how accents are encoded (Unicode
//! normalization), or dots and spaces at the end.

use std::collections::{BTreeSet, HashMap, HashSet};

use twox_hash::XxHash3_128;
use unicode_normalization::UnicodeNormalization as _;

use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, Id};
use crate::tree::Directory;

use super::rest::Rest;
use crate::copy::writer::Writers;

/// The names of a directory that such a file system could take for others of the same directory.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// The directories whose lists are incomplete, each with the hashes of its names' keys.
    names: HashMap<Id, HashMap<u64, Vec<u8>>>,
    found: HashMap<Id, BTreeSet<Vec<u8>>>,
}

impl Alike {
    /// Takes the names of a list.
    pub(super) fn take(&mut self, dir: Id, entries: &[Entry], is_whole: bool) {
        let names = self.names.entry(dir).or_default();
        for Entry { name, .. } in entries {
            match names.entry(XxHash3_128::oneshot(&key(name)) as u64) {
                std::collections::hash_map::Entry::Occupied(first) => {
                    self.found.entry(dir).or_default().extend([first.get().clone(), name.clone()]);
                }
                free => _ = free.or_insert_with(|| name.clone()),
            }
        }
        if is_whole {
            self.names.remove(&dir);
        }
    }

    /// Reports the names of entries that were replaced by, or became one with, an entry of another name.
    pub(super) fn check(&self, rest: &Rest, writers: &Writers<'_>) -> Result<()> {
        for (dir, names) in &self.found {
            // A directory that has failed was reported already.
            let Ok(directory) = rest.directory(*dir) else { continue };
            let Ok(present) = directory.names() else { continue };
            let present: HashSet<Vec<u8>> = present.into_iter().collect();
            for name in names.iter().filter(|name| !present.contains(*name) && directory.stat(name).is_ok()) {
                let path = escape(&rest.path_of(*dir, name));
                let text = format!("cannot keep {path}: the file system takes its name for that of another entry");
                writers.fail(*dir, Error::new(Kind::File, text))?;
            }
        }
        Ok(())
    }
}

/// Whether a name leads to an entry that has another name.
pub(super) fn is_other(directory: &Directory, name: &[u8]) -> bool {
    directory.stat(name).is_ok() && directory.names().is_ok_and(|names| names.iter().all(|other| other != name))
}

/// What is equal for all names that such a file system takes for one.
pub(super) fn key(name: &[u8]) -> Vec<u8> {
    let key = match std::str::from_utf8(name) {
        // Conversions in both directions, because "\u{df}", "\u{1e9e}" and "SS" are alike.
        Ok(name) if !name.is_ascii() => {
            let decomposed: String = name.nfkd().collect();
            decomposed.to_lowercase().to_uppercase().to_lowercase().nfkd().collect::<String>().into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    };
    let end = key.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    key[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{EntryKind, ROOT};

    #[test]
    fn names_that_are_alike_are_found_in_each_directory() {
        let entry = |name: &str| Entry {
            name: name.into(),
            kind: EntryKind::Directory,
            mode: 0,
            owner: (0, 0),
            modified: (0, 0),
            attributes: Vec::new(),
        };
        let mut alike = Alike::default();
        alike.take(ROOT, &["Makefile", "a", "\u{c9}t\u{e9}"].map(entry), false);
        alike.take(7, &["A", "b"].map(entry), true);
        assert!(alike.found.is_empty(), "{alike:?}");
        alike.take(ROOT, &["makefile", "A. ", "\u{e9}T\u{c9}", "b"].map(entry), true);
        let found: Vec<String> =
            alike.found[&ROOT].iter().map(|name| String::from_utf8(name.clone()).unwrap()).collect();
        assert_eq!(found, ["A. ", "Makefile", "a", "makefile", "\u{c9}t\u{e9}", "\u{e9}T\u{c9}"]);
        assert!(alike.names.is_empty() && !alike.found.contains_key(&7));
    }

    /// What ext4 and f2fs with `casefold`, HFS+, APFS and NTFS take for one name.
    #[test]
    fn names_of_equal_letters_are_alike() {
        let all_alike = |names: &[&str]| names.iter().all(|name| key(name.as_bytes()) == key(names[0].as_bytes()));
        assert!(all_alike(&["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}", "CAFE\u{301}"]));
        assert!(all_alike(&["stra\u{df}e", "STRASSE", "Strasse", "stra\u{1e9e}e"]));
        assert!(all_alike(&["\u{212b}ngstr\u{f6}m", "\u{c5}ngstro\u{308}m", "a\u{30a}ngstr\u{d6}M"]));
        assert!(all_alike(&["\u{ac01}", "\u{1100}\u{1161}\u{11a8}"]), "Hangul");
        assert!(!all_alike(&["cafe", "caf\u{e9}"]) && !all_alike(&["a", "b"]));
        assert_eq!(key(b"\xff.A"), b"\xff.a", "not UTF-8");
    }
}
