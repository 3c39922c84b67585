//! Results that were written at another time.

use anyhow::{Context, Result, ensure};

use super::json::Document;
use super::{Series, perftest};

/// The text of a file, as this program writes it, or as a shell of Windows has it: with a mark of its encoding before it.
///
/// # Errors
///
/// A sentence for the user, where it is no text.
pub fn text(bytes: Vec<u8>) -> Result<String> {
    let unit: fn([u8; 2]) -> u16 = match bytes.as_slice() {
        [0xef, 0xbb, 0xbf, rest @ ..] => return plain(rest.to_vec()),
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return plain(bytes),
    };
    let pairs = bytes[2..].chunks_exact(2);
    ensure!(pairs.remainder().is_empty(), "it is UTF-16, and ends within a letter");
    let units: Vec<u16> = pairs.map(|pair| unit([pair[0], pair[1]])).collect();
    String::from_utf16(&units).context("it is no text, though it begins as one of UTF-16 does")
}

fn plain(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).context("it is no text of UTF-8, and has no mark of UTF-16")
}

/// The tests in a text, under a name: a document or a stream of this program, or what the programs of perftest print.
///
/// # Errors
///
/// A sentence for the user, where it is neither.
pub fn series(text: &str, name: &str) -> Result<Vec<Series>> {
    if text.trim_start().starts_with('{') {
        return Ok(vec![Document::read(text)?.series(name)]);
    }
    let all = perftest::read(text, name);
    ensure!(!all.is_empty(), "it is neither JSON of stride-perf nor the output of a program of perftest");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measure;
    use crate::report::sample;

    #[test]
    fn documents_and_texts() {
        let rows = vec![sample::bandwidth_row(64, 1000)];
        let document = Document::new(sample::environment(Measure::Bandwidth), rows, Vec::new());
        let text = sample::written(|out| document.write(out));
        assert_eq!(series(&text, "new").unwrap(), [document.series("new")]);
        let text = "Send BW Test\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n64 1000 1.00 1.00\n";
        assert_eq!(series(text, "old").unwrap()[0].rows.len(), 1);
    }

    #[test]
    fn texts_of_other_encodings_are_read() {
        let expected = "Send BW Test\n#bytes ü";
        let of = |start: &[u8], bytes: fn(u16) -> [u8; 2]| {
            let units = expected.encode_utf16().flat_map(bytes);
            text(start.iter().copied().chain(units).collect()).unwrap()
        };
        assert_eq!(of(&[0xff, 0xfe], u16::to_le_bytes), expected);
        assert_eq!(of(&[0xfe, 0xff], u16::to_be_bytes), expected);
        assert_eq!(text(format!("\u{feff}{expected}").into_bytes()).unwrap(), expected);
        assert_eq!(text(expected.as_bytes().to_vec()).unwrap(), expected);
        let said = |bytes: &[u8]| text(bytes.to_vec()).unwrap_err().to_string();
        assert_eq!(said(b"\xff\xfe1"), "it is UTF-16, and ends within a letter");
        assert!(said(b"\xff\xfe\0\xd8").starts_with("it is no text, though"));
        assert!(said(b"a\xffb").starts_with("it is no text of UTF-8"));
    }

    #[test]
    fn neither() {
        let said = |text: &str| format!("{:#}", series(text, "any").unwrap_err());
        assert_eq!(said("hello"), "it is neither JSON of stride-perf nor the output of a program of perftest");
        assert!(said(" {}").contains("no JSON of stride-perf"), "{}", said(" {}"));
    }
}
