//! Checks that calls do not allocate after the pools and tables have reached their final size.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use trespass::Transport;
use trespass_rpc::{Attachment, Channel, Context, Endpoint, Options, Server};

/// Counts the allocations of each thread.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: each method calls the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[trespass_rpc::service(name = "test.Echo")]
trait Echo {
    async fn add(&self, left: u64, right: u64) -> Result<u64, ()>;
    async fn take(&self, cx: &Context, data: Attachment) -> Result<[u8; 13], ()>;
}

struct Handler;

impl Echo for Handler {
    async fn add(&self, left: u64, right: u64) -> Result<u64, ()> {
        Ok(left + right)
    }

    async fn take(&self, _: &Context, data: Attachment) -> Result<[u8; 13], ()> {
        assert_eq!(data.len(), 128);
        Ok(*b"hello, caller")
    }
}

/// Counts the allocations of calls. Both the client and the server run on this thread.
fn allocations(transport: Transport, callers: usize, calls: u64) -> u64 {
    softrnic::register().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = Options::default();
        options.worker.transport = transport;
        let server = Server::new(EchoServer::new(Handler));
        let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), "127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = EchoClient::over(channel).unwrap();
        let memory = client.channel().alloc(128).unwrap();
        let mut fewest = u64::MAX;
        // The first rounds fill pools and tables. A later round may allocate for a keepalive or a full queue, and is
        // then repeated.
        for _ in 0..8 {
            let tasks: Vec<_> = (0..callers)
                .map(|_| {
                    let (client, memory) = (client.clone(), memory.clone());
                    tokio::spawn(async move {
                        let mut during = 0;
                        for number in 0..calls {
                            let before = ALLOCATIONS.get();
                            assert_eq!(client.add(number, 1).await, Ok(number + 1));
                            client.take(Attachment::of(&memory, 0..128).unwrap()).await.unwrap();
                            during += ALLOCATIONS.get() - before;
                        }
                        during
                    })
                })
                .collect();
            let mut during = 0;
            for task in tasks {
                during += task.await.unwrap();
            }
            fewest = fewest.min(during);
        }
        fewest
    })
}

#[test]
fn calls_allocate_nothing_in_steady_state() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        for callers in [1, 16] {
            assert_eq!(allocations(transport, callers, 200), 0, "{transport:?}, {callers} callers");
        }
    }
}
