//! The verbs: devices, protection domains, memory, completion queues, queue pairs and work requests.
//!
//! | topic | modules |
//! |---|---|
//! | listing and opening devices | [`device`] |
//! | attributes of an open device, its ports and their addresses | [`device_context`] |
//! | events of devices | [`async_event`] |
//! | domains, the parents of all objects below | [`protection_domain`]; with an allocator: [`parent_domain`] |
//! | memory that the device may access | [`memory_region`]; a key to part of a region: [`memory_window`]; special memory: [`device_memory`], [`provider_buffer`], [`dma_handle`]; with `fork(2)`: [`fork`] |
//! | completed requests: queues, channels, counters | [`completion`] |
//! | queues for requests | [`queue_pair`]; ending one: [`queue_pair::teardown`]; shared receives: [`shared_receive_queue`], [`xrc_domain`] |
//! | requests | [`work_request`] |
//! | destinations of datagrams | [`address`] |
//! | selecting packets and distributing them among queues | [`flow`], [`work_queue`], counted by [`counters`] |
//! | queues of one thread, without locks | [`single_threaded`], [`thread_domain`] |

mod access_flags;
pub mod address;
mod allocator;
pub mod async_event;
pub mod completion;
pub mod counters;
pub mod device;
pub mod device_context;
pub mod device_memory;
pub mod dma_handle;
pub mod flow;
pub mod fork;
mod guid;
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
