//! Teardown of queue pairs with outstanding requests: every completion is returned, buffers are freed last, and a peer
//! that dies during a transfer gives a typed completion.

mod drain;
mod peer;
