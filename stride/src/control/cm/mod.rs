//! The messages of the sides over a connection of the connection manager, where nothing but RDMA passes between them.
//!
//! | what | where |
//! |---|---|
//! | what each side says as it connects: how much it can take in | [`hail`] |
//! | how many messages may be on their way | [`credit`] |
//! | queue pair, completion queue and memory | [`link`] |
//! | the stream of bytes that frames go over | [`stream`] |
//! | the file that tells that there is something to be read | [`ear`] |
//! | the server's end: listening, and who comes | [`door`] |
//! | the client's | [`mod@dial`] |
//! | whether it is the system that serves connections, or softrnic | [`manager`] |
//!
//! Bytes go in sends, each behind a header of four bytes ([`stream`]). As with TCP nobody sees where one ends, and who does not read holds
//! up who writes. The side that has connected sends first, as iWARP demands: a server says nothing before it has heard something.

mod credit;
mod dial;
mod door;
mod ear;
mod hail;
mod link;
mod manager;
mod stream;
#[cfg(test)]
pub(super) mod tests;

use anyhow::{Context, Result};

pub(super) use self::dial::dial;
pub(super) use self::door::{Listener, PATIENCE};
pub(super) use self::manager::{is_softrnic, iwarp, lack};
pub(super) use self::stream::{Ending, Stream};

/// Has the devices of softrnic there too, with their connection manager.
fn make_ready() -> Result<()> {
    softrnic::register().context("softrnic has no devices")
}
