//! Asynchronous events: reports of the kernel about a device, its ports, and its objects.
//!
//! ```text
//! DeviceContext ── async_events ──► AsyncEventChannel ── get_async_event ──► AsyncEvent
//!                                                                              ├─ event_type   what happened
//!                                                                              └─ element      to what
//! ```
//!
//! Reading events is optional. A program that does not read them detects a broken queue from the queue's completions,
//! and detects that a port is down by querying it. A program that reads events can react before a request fails. An
//! event holds a reference to its object, and the channel acknowledges it before returning it. So an event that the
//! program still holds never blocks the destruction of an object.
//!
//! ```no_run
//! use sideway::ibverbs::async_event::AsyncEventElement;
//! use sideway::ibverbs::device::DeviceList;
//!
//! let devices = DeviceList::new()?;
//! let context = devices.find("mlx5_0")?.open()?;
//! let events = context.async_events()?;
//! loop {
//!     let event = events.get_async_event(None)?;
//!     match event.element() {
//!         AsyncEventElement::QueuePair(qp) => println!("{}: {:?}", event, qp.state()),
//!         AsyncEventElement::Port(port) => println!("{} of port {port}", event.event_type()),
//!         _ => println!("{event}"),
//!     }
//! }
//! # #[expect(unreachable_code, reason = "the loop ends with an error")]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod event;
mod event_type;

pub use self::channel::AsyncEventChannel;
pub use self::event::{AsyncEvent, AsyncEventElement};
pub use self::event_type::AsyncEventType;
pub use super::completion::CompletionQueueRef;
pub use super::queue_pair::QueuePairRef;
pub use super::shared_receive_queue::SharedReceiveQueueRef;
pub use super::work_queue::WorkQueueRef;
