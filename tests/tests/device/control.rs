//! Creating and modifying queue pairs and completion queues: the refusals, and the contents of their errors.

use std::net::Ipv4Addr;
use std::sync::Arc;

use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ConnectQueuePairError, ModifyQueuePairError, QueuePair, QueuePairAttribute, QueuePairEndpoint,
    QueuePairState as State, QueuePairType, RcOptions,
};
use sideway_tests::loopback::{Kind, Loopback, QueueKind, init, ready_to_receive, ready_to_send, to};
use sideway_tests::{device, on_all_kinds};

/// The text of the error of a transition from the state.
fn refusal<Q: Kind>(pair: &Loopback<Q>, attribute: &QueuePairAttribute) -> String {
    pair.near.qp.modify(attribute).expect_err("this cannot be").to_string()
}

#[test]
fn wrong_transitions_and_masks_are_explained() {
    on_all_kinds!(transitions);
}

fn transitions<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let reset = |pair: &mut Loopback<Q>| pair.near.qp.modify(&to(State::Reset)).expect("RESET is always possible");
    reset(&mut pair);
    assert_eq!(
        refusal(&pair, &to(State::ReadyToSend)),
        "ibv_modify_qp(Reset -> ReadyToSend): EINVAL: no such transition; from Reset, move to one of Reset, Init"
    );
    let mut partial = to(State::Init);
    partial.setup_port(1).setup_pkey_index(0);
    assert_eq!(refusal(&pair, &partial), "ibv_modify_qp(Reset -> Init): EINVAL: needs AccessFlags");
    let mut surplus = init();
    surplus.setup_path_mtu(Mtu::Mtu1024);
    assert_eq!(refusal(&pair, &surplus), "ibv_modify_qp(Reset -> Init): EINVAL: must not set PathMtu");
    let mut no_port = init();
    no_port.setup_port(9);
    assert!(refusal(&pair, &no_port).contains("there is no port 9"), "{}", refusal(&pair, &no_port));

    pair.near.qp.modify(&init()).expect("RESET to INIT");
    let far = pair.far.qp.qp_number();
    let complete = ready_to_receive(&pair.context, far, 1);
    let mut faulty = QueuePairAttribute::new();
    faulty
        .setup_state(State::ReadyToReceive)
        .setup_address_vector(&complete.address_vector())
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(far)
        .setup_rq_psn(1)
        .setup_port(1);
    assert_eq!(
        refusal(&pair, &faulty),
        "ibv_modify_qp(Init -> ReadyToReceive): EINVAL: needs MinResponderNotReadyTimer, MaxDestinationReadAtomic; \
         must not set Port"
    );
    let error = pair.near.qp.modify(&faulty).expect_err("this cannot be");
    assert!(matches!(
        error,
        ModifyQueuePairError::InvalidAttributeMask { from: State::Init, to: State::ReadyToReceive, .. }
    ));
    pair.near.qp.modify(&complete).expect("INIT to RTR");

    let mut faulty = to(State::ReadyToSend);
    faulty.setup_sq_psn(1).setup_timeout(14).setup_qkey(1);
    assert_eq!(
        refusal(&pair, &faulty),
        "ibv_modify_qp(ReadyToReceive -> ReadyToSend): EINVAL: needs RetryCount, ResponderNotReadyRetryCount, \
         MaxReadAtomic; must not set QueueKey"
    );
    pair.near.qp.modify(&ready_to_send(1, 7)).expect("RTR to RTS");
    assert_eq!(
        refusal(&pair, &to(State::Init)),
        "ibv_modify_qp(ReadyToSend -> Init): EINVAL: no such transition; from ReadyToSend, move to one of Reset, \
         ReadyToSend, SendQueueDrain, Error"
    );
    pair.near.qp.modify(&to(State::Error)).expect("any state to ERROR");
    assert_eq!(pair.near.qp.state(), State::Error);
    pair.reconnect(7);
    pair.works();
}

/// Options for the port of the tests, and its GID. The number of READs in flight is that of a [`Loopback`]: Linux 6.1's
/// rxe writes beyond its memory if a queue pair is connected again with more (`sideway::manual::quirks`).
fn options(pair: &Loopback<impl Kind>) -> RcOptions {
    let mut options = RcOptions::new();
    options.setup_port(device::PORT).setup_max_dest_read_atomic(4);
    if let Some(entry) = device::gid(&pair.context) {
        options.setup_gid_index(entry.gid_index() as u8);
    }
    options
}

#[test]
fn connect_rc_with_exchanged_endpoints_carries_messages() {
    on_all_kinds!(connected_by_endpoints);
}

fn connected_by_endpoints<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let options = options(&pair);
    let endpoints = [&pair.near, &pair.far].map(|end| {
        end.qp.modify(&to(State::Reset)).expect("RESET is always possible");
        let endpoint = end.qp.local_endpoint(&options).expect("the port and its GID");
        assert_eq!(endpoint.qp_num, end.qp.qp_number());
        QueuePairEndpoint::from_bytes(&endpoint.to_bytes())
    });
    // The transition also works from Init, where receives can be posted.
    pair.far.qp.modify(&init()).expect("RESET to INIT");
    pair.near.qp.connect_rc(&endpoints[1], &options).expect("RESET to RTS");
    pair.far.qp.connect_rc(&endpoints[0], &options).expect("INIT to RTS");
    assert_eq!([pair.near.qp.state(), pair.far.qp.state()], [State::ReadyToSend; 2]);
    pair.works();
}

#[test]
fn connect_rc_failure_names_the_transition_and_leaves_the_state_before_it() {
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let options = options(&pair);
    let remote = pair.far.qp.local_endpoint(&options).expect("the port and its GID");
    let connect = |remote: &QueuePairEndpoint, options: &RcOptions| {
        pair.near.qp.connect_rc(remote, options).expect_err("this cannot be")
    };
    let connected = connect(&remote, &options);
    assert!(
        matches!(
            connected,
            ConnectQueuePairError::Modify(ModifyQueuePairError::InvalidTransition {
                from: State::ReadyToSend,
                to: State::Init,
                ..
            })
        ),
        "{connected}"
    );

    pair.near.qp.modify(&to(State::Reset)).expect("RESET is always possible");
    let malformed = connect(&QueuePairEndpoint { qp_num: 1 << 24, ..remote }, &options);
    assert_eq!(
        malformed.to_string(),
        "malformed endpoint of the peer: QP number 0x1000000 is reserved or exceeds 24 bits"
    );
    assert_eq!(pair.near.qp.state(), State::Reset);

    let mut no_port = options.clone();
    let error = connect(&remote, no_port.setup_port(9));
    assert!(matches!(error, ConnectQueuePairError::Query(_)), "{error:?}");
    assert!(error.to_string().contains("there is no port 9"), "{error}");
    assert_eq!(pair.near.qp.state(), State::Reset);

    let mut no_gid = options.clone();
    let error = connect(&remote, no_gid.setup_gid_index(200));
    assert!(
        matches!(
            error,
            ConnectQueuePairError::Modify(ModifyQueuePairError::Verb {
                from: State::Init,
                to: State::ReadyToReceive,
                ..
            })
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("GID index 200"), "{error}");
    assert_eq!(pair.near.qp.state(), State::Init);
    assert!(pair.near.qp.local_endpoint(&no_gid).expect_err("no such GID").to_string().contains("GID index 200"));

    let wrong = pair.near.qp.connect_uc(&remote, &options).expect_err("it is of type RC");
    let (found, expected) = (QueuePairType::ReliableConnection, QueuePairType::UnreliableConnection);
    assert_eq!(wrong, ConnectQueuePairError::WrongType { found, expected });
    pair.reconnect(7);
    pair.works();
}

#[test]
fn connect_uc_takes_a_queue_pair_to_ready_to_send() {
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let options = options(&pair);
    let mut builder = pair.pd.create_qp_builder();
    builder
        .setup_qp_type(QueuePairType::UnreliableConnection)
        .setup_send_cq(&pair.near.cq)
        .setup_recv_cq(&pair.near.cq);
    let (near, far) = (builder.build().expect("a UC queue pair"), builder.build().expect("a UC queue pair"));
    for (here, there) in [(&near, &far), (&far, &near)] {
        let remote = there.local_endpoint(&options).expect("the port and its GID");
        here.connect_uc(&remote, &options).expect("RESET to RTS");
        assert_eq!(here.state(), State::ReadyToSend);
    }
}

#[test]
fn unreachable_peer_is_named() {
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let own = device::gid(&pair.context).expect("the device has a GID");
    let [network @ .., _] = own.gid().ipv4().expect("the device has a GID of an IPv4 address").octets();
    let index = own.gid_index() as u8;
    let towards = |pair: &Loopback<BasicQueuePair>, gid: Gid, index| {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(device::PORT).setup_grh(&gid, 0, index, 64, 0);
        let mut attributes = ready_to_receive(&pair.context, 1, 1);
        attributes.setup_address_vector(&way);
        pair.near.qp.modify(&attributes)
    };
    let refused = |pair: &Loopback<BasicQueuePair>, gid, index| towards(pair, gid, index).expect_err("no such host");
    pair.near.qp.modify(&to(State::Reset)).expect("RESET is always possible");
    pair.near.qp.modify(&init()).expect("RESET to INIT");

    // The last host address of this network, at which no host responds.
    let silent = Gid::from(Ipv4Addr::new(network[0], network[1], network[2], 254));
    match towards(&pair, silent, index) {
        Err(ref error @ ModifyQueuePairError::ResolveRouteTimedout { sgid_index, dgid, .. }) => {
            assert_eq!((sgid_index, dgid), (index, silent));
            assert!(
                error
                    .to_string()
                    .starts_with("ibv_modify_qp: ETIMEDOUT (Connection timed out): no reply for the peer's GID"),
                "{error}"
            );
        }
        Ok(()) if device::is_soft_nic(&pair.context) => is_not_answered(&mut pair),
        other => panic!("{other:?}"),
    }

    // This address is reserved for documentation. No machine has it, and only a machine with a default IPv6 route has a
    // route to it.
    let foreign: Gid = "2001:db8::1".parse().expect("a GID");
    let table = pair.context.query_gid_table().expect("the table");
    let link_local = table.iter().find(|entry| entry.gid().is_unicast_link_local());
    if !device::is_soft_nic(&pair.context) {
        let link_local = link_local.expect("a GID of an IPv6 address");
        let error = refused(&pair, foreign, link_local.gid_index() as u8);
        match error {
            ModifyQueuePairError::NetworkUnreachable { sgid_index, dgid, .. } => {
                assert_eq!((u32::from(sgid_index), dgid), (link_local.gid_index(), foreign));
                assert!(error.to_string().starts_with("ibv_modify_qp: ENETUNREACH"), "{error}");
                assert!(error.to_string().contains("there is no route from GID index"), "{error}");
            }
            _ => assert!(!device::is_soft_roce(&pair.context), "{error:?}"),
        }
    }

    // IPv6 from an IPv4 address, and no GID at all.
    for (gid, what) in [(foreign, "one GID is IPv4 and the other IPv6"), (Gid::default(), "the peer's GID is zero")] {
        let error = refused(&pair, gid, index).to_string();
        assert!(error.starts_with("ibv_modify_qp(Init -> ReadyToReceive): EINVAL") && error.contains(what), "{error}");
    }

    // An empty entry of the table, and one past its end.
    let port = pair.context.query_port(device::PORT).expect("the port");
    let used = |index: u32| table.iter().any(|entry| entry.gid_index() == index);
    let empty = (0..port.gid_tbl_len().min(256)).find(|&index| !used(index));
    let behind = Some(port.gid_tbl_len()).filter(|&length| length < 256);
    for (index, what) in [(empty, "is empty"), (behind, "entries")] {
        let Some(index) = index else { continue };
        let error = refused(&pair, foreign, index as u8).to_string();
        assert!(error.contains(&format!("GID index {index}")) && error.contains(what), "{error}");
    }
    pair.reconnect(7);
    pair.works();
}

/// Sends from the near side without a peer; the completion reports the error. Afterwards, the near side is in INIT.
fn is_not_answered(pair: &mut Loopback<BasicQueuePair>) {
    let mut ready = ready_to_send(1, 7);
    ready.setup_timeout(8).setup_retry_cnt(1);
    pair.near.qp.modify(&ready).expect("RTR to RTS");
    pair.near.post_send(1, 0, 8);
    assert_eq!(pair.near.completion().status, Status::RetryCounterExceededError);
    pair.near.qp.modify(&to(State::Reset)).expect("RESET is always possible");
    pair.near.qp.modify(&init()).expect("RESET to INIT");
}

#[test]
fn objects_of_another_context_are_refused() {
    let (here, there) = (device::open(), device::open());
    let pd = here.alloc_pd().expect("a domain");
    let (own, foreign) =
        (here.create_cq_builder().build().expect("a queue"), there.create_cq_builder().build().expect("a queue"));

    let of = |send: &_, recv: &_| {
        let mut builder = pd.create_qp_builder();
        builder.setup_send_cq(send).setup_recv_cq(recv);
        builder
    };
    let sentence = |verb: &str, which: &str| {
        format!(
            "{verb}: EINVAL (Invalid argument): the completion queue given to setup_{which}_cq belongs to another device context \
             than the domain; build both from one"
        )
    };
    let text =
        |result: Result<(), sideway::error::VerbError>| result.expect_err("it belongs to another context").to_string();
    for (builder, which) in [(of(&foreign, &own), "send"), (of(&own, &foreign), "recv")] {
        assert_eq!(text(builder.build().map(drop)), sentence("ibv_create_qp", which));
        assert_eq!(text(builder.build_ex().map(drop)), sentence("ibv_create_qp_ex", which));
        assert_eq!(text(builder.build_generic().map(drop)), sentence("ibv_create_qp_ex", which));
    }
    of(&own, &own).build().expect("its own are taken");
    let error = pd.create_qp_builder().setup_send_cq(&own).build().expect_err("one is missing");
    assert!(error.to_string().ends_with("no completion queue is set; call setup_recv_cq"), "{error}");

    let channel = there.create_comp_channel().expect("a channel");
    let mut builder = here.create_cq_builder();
    builder.setup_comp_channel(&channel, 0);
    for error in
        [text(builder.build().map(drop)), text(builder.build_ex().map(drop)), text(builder.build_generic().map(drop))]
    {
        assert!(error.contains("the completion channel belongs to another device context"), "{error}");
    }
    assert_eq!(Arc::strong_count(&there), 3, "nothing refused is kept: a queue, a channel, and this");
}

#[test]
fn excessive_request_names_the_limit() {
    let context = device::open();
    let limits = context.query_device().expect("the limits");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq_builder().build().expect("a queue");
    let error = context.create_cq_builder().setup_cqe(0).build().expect_err("none").to_string();
    assert!(error.contains("cqe is 0"), "{error}");
    for error in [
        context.create_cq_builder().setup_cqe(limits.max_cqe() + 1).build().map(drop),
        context.create_cq_builder().setup_cqe(limits.max_cqe() + 1).build_ex().map(drop),
        context.create_cq_builder().setup_cqe(limits.max_cqe() + 1).build_generic().map(drop),
    ] {
        let error = error.expect_err("one more than the device has").to_string();
        assert!(error.contains(&format!("the device supports at most {}", limits.max_cqe())), "{error}");
    }
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_send_wr(limits.max_qp_wr() + 1);
    let extended = device::has_extended_queue_pairs().then(|| builder.build_ex().map(drop));
    for error in [builder.build().map(drop), builder.build_generic().map(drop)].into_iter().chain(extended) {
        let error = error.expect_err("one more than the device has").to_string();
        assert!(error.contains(&format!("the device's limit of {}", limits.max_qp_wr())), "{error}");
    }
}
