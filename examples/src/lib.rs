//! What the examples share.

pub mod exchange;
pub mod gid;
pub mod pingpong;
pub mod units;

mod devices;
mod local_port;
mod open;
mod program;

pub use devices::{device_list, devices, no_device};
pub use local_port::LocalPort;
pub use open::{active_port, open_device};
pub use program::program;
pub use units::Timeout;
