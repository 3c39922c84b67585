//! A send completes before the answer to it arrives.

use super::*;

#[test]
fn send_completes_before_its_answer_arrives() {
    let (engine, log) = engine();
    let (connection, mut peer) = pair(engine, None);
    // The last part is passed to TCP immediately.
    for index in 0..4 {
        connection.put(&part(9, index * PART, 4 * PART), Payload::Bytes(&[7; PART])).unwrap();
    }
    peer.write_all(&send(1, b"answer")).unwrap();
    wait("the answer", || connection.serve(true));
    assert_eq!(log.seen(), [Seen::Response(9), Seen::Part(6)]);
}

/// The completion may wait for the thread that holds the send queue.
#[test]
fn answer_waits_until_the_qp_has_handled_the_completion() {
    for is_polled in [false, true] {
        let (engine, log) = engine();
        let (connection, mut peer) = pair(engine, None);
        engine.begin(&connection).unwrap();
        log.is_held.store(true, Ordering::SeqCst);
        put(&connection, 3).unwrap();
        connection.flush();
        peer.write_all(&[send(1, b"answer"), send(2, b"next")].concat()).unwrap();
        for _ in 0..100 {
            connection.serve(true);
        }
        assert_eq!(log.seen(), [Seen::Response(3)]);
        // The peer may already have closed the connection.
        drop(peer);
        log.is_held.store(false, Ordering::SeqCst);
        wait("the answer", || {
            if is_polled {
                engine.progress();
            }
            log.seen().len() >= 3
        });
        assert_eq!(log.seen()[..3], [Seen::Response(3), Seen::Part(6), Seen::Part(4)]);
    }
}

/// Another thread may have taken the completion, but may not have delivered it yet.
#[test]
fn answer_waits_for_the_thread_that_delivers_the_completion() {
    let (engine, log) = engine();
    let (connection, mut peer) = pair(engine, None);
    let (resume, pause) = mpsc::channel();
    *log.pause.lock().unwrap() = Some(pause);
    put(&connection, 3).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| connection.flush());
        wait("the completion", || log.pause.try_lock().is_err());
        peer.write_all(&send(1, b"answer")).unwrap();
        for _ in 0..100 {
            connection.serve(true);
        }
        assert_eq!(log.seen(), []);
        resume.send(()).unwrap();
    });
    connection.settle();
    assert_eq!(log.seen(), [Seen::Response(3), Seen::Part(6)]);
}
