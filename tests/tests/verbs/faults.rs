//! Objects are built, a message is exchanged, and all objects are dropped, while each of these calls fails once. Each
//! run returns an error that names the verb, and leaks nothing.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::error::Error;
use std::time::Duration;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::completion::{CompletionQueue, GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::ValuesMask;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttributeMask};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Call, Failure, Raised, Recording, Warnings, connect};

/// The interface that a scenario uses.
#[derive(Clone, Copy, Debug)]
enum Interface {
    Basic,
    Extended,
    Generic,
}

fn scenario(recording: &Recording, interface: Interface) -> Result<(), Box<dyn Error>> {
    let list = DeviceList::new()?;
    let context = list.find(&recording.name())?.open()?;
    drop(list);
    context.query_device()?;
    context.query_port(1)?;
    context.query_gid_table()?;
    context.query_gid_ex(1, 0)?;
    context.query_gid(1, 0)?;
    context.query_pkey(1, 0)?;
    context.query_rt_values_ex(ValuesMask::RawClock)?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq_builder = context.create_cq_builder();
    cq_builder.setup_comp_channel(&channel, 0);
    let mut cq: GenericCompletionQueue = match interface {
        Interface::Basic => cq_builder.build()?.into(),
        Interface::Extended => cq_builder.build_ex()?.into(),
        Interface::Generic => cq_builder.build_generic()?,
    };
    let mut memory = vec![0_u8; 64];
    let address = memory.as_mut_ptr().addr();
    // SAFETY: the memory outlives the region, and the recording device does not touch it.
    let mr = unsafe { pd.reg_mr(address, 64, AccessFlags::LocalWrite) }?;
    let mut qp_builder = pd.create_qp_builder();
    qp_builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(16);
    let mut qp: GenericQueuePair = match interface {
        Interface::Basic => qp_builder.build()?.into(),
        Interface::Extended => qp_builder.build_ex()?.into(),
        Interface::Generic => qp_builder.build_generic()?,
    };
    connect(&qp)?;
    qp.query(QueuePairAttributeMask::State)?;
    let events = context.async_events()?;
    recording.raise(&context, Raised::of_qp(AsyncEventType::CommunicationEstablished.raw(), &qp));
    let established = events.get_async_event(Some(Duration::from_secs(60)))?;
    assert_eq!(established.event_type(), AsyncEventType::CommunicationEstablished);
    cq.req_notify(false)?;

    let mut guard = qp.start_post_recv();
    // SAFETY: as above.
    unsafe { guard.construct_wr(1).setup_sge(mr.lkey(), address as u64, 64) };
    guard.post()?;
    let mut guard = qp.start_post_send();
    guard.construct_wr(2, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"ping");
    guard.post()?;

    let mut builder = pd.create_ud_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(16);
    let mut datagrams: GenericQueuePair<Datagram> = match interface {
        Interface::Basic => builder.build()?.into(),
        Interface::Extended => builder.build_ex()?.into(),
        Interface::Generic => builder.build_generic()?,
    };
    let ah = pd.create_ah(AddressHandleAttribute::new().setup_port(1))?;
    let mut guard = datagrams.start_post_send();
    let request = guard.construct_wr(0, WorkRequestFlags::empty()).setup_send();
    request.setup_ud_addr(&ah, 1, 2).setup_inline_data(b"ping");
    guard.post()?;

    let event = channel.get_cq_event(Some(Duration::from_secs(60)))?;
    assert!(event.is_of(&cq));
    let mut seen = 0;
    while seen < 2 {
        let mut poller = cq.start_poll()?;
        while let Some(completion) = poller.next()? {
            seen += completion.wr_id();
        }
    }
    match cq.start_poll().map(drop) {
        Err(PollCompletionQueueError::CompletionQueueEmpty) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => panic!("more completions than requests"),
    }
}

fn ends(call: &Call) -> bool {
    ["destroy", "dealloc", "dereg", "close"].iter().any(|word| call.verb.starts_with(word))
}

fn sweep(interface: Interface) {
    let warnings = Warnings::listen();
    let whole = Recording::new();
    scenario(&whole, interface).unwrap();
    let calls = whole.failable();
    assert!(calls > 25, "{calls}");
    assert_eq!(whole.live(), []);
    drop(whole);

    for (errno, name) in
        [(libc::ENOMEM, "ENOMEM"), (libc::EIO, "EIO"), (libc::EINVAL, "EINVAL"), (libc::EOPNOTSUPP, "EOPNOTSUPP")]
    {
        for failure in [Failure::documented(errno), Failure::negative(errno), Failure::minus_one(errno)] {
            for index in 0..calls {
                let recording = Recording::new();
                recording.fail_any(index, failure);
                let result = scenario(&recording, interface);
                let log = recording.calls();
                let failed = log.iter().find(|call| call.failed.is_some()).unwrap();
                let what = format!("{interface:?}, call {index}, {}: {failure:?}", failed.verb);
                assert_eq!(recording.violations(), [""; 0], "{what}");
                let lines = warnings.take();
                if ends(failed) {
                    // The object is leaked with its parents, and a message is logged.
                    result.unwrap();
                    assert!(!recording.live().is_empty(), "{what}");
                    let unsuccessful = log.iter().filter(|call| call.failed.is_some()).count();
                    assert_eq!((recording.live().len(), lines.len()), (unsuccessful, unsuccessful), "{what}");
                    continue;
                }
                assert_eq!(recording.live(), [], "left over: {what}");
                assert_eq!(lines, [""; 0], "{what}");
                let text = match result {
                    Err(error) => error.to_string(),
                    Ok(()) => {
                        // The program used a fallback: the verb is new, or the device lacks atomics.
                        let new = ["query_device_ex", "query_port", "query_gid", "create_cq_ex", "create_qp_ex"];
                        let ways = [libc::EOPNOTSUPP, libc::EINVAL];
                        assert!(ways.contains(&errno), "no error: {what}");
                        assert!(new.iter().any(|verb| failed.verb.contains(verb)), "no fallback exists: {what}");
                        continue;
                    }
                };
                match failed.verb {
                    // The reported failure is the first one: the system's, which has no library here.
                    "get_device_list" => {}
                    // The value that drivers return here is not an errno.
                    verb if verb.contains("poll") => {
                        assert!(text.contains(name) || text.contains("EIO"), "{what}: {text}");
                    }
                    _ => assert!(text.contains(name), "{what}: {text}"),
                }
            }
        }
    }
}

#[test]
fn each_call_of_the_basic_verbs_may_fail() {
    sweep(Interface::Basic);
}

#[test]
fn each_call_of_the_extended_verbs_may_fail() {
    sweep(Interface::Extended);
}

#[test]
fn each_call_of_either_kind_may_fail() {
    sweep(Interface::Generic);
}
