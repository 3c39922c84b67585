//! The responder, which handles incoming messages.
//!
//! | file | contents |
//! |---|---|
//! | `responder`, `target` | one message, and the objects that it accesses |
//! | `receiving`, `one_sided` | messages that consume a receive, and those with remote keys |
//! | `inbound`, `responses_out` | messages in parts, and their responses |

mod inbound;
mod one_sided;
pub(super) mod receiving;
pub(super) mod responder;
pub(super) mod responses_out;
mod target;
