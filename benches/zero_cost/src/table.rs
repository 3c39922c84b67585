//! The table of counts and ratios.

use std::fmt::Write;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::column::Column;
use crate::count::Cost;
use crate::limit;
use crate::work::{Interface, Task};

/// The counts of one loop.
#[derive(Clone, Debug)]
pub struct Row {
    /// The interface of C.
    pub interface: Interface,
    /// The loop.
    pub task: Task,
    /// C's cost, the divisor of all ratios.
    pub c: Cost,
    /// The cost of the other columns that have the loop.
    pub others: Vec<(String, Option<Column>, Option<Cost>)>,
}

/// The rows as a table: the caller's instructions for each request, and in brackets the ratio of all instructions,
/// including the device's, to those of C.
pub fn print(rows: &[Row]) -> String {
    let mut builder = Builder::default();
    let mut head = vec!["instructions per request".to_owned(), "device".to_owned(), "C".to_owned()];
    head.extend(rows.iter().take(1).flat_map(|row| row.others.iter().map(|(name, _, _)| name.clone())));
    builder.push_record(head);
    for row in rows {
        let interface = match row.interface {
            Interface::Extended => "extended",
            Interface::Basic => "basic",
        };
        let mut cells = vec![format!("{interface}: {}", row.task.label())];
        cells.extend([format!("{:.1}", row.c.device), format!("{:.1}", row.c.own)]);
        cells.extend(row.others.iter().map(|(_, _, cost)| match cost {
            Some(cost) => format!("{:.1} ({:.2})", cost.own, cost.whole() / row.c.whole()),
            None => "-".to_owned(),
        }));
        builder.push_record(cells);
    }
    let mut table = builder.build();
    table.with(Style::markdown()).modify(Columns::new(1..), Alignment::right());
    table.to_string()
}

/// The instructions of a process start vary by about ten per thousand rounds.
const NOISE: f64 = 0.0005;

/// The loops above their limits, as text; empty if there are none.
pub fn faults(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for (name, column, cost) in &row.others {
            let limit = column.and_then(|column| limit::of(column, row.interface, row.task));
            if let (Some(limit), Some(cost)) = (limit, cost) {
                let ratio = cost.whole() / row.c.whole();
                if ratio > limit + NOISE {
                    let (interface, task) = (row.interface, row.task.label());
                    // Writing to a string does not fail.
                    let _ = writeln!(
                        text,
                        "{name}, {interface:?}, {task}: {ratio:.4} of C's instructions, above the limit of {limit}"
                    );
                }
            }
        }
    }
    text
}
