//! The responder: handles what comes.
//!
//! | file | what |
//! |---|---|
//! | `responder`, `target` | one message, and what it works on |
//! | `receiving`, `one_sided` | messages that take a receive, and those that name memory |
//! | `inbound`, `responses_out` | messages in parts, and what is answered to them |

mod inbound;
mod one_sided;
pub(super) mod receiving;
pub(super) mod responder;
pub(super) mod responses_out;
mod target;
