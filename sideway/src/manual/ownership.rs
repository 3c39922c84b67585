//! Which objects keep which other objects alive, and when each object is destroyed.
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
//! In the diagram, an arrow is an `Arc`: the object at its tail keeps the object at its head alive. The objects have no
//! lifetime parameters, and a program can drop them in any order. Each C object is destroyed after the last reference
//! to it, so children are destroyed before their parents.
//!
//! - A completion queue has one owner, which polls it. Queue pairs and events hold a reference only to its C object.
//! - The owner of a completion queue may be dropped while queue pairs use the queue. Their completions are then lost.
//! - If a verb fails to destroy its object (`EBUSY`, a removed device), `Drop` logs the error and leaks the object.
//!   `close` returns the error instead. For an object in an `Arc`, the last owner calls `close` on the value that
//!   `Arc::into_inner` returns.
//! - A region that was created with [`reg_owned_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr)
//!   owns its memory, and frees it after deregistration. For other memory, the contract of
//!   [`reg_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr) states how long it must stay valid.
//! - An [asynchronous event](crate::ibverbs::async_event) holds a reference to its object. `close` of a queue, queue
//!   pair or shared receive queue returns `EBUSY` while an event, a flow or another object still references it.
//!   Dropping the last reference destroys it.
//! - The device context of an [identifier](crate::rdmacm::communication_manager::Identifier) belongs to librdmacm and
//!   stays open while the program holds a reference. Identifiers on one device return the same context. A context does
//!   not keep an identifier alive.
//! - An identifier is destroyed when its last reference is dropped. Its queue pair also holds a reference. Destroying
//!   the identifier ends the connection, and rejects a pending request. Events never delay the destruction, because
//!   they are acknowledged when they are taken.
//! - A queue pair leaves its multicast groups before it is destroyed, as the kernel requires.
