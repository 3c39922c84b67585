//! Tests that encode packets, and tests that decode malformed ones.

use proptest::prelude::*;

use crate::ipc::codec::{Malformed, PART_WORDS, RESPONSE_WORDS, decode_part, decode_response, encode};
use crate::wire::address::Gid;
use crate::wire::bytes::Fault;
use crate::wire::limits;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{MAX_PAYLOAD, Packet, Part, Response, ResponseKind};

fn operation() -> impl Strategy<Value = Operation> {
    (0..10, any::<(u64, u32, u32)>(), any::<(u64, u64, u8, u8)>()).prop_map(|(which, keys, values)| {
        let (address, rkey, immediate) = keys;
        let (compare, swap, placement, level) = values;
        match which {
            0 => Operation::Send,
            1 => Operation::SendImmediate { immediate },
            2 => Operation::SendInvalidate { rkey },
            3 => Operation::Write { address, rkey },
            4 => Operation::WriteImmediate { address, rkey, immediate },
            5 => Operation::Read { address, rkey },
            6 => Operation::CompareSwap { address, rkey, compare, swap },
            7 => Operation::FetchAdd { address, rkey, add: compare },
            8 => Operation::AtomicWrite { address, rkey },
            _ => Operation::Flush { address, rkey, length: compare, placement, level },
        }
    })
}

fn has_data(operation: Operation) -> bool {
    !operation.is_read_or_atomic() && !matches!(operation, Operation::Flush { .. })
}

const SERVICES: [Service; 5] = [
    Service::ReliableConnection,
    Service::UnreliableConnection,
    Service::UnreliableDatagram,
    Service::XrcSend,
    Service::XrcReceive,
];

prop_compose! {
    fn a_part()(
        operation in operation(),
        service in 0..SERVICES.len(),
        length in 0..=u64::from(limits::MAX_MSG_SIZE),
        place in any::<(u64, u32)>(),
        (is_solicited, packets, key, srq_number) in any::<(bool, u32, u32, u32)>(),
        (number, source_number, psn) in (0u32..1 << 24, 0u32..1 << 24, 0u32..1 << 24),
        (source, destination) in any::<([u8; 16], [u8; 16])>(),
        (traffic_class, hop_limit, flow_label, service_level, attempt) in any::<(u8, u8, u32, u8, u32)>(),
    ) -> Part {
        let most = if has_data(operation) { length } else { 0 };
        let offset = place.0 % (most + 1);
        let part = u64::from(place.1 % (MAX_PAYLOAD + 1)).min(most - offset) as u32;
        let (source, destination, service) = (Gid(source), Gid(destination), SERVICES[service]);
        let request = Request {
            service, operation, length, is_solicited, psn, packets, source_number, source, destination, key, traffic_class,
            hop_limit, flow_label, service_level, srq_number,
        };
        Part { number, request, offset, length: part, attempt }
    }
}

fn reply() -> impl Strategy<Value = ResponseKind> {
    prop_oneof![
        (0..=u64::from(limits::MAX_MSG_SIZE - MAX_PAYLOAD), 0..=MAX_PAYLOAD)
            .prop_map(|(offset, length)| ResponseKind::Data { offset, length }),
        any::<u64>().prop_map(|original| ResponseKind::Reply(Reply::Done { original })),
        (0u8..32).prop_map(|timer| ResponseKind::Reply(Reply::NotReady { timer })),
        Just(ResponseKind::Reply(Reply::Refused(Refusal::InvalidRequest))),
        Just(ResponseKind::Reply(Reply::Refused(Refusal::AccessError(Fault::Key)))),
        Just(ResponseKind::Reply(Reply::Refused(Refusal::OperationError))),
        Just(ResponseKind::Reply(Reply::Silence)),
        Just(ResponseKind::Reply(Reply::LocalFault)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 8 } else { 512 }, ..Default::default() })]

    #[test]
    fn decoded_part_equals_the_encoded_one(part in a_part()) {
        let (words, count) = encode(&Packet::Part(part));
        prop_assert_eq!(count, PART_WORDS);
        let back = decode_part(&words).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{part:?}"));
    }

    #[test]
    fn decoded_response_equals_the_encoded_one(
        (number, source_number, psn) in (0u32..1 << 24, 0u32..1 << 24, 0u32..1 << 24),
        attempt: u32,
        kind in reply(),
    ) {
        let response = Response { number, source_number, psn, attempt, kind };
        let (words, count) = encode(&Packet::Response(response));
        prop_assert_eq!(count, RESPONSE_WORDS);
        prop_assert!(words[count..].iter().all(|&word| word == 0));
        prop_assert_eq!(decode_response(&words), Ok(response));
    }

    #[test]
    fn decoded_words_are_within_bounds(mut words: [u64; PART_WORDS], small in any::<[bool; PART_WORDS]>(), code in 0u64..14) {
        // Words that are random would rarely be valid, so some of the words are small.
        for (word, small) in words.iter_mut().zip(small) {
            *word &= if small { 0xff } else { u64::MAX };
        }
        words[0] = words[0] & 0x00ff_ffff_0000_0300 | code;
        if let Ok(part) = decode_part(&words) {
            let numbers = [part.number, part.request.source_number, part.request.psn];
            prop_assert!(numbers.iter().all(|number| number >> 24 == 0));
            prop_assert!(part.length <= MAX_PAYLOAD && part.request.length <= u64::from(limits::MAX_MSG_SIZE));
            let most = if has_data(part.request.operation) { part.request.length } else { 0 };
            prop_assert!(part.offset.checked_add(part.length.into()).unwrap() <= most);
        }
        if let Ok(response) = decode_response(&words) {
            prop_assert!([response.number, response.source_number, response.psn].iter().all(|number| number >> 24 == 0));
            if let ResponseKind::Data { offset, length } = response.kind {
                prop_assert!(length <= MAX_PAYLOAD && offset.checked_add(length.into()).is_some());
            }
        }
    }
}

/// Decodes a part that is valid except for one word, which `change` changes.
fn decode_changed(index: usize, change: impl FnOnce(u64) -> u64) -> Result<Part, Malformed> {
    let (mut words, _) = encode(&Packet::Part(super::part(0x1234, 100)));
    words[index] = change(words[index]);
    decode_part(&words)
}

#[test]
fn each_field_is_checked() {
    assert!(decode_changed(0, |word| word).is_ok());
    let cases = [
        (0, 10, "unknown operation"),
        (0, 0x0500, "unknown service"),
        (0, 1 << 56, "number above 24 bits"),
        (2, 1 << 24, "number above 24 bits"),
        (3, 1 << 24, "number above 24 bits"),
        (1, 1 << 33, "message too long"),
        (9, 1 << 47, "part outside of its message"),
        (10, 1, "part outside of its message"),
        (10, u64::MAX, "part outside of its message"),
    ];
    for (index, bits, why) in cases {
        assert_eq!(decode_changed(index, |word| word | bits).unwrap_err(), Malformed(why), "{index}");
    }
    // A read has no payload, whatever its length is.
    assert_eq!(decode_changed(0, |word| word | 5).unwrap_err(), Malformed("part outside of its message"));
    let with_wide_immediate = decode_changed(13, |_| 1 << 32);
    assert!(with_wide_immediate.is_ok(), "a send has no immediate");
    let (mut words, _) = encode(&Packet::Part(super::part(1, 1)));
    (words[0], words[13]) = (words[0] | 1, 1 << 32);
    assert_eq!(decode_part(&words).unwrap_err(), Malformed("immediate above 32 bits"));
}

#[test]
fn each_field_of_a_response_is_checked() {
    let (good, _) = encode(&Packet::Response(super::response(7)));
    let cases = [
        (0, 6, "unknown response"),
        (0, 1 << 56, "number above 24 bits"),
        (1, 1 << 24, "number above 24 bits"),
        (1, 1 << 56, "number above 24 bits"),
        (2, 1 << 32, "reply with data"),
    ];
    assert!(decode_response(&good).is_ok());
    for (index, bits, why) in cases {
        let mut words = good;
        words[index] |= bits;
        assert_eq!(decode_response(&words).unwrap_err(), Malformed(why), "{index}");
    }
    for words in [(0, 17 << 42, 0), (0, 1 << 32, u64::MAX), (2 | 32 << 8, 0, 0), (3 | 3 << 8, 0, 0)] {
        let mut all = [0; PART_WORDS];
        (all[0], all[2], all[3]) = words;
        assert!(decode_response(&all).is_err(), "{words:?}");
    }
}
