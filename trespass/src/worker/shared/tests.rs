//! Tests threads that share a worker.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::Wake;

use super::sleep::{SHORT, next_spin};
use super::*;
use crate::{Acceptor, Connection, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

fn pair() -> (Connection, Connection) {
    let ([server, _], [client, _]) = pairs();
    (server, client)
}

/// Creates two connections between two workers.
fn pairs() -> ([Connection; 2], [Connection; 2]) {
    let [server, client] =
        [(); 2].map(|()| Handle::new(&Options { transport: Transport::Tcp, ..Options::default() }).unwrap());
    let acceptor = Acceptor::bind_on(&server, "127.0.0.1:0").unwrap();
    let connect = |()| {
        let client = Connection::connect_on(&client, acceptor.local_addr(), None).unwrap();
        (acceptor.accept().unwrap(), client)
    };
    let [(first, first_client), (second, second_client)] = [(); 2].map(connect);
    ([first, second], [first_client, second_client])
}

fn until(handle: &Handle, what: impl Fn(&mut Core) -> bool) {
    let begun = Instant::now();
    while !what(&mut handle.shared.lock()) {
        thread::yield_now();
        assert!(begun.elapsed() < LONG);
    }
}

/// Tests for a former defect: the second call replaced the first one, which was never woken.
#[test]
fn all_calls_that_wait_for_one_connection_are_woken() {
    let ([server, other], [client, other_client]) = pairs();
    let handle = server.handle();
    let (results, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| other.recv().unwrap());
        until(handle, |core| core.call_sleeps);
        for _ in 0..2 {
            let (results, server) = (results.clone(), &server);
            scope.spawn(move || results.send(server.recv()).unwrap());
        }
        until(handle, |core| core.parked.len() == 2);
        (0..2_u8).for_each(|n| client.send(&[n]).unwrap());
        let mut received: Vec<_> = (0..2).map(|_| outcomes.recv_timeout(LONG)).collect();
        // Makes all calls return, whatever the result of the test is.
        client.send(&[9]).unwrap();
        other_client.send(&[9]).unwrap();
        let mut bytes: Vec<u8> = received.drain(..).map(|call| call.unwrap().unwrap().unwrap()[0]).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, [0, 1]);
    });
}

/// Tests for a former defect: the call slept until the next tick, because another thread had driven the worker and
/// consumed the call's event.
#[test]
fn a_call_that_sleeps_on_the_descriptor_is_woken_if_another_thread_takes_its_event() {
    let (server, _client) = pair();
    let handle = server.handle();
    handle.shared.lock().worker.set_ticking(false);
    let is_done = AtomicBool::new(false);
    let (results, outcome) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let waited = server.wait(Awaited::Transfer, Some(Instant::now() + 2 * LONG), |_| {
                if is_done.load(Ordering::Relaxed) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            results.send(waited).unwrap();
        });
        until(handle, |core| core.call_sleeps);
        is_done.store(true, Ordering::Relaxed);
        handle.shared.lock().worker.wake_calls(server.id(), Awaited::Transfer);
        outcome.recv_timeout(LONG).unwrap().unwrap();
    });
}

/// Tests for a former defect: the worker's own thread slept until the deadline that it had computed before the connection
/// arrived, because the task did not wake it.
#[cfg(feature = "tokio")]
#[test]
fn deadline_that_arises_while_a_task_drives_the_worker_ends_the_sleep_of_its_own_thread() {
    let handle = Handle::new(&Options { transport: Transport::Tcp, ..Options::default() }).unwrap();
    let acceptor = Acceptor::bind_on(&handle, "127.0.0.1:0").unwrap();
    handle.shared.lock().worker.set_ticking(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        handle.drive_in_tokio().unwrap();
        // The thread sleeps on its event alone, and not for the short pause after it.
        let sleeps = |core: &mut Core| core.own_due == u64::MAX && !core.own_sleeps;
        let begun = Instant::now();
        while !sleeps(&mut handle.shared.lock()) {
            assert!(begun.elapsed() < LONG);
            handle.shared.kick.set();
            if let Some(task) = &handle.shared.lock().sleeping_task {
                task.wake_by_ref();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _silent = std::net::TcpStream::connect(acceptor.local_addr()).unwrap();
        while handle.shared.lock().own_due == u64::MAX {
            assert!(begun.elapsed() < 2 * LONG);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// A task that reads the connection when woken. Dropping the task drops the connection.
struct Owner {
    connection: Mutex<Option<Connection>>,
    count: Arc<AtomicU32>,
    done: mpsc::Sender<()>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        let received = self.connection.lock().unwrap().as_ref().unwrap().try_recv().unwrap().unwrap();
        self.count.fetch_add(u32::from(received[0]), Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.connection.lock().unwrap().take());
        self.done.send(()).unwrap();
    }
}

/// Tests for a former defect: both uses locked the worker again while the same thread held its lock.
#[test]
fn a_waker_may_use_the_worker_and_drop_a_connection() {
    let count = Arc::new(AtomicU32::new(0));
    let (done, dropped) = mpsc::channel();
    let owned = || {
        let (mut server, client) = pair();
        server.lingers = false;
        let (handle, id) = (server.handle().clone(), server.id());
        let owner = Owner { connection: Mutex::new(Some(server)), count: Arc::clone(&count), done: done.clone() };
        (handle, id, Waker::from(Arc::new(owner)), client)
    };
    let (handle, id, waker, client) = owned();
    handle.with(|worker| worker.register(id, Wait::Read, &waker)).unwrap();
    drop(waker);
    client.send(&[7]).unwrap();
    dropped.recv_timeout(LONG).expect("the waker is called, and dropped");
    assert_eq!(count.load(Ordering::Relaxed), 7);

    let (handle, id, waker, _client) = owned();
    let (results, replaced) = mpsc::channel();
    thread::spawn(move || {
        handle.with(|worker| worker.register(id, Wait::Read, &waker)).unwrap();
        drop(waker);
        handle.with(|worker| worker.register(id, Wait::Read, Waker::noop())).unwrap();
        results.send(()).unwrap();
    });
    dropped.recv_timeout(LONG).expect("the waker that was replaced is dropped");
    replaced.recv_timeout(LONG).unwrap();
}

#[test]
fn short_sleeps_lengthen_the_spin_and_a_long_one_resets_it() {
    let least = Duration::from_micros(20);
    let mut spin = least;
    for expected in [40, 80, 160, 160] {
        spin = next_spin(spin, least, SHORT / 2);
        assert_eq!(spin, Duration::from_micros(expected));
    }
    assert_eq!(next_spin(spin, least, SHORT), least);
    assert_eq!(
        next_spin(Duration::ZERO, Duration::ZERO, Duration::ZERO),
        Duration::ZERO,
        "programs whose calls never spin"
    );
}

/// Peers that send without end keep a thread busy with the worker, but others use it too.
#[test]
fn thread_with_endless_events_lets_others_use_the_worker() {
    const REQUESTS: usize = 101;
    // Both ends belong to one worker, so that each turn has an event.
    let handle = Handle::new(&Options { transport: Transport::Tcp, ..Options::default() }).unwrap();
    let acceptor = Acceptor::bind_on(&handle, "127.0.0.1:0").unwrap();
    let near = Connection::connect_on(&handle, acceptor.local_addr(), None).unwrap();
    let far = acceptor.accept().unwrap();
    let (turns, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let ended = handle.wait(far.id(), Awaited::Message, Some(Instant::now() + LONG), |worker| {
                turns.fetch_add(1, Ordering::Relaxed);
                _ = worker.try_send(near.id(), b"again");
                while worker.try_recv(far.id()).is_ok() {}
                worker.flush();
                if is_over.load(Ordering::Relaxed) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            ended.unwrap();
        });
        while turns.load(Ordering::Relaxed) < 1_000 {
            thread::yield_now();
        }
        let mut waited: Vec<u32> = (0..REQUESTS)
            .map(|_| {
                let before = turns.load(Ordering::Relaxed);
                handle.with(|_| turns.load(Ordering::Relaxed) - before).unwrap()
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        waited.sort_unstable();
        // The scheduler may stop this thread during a request. Without a pause, some requests wait until the end.
        assert!(waited[REQUESTS - 1] < 200_000, "{waited:?}");
    });
}
