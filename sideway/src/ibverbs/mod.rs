//! The verbs: devices, protection domains, memory, completion queues, queue pairs and work requests.

mod access_flags;
pub mod address;
pub mod async_event;
pub mod completion;
pub mod counters;
pub mod device;
pub mod device_context;
pub mod device_memory;
pub mod dma_handle;
pub mod flow;
pub mod fork;
mod import;
pub mod memory_region;
pub mod memory_window;
pub mod parent_domain;
pub mod protection_domain;
pub mod provider_buffer;
pub mod queue_pair;
mod quirks;
pub mod shared_receive_queue;
pub mod single_threaded;
pub mod thread_domain;
pub mod work_queue;
pub mod work_request;
pub mod xrc_domain;

pub use access_flags::AccessFlags;
