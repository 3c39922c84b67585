//! The verbs: devices, protection domains, memory, completion queues, queue pairs and work requests.

mod access_flags;
pub mod address;
pub mod async_event;
pub mod completion;
pub mod device;
pub mod device_context;
pub mod memory_region;
pub mod protection_domain;
pub mod queue_pair;
mod quirks;
pub mod shared_receive_queue;
pub mod work_request;
pub mod xrc_domain;

pub use access_flags::AccessFlags;
