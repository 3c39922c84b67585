//! All loops in turn.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::column::Column;
use crate::count::{Cost, count};
use crate::table::Row;
use crate::work::{Interface, Task};
use crate::{c, device};

/// Another program with loops, for further columns.
#[derive(Clone, Debug)]
pub struct Further<'p> {
    /// What the column is called.
    pub name: String,
    /// Which program has the loop, and its arguments up to the number of rounds; `None` where there is no such loop.
    pub command: fn(&str, Interface, Task) -> Option<Vec<String>>,
    /// The program.
    pub program: &'p Path,
    /// Where it finds shared objects before it looks elsewhere.
    pub libraries: &'p Path,
}

/// Counts every loop of every column, each in a process of its own: `program` with the arguments `run COLUMN INTERFACE TASK
/// OBJECTS ROUNDS`. `folder` is for what is compiled and written meanwhile.
///
/// # Errors
///
/// The C loops cannot be compiled, a loop failed, or two say different things to the device.
pub fn all(program: &Path, folder: &Path, further: &[Further<'_>]) -> Result<Vec<Row>> {
    c::compile(folder)?;
    same_words(folder)?;
    let mut rows = Vec::new();
    for &interface in Interface::value_variants() {
        for &task in Task::value_variants() {
            let cost = |column: Column| -> Result<Option<Cost>> {
                if !column.has(interface, task) {
                    return Ok(None);
                }
                let words = arguments(column, interface, task, folder);
                count(program, &words, task.requests(), folder, None).map(Some)
            };
            let c = cost(Column::C)?.context("C has every loop")?;
            let mut others = Vec::new();
            for (name, column) in [
                ("C, lists kept", Column::CKept),
                ("sideway", Column::Sideway),
                ("generic", Column::Generic),
                ("generic, by steps", Column::GenericSteps),
                ("generic, hoisted", Column::Hoisted),
            ] {
                others.push((name.to_owned(), Some(column), cost(column)?));
            }
            for column in further {
                let cost = match (column.command)(&column.name, interface, task) {
                    Some(words) => {
                        let libraries = Some(column.libraries);
                        Some(count(column.program, &words, task.requests(), folder, libraries)?)
                    }
                    None => None,
                };
                others.push((column.name.clone(), None, cost));
            }
            rows.push(Row { interface, task, c, others });
        }
    }
    Ok(rows)
}

fn arguments(column: Column, interface: Interface, task: Task, folder: &Path) -> Vec<String> {
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    vec![
        "run".to_owned(),
        name(column.to_possible_value()),
        name(interface.to_possible_value()),
        name(task.to_possible_value()),
        folder.display().to_string(),
    ]
}

/// Sees that all columns tell the device the same and hear the same from it.
///
/// # Errors
///
/// They do not.
pub fn same_words(objects: &Path) -> Result<()> {
    const ROUNDS: u64 = 100;
    for &interface in Interface::value_variants() {
        for &task in Task::value_variants() {
            device::told();
            let heard = Column::C.run(objects, interface, task, ROUNDS)?;
            let told = device::told();
            for &column in Column::value_variants().iter().filter(|column| column.has(interface, task)) {
                let also_heard = column.run(objects, interface, task, ROUNDS)?;
                let at = format!("{column:?}, {interface:?}, {}", task.words());
                ensure!(also_heard == heard, "{at}: the loop heard something else than that in C");
                ensure!(device::told() == told, "{at}: the loop told the device something else than that in C");
            }
        }
    }
    Ok(())
}
