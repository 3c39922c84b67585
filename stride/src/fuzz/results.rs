//! A file of results, of this program or of perftest, and all that is made of it.

use crate::report::compare::{self, Comparison};
use crate::report::csv::Csv;
use crate::report::json::Document;
use crate::report::plot::{self, Format};
use crate::report::table::{Columns, Table};
use crate::report::{Series, Style, histogram, series};

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
