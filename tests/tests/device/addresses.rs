//! Address handles, replies to the sender of a datagram, resized queues, and what soft-RoCE lacks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{
    AddressHandle, AddressHandleAttribute, Gid, GidEntry, GidType, GlobalRoutingHeader, RoutingHeaderForm,
};
use sideway::ibverbs::completion::{
    CompletionModeration, CompletionQueue, GenericCompletionQueue, WorkCompletionFlags, WorkCompletionSource,
    WorkCompletionStatus,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, PostSendGuard, QueuePair, QueuePairState};
use sideway::ibverbs::single_threaded::SingleThreadedDomain;
use sideway::ibverbs::work_request::{ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::loopback::Memory;
use sideway_tests::loopback::{Kind, Loopback, QueueKind, REQUESTS, to};
use sideway_tests::requirements::has_ipv6;
use sideway_tests::{device, on_all_kinds};

/// The entries of the port's GID table.
fn gids(context: &DeviceContext) -> Vec<GidEntry> {
    let table = context.query_gid_table().expect("the table");
    table.into_iter().filter(|entry| entry.port_num() == u32::from(device::PORT)).collect()
}

fn way(gid: &GidEntry) -> AddressHandleAttribute {
    let mut way = AddressHandleAttribute::new();
    let index = u8::try_from(gid.gid_index()).expect("an index that fits");
    way.setup_port(device::PORT).setup_grh(&gid.gid(), 0, index, 64, 0);
    way
}

/// The number of address families of the host.
fn families() -> usize {
    1 + usize::from(has_ipv6())
}

/// The bytes before the data of a datagram from a GID to itself.
fn header_of(gid: &Gid) -> GlobalRoutingHeader {
    let mut bytes = [0; 40];
    if let Some(address) = gid.ipv4() {
        bytes[20..29].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0x40, 0, 64]);
        bytes[29] = 17;
        bytes[32..36].copy_from_slice(&address.octets());
        bytes[36..].copy_from_slice(&address.octets());
    } else {
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 40, 17, 64]);
        bytes[8..24].copy_from_slice(&gid.raw);
        bytes[24..].copy_from_slice(&gid.raw);
    }
    GlobalRoutingHeader::from_bytes(bytes)
}

#[test]
fn address_handle_is_created_for_each_gid() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let gids = gids(&context);
    assert!(gids.len() >= families(), "{gids:?}");
    for gid in &gids {
        let ah = pd.create_ah(&way(gid)).unwrap_or_else(|error| panic!("{gid:?}: {error}"));
        // SAFETY: the field is only read, while the handle lives.
        assert!(!unsafe { ah.ah().as_ref() }.pd.is_null());
        Arc::into_inner(ah).expect("the only owner").close().unwrap_or_else(|error| panic!("{gid:?}: {error}"));
    }
    Arc::into_inner(pd).expect("no handle is left").close().expect("the domain is not in use");
}

#[test]
fn invalid_address_handles_are_explained() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let mut local = AddressHandleAttribute::new();
    local.setup_port(device::PORT);
    let error = pd.create_ah(&local).expect_err("Ethernet needs a global route").to_string();
    assert!(error.contains("the path has no global route; call setup_grh"), "{error}");
    let gid = gids(&context).remove(0);
    let mut no_port = way(&gid);
    no_port.setup_port(9);
    let error = pd.create_ah(&no_port).expect_err("there is no port 9").to_string();
    assert!(error.contains("there is no port 9"), "{error}");
    let last = context.query_port(device::PORT).expect("the port").gid_tbl_len() - 1;
    let mut unused = way(&gid);
    unused.setup_grh_src_gid_index(u8::try_from(last.min(255)).expect("a byte"));
    let error = pd.create_ah(&unused).expect_err("the entry is not in use").to_string();
    assert!(error.contains("is not in use"), "{error}");
    let mut beyond = way(&gid);
    beyond.setup_grh_src_gid_index(u8::MAX);
    pd.create_ah(&beyond).expect_err("there is no such entry, or it is not in use");
}

#[test]
fn reply_address_reaches_the_sender() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let mut ways = 0;
    for gid in gids(&context).iter().filter(|gid| gid.gid_type() == GidType::RoceV2) {
        let header = header_of(&gid.gid());
        assert_eq!((header.source_gid(), header.dest_gid()), (gid.gid(), gid.gid()));
        let wc_flags = WorkCompletionFlags::GlobalRoutingHeader;
        let source = WorkCompletionSource { src_qp: 17, wc_flags, ..Default::default() };
        let back = context
            .init_ah_from_wc(device::PORT, &source, Some(&header))
            .unwrap_or_else(|error| panic!("{gid:?}: {error}"));
        assert!(back.is_global());
        assert_eq!((back.grh_dest_gid(), u32::from(back.grh_src_gid_index())), (gid.gid(), gid.gid_index()));
        assert_eq!(back.port(), device::PORT);
        pd.create_ah_from_wc(device::PORT, &source, Some(&header)).unwrap_or_else(|error| panic!("{gid:?}: {error}"));
        ways += 1;
        // The datagram was sent to an address that the port does not have.
        let mut bytes = *header.as_bytes();
        bytes[39] ^= 0xff;
        let foreign = GlobalRoutingHeader::from_bytes(bytes);
        let error = context.init_ah_from_wc(device::PORT, &source, Some(&foreign)).expect_err("it came elsewhere");
        assert!(error.hint().is_some_and(|hint| hint.contains("port 1 probably has no GID")), "{error}");
    }
    assert!(ways >= families(), "one over IPv6 and one over IPv4: {ways}");
    let nothing = GlobalRoutingHeader::from_bytes([0; 40]);
    assert_eq!(nothing.form(), RoutingHeaderForm::Unknown);
    let wc_flags = WorkCompletionFlags::GlobalRoutingHeader;
    let source = WorkCompletionSource { wc_flags, ..Default::default() };
    let error = context.init_ah_from_wc(device::PORT, &source, Some(&nothing)).expect_err("no header");
    assert!(error.hint().is_some_and(|hint| hint.contains("neither")), "{error}");
}

const QKEY: u32 = 0x1234_5678;

/// One datagram queue pair, ready to send.
struct Side {
    qp: GenericQueuePair<Datagram>,
    cq: GenericCompletionQueue,
    memory: Memory,
}

impl Side {
    fn new(pd: &Arc<ProtectionDomain>, queue: QueueKind) -> Self {
        let cq = queue.build(pd.device_context().create_cq_builder().setup_cqe(16));
        let mut builder = pd.create_ud_qp_builder();
        builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(32);
        let qp = builder.build_generic().expect("a queue pair");
        let mut init = to(QueuePairState::Init);
        init.setup_pkey_index(0).setup_port(device::PORT).setup_qkey(QKEY);
        let mut send = to(QueuePairState::ReadyToSend);
        send.setup_sq_psn(0);
        for attribute in [init, to(QueuePairState::ReadyToReceive), send] {
            qp.modify(&attribute).expect("a transition");
        }
        let memory = Memory::new(pd, 64, AccessFlags::LocalWrite);
        Self { qp, cq, memory }
    }

    fn post_receive(&mut self) {
        let entry = ScatterGatherEntry::new(self.memory.lkey(), self.memory.addr(), 64);
        let mut guard = self.qp.start_post_recv();
        // SAFETY: the memory is registered, has no reference to it, and outlives the queue pair.
        unsafe { guard.construct_wr(1).setup_sge_list(&[entry]) };
        guard.post().expect("a receive");
    }

    fn send(&mut self, ah: &AddressHandle, peer: u32, text: &[u8]) {
        let mut guard = self.qp.start_post_send();
        let request = guard.construct_wr(2, WorkRequestFlags::Signaled).setup_send();
        request.setup_ud_addr(ah, peer, QKEY).setup_inline_data(text);
        guard.post().expect("a send");
    }

    /// Waits for a completion: its source, and the bytes.
    fn completion(&mut self, wr_id: u64) -> (WorkCompletionSource, u32) {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(60), "nothing completed");
            let Ok(mut poller) = self.cq.start_poll() else { continue };
            let wc = poller.next().expect("a working queue").expect("a completion");
            assert_eq!((wc.wr_id(), wc.status()), (wr_id, WorkCompletionStatus::Success));
            return (wc.source(), wc.byte_len());
        }
    }

    fn header_and_text(&self, length: u32) -> (GlobalRoutingHeader, Vec<u8>) {
        let mut bytes = vec![0; length as usize];
        self.memory.read(0, &mut bytes);
        let header = GlobalRoutingHeader::from_prefix(&bytes).expect("40 bytes at least");
        (header, bytes.split_off(GlobalRoutingHeader::LENGTH))
    }
}

#[test]
fn reply_reaches_its_sender() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let mut answers = 0;
    for gid in gids(&context).iter().filter(|gid| gid.gid_type() == GidType::RoceV2) {
        for queue in QueueKind::ALL {
            let (mut near, mut far) = (Side::new(&pd, queue), Side::new(&pd, queue));
            near.post_receive();
            far.post_receive();
            let there = pd.create_ah(&way(gid)).expect("a handle");
            near.send(&there, far.qp.qp_number(), b"anyone there?");
            near.completion(2);
            let (source, length) = far.completion(1);
            assert_eq!(source.src_qp, near.qp.qp_number(), "{queue:?}");
            let (header, text) = far.header_and_text(length);
            assert_eq!(text, b"anyone there?");
            assert_eq!((header.source_gid(), header.dest_gid()), (gid.gid(), gid.gid()), "{header:?}");
            let form = if gid.gid().is_ipv4_mapped() { RoutingHeaderForm::Ipv4 } else { RoutingHeaderForm::Global };
            assert_eq!(header.form(), form);
            let back = pd.create_ah_from_wc(device::PORT, &source, Some(&header)).expect("the way back");
            far.send(&back, source.src_qp, b"it is me");
            far.completion(2);
            let (source, length) = near.completion(1);
            assert_eq!(source.src_qp, far.qp.qp_number());
            assert_eq!(near.header_and_text(length).1, b"it is me");
            answers += 1;
        }
    }
    assert!(answers >= 3 * families(), "{answers}");
}

#[test]
fn own_hardware_address_is_found() {
    let context = device::open();
    let gid = gids(&context).into_iter().find(|gid| gid.gid().is_ipv4_mapped()).expect("an IPv4 address");
    let found = context.resolve_eth_l2_from_gid(&way(&gid)).expect("the own address is known");
    let netdev = gid.netdev_name().expect("a network interface");
    let file = std::fs::read_to_string(format!("/sys/class/net/{netdev}/address")).expect("its file");
    assert!(
        [file.trim(), "00:00:00:00:00:00"].contains(&found.to_string().as_str()),
        "{found} is neither {file} nor the loopback's address"
    );
    assert_eq!(found.vlan_id, None);
}

#[test]
fn queue_is_resized_under_load() {
    on_all_kinds!(resize_under_load);
}

fn resize_under_load<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let mut sizes = [200, 33, 500].into_iter();
    let mut next = 0;
    for round in 0..6 {
        for at in 0..u64::from(REQUESTS) {
            pair.far.post_receive(next + at, 0, 8);
        }
        for at in 0..u64::from(REQUESTS) {
            pair.near.post_send(next + at, 0, 8);
        }
        // All requests have completed here; the peer's completions wait in the queue that is resized.
        for at in 0..u64::from(REQUESTS) {
            assert_eq!(pair.near.success().wr_id, next + at);
        }
        if round % 2 == 0 {
            let size = sizes.next().expect("one for each time");
            pair.far.cq.resize(size).unwrap_or_else(|error| panic!("{queue:?} to {size}: {error}"));
            assert!(pair.far.cq.cqe() >= size, "{} of {size}", pair.far.cq.cqe());
        }
        for at in 0..u64::from(REQUESTS) {
            assert_eq!(pair.far.success().wr_id, next + at, "{queue:?}, round {round}");
        }
        next += u64::from(REQUESTS);
    }
    pair.works();
    let error = pair.far.cq.resize(1 << 30).expect_err("there are not that many");
    assert!(error.hint().is_some_and(|hint| hint.contains("the device supports at most")), "{error}");
    pair.works();
}

#[test]
fn unsupported_feature_is_refused_with_a_reason() {
    let context = device::open();
    if device::is_soft_nic(&context) {
        return has_all_but_counters(&context);
    }
    if !device::is_soft_roce(&context) {
        return eprintln!("DID NOT RUN: the device is not soft-RoCE, so its missing features are unknown");
    }
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq_builder().build().expect("a queue");
    let error = cq.modify(CompletionModeration { count: 4, period_us: 4 }).expect_err("no moderation");
    assert!(error.hint().is_some_and(|hint| hint.contains("does not support event moderation")), "{error}");
    let error = context.alloc_td().expect_err("no thread domains");
    assert!(error.hint().is_some_and(|hint| hint.contains("does not support thread domains")), "{error}");
    let error = pd.create_parent_domain_builder().build().expect_err("no parent domains");
    assert!(error.hint().is_some_and(|hint| hint.contains("does not support parent domains")), "{error}");
    assert_eq!(context.query_comp_cntr_caps().expect_err("no counters").errno().raw(), libc::EOPNOTSUPP);
    assert!(context.query_device().expect("its attributes").device_clock().is_none());
    match SingleThreadedDomain::new(&pd).create_cq_builder().build() {
        Ok(cq) => cq.close().expect("a queue with one owner"),
        Err(error) => println!("{error}"),
    }
}

fn has_all_but_counters(context: &Arc<DeviceContext>) {
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq_builder().build().expect("a queue");
    cq.modify(CompletionModeration { count: 4, period_us: 4 }).expect("moderation");
    let td = context.alloc_td().expect("a thread domain");
    drop(td);
    pd.create_parent_domain_builder().build().expect("a parent domain");
    assert_eq!(context.query_comp_cntr_caps().expect_err("no counters").errno().raw(), libc::EOPNOTSUPP);
    assert!(context.query_device().expect("its attributes").device_clock().is_some());
    let cq = SingleThreadedDomain::new(&pd).create_cq_builder().build().expect("a queue of one thread");
    cq.close().expect("a queue with one owner");
}
