//! What users and other hosts send, as functions of bytes: for the fuzz targets (`fuzz/` of the repository), which call them with
//! bytes of their choice, and for the test that calls them with those that are kept (`fuzz/corpus`).
//!
//! Each tells whether what came was believed to its end. None of them panics.

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
use crate::report::plot::{self, Format};
use crate::report::table::{Columns, Table};
use crate::report::{Series, Style, histogram, series};

/// A command line, a word on each line.
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

/// Says what it was told to, and then nothing more. What is said to it is lost.
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
        // The end comes as silence: how often a step looks depends on how long it takes.
        Ok(self.0.position() < self.0.get_ref().len() as u64)
    }
}

/// All that the other side sends: to a server where the first byte is even, and else to a client.
pub fn conversation(input: &[u8]) -> bool {
    let Some((choice, script)) = input.split_first() else { return false };
    let role = if choice.is_multiple_of(2) { Role::Server } else { Role::Client };
    talk(role, script.to_vec()).is_ok()
}

fn talk(role: Role, script: Vec<u8>) -> Result<(), Failure> {
    // It is over with the script, long before.
    let patience = Duration::from_secs(60);
    let (connection, _) = Connection::greet(Script(Cursor::new(script)), role, patience)?;
    match role {
        Role::Server => serve_one(connection, &Fake::default(), &Host::default(), &mut |_| ()),
        Role::Client => {
            let request = Request { plan: Plan::default(), given: Given::default() };
            measure(connection, Near::default(), &Fake::default(), &request, &mut ()).map(drop)
        }
    }
}

/// A file that `--compare` and `plot` read: whether there are rows in it. They are compared with themselves, drawn and written.
pub fn results(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Ok(all) = series(&text, "a file") else { return false };
    for one in &all {
        write(one);
    }
    if let Ok(document) = Document::read(&text) {
        rewrite(&document);
    }
    // Where there is nothing to draw, that is said.
    let _ = plot::draw(&all, Format::Svg);
    all.iter().any(|series| !series.rows.is_empty())
}

/// Compares it, and shows it.
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

/// Writes a document again, which is then the same.
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
    let again = Document::read(&text).expect("what was written is read");
    // As text, as what is no number is no other's equal.
    assert_eq!(format!("{again:?}"), format!("{document:?}"));
}
