//! Requests that the peer refuses: which error both ends report, and over iWARP, which code the Terminate message has.
#![expect(clippy::print_stdout, reason = "the test that started the program reads its output")]

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::CompletionRecord;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::Listener;
use sideway_tests::connections::LONG;
use sideway_tests::loopback::{Give, Memory, Range};

use super::end::{End, connector, is_iwarp, parameters};

/// The requests, each on a connection of its own, separated by commas.
pub(crate) const CASES: &str =
    "write-key,write-bounds,write-right,read-key,read-bounds,read-right,send-length,send-invalidate";

/// The length of the memory that the peer may access, of its receive, and of a request.
const MEMORY: usize = 4096;
const RECEIVE: usize = 64;
const LENGTH: usize = 32;

fn statuses(records: &[CompletionRecord]) -> String {
    records.iter().map(|record| format!("{}={:?}", record.wr_id, record.status)).collect::<Vec<_>>().join(" ")
}

fn events(end: &End) -> String {
    let events = end.context.async_events().expect("the device has events");
    let mut found = Vec::new();
    while let Some(event) = events.try_get_async_event().unwrap_or_else(|error| panic!("{error}")) {
        found.push(format!("{:?}", event.event_type()));
    }
    found.join(" ")
}

pub(super) fn suffer_all(listener: &Listener, cases: &str) {
    for case in cases.split(',') {
        let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(request.identifier());
        let rights = match case {
            "write-right" => AccessFlags::LocalWrite | AccessFlags::RemoteRead,
            "read-right" => AccessFlags::LocalWrite | AccessFlags::RemoteWrite,
            _ => AccessFlags::LocalWrite | AccessFlags::RemoteWrite | AccessFlags::RemoteRead,
        };
        let memory = Memory::new(&end.pd, MEMORY, rights);
        end.expect_peer();
        end.receive(1, &memory, 0, RECEIVE);
        let place = [&memory.addr().to_be_bytes()[..], &u32::from(memory.rkey()).to_be_bytes()].concat();
        let connection =
            request.accept(parameters().setup_private_data(&place)).unwrap_or_else(|error| panic!("{error}"));
        end.meet(false);
        let ended = connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let _ = connection.disconnect(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let records = end.completions_until(|record| record.wr_id == 1);
        let mut bytes = [0; MEMORY];
        memory.read(0, &mut bytes);
        assert_eq!(bytes, [0; MEMORY], "{case} changed the memory");
        println!("CASE {case}: {}; {}; {ended:?}", statuses(&records), events(&end));
    }
}

pub(super) fn make_all(address: &str, cases: &str) {
    for case in cases.split(',') {
        let resolved = connector().resolve(address).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(resolved.identifier());
        let mut memory = Memory::new(&end.pd, MEMORY, AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
        memory.write(0, &[7; MEMORY]);
        end.expect_peer();
        end.receive(1, &memory, 0, RECEIVE);
        let connection = resolved.connect(&parameters()).unwrap_or_else(|error| panic!("{error}"));
        end.meet(true);
        let place = connection.info().private_data();
        let at = u64::from_be_bytes(place[..8].try_into().expect("it has eight bytes"));
        let key = u32::from_be_bytes(place[8..12].try_into().expect("it has four bytes"));
        // The lowest byte of a key is that which a program may choose.
        let (key, wrong, beyond) =
            (RemoteKey::from(key), RemoteKey::from(key ^ 0xff), at + (MEMORY - LENGTH / 2) as u64);
        let mut batch = end.qp.start_post_send();
        let request = batch.construct_wr(2, WorkRequestFlags::Signaled);
        let range = Range::of(&memory, 0, LENGTH);
        match case {
            "write-key" => request.setup_write(wrong, at).give(range),
            "write-bounds" => request.setup_write(key, beyond).give(range),
            "write-right" => request.setup_write(key, at).give(range),
            "read-key" => request.setup_read(wrong, at).give(range),
            "read-bounds" => request.setup_read(key, beyond).give(range),
            "read-right" => request.setup_read(key, at).give(range),
            "send-length" => request.setup_send().give(Range::of(&memory, 0, 2 * RECEIVE)),
            _ => request.setup_send_inv(wrong).give(Range::of(&memory, 0, 0)),
        }
        batch.post().unwrap_or_else(|error| panic!("{error}"));
        let (records, ended) = if is_iwarp(&end) {
            // The peer ends the connection.
            (end.completions_until(|record| record.wr_id == 1), connection.wait(Some(LONG)))
        } else {
            let mut records = end.completions_until(|record| record.wr_id == 2);
            let ended = connection.disconnect(Some(LONG));
            if records.iter().all(|record| record.wr_id != 1) {
                records.extend(end.completions_until(|record| record.wr_id == 1));
            }
            (records, ended)
        };
        let ended = ended.unwrap_or_else(|error| panic!("{error}"));
        println!("CASE {case}: {}; {}; {ended:?}", statuses(&records), events(&end));
    }
}

/// The results in the output of a program, each with the reason that was logged before.
pub(crate) fn results(output: &str) -> Vec<String> {
    let mut reason = "";
    let mut results = Vec::new();
    for line in output.lines() {
        for start in ["the peer has ended the connection: ", "sent a Terminate message: "] {
            reason = line.split_once(start).map_or(reason, |(_, reason)| reason);
        }
        if let Some((case, result)) = line.split_once("CASE ").and_then(|(_, line)| line.split_once(": ")) {
            results.push(format!("{case}: {}; {result}", std::mem::take(&mut reason)));
        }
    }
    results
}
