//! The verbs: devices, protection domains, memory, completion queues, queue pairs and work requests.
//!
//! | what | where |
//! |---|---|
//! | which devices there are, and opening one | [`device`] |
//! | what an open device says of itself, its ports and their addresses | [`device_context`] |
//! | what devices report by themselves | [`async_event`] |
//! | domains, which everything below is made in | [`protection_domain`]; with an allocator: [`parent_domain`] |
//! | memory that the device may use | [`memory_region`]; a key to a part of it: [`memory_window`]; not ordinary memory: [`device_memory`], [`provider_buffer`], [`dma_handle`]; beside `fork(2)`: [`fork`] |
//! | what is done: queues, channels, counters | [`completion`] |
//! | where requests are posted | [`queue_pair`]; ending one: [`queue_pair::teardown`]; receives of many: [`shared_receive_queue`], [`xrc_domain`] |
//! | requests | [`work_request`] |
//! | where datagrams go | [`address`] |
//! | packets that are chosen and spread over queues | [`flow`], [`work_queue`], counted by [`counters`] |
//! | queues of one thread, without locks | [`single_threaded`], [`thread_domain`] |

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
