//! What each loop may cost beside C's.

use crate::column::Column;
use crate::work::{Interface, Task};

/// The most that the instructions of a loop, the device's among them, may be of those of the same loop in C. BENCHMARKING.md has
/// the reasons of those above 1.
pub fn of(column: Column, interface: Interface, task: Task) -> Option<f64> {
    use Interface::Extended;
    Some(match (column, interface, task) {
        (Column::C | Column::CKept, _, _) => return None,
        // What is read waits on the stack until the last field is seen to be there.
        (Column::Sideway | Column::Hoisted, Extended, Task::Fields) => 1.03,
        (Column::Sideway | Column::Hoisted, _, _) => 1.0,
        // Most of it is the device's, which reads a list of requests in place of arguments.
        (Column::BasicInPlace, _, Task::Inline) => 1.50,
        (Column::BasicInPlace, _, Task::InlineCopy) => 1.61,
        (Column::BasicInPlace, _, _) if task.requests() > 1 => 1.19,
        (Column::BasicInPlace, _, _) => 1.40,
        // A match for each batch and each poll: the compiler takes that for each step out of the loop.
        (Column::Generic | Column::GenericSteps, _, Task::Inline | Task::InlineCopy) => 1.11,
        (Column::Generic | Column::GenericSteps, _, _) => 1.05,
    })
}
