//! The limit of each loop compared with C's.

use crate::column::Column;
use crate::work::{Interface, Task};

/// The maximum ratio of the instructions of a loop to those of the same loop in C, including the device's.
/// The comments below explain the limits above 1; BENCHMARKING.md has the figures.
pub fn of(column: Column, interface: Interface, task: Task) -> Option<f64> {
    use Interface::Extended;
    Some(match (column, interface, task) {
        (Column::C | Column::CKept, _, _) => return None,
        // A safe setter checks that the request exists and, if needed, has a remote address; the post checks that this
        // queue prepared the list. For a list of one, these checks take seven instructions.
        (Column::Sideway, _, Task::Prepared1 | Task::Moved32) => 1.06,
        (Column::Sideway, _, Task::Prepared32) => 1.01,
        // The field values wait on the stack until the status of the last field is checked.
        (Column::Sideway | Column::Hoisted, Extended, Task::Fields) => 1.03,
        (Column::Sideway | Column::Hoisted, _, _) => 1.0,
        // Mostly the cost of the device, which reads a list of requests instead of arguments.
        (Column::BasicInPlace, _, Task::Inline) => 1.50,
        (Column::BasicInPlace, _, Task::InlineCopy) => 1.61,
        (Column::BasicInPlace, _, _) if task.requests() > 1 => 1.19,
        (Column::BasicInPlace, _, _) => 1.40,
        // One match per batch and poll: the compiler moves the match of each step out of the loop.
        (Column::Generic | Column::GenericSteps, _, Task::Inline | Task::InlineCopy) => 1.11,
        (Column::Generic | Column::GenericSteps, _, _) => 1.05,
    })
}
