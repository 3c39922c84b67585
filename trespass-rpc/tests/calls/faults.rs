//! Tests the errors that callers get after faults.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sideway_tests::process::alone;
use trespass::Transport;
use trespass_rpc::{
    Attachment, CallOptions, Certainty, Channel, Context, Endpoint, Error, Pool, Server, Status, Target,
};
use trespass_rpc_ecosystem::{
    ADDRESS, HOST, LONG, Listed, Service, SumsClient, SumsServer, on_both, options, pair, within,
};

use crate::bulk;

#[test]
fn timeout_ends_the_call_and_its_handler_but_not_the_connection() {
    on_both(|options| async move {
        let (_serving, client, service) = pair(&options).await;
        let hurried = client.clone().with(CallOptions::default().timeout(Duration::from_secs(1)));
        let other = tokio::spawn({
            let client = client.clone();
            async move { client.wait(300).await }
        });
        let error = hurried.wait(60_000).await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::DEADLINE, Certainty::Unknown));
        // The time-out does not affect the other call. It ends the handler, which would otherwise run for a minute.
        assert_eq!(other.await.unwrap(), Ok(300));
        while service.dropped.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn dropped_future_drops_the_handler() {
    on_both(|options| async move {
        let (_serving, client, service) = pair(&options).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.wait(60_000).await }
        });
        while service.begun.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        call.abort();
        while service.dropped.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn panic_is_an_error_without_its_text_and_the_connection_lives() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let error = client.panic().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!(error.status, Status::INTERNAL);
        assert!(error.detail.starts_with("incident") && error.detail.ends_with("in the log of the peer"), "{error}");
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn too_large_requests_and_answers_are_errors_of_the_call() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let error = client.echo(&"x".repeat((1 << 20) + 1)).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().status, Status::TOO_LARGE);
        assert_eq!(error.rpc().unwrap().certainty, Certainty::NotSent);
        let error = client.count(2, 2 << 20).next().await.unwrap().unwrap_err();
        assert_eq!(error.rpc().unwrap().status, Status::TOO_LARGE);
        let error = client.zeros(2 << 20).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().status, Status::TOO_LARGE);
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn calls_that_wait_for_credit_keep_their_deadline_and_their_items() {
    on_both(|mut options| async move {
        options.limits.calls = 1;
        // Without keepalive, only the deadline wakes the driver.
        options.limits.keepalive = Duration::ZERO;
        let (_serving, client, service) = pair(&options).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.wait(5_000).await }
        });
        while service.begun.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let hurried = client.clone().with(CallOptions::default().timeout(Duration::from_millis(50)));
        let error = hurried.add(1, 2).await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::DEADLINE, Certainty::NotSent));
        assert!(!call.is_finished(), "another event made the driver check the deadline");
        let sum = tokio::spawn({
            let client = client.clone();
            async move { client.sum(0, Listed(0..10)).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // Cancelling the call frees the only credit, which the call of `sum` needs.
        call.abort();
        assert_eq!(sum.await.unwrap(), Ok(45));
        // The maximum duration means no limit.
        let patient = client.clone().with(CallOptions::default().timeout(Duration::MAX));
        assert_eq!(patient.add(1, 2).await, Ok(3));
    });
}

mod other {
    use super::Context;

    /// A service like `Sums`, in which one method has a different type, and which has another method.
    #[trespass_rpc::service(name = "test.Sums")]
    pub(super) trait Sums {
        async fn add(&self, cx: &Context, left: i32, right: i64) -> Result<i64, ()>;
    }

    #[trespass_rpc::service(name = "test.None")]
    pub(super) trait Nothing {
        async fn none(&self) -> Result<(), ()>;
    }
}

#[test]
fn unknown_methods_and_other_types_are_refused_by_name() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let channel = client.channel().clone();
        let error = other::SumsClient::over(channel.clone()).unwrap_err();
        assert!(error.to_string().contains("test.Sums/add"), "{error}");
        let error = other::NothingClient::over(channel).unwrap().none().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::UNIMPLEMENTED, Certainty::Refused));
    });
}

#[test]
fn drain_lets_calls_end_and_refuses_new_ones() {
    on_both(|options| async move {
        let (serving, client, service) = pair(&options).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.wait(200).await }
        });
        while service.begun.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let draining = tokio::spawn(serving.drain(LONG));
        while client.channel().is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = client.add(1, 2).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().certainty, Certainty::NotSent);
        assert_eq!(call.await.unwrap(), Ok(200));
        assert_eq!(draining.await.unwrap(), 0);
    });
}

#[test]
fn drain_ends_at_its_deadline_with_calls_left() {
    on_both(|options| async move {
        let (serving, client, service) = pair(&options).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.wait(60_000).await }
        });
        while service.begun.load(Ordering::SeqCst) != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(serving.drain(Duration::from_millis(20)).await, 1);
        let error = call.await.unwrap().unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::UNAVAILABLE, Certainty::Unknown));
        assert!(error.detail.contains("shut down"), "{error}");
        assert_eq!(service.dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn connecting_to_a_closed_port_is_an_error() {
    on_both(|options| async move {
        let endpoint = Endpoint::spawn(&options).unwrap();
        let begun = Instant::now();
        let error = Channel::connect_on(&endpoint, &format!("{}:1", *HOST)).await.unwrap_err();
        assert!(begun.elapsed() < LONG, "{error}");
        assert!(Channel::connect_on(&endpoint, "no port").await.is_err());
    });
}

#[test]
fn peer_of_another_protocol_is_an_error_and_does_not_hang() {
    on_both(|options| async move {
        let endpoint = Endpoint::spawn(&options).unwrap();
        // The peer uses `trespass` directly and sends other bytes instead of a hello.
        let mut below = trespass::Options::default();
        below.transport = options.worker.transport;
        let handle = trespass::Handle::new(&below).unwrap();
        let acceptor = trespass::Acceptor::bind_on(&handle, ADDRESS.as_str()).unwrap();
        let address = acceptor.local_addr().to_string();
        let peer = std::thread::spawn(move || {
            let connection = acceptor.accept().unwrap();
            connection.send(b"GET / HTTP/1.1").unwrap();
            // Reads until the peer has closed the connection.
            while connection.recv().is_ok_and(|message| message.is_some()) {}
        });
        let error = Channel::connect_on(&endpoint, &address).await.unwrap_err();
        assert!(error.to_string().contains("does not use this protocol"), "{error}");
        tokio::task::spawn_blocking(|| peer.join().unwrap()).await.unwrap();
    });
}

#[test]
fn runtime_without_io_or_timers_is_an_error() {
    let options = options(Transport::Tcp);
    let build = |set: fn(&mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder| {
        set(&mut tokio::runtime::Builder::new_current_thread()).build().unwrap()
    };
    for runtime in
        [build(|builder| builder), build(|builder| builder.enable_io()), build(|builder| builder.enable_time())]
    {
        let error = runtime.block_on(async { Endpoint::spawn(&options).unwrap_err() });
        assert!(error.to_string().contains("call enable_all()"), "{error}");
    }
}

/// The driver has a thread of its own, so the program's runtime needs no timers.
#[test]
fn calls_work_in_a_runtime_without_timers() {
    let options = options(Transport::Tcp);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let server = Server::new(SumsServer::new(Service::default()));
        let serving = server.bind_on(&Endpoint::thread(&options).unwrap(), &ADDRESS).await.unwrap();
        let pool = Pool::new(&Endpoint::thread(&options).unwrap(), serving.local_addr().to_string());
        let client = SumsClient::new(pool).with(CallOptions::default().timeout(LONG));
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn dropped_runtime_fails_calls_instead_of_hanging() {
    let options = options(Transport::Tcp);
    let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = serving.block_on(async {
        let server = Server::new(SumsServer::new(Service::default()));
        server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap()
    });
    let calling = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    calling.block_on(async {
        let endpoint = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &server.local_addr().to_string()).await.unwrap();
        let client = SumsClient::over(channel).unwrap();
        assert_eq!(client.add(1, 2).await, Ok(3));
        serving.shutdown_background();
        let error = within(client.wait(60_000)).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().status, Status::UNAVAILABLE);
        assert!(matches!(client.add(1, 2).await, Err(Error::Rpc(_))));
    });
}

/// The limit applies to the process, so the test runs in a process of its own.
#[test]
fn call_without_memory_for_its_bytes_fails_and_its_connection_continues() {
    const LENGTH: usize = 64 << 20;
    // A thread's own arena would have reserved memory already.
    let environment = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "131072")];
    if !alone("faults::call_without_memory_for_its_bytes_fails_and_its_connection_continues", &environment) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_serving, client) = bulk::pair(&options(Transport::Tcp)).await;
        let small = async || client.put(Attachment::from(&[1; 5][..]), 7, Attachment::from(&[7; 5][..])).await;
        let memory = client.channel().alloc(LENGTH).unwrap();
        let put = async || {
            let value = Attachment::of(&memory, 0..LENGTH).unwrap();
            client.put(value, 7, Attachment::from(&[7; 5][..])).await
        };
        memory.write_at(0, &bulk::pattern(LENGTH)).unwrap();
        assert_eq!(put().await, Ok(LENGTH as u64));
        let into = client.channel().alloc(LENGTH).unwrap();
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let before = getrlimit(Resource::As);
        setrlimit(Resource::As, Rlimit { current: Some(pages * 4096 + (24 << 20)), ..before }).unwrap();
        let got = client.get(0, Target::of(&into, 0..LENGTH).unwrap()).await;
        assert!(got.unwrap_err().to_string().contains("no memory"));
        assert!(put().await.unwrap_err().to_string().contains("no memory"));
        assert_eq!(small().await, Ok(5));
        setrlimit(Resource::As, before).unwrap();
        assert_eq!(put().await, Ok(LENGTH as u64));
    });
}
