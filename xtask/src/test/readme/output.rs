//! Compares what a command prints with what a document shows.
//!
//! `…` in a line stands for any text, and a line `…` for any lines. A number or an address stands for any other, and
//! any space for any other, because columns have the width of their figures. Words are equal.

/// Any text, or any lines.
const ANY: &str = "…";
/// What takes the place of a figure.
const FIGURE: &str = "#";

/// Whether the printed lines are those of the document.
pub(super) fn is_as_shown(shown: &[String], printed: &str) -> bool {
    let shown: Vec<String> = shown.iter().map(|line| plain(line)).collect();
    let printed: Vec<String> = printed.lines().map(plain).collect();
    are_equal(&shown, &printed, |shown, printed| {
        let letters = |line: &str| line.chars().map(String::from).collect::<Vec<_>>();
        are_equal(&letters(shown), &letters(printed), |shown, printed| shown == printed)
    })
}

/// Whether the items are equal in turn, where [`ANY`] stands for any number of items.
fn are_equal(shown: &[String], printed: &[String], is_equal: impl Fn(&str, &str) -> bool) -> bool {
    // After each shown item: how many printed ones may be before it.
    let mut reached = vec![false; printed.len() + 1];
    reached[0] = true;
    for item in shown {
        if item == ANY {
            let first = reached.iter().position(|is_reached| *is_reached).unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            for at in (0..printed.len()).rev() {
                reached[at + 1] = reached[at] && is_equal(item, &printed[at]);
            }
            reached[0] = false;
        }
    }
    reached[printed.len()]
}

/// The line with [`FIGURE`] for each figure, and one space for many.
fn plain(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(word).collect();
    // A table has a dash for a figure that it lacks.
    for word in words.iter_mut().filter(|word| *word == "-") {
        FIGURE.clone_into(word);
    }
    words.join(" ")
}

/// A word with its figures replaced. A digit within a name, such as `soft0`, is no figure.
fn word(word: &str) -> String {
    let (mut plain, mut rest) = (String::new(), word);
    while let Some(first) = rest.chars().next() {
        let is_start = !plain.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let length = if is_start { figure(rest) } else { 0 };
        if length > 0 {
            plain.push_str(FIGURE);
            rest = &rest[length..];
        } else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    plain
}

/// The length of the number or address at the start of a text, or 0.
fn figure(text: &str) -> usize {
    let length = |is_part: fn(char) -> bool| text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    if let Some(digits) = text.strip_prefix("0x") {
        return 2 + digits.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(digits.len());
    }
    let address = length(|letter| letter.is_ascii_hexdigit() || ":.".contains(letter));
    if text[..address].matches(':').count() > 1 {
        return address;
    }
    let number = length(|letter| letter.is_ascii_digit() || ".,:".contains(letter));
    // A full stop after a number, or a colon between words, belongs to the sentence.
    text[..number].trim_end_matches(['.', ',', ':']).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(shown: &str, printed: &str) -> bool {
        is_as_shown(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), printed)
    }

    #[test]
    fn figures_and_elided_text_may_differ() {
        for (shown, printed) in [
            ("core 0: 0.848 us one way", "core 0: 12.1 us one way\n"),
            ("a 64 KiB  1,000  -", "a 2 KiB 5 0.1"),
            ("at 127.0.0.1:7471, GID 0: ::ffff:1.2.3.4.", "at 10.0.0.7:1, GID 2: fe80::a:b."),
            ("[12] qp 0xb7d000, lkey 0x1", "[3] qp 0x12, lkey 0xff"),
            ("first\n…\nlast", "first\na\nlast\nb\nlast"),
            ("first\n…", "first"),
            ("a … c … e", "a b, b c d e"),
        ] {
            assert!(compare(shown, printed), "{shown}\n{printed}");
        }
    }

    #[test]
    fn words_and_further_lines_are_faults() {
        for (shown, printed) in [
            ("hello over soft0", "hello over soft1"),
            ("hello over soft0", "hello over TCP"),
            ("5 bytes", "5 bytes\nand more"),
            ("first\n…\nlast", "first\nlast\nmore"),
            ("first\nlast", "first"),
            ("… bytes", "5 byte"),
            ("5 bytes", "bytes"),
        ] {
            assert!(!compare(shown, printed), "{shown}\n{printed}");
        }
    }
}
