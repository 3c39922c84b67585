//! The requester: takes what is posted, and sends it.
//!
//! | file | what |
//! |---|---|
//! | `requester`, `batch`, `ring`, `work` | the send queue |
//! | `attempt`, `retry` | one request, tried, and when it is tried again |
//! | `remote_send`, `group`, `backpressure` | requests to queue pairs outside of this process |
//! | `in_flight`, `inbox`, `responses_in` | what was sent, and what was answered |

pub(super) mod attempt;
pub(super) mod backpressure;
pub(super) mod batch;
mod group;
pub(super) mod in_flight;
pub(super) mod inbox;
mod remote_send;
pub(super) mod requester;
mod responses_in;
pub(super) mod retry;
mod ring;
pub(super) mod work;
