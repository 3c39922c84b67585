//! Gives a peer access to a part of a region through a type 2 memory window, and revokes it: with a local invalidation,
//! and with a send with invalidate from the peer.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionFlags, WorkCompletionStatus as Status};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceCapabilityFlags as Capabilities, Mtu};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, RcOptions, SendOperationFlags as Operations, SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::options::parse_timeout;
use sideway_examples::{LocalPort, PortChoice, Timeout, wait_for_one};

const ABOUT: &str = "\
Gives a peer access to a part of a region through a type 2 memory window, revokes it, and prints each step.

The owner has a region that no peer can access. It binds a window with its own key to a part of the region, and sends the key to the \
peer, which reads and writes there. Then the key is invalidated: by the owner, with a request on its own queue pair, or by the peer, \
with a send with invalidate. The owner's device rejects the peer's next read, and the connection ends.

Both sides are in this process, each with a queue pair; for the device that makes no difference.";

const EXAMPLES: &str = "\
Examples:
  memory_window                          the owner revokes the key; in a second connection the peer does
  memory_window -d mlx5_0 --by peer      another device, and the second part only

Exit status: 0 if everything happened as above, 1 otherwise, 2 for invalid arguments.";

/// Give a peer access to a part of a region through a memory window, and revoke it
#[derive(Clone, Debug, Parser)]
#[command(name = "memory_window", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    port_choice: PortChoice,

    /// Side that invalidates the key
    #[arg(long, value_enum, value_name = "SIDE", default_value_t = By::Both)]
    by: By,

    /// Limit of each wait for a completion; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = parse_timeout)]
    timeout: Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The owner of the memory
    Owner,
    /// The user of the window
    Peer,
    /// First the owner; then, with a new connection, the peer
    Both,
}

/// Bytes of the region, and the offset of the peer's part.
const REGION: usize = 4096;
const OFFSET: usize = 1024;
/// Bytes of the part, and of the longest message and read.
const LENGTH: u32 = 64;
/// The peer's access to its part.
const ACCESS: AccessFlags = AccessFlags::RemoteRead.union(AccessFlags::RemoteWrite);
/// Every port supports this MTU, and the messages are shorter.
const MTU: Mtu = Mtu::Mtu256;
const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let context = port.context();
    // Types 2A and 2B differ in which queue pairs may use the window; here, the same queue pair binds and uses it.
    let type_2 = Capabilities::MemoryWindowType2A | Capabilities::MemoryWindowType2B;
    ensure!(
        context.query_device()?.device_cap_flags().intersects(type_2),
        "{} does not support type 2 memory windows; name another device with -d",
        context.name()
    );
    if let Some(note) = port.note() {
        writeln!(out, "{note}")?;
    }
    for by in [By::Owner, By::Peer] {
        if arguments.by == by || arguments.by == By::Both {
            round(arguments.timeout, by, &port, out)?;
            out.flush()?;
        }
    }
    Ok(())
}

/// One connection on which a key is sent, used and revoked.
fn round(timeout: Timeout, by: By, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    const FROM_OWNER: &[u8] = b"this is from the owner";
    const FROM_PEER: &[u8] = b"and this from the peer";
    const THANKS: &[u8] = b"done with it";

    // The region has LocalWrite because a window with RemoteWrite requires it. It is declared before the queue pairs,
    // and therefore dropped after them.
    let pd = port.context().alloc_pd()?;
    let mut region = pd.reg_owned_mr(REGION, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
    let mut owner = Side::new(port, &pd, timeout, ACCESS)?;
    let mut peer = Side::new(port, &pd, timeout, AccessFlags::empty())?;
    owner.qp.connect_rc(&peer.qp.local_endpoint(&peer.options)?, &owner.options)?;
    peer.qp.connect_rc(&owner.qp.local_endpoint(&owner.options)?, &peer.options)?;
    // Declared after the queue pair, and dropped before it.
    let mut window = pd.alloc_mw(MemoryWindowType::Type2)?;
    writeln!(
        out,
        "\n{}",
        if by == By::Peer { "the peer invalidates the key" } else { "the owner invalidates the key" }
    )?;
    writeln!(out, "  owner: has {} bytes at {:#x} that no peer can access", region.len(), region.addr())?;

    // Each bind changes the key of the window, in its lowest byte.
    region.write_at(OFFSET, FROM_OWNER)?;
    let rkey = window.rkey().inc_rkey();
    let addr = region.addr() + OFFSET as u64;
    let mut batch = owner.qp.start_post_send();
    let bind = BindInformation::new(region.region(), addr, LENGTH.into(), ACCESS);
    batch.construct_wr(1, SIGNALED).setup_bind_mw(&mut window, rkey, bind);
    batch.post()?;
    owner.expect("binding the window")?;
    window.set_rkey(rkey)?;
    writeln!(
        out,
        "  owner: binds a window for reads and writes to {LENGTH} bytes at {addr:#x}; its key is {:#010x}",
        rkey.raw()
    )?;

    // The owner sends the peer the address, the length and the key.
    peer.post_receive()?;
    let message = [&addr.to_be_bytes()[..], &LENGTH.to_be_bytes(), &rkey.raw().to_be_bytes()].concat();
    let mut batch = owner.qp.start_post_send();
    batch.construct_wr(1, SIGNALED).setup_send().setup_inline_data(&message);
    batch.post()?;
    owner.expect("sending the key")?;
    let done = peer.expect("receiving the key")?;
    let (addr, length, rkey) = decode(&peer.read(done.length)?).context("the owner's message is too short")?;
    writeln!(out, "  peer:  receives the address {addr:#x}, {length} bytes, key {:#010x}", rkey.raw())?;

    // The peer reads and writes through the window.
    let status = peer.rdma_read(rkey, addr)?;
    ensure!(status == Status::Success, "reading through the window failed: {status}");
    let found = peer.read(length)?;
    ensure!(found.starts_with(FROM_OWNER), "the peer read `{}` through the window", found.escape_ascii());
    writeln!(out, "  peer:  reads there `{}`", FROM_OWNER.escape_ascii())?;
    let mut batch = peer.qp.start_post_send();
    batch.construct_wr(1, SIGNALED).setup_write(rkey, addr).setup_inline_data(FROM_PEER);
    batch.post()?;
    peer.expect("writing through the window")?;
    writeln!(out, "  peer:  writes there `{}`", FROM_PEER.escape_ascii())?;
    let found = read(&region, OFFSET, FROM_PEER.len())?;
    ensure!(found == FROM_PEER, "the owner finds `{}` in its memory", found.escape_ascii());
    writeln!(out, "  owner: finds that in its memory")?;

    if by == By::Peer {
        // The peer's message invalidates the key on arrival.
        owner.post_receive()?;
        let mut batch = peer.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_send_inv(rkey).setup_inline_data(THANKS);
        batch.post()?;
        peer.expect("sending with invalidate")?;
        writeln!(out, "  peer:  sends `{}` with invalidate", THANKS.escape_ascii())?;
        let done = owner.expect("receiving the peer's message")?;
        let message = owner.read(done.length)?;
        ensure!(message == THANKS, "the owner received `{}`", message.escape_ascii());
        match done.invalidated {
            Some(invalid) => {
                ensure!(invalid == rkey, "another key was invalidated: {:#010x}", invalid.raw());
                writeln!(out, "  owner: receives it; key {:#010x} is invalid", invalid.raw())?;
            }
            // The soft-RoCE of Linux 6.1 sets a different flag, so the key is not reported.
            None => writeln!(out, "  owner: receives it; this device does not report the key")?,
        }
    } else {
        let mut batch = owner.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_local_inv(rkey);
        batch.post()?;
        owner.expect("invalidating the key")?;
        writeln!(out, "  owner: invalidates the key")?;
    }

    match peer.rdma_read(rkey, addr)? {
        status @ Status::RemoteAccessError => {
            writeln!(out, "  peer:  tries to read again: {status}, as expected")?;
            Ok(())
        }
        Status::Success => bail!("the peer has read with an invalid key"),
        status => bail!("reading with the invalid key failed for another reason: {status}"),
    }
}

/// The address, length and key of a message, each big-endian.
fn decode(message: &[u8]) -> Option<(u64, u32, RemoteKey)> {
    let (addr, rest) = message.split_first_chunk()?;
    let (length, rkey) = rest.split_first_chunk()?;
    let rkey = RemoteKey::from_raw(u32::from_be_bytes(*rkey.first_chunk()?));
    Some((u64::from_be_bytes(*addr), u32::from_be_bytes(*length), rkey))
}

fn read(memory: &OwnedMemoryRegion, offset: usize, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    memory.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// One side: a queue pair, and memory for received messages and reads.
#[derive(Debug)]
struct Side {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    // Dropped after the queue pair, whose requests use it.
    memory: OwnedMemoryRegion,
    options: RcOptions,
    timeout: Timeout,
}

/// A request that has completed.
#[derive(Clone, Copy, Debug)]
struct Done {
    status: Status,
    /// Bytes of the received message.
    length: u32,
    /// The key that the message invalidated.
    invalidated: Option<RemoteKey>,
}

impl Side {
    /// Creates a queue pair that permits this access to a peer with a key.
    fn new(port: &LocalPort, pd: &Arc<ProtectionDomain>, timeout: Timeout, access: AccessFlags) -> Result<Self> {
        let memory = pd.reg_owned_mr(LENGTH as usize, AccessFlags::LocalWrite)?;
        let cq = port.context().create_cq_builder().setup_cqe(2).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_max_inline_data(LENGTH);
        builder.setup_send_cq(&cq).setup_recv_cq(&cq);
        // An extended queue pair supports only the operations that it was created for.
        builder.setup_send_ops_flags(
            Operations::Send
                | Operations::Read
                | Operations::Write
                | Operations::BindMemoryWindow
                | Operations::LocalInvalidate
                | Operations::SendWithInvalidate,
        );
        let qp = builder.build_generic()?;
        Ok(Self { qp, cq, memory, options: port.options(access, MTU), timeout })
    }

    /// Posts a receive for the next message.
    fn post_receive(&mut self) -> Result<()> {
        let mut batch = self.qp.start_post_recv();
        lend(&self.memory, batch.construct_wr(1));
        Ok(batch.post()?)
    }

    /// Reads LENGTH bytes of the peer's memory; returns the status of the request.
    fn rdma_read(&mut self, rkey: RemoteKey, addr: u64) -> Result<Status> {
        let mut batch = self.qp.start_post_send();
        lend(&self.memory, batch.construct_wr(1, SIGNALED).setup_read(rkey, addr));
        batch.post()?;
        Ok(self.wait()?.status)
    }

    /// Returns the first bytes of the received message, or of the data that was read.
    fn read(&self, length: u32) -> Result<Vec<u8>> {
        read(&self.memory, 0, length as usize)
    }

    /// Waits until the only outstanding request has completed.
    fn wait(&mut self) -> Result<Done> {
        wait_for_one(&mut self.cq, self.timeout, |completion| {
            let status = completion.status();
            // After an error the other fields are undefined.
            if status != Status::Success {
                return Done { status, length: 0, invalidated: None };
            }
            let is_invalidation = completion.wc_flags().contains(WorkCompletionFlags::WithInvalidate);
            let invalidated = is_invalidation.then(|| completion.invalidated_rkey());
            Done { status, length: completion.byte_len(), invalidated }
        })
    }

    /// Waits like [`wait`](Self::wait); returns an error if the request failed.
    fn expect(&mut self, what: &str) -> Result<Done> {
        let done = self.wait().context(what.to_owned())?;
        ensure!(done.status == Status::Success, "{what} failed: {}", done.status);
        Ok(done)
    }
}

/// Adds the memory of a [`Side`] to a request.
fn lend(memory: &OwnedMemoryRegion, request: impl SetScatterGatherEntry) {
    // SAFETY: the memory is registered, has LENGTH bytes and is dropped after the queue pair. Only `Side::read` reads
    // it, after the completion. Only one request at a time uses it, since the connection is not used after an error.
    unsafe { request.setup_sge(memory.lkey(), memory.addr(), LENGTH) }
}
