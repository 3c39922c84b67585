//! Messages back and forth between two programs, over any transport service.
//!
//! ```text
//! a program                            here
//!   its options                          SideOptions, MessageOptions, RunOptions
//!   its queue pairs: QueuePairs          Resources     memory, completion queue
//!                                        RunLoop       sends, receives and measures
//!   without the connection manager:      Endpoint      device, port, GID and the Resources
//!                                        play          exchanges the addresses, then runs the RunLoop
//! ```
//!
//! The client sends first, and each side answers what it has received, on every queue pair. The run ends when all queue
//! pairs together have exchanged --iters messages.

mod check;
mod options;
mod queue_pairs;
mod resources;
mod run_loop;
mod statistics;

use std::io::Write;
use std::iter;
use std::sync::Arc;

use anyhow::{Result, ensure};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicService, GenericQueuePair, QueuePairBuilder, QueuePairEndpoint};

pub use self::check::Side;
pub use self::options::{Kind, MessageOptions, RunOptions, SideOptions};
pub use self::queue_pairs::{Peer, QueuePairs, Service};
pub use self::resources::Resources;
pub use self::run_loop::RunLoop;
pub use self::statistics::Statistics;
use crate::exchange::{self, describe};
use crate::{LocalPort, check_datagram_size, check_message_size};

/// The objects of this side, except its queue pairs.
#[derive(Debug)]
pub struct Endpoint {
    resources: Resources,
    options: SideOptions,
    port: LocalPort,
}

impl Endpoint {
    /// Opens the port, and creates the resources of `count` queue pairs for messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// As [`LocalPort::open`] and [`Resources::new`], or the messages are too long.
    pub fn new(side: &SideOptions, run: &RunOptions, service: Service, size: u32, count: u32) -> Result<Self> {
        run.check()?;
        let port = LocalPort::open(&side.port_choice, side.sl)?;
        if service.headroom == 0 {
            check_message_size(port.attr(), size)?;
        } else {
            check_datagram_size(port.attr(), size)?;
        }
        let resources = Resources::new(port.context(), run, service, size, count)?;
        Ok(Self { resources, options: side.clone(), port })
    }

    /// The domain of the queue pairs.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        self.resources.pd()
    }

    /// The port.
    pub fn port(&self) -> &LocalPort {
        &self.port
    }

    /// Creates a queue pair that [uses the resources](Resources::equip), of the kind that the options select.
    ///
    /// # Errors
    ///
    /// The device has too few resources.
    pub fn queue_pair<T: BasicService>(&self, mut builder: QueuePairBuilder<T>) -> Result<GenericQueuePair<T>> {
        self.resources.equip(&mut builder);
        Ok(match self.resources.options.qp_kind()? {
            Kind::Basic => builder.build()?.into(),
            Kind::Extended => builder.build_ex()?.into(),
            Kind::Generic => builder.build_generic()?,
        })
    }
}

/// Connects to the peer, exchanges the addresses, has `connect` modify the queue pairs to RTS, exchanges all messages,
/// and prints the results.
///
/// Each side sends `count` addresses; those after `locals` are zero.
///
/// # Errors
///
/// There is no peer, its options differ, or it has ended.
pub fn play(
    endpoint: Endpoint,
    mut qps: QueuePairs,
    (locals, count): (&[QueuePairEndpoint], usize),
    connect: impl FnOnce(&mut QueuePairs, &LocalPort, &[QueuePairEndpoint]) -> Result<()>,
    out: &mut dyn Write,
) -> Result<()> {
    if let Some(note) = endpoint.port.note() {
        writeln!(out, "{note}")?;
    }
    for address in locals {
        writeln!(out, "  local address:  {}", describe(address))?;
    }
    out.flush()?;

    let Endpoint { resources, options, port } = endpoint;
    let timeout = resources.options.timeout;
    let side = if options.server.is_some() { Side::Client } else { Side::Server };
    let send = |peer: &mut exchange::Peer| {
        let mut addresses = locals.iter().copied().chain(iter::repeat(QueuePairEndpoint::default())).take(count);
        addresses.try_for_each(|address| peer.send_address(&address))
    };
    let receive = |peer: &mut exchange::Peer| {
        let mut remotes = (0..count).map(|_| peer.receive_address()).collect::<Result<Vec<_>>>()?;
        // Queue pair number 0 marks an unused address, because no program has a queue pair with that number.
        let theirs = remotes.iter().take_while(|address| address.qp_num != 0).count();
        let ours = locals.len();
        ensure!(
            theirs == ours,
            "the peer has {theirs} queue pairs and this side {ours}; give both sides the same --num-qp"
        );
        remotes.truncate(ours);
        Ok(remotes)
    };
    let (mut peer, mut run_loop, remotes) = match &options.server {
        Some(server) => {
            let mut peer = exchange::Peer::connect(server, options.port, timeout)?;
            send(&mut peer)?;
            let remotes = receive(&mut peer)?;
            connect(&mut qps, &port, &remotes)?;
            // The server sends its first message only after it has received one from this side.
            let run_loop = RunLoop::new(resources, qps, side)?;
            peer.send_done()?;
            (peer, run_loop, remotes)
        }
        None => {
            let mut peer = exchange::Peer::accept(options.port, timeout)?;
            let remotes = receive(&mut peer)?;
            connect(&mut qps, &port, &remotes)?;
            // The client may send as soon as it has the addresses, so the receives must be posted by then.
            let run_loop = RunLoop::new(resources, qps, side)?;
            send(&mut peer)?;
            peer.receive_done()?;
            (peer, run_loop, remotes)
        }
    };
    for remote in &remotes {
        writeln!(out, "  remote address: {}", describe(remote))?;
    }
    out.flush()?;

    write!(out, "{}", run_loop.run(None)?)?;
    out.flush()?;
    // The server sends the last message. Some devices report a message before they acknowledge it, and a destroyed
    // queue pair acknowledges nothing. So the client waits until the server has exited. The C programs close the TCP
    // connection before the first message.
    if options.server.is_some() {
        peer.wait_for_end();
    }
    Ok(())
}
