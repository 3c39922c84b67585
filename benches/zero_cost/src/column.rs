//! The columns of the table: the variants of a loop.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::c::{self, Style};
use crate::rust::{self, By};
use crate::work::{Interface, Task};

/// A variant of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// C, each request initialised where it is posted
    C,
    /// C, with linked lists
    CKept,
    /// sideway, with queues of the interface
    Sideway,
    /// sideway, with generic queues
    Generic,
    /// sideway, with generic queues, one completion and one field at a time
    GenericSteps,
    /// sideway, with generic queues, matched before the loop
    Hoisted,
    /// sideway, basic queues instead of extended ones, as `build_generic` creates them if the driver does not check the
    /// queue's space
    BasicInPlace,
}

impl Column {
    /// Whether the column has this loop.
    pub fn has(self, interface: Interface, task: Task) -> bool {
        if task.is_prepared() {
            return interface == Interface::Basic && matches!(self, Self::C | Self::Sideway);
        }
        match self {
            Self::C | Self::Sideway | Self::Hoisted => true,
            Self::CKept => task == Task::Refill || interface == Interface::Basic && task.posts_sends(),
            // Generic queues return a `Result` for operations of one interface only.
            Self::Generic => task != Task::Fields && !task.polls_by_steps(),
            Self::GenericSteps => task != Task::Fields,
            Self::BasicInPlace => interface == Interface::Extended && task.posts_sends() && !task.polls_by_steps(),
        }
    }

    /// Runs a loop; returns the sum of the fields of its completions. `objects` is the folder of the compiled loops.
    ///
    /// # Errors
    ///
    /// A verb failed, or a loop with sideway allocated.
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
