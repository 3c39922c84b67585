//! The requester, which executes and sends requests.
//!
//! | file | contents |
//! |---|---|
//! | `requester`, `batch`, `ring`, `work` | the send queue |
//! | `attempt`, `retry` | one attempt of a request, and the time of the next |
//! | `remote_send`, `group`, `backpressure` | requests to other processes |
//! | `in_flight`, `inbox`, `responses_in` | requests in flight, and their responses |
//! | `outcome` | the result of an attempt |

pub(super) mod attempt;
pub(super) mod backpressure;
pub(super) mod batch;
mod group;
pub(super) mod in_flight;
pub(super) mod inbox;
pub(super) mod outcome;
mod remote_send;
pub(super) mod requester;
mod responses_in;
pub(super) mod retry;
mod ring;
pub(super) mod work;
