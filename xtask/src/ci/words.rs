//! The step `words`: prose avoids the words and phrases that `words.txt` lists.
//!
//! The step searches Markdown, comments, doc comments, string literals and long function names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::repo;

/// The table, in the root of the repository.
const TABLE: &str = "words.txt";
/// Source files, in which comments and string literals are prose. In all other files, the whole text is prose.
const CODE: [&str; 4] = ["rs", "c", "h", "cpp"];
const TEXT: [&str; 3] = ["md", "sh", "toml"];
/// Comments that come from the headers of rdma-core.
const GENERATED: &str = "rdma-mummy-sys/src/bindings/";

/// Compares the prose of all files with the table.
pub(super) fn check(root: &Path) -> Result<()> {
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    let table = Table::parse(&table)?;
    let mut faults = Vec::new();
    for path in repo::files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let is_code = CODE.contains(&extension.as_str());
        if name.starts_with(GENERATED) || !is_code && !TEXT.contains(&extension.as_str()) {
            continue;
        }
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let pieces = if is_code { pieces(&source) } else { vec![Piece { text: source, line: 1, kind: Kind::Text }] };
        let found = pieces.iter().flat_map(|piece| table.find(piece));
        faults.extend(found.map(|(line, phrase)| format!("{name}:{line}: {phrase}")));
    }
    ensure!(faults.is_empty(), "{TABLE} lists what to write instead of:\n{}", faults.join("\n"));
    Ok(())
}

/// `words.txt`. A phrase is a list of words in lower case.
#[derive(Default)]
struct Table {
    /// Phrases by their first word; `true` for those that count only at the start of a doc comment.
    avoid: HashMap<String, Vec<(Vec<String>, bool)>>,
    allowed: Vec<Vec<String>>,
}

impl Table {
    fn parse(text: &str) -> Result<Self> {
        let mut table = Self::default();
        let mut section = "";
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            let phrases = line.split("->").next().unwrap_or_default().split(',').map(str::trim);
            match (section, line) {
                (_, "") => {}
                (_, "avoid:" | "allowed:") => section = line,
                ("avoid:", _) => {
                    for phrase in phrases {
                        let words = words_of(phrase.trim_start_matches('^'));
                        let first = words.first().with_context(|| format!("{TABLE}: empty phrase in `{line}`"))?;
                        table.avoid.entry(first.clone()).or_default().push((words, phrase.starts_with('^')));
                    }
                }
                ("allowed:", _) => table.allowed.extend(phrases.map(words_of)),
                _ => bail!("{TABLE}: `{line}` is in no section"),
            }
        }
        Ok(table)
    }

    /// The lines and phrases of `avoid` in a piece, without those inside a phrase of `allowed`.
    fn find(&self, piece: &Piece) -> Vec<(usize, String)> {
        let words = piece.words();
        let is_at = |phrase: &[String], at: usize| {
            words.get(at..at + phrase.len()).is_some_and(|words| words.iter().map(|(word, _)| word).eq(phrase))
        };
        let is_allowed = |from: usize, to: usize| {
            self.allowed.iter().any(|phrase| {
                let mut starts = to.saturating_sub(phrase.len())..=from;
                starts.any(|at| is_at(phrase, at))
            })
        };
        let mut found = Vec::new();
        for (at, (word, line)) in words.iter().enumerate() {
            for (phrase, is_start) in self.avoid.get(word).into_iter().flatten() {
                let may_be = !is_start || at == 0 && piece.kind == Kind::Doc;
                if may_be && is_at(phrase, at) && !is_allowed(at, at + phrase.len()) {
                    found.push((*line, phrase.join(" ")));
                }
            }
        }
        found
    }
}

fn words_of(phrase: &str) -> Vec<String> {
    phrase.split_whitespace().map(str::to_lowercase).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Markdown, scripts, manifests, and the names of functions.
    Text,
    /// A string literal, with its escapes.
    Escaped,
    /// `//` or `/* */`.
    Comment,
    /// `///` or `//!`.
    Doc,
}

/// A piece of prose: adjacent comment lines of one kind, a string literal, or a name.
#[derive(Debug)]
struct Piece {
    text: String,
    line: usize,
    kind: Kind,
}

impl Piece {
    /// The words in lower case, each with its line. Punctuation, and code in backticks or braces, is an empty word, so
    /// that no phrase spans it.
    fn words(&self) -> Vec<(String, usize)> {
        let mut words = Vec::new();
        let mut line = self.line;
        let mut rest = self.text.as_str();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '\n' => {
                    line += 1;
                    1
                }
                _ if first.is_whitespace() => first.len_utf8(),
                _ if is_name(first) => {
                    let word = rest.split(|c| !is_name(c)).next().unwrap_or_default();
                    words.push((word.to_lowercase(), line));
                    word.len()
                }
                '\\' if self.kind == Kind::Escaped => {
                    // A backslash before a line end continues the literal.
                    let escaped = rest[1..].chars().next().filter(|next| *next != '\n');
                    if escaped.is_some() {
                        words.push((String::new(), line));
                    }
                    1 + escaped.map_or(0, char::len_utf8)
                }
                _ => {
                    words.push((String::new(), line));
                    skipped(rest).unwrap_or(first.len_utf8())
                }
            };
            rest = &rest[length..];
        }
        words
    }
}

/// The length of `code` or of a {placeholder}, within one line.
fn skipped(rest: &str) -> Option<usize> {
    let line = rest.lines().next()?;
    let end = if let Some(code) = line.strip_prefix('`') {
        code.find('`')?
    } else {
        let inner = line.strip_prefix('{')?;
        inner.find('}').filter(|end| !inner[..*end].contains(char::is_whitespace))?
    };
    Some(end + 2)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The prose of a source file in Rust, C or C++.
fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    // The marker of the last piece, and its last line.
    let mut last = ("", 0);
    let (mut at, mut line) = (0, 1);
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let (length, piece) = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            let marker = ["///", "//!", "//"].into_iter().find(|marker| rest.starts_with(*marker)).unwrap_or_default();
            let text = &rest[marker.len()..length];
            match pieces.last_mut() {
                Some(piece) if last == (marker, line - 1) => {
                    piece.text.push('\n');
                    piece.text.push_str(text);
                }
                _ => {
                    let kind = if marker.len() == 3 { Kind::Doc } else { Kind::Comment };
                    pieces.push(Piece { text: text.to_owned(), line, kind });
                }
            }
            last = (marker, line);
            (length, None)
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            (length, Some((&rest[2..length], Kind::Comment)))
        } else if first == '"' {
            let length = literal(rest);
            (length, Some((&rest[1..length], Kind::Escaped)))
        } else if first == '\'' {
            (character(rest), None)
        } else if is_name(first) {
            let word = rest.split(|c| !is_name(c)).next().unwrap_or_default();
            let after = &rest[word.len()..];
            let hashes = after.len() - after.trim_start_matches('#').len();
            if ["r", "br", "cr"].contains(&word) && after[hashes..].starts_with('"') {
                let start = word.len() + hashes + 1;
                let end = format!("\"{}", &after[..hashes]);
                let text = rest[start..].split(end.as_str()).next().unwrap_or_default();
                ((start + text.len() + end.len()).min(rest.len()), Some((text, Kind::Text)))
            } else if let Some(name) = after.strip_prefix(' ').filter(|_| word == "fn") {
                let name = name.split(|c| !is_name(c)).next().unwrap_or_default();
                if name.matches('_').count() >= 2 {
                    pieces.push(Piece { text: name.replace('_', " "), line, kind: Kind::Text });
                    last = ("", line);
                }
                (word.len() + 1 + name.len(), None)
            } else {
                (word.len(), None)
            }
        } else {
            (first.len_utf8(), None)
        };
        if let Some((text, kind)) = piece {
            pieces.push(Piece { text: text.to_owned(), line, kind });
            last = ("", line);
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    pieces
}

/// The length of the string literal that `rest` starts with.
fn literal(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of the character literal that `rest` starts with, or 1 for the mark of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let is_escaped = chars.next().is_some_and(|(_, c)| c == '\\');
    if is_escaped {
        chars.next();
        return chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "avoid: # a comment\n alas, lo and -> x\n yonder -> after\n ^the same\n\
                        allowed:\n yonder a feature # Cargo\n";

    fn found(source: &str) -> Vec<(usize, String)> {
        let table = Table::parse(TEXT).unwrap();
        pieces(source).iter().flat_map(|piece| table.find(piece)).collect()
    }

    #[test]
    fn phrase_in_prose_is_found_with_its_line() {
        let source = "/// The same.\nfn f() {\n    let alas = \"lo \\\n     and\"; // Alas, and lo\n    // and yonder\n}\n\
                      fn peer_alas_left() {} /* a\nalas */ const R: &str = r#\"\"alas\"#;";
        let lines: Vec<_> = found(source).into_iter().map(|(line, phrase)| format!("{line} {phrase}")).collect();
        assert_eq!(lines, ["1 the same", "3 lo and", "4 alas", "4 lo and", "5 yonder", "7 alas", "8 alas", "8 alas"]);
    }

    #[test]
    fn code_and_allowed_phrases_are_not_found() {
        let source = "fn alas<'a>(_: char) { f('\"', '\\'', \"{alas} \\alas\") } // yonder a feature, `alas`, lo, and. Do the same.\n\
                      struct Alas; // alasx\n//! A line.\n//! The same.\n";
        assert!(found(source).is_empty());
    }

    #[test]
    fn phrase_outside_a_section_is_an_error() {
        assert!(Table::parse("alas\n").is_err());
    }
}
