//! Reading a trace from its lines.

use std::io::{self, BufRead};

use crate::record::{Record, What};

/// A trace that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its records.
    pub records: Vec<Record>,
    /// Whether the last line was cut off, so that the end is missing.
    pub is_cut: bool,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("line {line}: {source}")]
    Io {
        /// The line, from one.
        line: usize,
        /// The error.
        source: io::Error,
    },
    /// A line is no record.
    #[error("line {line} is not a record of a trace: {source}; write the trace as JSON lines")]
    Line {
        /// The line, from one.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Trace {
    /// Reads the JSON lines of a trace. A last line that was cut off is left out.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub fn read(mut from: impl BufRead) -> Result<Self, ReadError> {
        let mut trace = Self::default();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let length = from.read_until(b'\n', &mut text).map_err(|source| ReadError::Io { line, source })?;
            if length == 0 {
                break;
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&text) {
                Ok(record) => trace.records.push(record),
                Err(source) if source.is_eof() && !text.ends_with(b"\n") => {
                    trace.is_cut = true;
                    break;
                }
                Err(source) => return Err(ReadError::Line { line, source }),
            }
        }
        Ok(trace)
    }

    /// The host's clock at the start of the trace's own time.
    pub(super) fn origin(&self) -> u64 {
        let start = self.records.iter().find_map(|record| match record.what {
            What::Start { clock, .. } => Some(clock.saturating_sub(record.at)),
            _ => None,
        });
        start.unwrap_or(0)
    }

    /// The number of moments that the trace lacks.
    pub(super) fn dropped(&self) -> u64 {
        let dropped = self.records.iter().map(|record| match record.what {
            What::Dropped { moments } => moments,
            _ => 0,
        });
        dropped.sum()
    }
}

impl From<Vec<Record>> for Trace {
    fn from(records: Vec<Record>) -> Self {
        Self { records, is_cut: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"at":1,"thread":2,"kind":"dropped","moments":3}"#;

    #[test]
    fn last_line_may_be_cut_off() {
        let whole = Trace::read(format!("{LINE}\n\n{LINE}\n").as_bytes()).unwrap();
        assert_eq!((whole.records.len(), whole.is_cut, whole.dropped()), (2, false, 6));
        let cut = Trace::read(format!("{LINE}\n{}", &LINE[..20]).as_bytes()).unwrap();
        assert_eq!((cut.records.len(), cut.is_cut), (1, true));
    }

    #[test]
    fn error_names_the_line() {
        let error = Trace::read(format!("{LINE}\npost qp 0x11 SEND\n").as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is not a record") && error.contains("JSON"), "{error}");
        // A line that ends is not cut off.
        Trace::read(format!("{}\n{LINE}\n", &LINE[..20]).as_bytes()).unwrap_err();
    }
}
