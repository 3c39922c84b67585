//! What keeps what alive.
//!
//! ```text
//! DeviceContext ◄── ProtectionDomain ◄── MemoryRegion
//!      ▲                   ▲
//!      ├── CompletionChannel ◄─┐
//!      │                       │
//!      └────────── completion queue's C object ◄── ExtendedCompletionQueue, BasicCompletionQueue   (polls it)
//!                              ▲
//!                  queue pair's C object ──► ProtectionDomain, shared receive queue's C object
//!                    ▲             ▲    ▲
//!               send queue    receive queue    events, flows
//!
//! MemoryRegion ──► the memory that it owns: pages, DeviceMemory, a provider's buffer
//! Event ──► Identifier ──► EventChannel         queue pair, shared receive queue made through an identifier ──► Identifier
//! Flow ──► queue pair, FlowAction, Counters        RSS queue pair ──► indirection table ──► work queues
//! ```
//!
//! An arrow is an `Arc`: the object at its tail keeps the one at its head. Resources carry no lifetimes; drop them in any
//! order. The C objects are destroyed children first, because each waits for the last arrow to it.
//!
//! - A completion queue has one owner, who polls it. Queue pairs and events hold its C object, not the right to poll.
//! - Dropping the owner of a completion queue while queue pairs use it is legal: their completions go unseen.
//! - A verb that refuses to destroy its object (`EBUSY`, a vanished device) is logged through the `log` crate, and the
//!   object is leaked. Where one wants to know, `close` reports; of an object in an `Arc`, to its last owner
//!   (`Arc::into_inner`).
//! - Memory is owned by its region ([`reg_owned_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr)), and goes
//!   when the registration has ended; or it is somebody else's, and the contract of
//!   [`reg_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr) says for how long it must stay.
//! - An [asynchronous event](crate::ibverbs::async_event) holds its object. `close` of a queue, a queue pair or a shared receive
//!   queue that an event, a flow or another object still holds answers `EBUSY`, and the last hold destroys it.
//! - The device context that an [identifier](crate::rdmacm::communication_manager::Identifier) gives is librdmacm's, which keeps it
//!   open as long as somebody here holds it. Identifiers on one device give one context. It does not hold the identifier.
//! - An identifier is destroyed by its last owner, the queue pair that was made through it among them. That ends its connection, and
//!   says no to a request without an answer. Events never delay it: they are acknowledged when they are taken.
//! - A queue pair in a multicast group leaves it before it is destroyed: the kernel asks for that.
