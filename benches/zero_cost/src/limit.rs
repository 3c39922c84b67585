//! What each loop may cost beside C's.

use crate::column::Column;
use crate::work::{Interface, Task};

/// The most that the instructions of a loop, the device's among them, may be of those of the same loop in C. BENCHMARKING.md has
/// the reasons of those above 1.
pub fn of(column: Column, interface: Interface, task: Task) -> Option<f64> {
    use Interface::{Basic, Extended};
    Some(match (column, interface, task) {
        (Column::C | Column::CKept, _, _) => return None,
        // Whether a completion is the first of a poll, and whether a list has room, is asked for each.
        (Column::Sideway | Column::Hoisted, Extended, Task::Refill) => 1.05,
        // A field that a queue has only where it was asked for is asked after.
        (Column::Sideway | Column::Hoisted, Extended, Task::Fields) => 1.02,
        // The copy is one more than C makes.
        (Column::Sideway | Column::Hoisted, Basic, Task::InlineCopy) => 1.13,
        (Column::Sideway | Column::Hoisted, _, _) => 1.0,
        // A match for each step.
        (Column::Generic, Extended, Task::Post1 | Task::Post32 | Task::Standard) => 1.17,
        (Column::Generic, _, Task::Inline | Task::InlineCopy | Task::Refill) => 1.21,
        (Column::Generic, Basic, Task::Standard) => 1.36,
        (Column::Generic, _, _) => 1.1,
    })
}
