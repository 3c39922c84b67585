//! What the examples share.

pub mod cm;
pub mod exchange;
pub mod gid;
pub mod noise;
pub mod pingpong;
pub mod units;
pub mod watched;

mod completion;
mod devices;
mod local_port;
mod message_size;
mod open;
mod port_choice;
mod program;
mod readable;

pub use completion::wait_for_one;
pub use devices::{device_list, devices, no_device, no_device_with_connections};
pub use local_port::LocalPort;
pub use message_size::{check_datagram_size, check_message_size};
pub use open::{active_port, open_device};
pub use port_choice::PortChoice;
pub use program::program;
pub use readable::wait_readable;
pub use units::Timeout;
