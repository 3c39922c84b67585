//! The filter for the entries of a tree.

use serde::{Deserialize, Serialize};

/// An ordered list of patterns. The first pattern that matches an entry decides; an entry that matches no pattern is
/// copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    rules: Vec<(bool, Vec<u8>)>,
}

impl Filter {
    /// Adds a pattern. `*` and `?` match within a component, `**` across components. A pattern with `/` is compared
    /// with the end of the path below the destination, or with the whole path if it begins with `/`. A pattern without
    /// `/` is compared with the name. A trailing `/` matches only directories, a trailing `/***` a directory and everything
    /// in it. `[a-z]` and `[[:alpha:]]` match one byte of the class, and `\\` escapes; see "PATTERN MATCHING RULES" in
    /// rsync(1).
    pub fn add(&mut self, include: bool, pattern: &[u8]) {
        self.rules.push((include, pattern.to_owned()));
    }

    /// Whether an entry is copied. `path` is its path below the destination.
    pub fn allows(&self, path: &[u8], is_directory: bool) -> bool {
        let rule = self.rules.iter().find(|(_, pattern)| matches(pattern, path, is_directory));
        rule.is_none_or(|(include, _)| *include)
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn matches(pattern: &[u8], path: &[u8], is_directory: bool) -> bool {
    if let Some(directory) = pattern.strip_suffix(b"/***") {
        let inside = [directory, b"/**"].concat();
        return matches(&[directory, b"/"].concat(), path, is_directory) || matches(&inside, path, is_directory);
    }
    let pattern = match pattern.strip_suffix(b"/") {
        Some(_) if !is_directory => return false,
        Some(pattern) => pattern,
        None => pattern,
    };
    if let Some(anchored) = pattern.strip_prefix(b"/") {
        return wildcard(anchored, path);
    }
    // So that `**/` also matches at the start of the path.
    if pattern.starts_with(b"**") {
        return wildcard(pattern, &[b"/", path].concat());
    }
    // Tries the pattern at the start of each component.
    let starts =
        std::iter::once(0).chain(path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1));
    starts.into_iter().any(|at| wildcard(pattern, &path[at..]))
}

/// Compares a text with a pattern, without recursion: after a mismatch, the last `*` is made to match one more byte. If
/// that byte is a slash, the last `**` is made to match one more instead. Earlier stars need no second look: what is
/// between them has matched as early as it can.
fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    // As in rsync, a backslash escapes only in a pattern with wildcards.
    let escapes = pattern.iter().any(|byte| b"*?[".contains(byte));
    let (mut at, mut of) = (0, 0);
    // The place in the pattern after the last star, and what follows the text that the star matches.
    let mut star: Option<(usize, usize)> = None;
    let mut stars = star;
    while of < text.len() {
        let rest = pattern.get(at..).unwrap_or_default();
        if rest.starts_with(b"**") {
            at += 2;
            (star, stars) = (None, Some((at, of)));
            continue;
        }
        if rest.starts_with(b"*") {
            at += 1;
            star = Some((at, of));
            continue;
        }
        let length = match rest {
            [b'?', ..] if text[of] != b'/' => Some(1),
            [b'[', ..] => class(rest, text[of]),
            [b'\\', byte, ..] if escapes => (*byte == text[of]).then_some(2),
            [byte, ..] => (*byte != b'?' && *byte == text[of]).then_some(1),
            [] => None,
        };
        if let Some(length) = length {
            (at, of) = (at + length, of + 1);
            continue;
        }
        let again = star.as_mut().filter(|(_, taken)| text[*taken] != b'/');
        let Some((after, taken)) = again.or(stars.as_mut()) else { return false };
        *taken += 1;
        (at, of) = (*after, *taken);
        if stars == Some((at, of)) {
            star = None;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The length of the class with which a pattern begins, such as `[a-z]`, `[!0-9]` or `[[:alpha:]]`, if the byte belongs
/// to the class. No class matches a slash, and a class without its end matches nothing.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_inverted = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(is_inverted);
    let (mut at, mut is_in) = (first, false);
    loop {
        let rest = pattern.get(at..).unwrap_or_default();
        // A bracket that is the first member is not the end.
        if rest.first() == Some(&b']') && at > first {
            return (is_in != is_inverted && byte != b'/').then_some(at + 1);
        }
        if let Some(named) = rest.strip_prefix(b"[:")
            && let Some(end) = named.windows(2).position(|two| two == b":]")
        {
            is_in |= is_of(&named[..end], byte);
            at += end + 4;
            continue;
        }
        let (low, taken) = member(rest)?;
        at += taken;
        let range = pattern.get(at..).and_then(|rest| rest.strip_prefix(b"-")).filter(|rest| !rest.starts_with(b"]"));
        let high = match range {
            Some(rest) => {
                let (high, taken) = member(rest)?;
                at += 1 + taken;
                high
            }
            None => low,
        };
        is_in |= (low..=high).contains(&byte);
    }
}

/// The first member of a class, which may be escaped, and its length.
fn member(class: &[u8]) -> Option<(u8, usize)> {
    match class {
        [b'\\', byte, ..] => Some((*byte, 2)),
        [byte, ..] => Some((*byte, 1)),
        [] => None,
    }
}

/// Whether a byte belongs to a class of POSIX.
fn is_of(name: &[u8], byte: u8) -> bool {
    match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => byte == b' ' || byte == b'\t',
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
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
            ("*.[oa]", "x.o", true),
            ("*.[oa]", "x.c", false),
            ("[!a-c]x", "dx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[\\]]", "]", true),
            ("[[:digit:]_]*", "_1", true),
            ("[[:digit:]_]*", "a1", false),
            ("a[!b]c", "a/c", false),
            ("[ab", "a", false),
            ("[", "[", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*\\?", "a?", true),
            ("*\\?", "ab", false),
            ("a\\b", "a\\b", true),
            ("d/***", "d/e/f", true),
            ("d/***", "x/d/e", true),
            ("d/***", "dd/e", false),
            ("**/tmp", "tmp", true),
            ("**/tmp", "a/b/tmp", true),
            ("**/tmp", "a/xtmp", false),
            ("**tmp", "a/xtmp", true),
            ("**/tmp/***", "tmp/f", true),
            ("**/f", "f", true),
            ("/**/tmp", "tmp", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes(), false), expected, "{pattern} {path}");
        }
        assert!(matches(b"t/", b"t", true) && !matches(b"t/", b"t", false));
        assert!(matches(b"t/***", b"t", true) && !matches(b"t/***", b"t", false));
    }

    /// All short patterns against all short paths.
    #[test]
    fn wildcards_match_like_their_definition() {
        fn defined(pattern: &[u8], text: &[u8]) -> bool {
            let after = |skip: usize, crosses: bool| {
                let end = text.iter().position(|&byte| byte == b'/' && !crosses).unwrap_or(text.len());
                (0..=end).any(|count| defined(&pattern[skip..], &text[count..]))
            };
            match (pattern, text) {
                ([b'*', b'*', ..], _) => after(2, true),
                ([b'*', ..], _) => after(1, false),
                ([b'?', ..], [byte, ..]) if *byte != b'/' => defined(&pattern[1..], &text[1..]),
                ([first, ..], [byte, ..]) if *first == *byte && *first != b'?' => defined(&pattern[1..], &text[1..]),
                ([], []) => true,
                _ => false,
            }
        }
        let words = |letters: &[u8], longest: usize| {
            let mut all = vec![Vec::new()];
            for length in 0..longest {
                let longer: Vec<Vec<u8>> = all.iter().filter(|word| word.len() == length).cloned().collect();
                all.extend(
                    longer.iter().flat_map(|word| letters.iter().map(move |&letter| [&word[..], &[letter]].concat())),
                );
            }
            all
        };
        let texts = words(b"ab/", 5);
        for pattern in words(b"ab/*?", 6) {
            for text in &texts {
                let shown = || [&pattern[..], b" ", text].concat().escape_ascii().to_string();
                assert_eq!(wildcard(&pattern, text), defined(&pattern, text), "{}", shown());
            }
        }
    }

    #[test]
    fn first_match_decides() {
        let mut filter = Filter::default();
        filter.add(true, b"keep.o");
        filter.add(false, b"*.o");
        assert!(filter.allows(b"keep.o", false) && !filter.allows(b"x.o", false) && filter.allows(b"x.c", false));
    }

    #[test]
    fn long_patterns_of_stars_end_in_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!wildcard(pattern.as_bytes(), "a".repeat(2_000).as_bytes()));
    }
}
