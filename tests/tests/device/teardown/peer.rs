//! Two processes: the target of the writes is killed during them.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionRecord, PollCompletions, WorkCompletionStatus as Status,
};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::queue_pair::teardown::Drained;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{PSN, init, ready_to_receive, ready_to_send};
use sideway_tests::{child, device};

/// The variable that passes the address of the writing queue pair to the peer.
const WRITER: &str = "SIDEWAY_TEST_WRITER";
/// Marks a run under valgrind.
const UNDER_VALGRIND: &str = "SIDEWAY_TEST_UNDER_VALGRIND";
/// Bytes of a write.
const LEN: usize = 16 * 1024;
/// Writes in flight at any time.
const DEPTH: u64 = 8;
/// Writes before the peer is killed.
const BEFORE: u64 = 40;
/// The ACK timeout code (4.096 us × 2^14: 67 ms), and the retry count.
const ATTEMPTS: u8 = 3;
/// The test's deadline: much longer than the queue pair's.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue pair with its completion queue and memory.
struct Endpoint {
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    memory: OwnedMemoryRegion,
}

fn endpoint(context: &std::sync::Arc<sideway::ibverbs::device_context::DeviceContext>) -> Endpoint {
    let pd = context.alloc_pd().expect("a domain can be made");
    let cq = context.create_cq_builder().build().expect("a completion queue can be made");
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build().expect("a queue pair can be made");
    let access = sideway::ibverbs::AccessFlags::LocalWrite | sideway::ibverbs::AccessFlags::RemoteWrite;
    let memory = pd.reg_owned_mr(LEN, access).expect("memory can be registered");
    Endpoint { qp, cq, memory }
}

/// The target process: sends its address, and waits to be killed.
#[test]
#[ignore = "is started by another test"]
fn peer() {
    // Runs only if the test below starts it.
    let Ok(writer) = env::var(WRITER) else { return };
    let context = device::open();
    let Endpoint { qp, cq: _cq, memory } = endpoint(&context);
    let writer = writer.parse().expect("the number of a queue pair");
    for attributes in [init(), ready_to_receive(&context, writer, PSN[0]), ready_to_send(PSN[1], 7)] {
        qp.modify(&attributes).unwrap_or_else(|error| panic!("{error}"));
    }
    println!("PEER {} {} {}", qp.qp_number(), memory.rkey().raw(), memory.addr());
    std::io::stdout().flush().expect("the other process listens");
    thread::sleep(PATIENCE);
}

#[test]
fn killed_peer_gives_a_typed_completion_and_teardown_succeeds() {
    let context = device::open();
    let Endpoint { mut qp, mut cq, memory } = endpoint(&context);
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "teardown::peer::peer", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(WRITER, qp.qp_number().to_string());
    let mut peer = child::Program::start(command, PATIENCE);
    let line = peer_line(&peer);
    let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
    let mut word = || words.next().expect("three numbers");
    let (peer_qp, rkey, addr) = (word() as u32, RemoteKey::from_raw(word() as u32), word());

    let mut ready = ready_to_send(PSN[0], 7);
    ready.setup_retry_cnt(ATTEMPTS);
    for attributes in [init(), ready_to_receive(&context, peer_qp, PSN[1]), ready] {
        qp.modify(&attributes).unwrap_or_else(|error| panic!("{error}"));
    }

    // An endless stream of writes.
    let post = |qp: &mut BasicQueuePair, number| {
        let mut batch = qp.start_post_send();
        let request = batch.construct_wr(number, WorkRequestFlags::Signaled).setup_write(rkey, addr);
        // SAFETY: the memory is registered, has no reference to it, and `tear_down` keeps it until the requests ended.
        unsafe { request.setup_sge(memory.lkey(), memory.addr(), LEN as u32) };
        batch.post().unwrap_or_else(|error| panic!("{error}"));
    };
    let started = Instant::now();
    let (mut posted, mut completed) = (0, 0);
    let mut killed = None;
    let (mut records, mut failed) = (Vec::new(), Vec::new());
    while failed.is_empty() {
        while posted - completed < DEPTH {
            post(&mut qp, posted);
            posted += 1;
        }
        cq.poll_records(&mut records).unwrap_or_else(|error| panic!("{error}"));
        for record in records.drain(..) {
            assert_eq!(record.wr_id, completed + failed.len() as u64, "completions come in order");
            if record.status == Status::Success {
                completed += 1;
            } else {
                failed.push(record);
            }
        }
        if completed >= BEFORE && killed.is_none() {
            peer.kill();
            killed = Some(Instant::now());
        }
        assert!(started.elapsed() < PATIENCE, "no failure came after {completed} writes");
    }
    let killed = killed.expect("the peer was killed before anything failed");
    let status = failed.first().map(|record: &CompletionRecord| record.status);
    println!("{status:?} after {completed} writes, {:?} after the peer's end", killed.elapsed());
    // The peer's memory is freed together with its queue pair, and either may fail first.
    assert!([Some(Status::RetryCounterExceededError), Some(Status::RemoteAccessError)].contains(&status), "{failed:?}");

    // The rest of the stream was flushed with the failure, or is flushed now.
    let torn_down = qp.tear_down(&mut [&mut cq], PATIENCE, memory, |record| failed.push(*record));
    let torn_down = torn_down.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((torn_down.drained, torn_down.destroyed), (Drained::Flushed, Ok(())));
    assert!(failed.iter().skip(1).all(|record| record.status == Status::WorkRequestFlushedError), "{failed:?}");
    assert_eq!(completed + failed.len() as u64, posted, "every request has its completion");
    drop((torn_down.buffers, cq));
    let context = std::sync::Arc::into_inner(context).expect("only the context of the device is left");
    context.close().expect("the device can be closed");
}

/// The addresses that the peer sends.
fn peer_line(peer: &child::Program) -> String {
    let started = Instant::now();
    loop {
        let said = peer.said();
        // Reads a complete line.
        let line = said.split_once("PEER ").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((line, _)) = line {
            return line.to_owned();
        }
        assert!(started.elapsed() < PATIENCE, "the peer did not print its address:\n{said}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "runs under valgrind, a minute or more: cargo xtask softroce"]
fn killing_the_peer_is_clean_under_valgrind() {
    if env::var_os(UNDER_VALGRIND).is_some() {
        return;
    }
    let test = "teardown::peer::killed_peer_gives_a_typed_completion_and_teardown_succeeds";
    let command = child::under_valgrind(UNDER_VALGRIND, &["--exact", test]);
    let ended = child::run(command, Duration::from_secs(240));
    assert!(ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("1 passed"), "{}", ended.output);
    assert!(ended.output.contains("ERROR SUMMARY: 0 errors"), "{}", ended.output);
}
