//! Wakers of callers that panic, or poll their futures at once.

use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;

use trespass::Transport;
use trespass_rpc::{Channel, Endpoint, Server};
use trespass_rpc_ecosystem::{ADDRESS, LONG, Service, SumsClient, SumsServer, on_both, options, within};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker fails");
    }
}

/// The driver calls the wakers of those that connect, listen and drain.
#[test]
fn waker_of_a_connect_that_panics_stops_no_endpoint() {
    on_both(|options| async move {
        let server = Server::new(SumsServer::new(Service::default()));
        let serving = server.bind_on(&Endpoint::thread(&options).unwrap(), &ADDRESS).await.unwrap();
        let endpoint = Endpoint::thread(&options).unwrap();
        let address = serving.local_addr().to_string();
        let waker = Waker::from(Arc::new(Panics));
        let mut connecting = Box::pin(Channel::connect_on(&endpoint, &address));
        while connecting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let channel = within(Channel::connect_on(&endpoint, &address)).await.unwrap();
        let client = SumsClient::over(channel).unwrap();
        assert_eq!(within(client.add(1, 2)).await, Ok(3));
    });
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task whose waker polls it, on the thread that calls the waker.
struct Inline {
    is_woken: AtomicBool,
    task: Mutex<Option<Task>>,
    done: Mutex<Sender<()>>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // While another thread polls the task, that thread finds the mark afterwards.
        while self.is_woken.load(Ordering::SeqCst) {
            let Some(mut task) = self.task.lock().unwrap().take() else { return };
            self.is_woken.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&self));
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => return self.done.lock().unwrap().send(()).unwrap(),
                Poll::Pending => *self.task.lock().unwrap() = Some(task),
            }
        }
    }
}

#[test]
fn waker_may_use_the_connection_that_wakes_it() {
    let options = options(Transport::Tcp);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new(SumsServer::new(Service::default()));
    let serving = runtime.block_on(server.bind_on(&Endpoint::thread(&options).unwrap(), &ADDRESS)).unwrap();
    let address = serving.local_addr().to_string();
    let endpoint = Endpoint::thread(&options).unwrap();
    let (done, is_done) = channel();
    let task: Task = Box::pin(async move {
        let channel = Channel::connect_on(&endpoint, &address).await.unwrap();
        let client = SumsClient::over(channel).unwrap();
        // The first poll of a call takes the connection's lock.
        let mut call = Box::pin(client.add(1, 2));
        let waker = Waker::noop();
        assert!(call.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    });
    let is_woken = AtomicBool::new(false);
    Arc::new(Inline { is_woken, task: Mutex::new(Some(task)), done: Mutex::new(done) }).wake();
    is_done.recv_timeout(LONG).unwrap();
}

/// The channel that the waker below uses.
static USED: Mutex<Option<Channel>> = Mutex::new(None);

fn use_and_copy(_: *const ()) -> RawWaker {
    if let Some(used) = &*USED.lock().unwrap() {
        assert!(!used.is_idle(), "a call waits");
    }
    RawWaker::new(ptr::null(), &USING)
}

static USING: RawWakerVTable = RawWakerVTable::new(use_and_copy, |_| {}, |_| {}, |_| {});

#[test]
fn waker_may_use_the_connection_while_it_is_cloned() {
    let (done, is_done) = channel();
    thread::spawn(move || {
        let options = options(Transport::Tcp);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = Server::new(SumsServer::new(Service::default()));
        let serving = runtime.block_on(server.bind_on(&Endpoint::thread(&options).unwrap(), &ADDRESS)).unwrap();
        let endpoint = Endpoint::thread(&options).unwrap();
        let address = serving.local_addr().to_string();
        let channel = runtime.block_on(Channel::connect_on(&endpoint, &address)).unwrap();
        let client = SumsClient::over(channel.clone()).unwrap();
        // SAFETY: the functions ignore their pointer, so all wakers of this table are alike.
        let waker = unsafe { Waker::new(ptr::null(), &USING) };
        let mut context = Context::from_waker(&waker);
        let mut call = pin!(client.wait(60_000));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        *USED.lock().unwrap() = Some(channel);
        assert!(call.as_mut().poll(&mut context).is_pending());
        *USED.lock().unwrap() = None;
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).expect("the waker waits for the lock of the call that clones it");
}
