//! The exchange of `rc_pingpong` as one sequence of steps: device, protection domain, memory, completion queue, queue
//! pair, INIT, RTR, RTS, post, poll. It uses the extended verbs (`ibv_create_cq_ex`, `ibv_create_qp_ex`), and
//! interoperates with `rc_pingpong` and with rdma-core's `ibv_rc_pingpong`.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairType, RcOptions, SendOperationFlags};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::Timeout;
use sideway_examples::exchange::{DEFAULT_PORT, Peer, describe};
use sideway_examples::options::parse_message_size;

/// Send messages back and forth over a reliable connection, step by step
///
/// Without SERVER, this program is the server. The peer may also be rc_pingpong, or rdma-core's ibv_rc_pingpong with -g
/// INDEX. Both sides require the same --size and --iters.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    /// Host of the server; without it, this program is the server
    server: Option<String>,

    /// TCP port of the control connection
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// RDMA device, such as mlx5_0 [default: the first with an active port]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,

    /// GID index, see show_gids [default: RoCE v2 with IPv4 first]
    #[arg(short = 'g', long, value_name = "INDEX")]
    gid_idx: Option<u32>,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    size: u32,

    /// Messages in either direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
}

/// The port of the device.
const PORT: u8 = 1;
/// The work request identifiers, which completions return.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
/// How long to wait for the peer.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    // 1. The device: the one with the given name, or the first of `DeviceList::new()` with an active port.
    let context = sideway_examples::open_device(arguments.ib_dev.as_deref())?;

    // 2. The port, and the source GID of packets: with RoCE, an address of the network interface. InfiniBand uses a LID
    //    and needs no GID.
    let port = sideway_examples::active_port(&context, PORT)?;
    let gid = sideway_examples::gid::choose(&context, PORT, arguments.gid_idx)?;
    if arguments.size > port.max_msg_sz() {
        bail!(
            "--size is {}, above the port's maximum of {} bytes; give a smaller --size",
            arguments.size,
            port.max_msg_sz()
        );
    }

    // 3. A protection domain: only objects in the same domain work together.
    let pd = context.alloc_pd()?;

    // 4. Memory for the device. Registration pins it and gives it a key. The device only reads what it sends; writing
    //    received messages requires an access flag.
    //
    //    The order of these two lines matters. A request has the address and the key of memory, but no reference to it.
    //    A queue pair keeps its parent objects alive, but not the memory of its requests. Rust drops local variables
    //    in reverse order: the memory is declared before the queue pair (step 6), so it is dropped after it on every
    //    return from this function. The compiler does not check this order; the `unsafe` blocks below rely on it.
    let mut outgoing = pd.reg_owned_mr(arguments.size as usize, AccessFlags::empty())?;
    let incoming = pd.reg_owned_mr(arguments.size as usize, AccessFlags::LocalWrite)?;
    outgoing.write_at(0, &vec![0x7b; arguments.size as usize])?;

    // 5. A completion queue, to which the device adds an entry for each completed request. It must have space for all
    //    outstanding requests: here one send and two receives.
    let mut cq = context.create_cq_builder().setup_cqe(3).build_ex()?;

    // 6. The queue pair. It has a send queue and a receive queue; both report to this completion queue. If the driver
    //    checks each posted request, this creates an extended queue pair for the operations that are used here;
    //    otherwise a basic one.
    let mut qp = pd
        .create_qp_builder()
        .setup_qp_type(QueuePairType::ReliableConnection)
        .setup_max_send_wr(1)
        .setup_max_recv_wr(2)
        .setup_send_ops_flags(SendOperationFlags::Send)
        .setup_send_cq(&cq)
        .setup_recv_cq(&cq)
        .build_generic()?;

    // 7. The options of the connection: port, GID, MTU, and a random first packet sequence number (PSN), so that no
    //    late packet of an earlier connection is accepted. The peer gets no access to memory of this side: it only
    //    sends.
    let mut options = RcOptions::new();
    options.setup_port(PORT).setup_path_mtu(Mtu::Mtu1024).setup_access_flags(AccessFlags::empty());
    if let Some(entry) = gid {
        options.setup_gid_index(u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?);
    }

    // 8. The two sides exchange the addresses of their queue pairs over any channel, here over TCP. The server sends
    //    its address when it can receive.
    let local = qp.local_endpoint(&options)?;
    writeln!(out, "  local address:  {}", describe(&local))?;
    out.flush()?;
    let mut peer = match &arguments.server {
        Some(server) => Peer::connect(server, arguments.port, Timeout(Some(LIMIT)))?,
        None => Peer::accept(arguments.port, Timeout(Some(LIMIT)))?,
    };
    if arguments.server.is_some() {
        peer.send_address(&local)?;
    }
    let remote = peer.receive_address()?;
    writeln!(out, "  remote address: {}", describe(&remote))?;
    out.flush()?;

    // 9. RESET -> INIT -> RTR (ready to receive) -> RTS (ready to send), by `ibv_modify_qp` three times.
    qp.connect_rc(&remote, &options)?;

    // 10. Receives must be posted before the peer sends; otherwise the device rejects the message and the peer must
    //     retry. Two receives are posted, so that one is ready while the other is posted again.
    let mut batch = qp.start_post_recv();
    for _ in 0..2 {
        // SAFETY: the memory is registered and has `size` bytes. It was declared before the queue pair, so it is
        // dropped after it. No reference to the memory exists while a receive is posted.
        unsafe { batch.construct_wr(RECEIVE).setup_sge(incoming.lkey(), incoming.addr(), arguments.size) };
    }
    batch.post()?;

    // 11. This side can now receive. The client waits for the server's address, which confirms that the server can too.
    if arguments.server.is_some() {
        peer.send_done()?;
    } else {
        peer.send_address(&local)?;
        peer.receive_done()?;
    }

    // 12. The messages: the client sends first, and each side answers what it has received.
    let start = Instant::now();
    let is_client = arguments.server.is_some();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let mut last_completion = Instant::now();
    while received < arguments.iters || sent < arguments.iters {
        // The client may be one message ahead of the server. The memory is free for the next message when the last send
        // has completed.
        let due = if is_client { received } else { received.saturating_sub(1) };
        let has_turn = is_client || received > posted;
        if has_turn && posted == due && sent == posted && posted < arguments.iters {
            let mut batch = qp.start_post_send();
            let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
            // SAFETY: the memory is registered, has `size` bytes and is dropped after the queue pair; nothing writes
            // it.
            unsafe { request.setup_sge(outgoing.lkey(), outgoing.addr(), arguments.size) };
            batch.post()?;
            posted += 1;
        }

        // Polls: `poll_each` calls the closure with each completion.
        let mut arrived = 0;
        let polled = cq.poll_each(u32::MAX, |completion| {
            if completion.status() != WorkCompletionStatus::Success {
                let what = if completion.wr_id() == SEND { "sending" } else { "receiving" };
                bail!("{what} failed: {}; give both sides the same --size and --iters", completion.status());
            }
            *if completion.wr_id() == SEND { &mut sent } else { &mut arrived } += 1;
            Ok(())
        })?;
        if polled > 0 {
            last_completion = Instant::now();
        } else if last_completion.elapsed() < LIMIT {
            // No completion: yield to other programs, such as a peer on the same machine.
            std::thread::yield_now();
        } else {
            bail!("nothing completed for {} s; check that the peer still runs", LIMIT.as_secs());
        }

        // Each message uses up one receive; post as many again.
        received += arrived;
        if arrived > 0 {
            let mut batch = qp.start_post_recv();
            for _ in 0..arrived {
                // SAFETY: as for the first two receives, in step 10.
                unsafe { batch.construct_wr(RECEIVE).setup_sge(incoming.lkey(), incoming.addr(), arguments.size) };
            }
            batch.post()?;
        }
    }

    let seconds = start.elapsed().as_secs_f64();

    // 13. The server sends the last message. Some devices report a message before they acknowledge it, and a destroyed
    //     queue pair acknowledges nothing. So the client waits until the server has exited.
    if arguments.server.is_some() {
        peer.wait_for_end();
    }

    // 14. Every object is released when it is dropped at the end of the function. The queue pair keeps the objects
    //     alive from which it was created: the completion queue, the domain, the device. The memory is an exception: it
    //     outlives the queue pair only because it was declared first (step 4). In a struct, put the queue pair before
    //     the memory: fields are dropped in the order of their declaration.
    let bytes = u64::from(arguments.size) * u64::from(arguments.iters) * 2;
    writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / seconds / 1e6)?;
    let each = seconds * 1e6 / f64::from(arguments.iters);
    writeln!(out, "{} iters in {seconds:.2} seconds = {each:.2} usec/iter", arguments.iters)?;
    Ok(())
}
