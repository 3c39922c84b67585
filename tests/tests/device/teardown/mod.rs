//! Ending queue pairs with requests outstanding: every completion is handed over, buffers go last, and a peer that dies in the
//! middle of a transfer is told by a typed completion.

mod drain;
mod peer;
