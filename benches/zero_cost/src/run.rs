//! All loops in sequence.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;

use crate::column::Column;
use crate::count::count;
use crate::table::Row;
use crate::work::{Interface, Task};
use crate::{c, device};

/// Another program with loops, for more columns.
#[derive(Clone, Debug)]
pub struct Further<'p> {
    /// The name of the column.
    pub name: String,
    /// The arguments with which the program runs a loop by [`counted`](crate::count::counted); `None` if the program
    /// does not have the loop.
    pub command: fn(&str, Interface, Task) -> Option<Vec<String>>,
    /// The program.
    pub program: &'p Path,
    /// The folder of shared objects that the program searches first.
    pub libraries: &'p Path,
}

/// Counts every loop of every column: `program` runs all columns of a loop in one process, with the arguments `run
/// INTERFACE TASK OBJECTS COLUMN...`. `folder` is for the compiled objects and the files of callgrind.
///
/// # Errors
///
/// The C loops cannot be compiled, a loop failed, or two loops differ in their checksums.
pub fn all(program: &Path, folder: &Path, further: &[Further<'_>]) -> Result<Vec<Row>> {
    c::compile(folder)?;
    check_fields(folder)?;
    let loops: Vec<(Interface, Task)> = Interface::value_variants()
        .iter()
        .flat_map(|&interface| Task::value_variants().iter().map(move |&task| (interface, task)))
        .filter(|&(interface, task)| Column::C.has(interface, task))
        .collect();
    // Runs one process per processor at a time: the result is instructions, not time.
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Row)>> {
        let mut rows = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(interface, task)) = loops.get(at) else { return Ok(rows) };
            rows.push((at, row(program, folder, further, interface, task)?));
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let mut rows = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut rows = Vec::new();
        for thread in threads {
            rows.extend(thread.join().map_err(|_| anyhow!("a thread has panicked"))??);
        }
        Ok::<_, anyhow::Error>(rows)
    })?;
    rows.sort_by_key(|(at, _)| *at);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Counts one loop of every column.
fn row(program: &Path, folder: &Path, further: &[Further<'_>], interface: Interface, task: Task) -> Result<Row> {
    let columns: Vec<Column> =
        Column::value_variants().iter().copied().filter(|column| column.has(interface, task)).collect();
    let mut words = vec!["run".to_owned(), name(interface), name(task), folder.display().to_string()];
    words.extend(columns.iter().copied().map(name));
    let costs = count(program, &words, (columns.len(), task.requests()), folder, None)?;
    let cost =
        |wanted: Column| columns.iter().zip(&costs).find(|(column, _)| **column == wanted).map(|(_, cost)| *cost);
    let c = cost(Column::C).context("C has no such loop")?;
    let mut others = Vec::new();
    for (name, column) in [
        ("C, lists kept", Column::CKept),
        ("sideway", Column::Sideway),
        ("generic", Column::Generic),
        ("generic, by steps", Column::GenericSteps),
        ("generic, hoisted", Column::Hoisted),
        ("basic in place", Column::BasicInPlace),
    ] {
        others.push((name.to_owned(), Some(column), cost(column)));
    }
    for column in further {
        let cost = match (column.command)(&column.name, interface, task) {
            Some(words) => {
                let costs = count(column.program, &words, (1, task.requests()), folder, Some(column.libraries))?;
                costs.first().copied()
            }
            None => None,
        };
        others.push((column.name.clone(), None, cost));
    }
    Ok(Row { interface, task, c, others })
}

/// The name of a value on the command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Checks that all columns post the same fields to the device and read the same fields from it.
///
/// # Errors
///
/// Two columns differ.
pub fn check_fields(objects: &Path) -> Result<()> {
    const ROUNDS: u64 = 100;
    for &interface in Interface::value_variants() {
        for &task in Task::value_variants().iter().filter(|&&task| Column::C.has(interface, task)) {
            device::take_checksum();
            let sum = Column::C.run(objects, interface, task, ROUNDS)?;
            let checksum = device::take_checksum();
            for &column in Column::value_variants().iter().filter(|column| column.has(interface, task)) {
                let other_sum = column.run(objects, interface, task, ROUNDS)?;
                let at = format!("{column:?}, {interface:?}, {}", task.label());
                ensure!(other_sum == sum, "{at}: the loop read other fields than the loop in C");
                ensure!(device::take_checksum() == checksum, "{at}: the loop posted other fields than the loop in C");
            }
        }
    }
    Ok(())
}
