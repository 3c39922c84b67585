//! Gives a peer access to a part of a region through a memory window of type 2, and revokes it: by an invalidation of this side,
//! and by a message of the peer that invalidates the key.

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
Gives a peer access to a part of a region, by a memory window of type 2, and revokes it, printing each step.

The owner has a region that no peer can access. It binds a window to a part of it, under a key of the window's own, and tells the \
peer the key. The peer reads and writes there. Then the key is invalidated: by the owner, by a request on its own queue pair, or \
by the peer, with a message (send with invalidate). The owner's device refuses the peer's next read, and the connection ends.

Both sides are in this process, with a queue pair each; to the device that makes no difference.";

const EXAMPLES: &str = "\
Examples:
  memory_window                          the owner revokes the key; then anew, and the peer gives it back
  memory_window -d mlx5_0 --by peer      another device, and the second half alone

Exit status: 0 if everything happened as above, 1 if it did not or something failed, 2 for invalid arguments.";

/// Give a peer access to a part of a region through a memory window, and revoke it
#[derive(Clone, Debug, Parser)]
#[command(name = "memory_window", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    port_choice: PortChoice,

    /// Side that invalidates the key
    #[arg(long, value_enum, value_name = "SIDE", default_value_t = By::Both)]
    by: By,

    /// Limit of each wait for a completion; 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = parse_timeout)]
    timeout: Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The owner of the memory
    Owner,
    /// The user of the window
    Peer,
    /// First the owner, then, with a new connection, the peer
    Both,
}

/// Bytes of the region, and where in it the peer's part begins.
const REGION: usize = 4096;
const OFFSET: usize = 1024;
/// Bytes of the part, of the longest message, and of the longest read.
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
    // 2A and 2B differ in which queue pairs may use the window; here it is the one that bound it.
    let type_2 = Capabilities::MemoryWindowType2A | Capabilities::MemoryWindowType2B;
    ensure!(
        context.query_device()?.device_cap_flags().intersects(type_2),
        "{} has no memory windows of type 2",
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

/// One connection, over which a key is given, used and revoked.
fn round(timeout: Timeout, by: By, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    const FROM_OWNER: &[u8] = b"this is from the owner";
    const FROM_PEER: &[u8] = b"and this from the peer";
    const THANKS: &[u8] = b"done with it";

    // The region: LocalWrite, because a window with RemoteWrite needs it of its region. Declared before the queue pairs, so it is
    // dropped after them.
    let pd = port.context().alloc_pd()?;
    let mut region = pd.reg_owned_mr(REGION, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
    let mut owner = Side::new(port, &pd, timeout, ACCESS)?;
    let mut peer = Side::new(port, &pd, timeout, AccessFlags::empty())?;
    owner.qp.connect_rc(&peer.qp.local_endpoint(&peer.options)?, &owner.options)?;
    peer.qp.connect_rc(&owner.qp.local_endpoint(&owner.options)?, &peer.options)?;
    // Declared after the queue pair, and dropped before it.
    let mut window = pd.alloc_mw(MemoryWindowType::Type2)?;
    writeln!(out, "\n{}", if by == By::Peer { "the peer gives the key back" } else { "the owner takes the key back" })?;
    writeln!(out, "  owner: has {} bytes at {:#x} that no peer can reach", region.len(), region.addr())?;

    // Binding the window gives it a new key, which differs from the one before in its lowest byte.
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
        "  owner: binds a window to {LENGTH} bytes from {addr:#x} on, to be read and written; its key is {:#010x}",
        rkey.raw()
    )?;

    // The owner tells the peer the address, the length and the key.
    peer.post_receive()?;
    let message = [&addr.to_be_bytes()[..], &LENGTH.to_be_bytes(), &rkey.raw().to_be_bytes()].concat();
    let mut batch = owner.qp.start_post_send();
    batch.construct_wr(1, SIGNALED).setup_send().setup_inline_data(&message);
    batch.post()?;
    owner.expect("telling the key")?;
    let done = peer.expect("receiving the key")?;
    let (addr, length, rkey) = decode(&peer.read(done.length)?).context("the owner's message is too short")?;
    writeln!(out, "  peer:  is told of {length} bytes at {addr:#x}, key {:#010x}", rkey.raw())?;

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
        // A message whose arrival invalidates the key.
        owner.post_receive()?;
        let mut batch = peer.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_send_inv(rkey).setup_inline_data(THANKS);
        batch.post()?;
        peer.expect("giving the key back")?;
        writeln!(out, "  peer:  says `{}`, and with that invalidates the key", THANKS.escape_ascii())?;
        let done = owner.expect("receiving the peer's message")?;
        let message = owner.read(done.length)?;
        ensure!(message == THANKS, "the owner hears `{}`", message.escape_ascii());
        match done.invalidated {
            Some(invalid) => {
                ensure!(invalid == rkey, "another key was invalidated: {:#010x}", invalid.raw());
                writeln!(out, "  owner: hears that, and that {:#010x} is invalid", invalid.raw())?;
            }
            // Soft-RoCE of Linux 6.1 sets another flag.
            None => writeln!(out, "  owner: hears that; this device does not tell the key along with it")?,
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
            writeln!(out, "  peer:  tries to read again: {status}, as it should be")?;
            Ok(())
        }
        Status::Success => bail!("the peer has read by a key that is invalid"),
        status => bail!("reading by the invalid key failed, but not for that: {status}"),
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

/// What both sides have: a queue pair, and memory for what they receive and read.
#[derive(Debug)]
struct Side {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    // Dropped after the queue pair, whose requests name it.
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
    /// The key that the message has invalidated.
    invalidated: Option<RemoteKey>,
}

impl Side {
    /// A queue pair over which peers with a key may have this access.
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

    /// The first bytes of what was received or read.
    fn read(&self, length: u32) -> Result<Vec<u8>> {
        read(&self.memory, 0, length as usize)
    }

    /// Waits for the one outstanding request.
    fn wait(&mut self) -> Result<Done> {
        wait_for_one(&mut self.cq, self.timeout, |completion| {
            let status = completion.status();
            // After a failure the other fields are undefined.
            if status != Status::Success {
                return Done { status, length: 0, invalidated: None };
            }
            let is_invalidation = completion.wc_flags().contains(WorkCompletionFlags::WithInvalidate);
            let invalidated = is_invalidation.then(|| completion.invalidated_rkey());
            Done { status, length: completion.byte_len(), invalidated }
        })
    }

    /// The same for a request that must succeed.
    fn expect(&mut self, what: &str) -> Result<Done> {
        let done = self.wait().context(what.to_owned())?;
        ensure!(done.status == Status::Success, "{what} failed: {}", done.status);
        Ok(done)
    }
}

/// Names the memory of a [`Side`] in a request.
fn lend(memory: &OwnedMemoryRegion, request: impl SetScatterGatherEntry) {
    // SAFETY: the memory is registered, has LENGTH bytes and is dropped after the queue pair. It is read only by `Side::read`,
    // after the completion, and one request at a time names it: after a failed one the connection is not used.
    unsafe { request.setup_sge(memory.lkey(), memory.addr(), LENGTH) }
}
