//! The exchange of `rc_pingpong` with every step spelled out, one after the other, for reading: device, protection domain,
//! memory, completion queue, queue pair, INIT, RTR, RTS, post, poll. It uses the extended verbs (`ibv_create_cq_ex`,
//! `ibv_create_qp_ex`), and it is a peer of `rc_pingpong` and of rdma-core's `ibv_rc_pingpong`.

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

/// Send messages to and fro over a reliable connection, step by step
///
/// Without SERVER it waits for a client; with SERVER it is the client. The other side may also be rc_pingpong, or rdma-core's
/// ibv_rc_pingpong with -g INDEX; give both the same --size and --iters.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    /// The host that the server runs on; none makes this program the server
    server: Option<String>,

    /// TCP port on which the two programs find each other
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// RDMA device, such as mlx5_0 [default: the first with an active port]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,

    /// Index of the GID to send from; show_gids lists them [default: RoCE v2 with an IPv4 address first]
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
/// The numbers by which the requests come back in their completions.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
/// How long to wait for the other side.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    // 1. The device: that of this name, or the first with an active port, of those in `DeviceList::new()`.
    let context = sideway_examples::open_device(arguments.ib_dev.as_deref())?;

    // 2. The port, and the GID that packets are to come from: with RoCE, one of the addresses of the network interface. On
    //    InfiniBand a LID does, and there is no GID.
    let port = sideway_examples::active_port(&context, PORT)?;
    let gid = sideway_examples::gid::choose(&context, PORT, arguments.gid_idx)?;
    if arguments.size > port.max_msg_sz() {
        bail!("a message of {} bytes is asked for and the port sends {} at most", arguments.size, port.max_msg_sz());
    }

    // 3. A protection domain: only what is in the same one works together.
    let pd = context.alloc_pd()?;

    // 4. Memory that the device may touch. It is pinned, and known to the device by a key. What is sent is only read; what
    //    is received is written, which needs a right.
    //
    //    Mind where these two lines stand. A request names memory by address and key only, so a queue pair keeps alive what
    //    it was made from and not the memory of its requests. Local variables are dropped last to first: because the memory
    //    is made before the queue pair (step 6), it goes after it, on every way out of this function. Nothing checks that;
    //    it is what the `unsafe` blocks below promise.
    let mut outgoing = pd.reg_owned_mr(arguments.size as usize, AccessFlags::empty())?;
    let incoming = pd.reg_owned_mr(arguments.size as usize, AccessFlags::LocalWrite)?;
    outgoing.write_at(0, &vec![0x7b; arguments.size as usize])?;

    // 5. A completion queue: where the device tells which requests are done. It must hold all that can be outstanding: here
    //    one send and two receives.
    let mut cq = context.create_cq_builder().setup_cqe(3).build_ex()?;

    // 6. The queue pair. Sends and receives have a queue each; both tell the same completion queue. It is an extended one, made for
    //    the operations that it is going to be used for, if the driver checks each request that it is given; else a basic one.
    let mut qp = pd
        .create_qp_builder()
        .setup_qp_type(QueuePairType::ReliableConnection)
        .setup_max_send_wr(1)
        .setup_max_recv_wr(2)
        .setup_send_ops_flags(SendOperationFlags::Send)
        .setup_send_cq(&cq)
        .setup_recv_cq(&cq)
        .build_generic()?;

    // 7. How it is to be connected: port, GID, MTU, and a random number of the first packet (PSN), so that a late packet of an earlier
    //    connection is not accepted. The peer gets no access to memory of this side: it only sends.
    let mut options = RcOptions::new();
    options.setup_port(PORT).setup_path_mtu(Mtu::Mtu1024).setup_access_flags(AccessFlags::empty());
    if let Some(entry) = gid {
        options.setup_gid_index(u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?);
    }

    // 8. The two sides exchange the addresses of their queue pairs, over any channel: here over TCP. The server answers when it can
    //    receive.
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

    // 10. Receives must be posted before the peer sends: a message that finds none is refused, and the peer has to retry. Two, so that
    //     one is there while the other is posted anew.
    let mut batch = qp.start_post_recv();
    for _ in 0..2 {
        // SAFETY: the memory is registered, has `size` bytes and is dropped after the queue pair, as it was declared before it.
        // Nothing refers to it while a receive is posted.
        unsafe { batch.construct_wr(RECEIVE).setup_sge(incoming.lkey(), incoming.addr(), arguments.size) };
    }
    batch.post()?;

    // 11. Now this side is up. The client waits for the server's address, which reports that the server is.
    if arguments.server.is_some() {
        peer.send_done()?;
    } else {
        peer.send_address(&local)?;
        peer.receive_done()?;
    }

    // 12. The messages: the client begins, and each side answers what it has received.
    let start = Instant::now();
    let is_client = arguments.server.is_some();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let mut last_completion = Instant::now();
    while received < arguments.iters || sent < arguments.iters {
        // The client may be one message ahead, and the server follows. The memory is free for the next message when the last
        // send has completed.
        let due = if is_client { received } else { received.saturating_sub(1) };
        let has_turn = is_client || received > posted;
        if has_turn && posted == due && sent == posted && posted < arguments.iters {
            let mut batch = qp.start_post_send();
            let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
            // SAFETY: the memory is registered, has `size` bytes and is dropped behind the queue pair; nobody writes it.
            unsafe { request.setup_sge(outgoing.lkey(), outgoing.addr(), arguments.size) };
            batch.post()?;
            posted += 1;
        }

        // Polling: the closure gets what has completed.
        let mut arrived = 0;
        let polled = cq.poll_each(u32::MAX, |completion| {
            if completion.status() != WorkCompletionStatus::Success {
                let what = if completion.wr_id() == SEND { "sending" } else { "receiving" };
                bail!("{what} failed: {} (does the peer have the same --size and --iters?)", completion.status());
            }
            *if completion.wr_id() == SEND { &mut sent } else { &mut arrived } += 1;
            Ok(())
        })?;
        if polled > 0 {
            last_completion = Instant::now();
        } else if last_completion.elapsed() < LIMIT {
            // Nothing yet: yield to another program, such as a peer on the same machine.
            std::thread::yield_now();
        } else {
            bail!("nothing completed for {} s: does the peer still run?", LIMIT.as_secs());
        }

        // Each receive takes one message; post as many anew as were used up.
        received += arrived;
        if arrived > 0 {
            let mut batch = qp.start_post_recv();
            for _ in 0..arrived {
                // SAFETY: as for the first two.
                unsafe { batch.construct_wr(RECEIVE).setup_sge(incoming.lkey(), incoming.addr(), arguments.size) };
            }
            batch.post()?;
        }
    }

    let seconds = start.elapsed().as_secs_f64();

    // 13. The last message is the server's. Some devices report it before they acknowledge it, and a destroyed queue pair does not
    //     acknowledge: so the client waits until the server has ended.
    if arguments.server.is_some() {
        peer.wait_for_end();
    }

    // 14. What there is goes by itself at the end of the function, and nobody has to close anything. The queue pair keeps
    //     alive what it was made from: the completion queue, the domain, the device. The memory is the exception: it is there
    //     until the queue pair has gone only because it was made before it (step 4). Whoever moves the two into a struct has
    //     to put the queue pair first there, as the fields of a struct are dropped first to last.
    let bytes = u64::from(arguments.size) * u64::from(arguments.iters) * 2;
    writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", bytes as f64 * 8.0 / seconds / 1e6)?;
    let each = seconds * 1e6 / f64::from(arguments.iters);
    writeln!(out, "{} iters in {seconds:.2} seconds = {each:.2} usec/iter", arguments.iters)?;
    Ok(())
}
