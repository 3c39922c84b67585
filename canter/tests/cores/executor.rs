//! Tasks, timers and wakers.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use canter::Error;

use crate::cores::{builder, pair};

#[test]
fn wakers_of_other_threads_and_timers_end_a_sleep() {
    let core = builder().spin(Duration::ZERO).build().expect("the device has room for a core");
    core.run(async {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(receiver.await, Ok(7));
        thread.join().expect("no panic").expect("the receiver waits");

        let order = Rc::new(Cell::new(0));
        let tasks = [(2_u64, 1), (1, 0)].map(|(wait, place)| {
            let (core, order) = (core.clone(), Rc::clone(&order));
            core.clone().spawn(async move {
                core.sleep(Duration::from_millis(50 * wait)).await;
                assert_eq!(order.replace(order.get() + 1), place);
            })
        });
        for task in tasks {
            task.await.expect("the task ends");
        }
        // Sleeping for no time lets the others run.
        let busy = core.clone();
        let turning = core.spawn(async move {
            loop {
                busy.sleep(Duration::ZERO).await;
            }
        });
        core.sleep(Duration::from_millis(1)).await;
        drop::<canter::JoinHandle<()>>(turning);
        let late = core.timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        assert!(matches!(late, Err(Error::TimedOut)));
        assert!(core.timeout(Duration::MAX, async {}).await.is_ok());
    });
}

#[test]
fn tasks_are_dropped_when_run_returns() {
    struct Guard(Rc<Cell<u32>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let (core, dropped) = (builder().build().expect("the device has room for a core"), Rc::new(Cell::new(0)));
    for _ in 0..2 {
        core.run(async {
            let (client, server) = pair(&core).await.expect("the device connects");
            for connection in [client, server] {
                let guard = Guard(Rc::clone(&dropped));
                drop(core.spawn(async move {
                    let _guard = guard;
                    drop(connection.recv().await);
                }));
            }
            core.sleep(Duration::from_millis(1)).await;
        });
    }
    assert_eq!(dropped.get(), 4);
}

#[test]
fn tokio_drives_a_core() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let core = builder().spin(Duration::ZERO).receives(8).build().expect("the device has room");
        let driver = tokio::task::spawn_local({
            let core = core.clone();
            async move { core.drive().await }
        });
        let (client, server) = pair(&core).await.expect("the device connects");
        let echo = tokio::task::spawn_local(async move {
            // All receives are held until the driver sleeps; to drop them must wake it.
            let mut held = Vec::new();
            for _ in 0..8 {
                held.extend(server.recv().await.expect("no failure"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(held);
            while let Some(message) = server.recv().await.expect("no failure") {
                server.send(message.into_buf()).await.expect("no failure");
            }
        });
        let pool = core.pool(64, 1).expect("there is memory");
        for index in 0..100_u8 {
            let mut buf = pool.get().await;
            buf.fill(&[index; 64]).expect("it fits");
            client.send(buf).await.expect("no failure");
            if index >= 8 {
                let answer = client.recv().await.expect("no failure");
                assert_eq!(answer.as_deref(), Some(&[index; 64][..]));
            }
        }
        core.sleep(Duration::from_millis(5)).await;
        drop(client);
        echo.await.expect("no panic");
        driver.abort();
    });
}

#[test]
fn the_result_of_a_dropped_task_is_an_error() {
    let core = builder().build().expect("the device has room");
    let left = core.spawn(std::future::pending::<()>());
    core.run(async {});
    assert!(matches!(core.run(left), Err(Error::NoResult)));
    let mut ended = core.spawn(async { 7 });
    assert!(matches!(core.run(&mut ended), Ok(7)));
    assert!(matches!(core.run(ended), Err(Error::NoResult)));
}

#[test]
fn an_aborted_task_is_dropped() {
    let core = builder().build().expect("the device has room");
    core.run(async {
        let kept = Rc::new(());
        let held = Rc::clone(&kept);
        let waiting = core.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        core.sleep(Duration::ZERO).await;
        waiting.abort();
        assert!(matches!(waiting.await, Err(Error::NoResult)));
        assert_eq!(Rc::strong_count(&kept), 1);
        // One that has ended keeps its result, and one that has not begun never does.
        let ended = core.spawn(async { 7 });
        core.sleep(Duration::ZERO).await;
        ended.abort();
        assert!(matches!(ended.await, Ok(7)));
        let unbegun = core.spawn(async { 7 });
        unbegun.abort();
        assert!(matches!(unbegun.await, Err(Error::NoResult)));
    });
}

#[test]
fn a_runtime_without_drivers_is_refused() {
    let core = builder().build().expect("the device has room");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let error = runtime.block_on(core.drive()).expect_err("the runtime has no I/O").to_string();
    assert!(error.contains("enable_all"), "{error}");
    let twice = core.run(async { core.drive().await.expect_err("it runs").to_string() });
    assert!(twice.contains("already"), "{twice}");
}
