//! The names of a directory, and those that a file system may take for one, because it ignores the case of letters, how
//! accents are encoded (Unicode normalization), or dots and spaces at the end.

use std::collections::{BTreeSet, HashMap, hash_map};

use twox_hash::XxHash3_128;
use unicode_normalization::UnicodeNormalization as _;

/// The names that were listed of a directory.
#[derive(Debug, Default)]
pub struct Names {
    /// The first name of those that have the same key, by a hash of the key.
    first: HashMap<u64, Vec<u8>>,
    /// All names that have the same key as another one.
    alike: BTreeSet<Vec<u8>>,
}

impl Names {
    /// Adds a name. Returns whether it is new.
    pub fn add(&mut self, name: &[u8]) -> bool {
        match self.first.entry(hash(name)) {
            hash_map::Entry::Occupied(first) => {
                let is_new = first.get() != name && self.alike.insert(name.to_vec());
                if is_new && !self.alike.contains(first.get()) {
                    self.alike.insert(first.get().clone());
                }
                is_new
            }
            free => {
                free.or_insert_with(|| name.to_vec());
                true
            }
        }
    }

    /// Whether the name was listed.
    pub fn has(&self, name: &[u8]) -> bool {
        self.like(name).is_some_and(|first| first == name || self.alike.contains(name))
    }

    /// A listed name that may lead to the same entry as this one.
    pub fn like(&self, name: &[u8]) -> Option<&[u8]> {
        self.first.get(&hash(name)).map(Vec::as_slice)
    }

    /// The names that a file system may take for others of these.
    pub fn alike(&self) -> &BTreeSet<Vec<u8>> {
        &self.alike
    }

    /// Keeps only the names that are alike, because no others follow.
    pub(super) fn complete(&mut self) {
        self.first = HashMap::new();
    }
}

fn hash(name: &[u8]) -> u64 {
    XxHash3_128::oneshot(&key(name)) as u64
}

/// What is equal for all names that such a file system takes for one.
fn key(name: &[u8]) -> Vec<u8> {
    let mut key = match std::str::from_utf8(name) {
        // Conversions in both directions, because "\u{df}", "\u{1e9e}" and "SS" are alike.
        Ok(name) if !name.is_ascii() => {
            let decomposed: String = name.nfkd().collect();
            decomposed.to_lowercase().to_uppercase().to_lowercase().nfkd().collect::<String>().into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    };
    let end = key.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    key.truncate(end);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_found() {
        let mut names = Names::default();
        let mut add = |added: &[&str]| added.iter().all(|name| names.add(name.as_bytes()));
        assert!(add(&["Makefile", "a", "\u{c9}t\u{e9}"]));
        assert!(add(&["makefile", "A. ", "\u{e9}T\u{c9}", "b", "MAKEFILE"]));
        for repeated in ["Makefile", "makefile", "MAKEFILE", "b"] {
            assert!(!add(&[repeated]), "{repeated}");
        }
        let found: Vec<String> = names.alike.iter().map(|name| String::from_utf8(name.clone()).unwrap()).collect();
        assert_eq!(found, ["A. ", "MAKEFILE", "Makefile", "a", "makefile", "\u{c9}t\u{e9}", "\u{e9}T\u{c9}"]);
        assert!(names.has(b"MAKEFILE") && names.has(b"b") && !names.has(b"B") && !names.has(b"c"));
        assert_eq!((names.like(b"B."), names.like(b"c")), (Some(b"b".as_slice()), None));
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
