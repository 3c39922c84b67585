//! What a trace and the counts contain.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use rdma_lens::{Format, What};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, SendOperationFlags};
use sideway::ibverbs::work_request::{FlushLevel, FlushPlacement, WorkRequestFlags};
use sideway_tests::loopback::{End, Give, Kind, Loopback, QueueKind};

use crate::support::{Session, calls, completions};

/// A send, and an inline write.
fn exchange<Q: Kind>(queue: QueueKind) -> u32 {
    let mut pair = Loopback::<Q>::new(queue);
    pair.far.post_receive(1, 0, 64);
    pair.near.post_send(2, 0, 48);
    pair.near.success();
    pair.far.success();
    let (rkey, address) = pair.far.remote(0);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(3, WorkRequestFlags::Signaled).setup_write(rkey, address).setup_inline_data(b"in");
    batch.post().unwrap();
    pair.near.success();
    pair.near.qp.qp_number()
}

fn is_complete<Q: Kind>(queue: QueueKind) {
    let session = Session::new(Format::Json, |builder| builder);
    let near = exchange::<Q>(queue);
    let records = session.records();
    assert!(matches!(&records[0].what, What::Start { program, .. } if program.contains("lens")));
    assert!(records.is_sorted_by_key(|record| record.at));
    assert!(records.iter().all(|record| !record.injected));
    // Each object that was made was also destroyed.
    for verb in ["ibv_dealloc_pd", "ibv_destroy_cq", "ibv_destroy_qp", "ibv_dereg_mr", "ibv_close_device"] {
        assert!(calls(&records, verb).iter().all(|call| call.1.is_none()), "{verb}");
        assert!(!calls(&records, verb).is_empty(), "{verb}");
    }
    let states: Vec<&str> = calls(&records, "ibv_modify_qp")
        .into_iter()
        .filter(|call| call.0[0].1 == format!("qp {near:#x}"))
        .filter_map(|call| Some(call.0.iter().find(|(name, _)| name == "state")?.1.as_str()))
        .collect();
    assert_eq!(states, ["RESET→INIT", "INIT→RTR", "RTR→RTS"]);
    let sends: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.what {
            What::Send(request) => Some((request.qp, request.wr_id, request.opcode.as_str(), request.bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(sends, [(near, 2, "SEND", 48), (near, 3, "RDMA_WRITE", 2)]);
    let receives = records.iter().filter(|record| matches!(&record.what, What::Receive(request) if request.wr_id == 1));
    assert_eq!(receives.count(), 1);
    let expected = [("SUCCESS", "SEND", 2), ("SUCCESS", "RECV", 1), ("SUCCESS", "RDMA_WRITE", 3)];
    let found = completions(&records);
    let found: Vec<_> = found.iter().map(|(status, opcode, id)| (status.as_str(), opcode.as_str(), *id)).collect();
    assert_eq!(found, expected);
    // A completion comes after its request, and names the time since.
    let at = |is: &dyn Fn(&What) -> bool| records.iter().position(|record| is(&record.what)).unwrap();
    let posted = at(&|what| matches!(what, What::Send(request) if request.wr_id == 3));
    let completed = at(&|what| matches!(what, What::Completion { wr_id: 3, took: Some(_), in_flight: 0, .. }));
    assert!(posted < completed);
}

#[test]
fn basic_queues_are_traced() {
    is_complete::<BasicQueuePair>(QueueKind::Basic);
}

#[test]
fn extended_queues_are_traced() {
    is_complete::<ExtendedQueuePair>(QueueKind::Extended);
}

#[test]
fn basic_queue_pair_on_extended_completion_queue_is_traced() {
    is_complete::<BasicQueuePair>(QueueKind::Extended);
}

#[test]
fn text_reads_like_strace() {
    let session = Session::new(Format::Text, |builder| builder);
    let near = exchange::<ExtendedQueuePair>(QueueKind::Extended);
    let text = session.text();
    let name = sideway_tests::device::name();
    for part in [
        format!("ibv_open_device(device {name}) = {name}"),
        format!("ibv_modify_qp(qp {near:#x}, state INIT→RTR, rq_psn "),
        format!("post qp {near:#x} RDMA_WRITE wr_id 3 2 bytes lkey 0x0 SIGNALED|INLINE remote 0x"),
        format!("completion qp {near:#x} cq "),
    ] {
        assert!(text.contains(&part), "{part}\n{text}");
    }
}

#[test]
fn unsignaled_requests_leave_with_the_next_signaled_one() {
    let session = Session::new(Format::Json, |builder| builder);
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let (rkey, address) = pair.far.remote(0);
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(1, WorkRequestFlags::empty()).setup_write(rkey, address).give(range);
    batch.construct_wr(2, WorkRequestFlags::empty()).setup_write(rkey, address).give(range);
    batch.construct_wr(3, WorkRequestFlags::Signaled).setup_write(rkey, address).give(range);
    batch.post().unwrap();
    pair.near.success();
    drop(pair);
    let records = session.records();
    let left = records.iter().find_map(|record| match record.what {
        What::Completion { wr_id: 3, in_flight, .. } => Some(in_flight),
        _ => None,
    });
    assert_eq!(left, Some(0));
}

#[test]
fn counts_add_up() {
    let session = Session::new(Format::Text, rdma_lens::Builder::count);
    let near = exchange::<BasicQueuePair>(QueueKind::Basic);
    let summary = session.lens.summary();
    let pair = summary.pairs.iter().find(|pair| pair.qp == Some(near)).unwrap();
    let rows: Vec<_> =
        pair.operations.iter().map(|row| (row.name, row.requests, row.bytes, row.completions, row.errors)).collect();
    assert_eq!(rows, [("send", 1, 48, 1, 0), ("write", 1, 2, 1, 0)]);
    let far = summary.pairs.iter().find(|pair| pair.received > 0).unwrap();
    assert_eq!((far.received, far.received_bytes), (1, 48));
    let modified = summary.verbs.iter().find(|verb| verb.verb == "ibv_modify_qp").unwrap();
    assert_eq!((modified.calls, modified.errors), (6, 0));
    let text = summary.to_string();
    assert!(text.contains("ibv_modify_qp") && text.contains(&format!("{near:#x}  write")), "{text}");
}

#[test]
fn failed_call_names_its_error() {
    let session = Session::new(Format::Json, |builder| builder);
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    // INIT does not follow RTS.
    pair.near.qp.modify(&sideway_tests::loopback::init()).unwrap_err();
    drop(pair);
    let records = session.records();
    let failed = calls(&records, "ibv_modify_qp").into_iter().filter(|call| call.1.is_some());
    assert_eq!(failed.map(|call| call.1).collect::<Vec<_>>(), [Some("EINVAL")]);
}

#[test]
fn second_lens_is_refused() {
    let session = Session::new(Format::Text, |builder| builder);
    let refused = rdma_lens::Lens::builder().install().unwrap_err();
    assert!(refused.to_string().contains("this process has a lens"), "{refused}");
    drop(session);
}

#[test]
fn counts_are_served() {
    let get = |address, path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let session = Session::new(Format::Text, |builder| builder.metrics((Ipv4Addr::LOCALHOST, 0).into()));
    let address = session.lens.metrics_address().unwrap();
    let near = exchange::<ExtendedQueuePair>(QueueKind::Extended);
    // A client that sends nothing and leaves does not stop the server.
    drop(TcpStream::connect(address).unwrap());
    let name = sideway_tests::device::name();
    let answer = get(address, "/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in [
        "# TYPE rdma_requests_total counter".to_owned(),
        format!("rdma_requests_total{{device=\"{name}\",qp=\"{near:#x}\",operation=\"write\"}} 1"),
        format!("rdma_request_bytes_total{{device=\"{name}\",qp=\"{near:#x}\",operation=\"send\"}} 48"),
        "rdma_verb_calls_total{verb=\"ibv_modify_qp\"} 6".to_owned(),
    ] {
        assert!(body.lines().any(|found| found == line), "{line}\n{body}");
    }
    assert!(get(address, "/other").starts_with("HTTP/1.1 404"));
    drop(session);
    TcpStream::connect(address).unwrap_err();
}

/// Operations of later releases of rdma-core, and the call that binds a window.
#[test]
fn flush_atomic_write_and_bind_are_traced_counted_and_refused() {
    let session = Session::new(Format::Json, |builder| {
        builder
            .count()
            .faults("after 3 posts on qp 1: fail with ENOMEM\neach post on qp 2: fail with ENOMEM".parse().unwrap(), 1)
    });
    let operations = SendOperationFlags::Flush | SendOperationFlags::AtomicWrite;
    let mut pair = Loopback::<ExtendedQueuePair>::with(QueueKind::Basic, None, |builder| {
        _ = builder.setup_send_ops_flags(operations);
    });
    let post = |pair: &mut Loopback<ExtendedQueuePair>, wr_id, is_flush| {
        let (rkey, address) = pair.far.remote(0);
        let mut batch = pair.near.qp.start_post_send();
        let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled);
        if is_flush {
            request.setup_flush(rkey, address, 64, FlushPlacement::Global, FlushLevel::Range);
        } else {
            request.setup_atomic_write(rkey, address, *b"8 bytes!");
        }
        batch.post()
    };
    let bind = |end: &End<ExtendedQueuePair>| {
        // SAFETY: the objects are live during the calls, and a binding without a region unbinds the window.
        unsafe {
            let qp = end.qp.qp().as_ptr();
            let window = ffi::ibv_alloc_mw((*qp).pd, ffi::ibv_mw_type::IBV_MW_TYPE_1);
            let mut bind: ffi::ibv_mw_bind = std::mem::zeroed();
            (bind.wr_id, bind.send_flags) = (1, ffi::ibv_send_flags::IBV_SEND_SIGNALED.0);
            let code = ffi::ibv_bind_mw(qp, window, &raw mut bind);
            assert_eq!(ffi::ibv_dealloc_mw(window), 0);
            code
        }
    };
    assert_eq!(bind(&pair.far), libc::ENOMEM);
    assert_eq!(bind(&pair.near), 0);
    assert_eq!(pair.near.success().wr_id, 1);
    post(&mut pair, 2, false).unwrap();
    assert_eq!(pair.near.success().wr_id, 2);
    assert_eq!(pair.far.bytes(0, 8), b"8 bytes!");
    // The memory of the peer has no right to flushes.
    post(&mut pair, 3, true).unwrap();
    assert_eq!(pair.near.completion().wr_id, 3);
    post(&mut pair, 4, true).unwrap_err();
    let summary = session.lens.summary();
    let counts = |end: &End<ExtendedQueuePair>| {
        let found = summary.pairs.iter().find(|pair| pair.qp == Some(end.qp.qp_number())).unwrap();
        (found.operations.iter().map(|operation| operation.requests).sum::<u64>(), found.refused)
    };
    assert_eq!([counts(&pair.near), counts(&pair.far)], [(3, 1), (0, 1)]);
    drop(pair);
    let records = session.records();
    let posted = records.iter().filter_map(|record| match &record.what {
        What::Send(request) => Some((request.opcode.as_str(), request.bytes)),
        _ => None,
    });
    let expected = [("BIND_MW", 0), ("BIND_MW", 0), ("ATOMIC_WRITE", 8), ("FLUSH", 0), ("FLUSH", 0)];
    assert_eq!(posted.collect::<Vec<_>>(), expected);
    let expected = [("BIND_MW", 1), ("ATOMIC_WRITE", 2), ("FLUSH", 3)];
    let found = completions(&records);
    assert!(found.iter().map(|(_, opcode, id)| (opcode.as_str(), *id)).eq(expected), "{found:?}");
}
