//! Functions that process untrusted input, for the fuzz targets (`fuzz/` of the repository) and for the test that
//! replays the inputs in `fuzz/corpus`.
//!
//! Each function returns whether it accepted the whole input. No input makes a function panic.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Cursor, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::control::{Connection, Failure, Host, Near, Request, Wire, measure, serve_one};
use crate::endpoint::Role;
use crate::endpoint::fake::Fake;
use crate::plan::{Given, Plan};
use crate::report::compare::{self, Comparison};
use crate::report::csv::Csv;
use crate::report::json::Document;
use crate::report::page::{self, Run};
use crate::report::plot::{self, Format};
use crate::report::table::{Columns, Table};
use crate::report::{Series, Style, histogram, series};

/// Parses a command line, given as one word per line.
pub fn command_line(text: &[u8]) -> bool {
    let words = text.split(|&byte| byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    match crate::cli::parse(std::iter::once(OsString::from("stride-perf")).chain(words)) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// A stream that returns prepared data and then stays silent. Data that is written to it is discarded.
struct Script(Cursor<Vec<u8>>);

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Script {
    fn limit(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn has_input(&mut self) -> io::Result<bool> {
        // Reports the end of the input as silence instead of an end of file. Otherwise the result would depend on how
        // often a step polls, and that depends on its duration.
        Ok(self.0.position() < self.0.get_ref().len() as u64)
    }
}

/// Processes messages of a peer. A server receives them if the first byte is even, otherwise a client.
pub fn control(input: &[u8]) -> bool {
    let Some((choice, script)) = input.split_first() else { return false };
    let role = if choice.is_multiple_of(2) { Role::Server } else { Role::Client };
    exchange(role, script.to_vec()).is_ok()
}

fn exchange(role: Role, script: Vec<u8>) -> Result<(), Failure> {
    // The prepared data ends long before this time-out.
    let timeout = Duration::from_secs(60);
    let (connection, _) = Connection::handshake(Script(Cursor::new(script)), role, timeout)?;
    match role {
        Role::Server => serve_one(connection, &Fake::default(), &Host::default(), &mut |_| ()),
        Role::Client => {
            let request = Request { plan: Plan::default(), given: Given::default() };
            measure(connection, Near::default(), &Fake::default(), &request, &mut ()).map(drop)
        }
    }
}

/// Reads a file as `--compare`, `plot` and `report` do. Returns whether it has rows. If so, the rows are compared with
/// themselves, plotted and written.
pub fn results(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    if let Ok(run) = Run::read(&text, "a file") {
        assert_eq!(page::page(&[run]).matches("<script").count(), 1);
    }
    let Ok(all) = series(&text, "a file") else { return false };
    for one in &all {
        write(one);
    }
    if let Ok(document) = Document::read(&text) {
        rewrite(&document);
    }
    // Drawing fails if there is nothing to plot, which is not an error here.
    let _ = plot::draw(&all, Format::Svg);
    all.iter().any(|series| !series.rows.is_empty())
}

/// Compares a series with itself and prints it.
fn write(series: &Series) {
    let mut out = Vec::new();
    let comparison = Comparison::of(series, series, 5.0).expect("both are alike");
    comparison.write(&mut out, Style::plain()).expect("memory");
    let table = Table::new(series.measure, Columns { intervals: true, cpu: true }, Style::plain());
    table.head(&mut out).expect("memory");
    for row in &series.rows {
        table.row(&mut out, row).expect("memory");
        if let Some(latency) = row.latency() {
            histogram::write(&mut out, latency, 80, Style::plain()).expect("memory");
        }
    }
}

/// Writes a document, reads it again, and checks that the result is equal.
fn rewrite(document: &Document) {
    let mut out = Vec::new();
    let csv = Csv::new(&document.environment);
    csv.head(&mut out).expect("memory");
    for row in &document.rows {
        csv.row(&mut out, row).expect("memory");
    }
    assert_eq!(compare::differences(&document.environment, &document.environment).len(), 0);
    let mut out = Vec::new();
    document.write(&mut out).expect("memory");
    let text = String::from_utf8(out).expect("JSON");
    let again = Document::read(&text).expect("the written document is readable");
    // The documents are compared as text, because NaN is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{document:?}"));
}
