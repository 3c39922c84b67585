//! What keeps what alive.
//!
//! ```text
//! DeviceContext ◄── ProtectionDomain ◄── MemoryRegion
//!      ▲                   ▲
//!      ├── CompletionChannel ◄─┐
//!      │                       │
//!      └────────── completion queue's C object ◄── ExtendedCompletionQueue, BasicCompletionQueue   (polls it)
//!                              ▲
//!                  queue pair's C object ──► ProtectionDomain
//!                    ▲             ▲
//!               send queue    receive queue
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
//! - Memory is not owned: a [`MemoryRegion`](crate::ibverbs::memory_region::MemoryRegion) registers memory that somebody
//!   else owns, and the contract of [`reg_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr) says for how
//!   long it must stay.
