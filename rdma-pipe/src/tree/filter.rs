//! The filter for the entries of a tree.

use serde::{Deserialize, Serialize};

/// An ordered list of patterns. The first pattern that matches an entry decides; an entry that matches no pattern is
/// copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    rules: Vec<(bool, String)>,
}

impl Filter {
    /// Adds a pattern. `*` and `?` match within a component, `**` across components. A pattern with `/` is compared
    /// with the end of the path below the source, or with the whole path if it begins with `/`. A pattern without `/`
    /// is compared with the name. A trailing `/` matches only directories.
    pub fn add(&mut self, include: bool, pattern: &str) {
        self.rules.push((include, pattern.to_owned()));
    }

    /// Whether an entry is copied. `path` is its path below the source.
    pub fn allows(&self, path: &[u8], is_directory: bool) -> bool {
        let rule = self.rules.iter().find(|(_, pattern)| matches(pattern.as_bytes(), path, is_directory));
        rule.is_none_or(|(include, _)| *include)
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn matches(pattern: &[u8], path: &[u8], is_directory: bool) -> bool {
    let pattern = match pattern.strip_suffix(b"/") {
        Some(_) if !is_directory => return false,
        Some(pattern) => pattern,
        None => pattern,
    };
    if let Some(anchored) = pattern.strip_prefix(b"/") {
        return wildcard(anchored, path);
    }
    // Tries the pattern at the start of each component.
    let starts =
        std::iter::once(0).chain(path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1));
    starts.into_iter().any(|at| wildcard(pattern, &path[at..]))
}

/// Compares a text with a pattern, without recursion: after a mismatch, the last star is made to match one more byte.
fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize, bool)> = None;
    while of < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                let crosses = pattern.get(at + 1) == Some(&b'*');
                at += 1 + usize::from(crosses);
                star = Some((at, of, crosses));
            }
            Some(b'?') if text[of] != b'/' => (at, of) = (at + 1, of + 1),
            Some(byte) if *byte == text[of] => (at, of) = (at + 1, of + 1),
            _ => match star {
                Some((after, taken, crosses)) if crosses || text[taken] != b'/' => {
                    (at, of) = (after, taken + 1);
                    star = Some((after, taken + 1, crosses));
                }
                _ => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_paths() {
        let cases = [
            ("*.o", "a.o", true),
            ("*.o", "d/e/a.o", true),
            ("*.o", "a.oo", false),
            ("/a", "a", true),
            ("/a", "d/a", false),
            ("d/*.c", "d/x.c", true),
            ("d/*.c", "d/e/x.c", false),
            ("d/**.c", "d/e/x.c", true),
            ("?", "a", true),
            ("?", "ab", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "", true),
            ("**", "a/b/c", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes(), false), expected, "{pattern} {path}");
        }
        assert!(matches(b"t/", b"t", true) && !matches(b"t/", b"t", false));
    }

    #[test]
    fn first_match_decides() {
        let mut filter = Filter::default();
        filter.add(true, "keep.o");
        filter.add(false, "*.o");
        assert!(filter.allows(b"keep.o", false) && !filter.allows(b"x.o", false) && filter.allows(b"x.c", false));
    }

    #[test]
    fn long_patterns_of_stars_end_in_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!wildcard(pattern.as_bytes(), "a".repeat(2_000).as_bytes()));
    }
}
