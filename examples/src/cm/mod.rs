//! Many connections by address, in one program.
//!
//! ```text
//! an event channel                 here
//!   an identifier                    key: by which a program finds what it keeps of it
//!     its queue pair                 Link: with its completion queue and the memory of its messages
//! ```

mod deadline;
mod link;
mod options;
mod places;

pub use self::deadline::Deadline;
pub use self::link::{Completed, Link, Shape};
pub use self::options::{Crowd, Role, resolve};
pub use self::places::{Places, SharedReceives};

use std::sync::Arc;

use sideway::rdmacm::communication_manager::Identifier;

/// What tells an identifier from all others that there are: for maps from identifiers to what a program keeps of them. The value
/// in the map holds the identifier, so that no other takes its place.
pub fn key(id: &Arc<Identifier>) -> usize {
    Arc::as_ptr(id).addr()
}
