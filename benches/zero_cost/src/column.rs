//! Who runs a loop: the columns of the table.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::c::{self, Style};
use crate::rust::{self, By};
use crate::work::{Interface, Task};

/// Who runs a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// C, each request initialised where it is posted
    C,
    /// C, with lists that are kept
    CKept,
    /// sideway, queues of the interface
    Sideway,
    /// sideway, queues of either interface
    Generic,
    /// sideway, queues of either interface, a completion and a field at a time
    GenericSteps,
    /// sideway, queues of either interface, matched on before the loop
    Hoisted,
    /// sideway, basic queues in place of extended ones, as `build_generic` makes them on a driver that does not check the room
    BasicInPlace,
}

impl Column {
    /// Whether it has such a loop of its own.
    pub fn has(self, interface: Interface, task: Task) -> bool {
        match self {
            Self::C | Self::Sideway | Self::Hoisted => true,
            Self::CKept => task == Task::Refill || interface == Interface::Basic && task.posts_sends(),
            // What one interface alone has is behind a `Result` there.
            Self::Generic => task != Task::Fields && !task.polls_by_steps(),
            Self::GenericSteps => task != Task::Fields,
            Self::BasicInPlace => interface == Interface::Extended && task.posts_sends() && !task.polls_by_steps(),
        }
    }

    /// Runs a loop; the sum of what its completions said. `objects` is the folder of the compiled loops.
    ///
    /// # Errors
    ///
    /// What a verb gave; a loop through sideway that asks anything of the heap.
    pub fn run(self, objects: &Path, interface: Interface, task: Task, rounds: u64) -> Result<u64> {
        match self {
            Self::C => c::run(objects, Style::Fresh, interface, task, rounds),
            Self::CKept => c::run(objects, Style::Kept, interface, task, rounds),
            Self::Sideway => rust::run(By::Type, interface, task, rounds),
            Self::Generic => rust::run(By::Choice, interface, task, rounds),
            Self::GenericSteps => rust::run(By::ChoiceInEachStep, interface, task, rounds),
            Self::Hoisted => rust::run(By::ChoiceBeforeTheLoop, interface, task, rounds),
            Self::BasicInPlace => rust::run(By::Type, Interface::Basic, task, rounds),
        }
    }
}
