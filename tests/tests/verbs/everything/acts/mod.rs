//! The programs. Each program creates and uses the objects of one part of the library, prints each value that it
//! receives, and ends at the first error.

mod completions;
mod device;
mod domains;
mod memory;
mod messages;
mod offload;
mod receives;

use std::error::Error;
use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;

use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway_tests::recording::Recording;

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// A program.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Recording) -> Outcome,
}

/// All programs.
pub(crate) const ACTS: &[Act] = &[
    Act { name: "device", run: device::act },
    Act { name: "domains", run: domains::act },
    Act { name: "memory", run: memory::act },
    Act { name: "completions", run: completions::act },
    Act { name: "basic messages", run: messages::basic },
    Act { name: "extended messages", run: messages::extended },
    Act { name: "other services", run: messages::other_services },
    Act { name: "receives", run: receives::act },
    Act { name: "offload", run: offload::act },
];

/// Prints a value as a program would, because every value must be printable.
fn show(value: impl Debug) {
    black_box(format!("{value:?}"));
}

/// Opens the device.
fn open(recording: &Recording) -> Result<Arc<DeviceContext>, Box<dyn Error>> {
    Ok(DeviceList::new()?.find(&recording.name())?.open()?)
}
