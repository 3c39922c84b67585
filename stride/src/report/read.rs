//! Reads the results of earlier runs.

use anyhow::{Context, Result, ensure};

use super::json::Document;
use super::{Series, perftest};

/// Returns the text of a file in UTF-8, with or without a byte order mark.
///
/// # Errors
///
/// Returns an error for the user if the file has another encoding.
pub fn text(bytes: Vec<u8>) -> Result<String> {
    let text = String::from_utf8(bytes).context("not UTF-8; convert it, for example with iconv")?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Reads the tests in a text, which is JSON of this program or output of perftest's programs. The series get the name
/// `name`.
///
/// # Errors
///
/// Returns an error if the text has neither format.
pub fn series(text: &str, name: &str) -> Result<Vec<Series>> {
    if text.trim_start().starts_with('{') {
        return Ok(vec![Document::read(text)?.series(name)]);
    }
    let all = perftest::read(text, name);
    ensure!(!all.is_empty(), "it is neither JSON of stride-perf nor output of a perftest program");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measure;
    use crate::report::sample;

    #[test]
    fn json_and_perftest_output_are_read() {
        let rows = vec![sample::bandwidth_row(64, 1000)];
        let document = Document::new(sample::environment(Measure::Bandwidth), rows, Vec::new());
        let text = sample::written(|out| document.write(out));
        assert_eq!(series(&text, "new").unwrap(), [document.series("new")]);
        let text = "Send BW Test\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n64 1000 1.00 1.00\n";
        assert_eq!(series(text, "old").unwrap()[0].rows.len(), 1);
    }

    #[test]
    fn byte_order_mark_is_dropped_and_other_encodings_are_errors() {
        assert_eq!(text("\u{feff}#bytes ü".into()).unwrap(), "#bytes ü");
        assert_eq!(text("#bytes ü".into()).unwrap(), "#bytes ü");
        let error = text(b"\xff\xfe#\0".to_vec()).unwrap_err().to_string();
        assert_eq!(error, "not UTF-8; convert it, for example with iconv");
    }

    #[test]
    fn other_text_is_an_error() {
        let error = |text: &str| format!("{:#}", series(text, "any").unwrap_err());
        assert_eq!(error("hello"), "it is neither JSON of stride-perf nor output of a perftest program");
        assert!(error(" {}").contains("not JSON of stride-perf"), "{}", error(" {}"));
    }
}
