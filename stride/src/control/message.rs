//! The messages of the control channel.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::{Changes, Path, PeerInfo, PortInfo};
use crate::plan::{Given, Plan};
use crate::stats::{Figures, Interval};

/// The first message of both sides, which is the same in all versions of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub version: String,
    /// The reason why the server rejects the client, if it does.
    #[serde(default)]
    pub busy: Option<String>,
}

/// The description of the server's side, after the server has opened it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The server's device and port.
    #[serde(rename = "facts")]
    pub port_info: PortInfo,
    /// The index in the GID table that the user of either side gave.
    pub gid_index: Option<u32>,
    /// The indexes in the GID tables of further ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_gid_indices: Vec<Option<u32>>,
}

/// The requested test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The test.
    pub plan: Plan,
    /// The options that the user gave.
    pub given: Given,
}

/// The message that the client's part of a step has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Whether the step ran to its planned end.
    pub is_whole: bool,
}

/// The reason why a side ends the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The error text that the peer prints for its user.
    pub text: String,
    /// Whether it is an RDMA failure: of queue pairs or requests, or because data is corrupt.
    pub is_rdma: bool,
}

/// Declares the messages: for each, its number in a frame, its name in texts, and the function that decodes its JSON.
macro_rules! messages {
    ($($(#[$doc:meta])* $kind:literal $name:literal $Variant:ident $(($Body:ty) by $read:ident)?;)*) => {
        /// A message.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $($(#[$doc])* $Variant $(($Body))?,)*
        }

        impl Message {
            /// Returns the number that frames contain for this kind of message.
            pub(crate) fn kind(&self) -> u16 {
                match self {
                    $(Self::$Variant { .. } => $kind,)*
                }
            }

            /// Returns the message as JSON.
            pub(crate) fn pack(&self) -> serde_json::Result<Vec<u8>> {
                match self {
                    $($(Self::$Variant(body) => serde_json::to_vec::<$Body>(body),)?)*
                    _ => Ok(Vec::new()),
                }
            }

            /// Decodes a message. Replaces control characters in all texts, so that the peer cannot control the
            /// terminal.
            pub(super) fn unpack(kind: u16, body: &[u8]) -> Result<Self, Unread> {
                match kind {
                    $($kind => Ok(Self::$Variant $(($read(kind, body)?))?),)*
                    _ => Err(Unread::Kind(kind)),
                }
            }
        }

        fn name(kind: u16) -> &'static str {
            match kind {
                $($kind => $name,)*
                _ => "nothing",
            }
        }
    };
}

messages! {
    /// Sent by both sides: program and version.
    1 "hello" Hello(Hello) by read;
    /// Sent by the client: the test that it requests.
    2 "request" Request(Box<Request>) by request;
    /// Sent by the server: its side is open.
    3 "offer" Offer(Box<Offer>) by read;
    /// Sent by the client: the path between both ports.
    4 "path" Path(Path) by read;
    /// Sent by both sides: the addresses of their queue pairs.
    5 "ends" PeerInfo(PeerInfo) by read;
    /// Sent by both sides: their queue pairs are connected.
    6 "connected" Connected;
    /// Sent by the client: the size of the next step, in bytes.
    7 "size" Size(u64) by read;
    /// Sent by the server: the step is prepared.
    8 "ready" Ready;
    /// Sent by the client: it has also prepared the step, and starts it.
    9 "go" Go;
    /// Sent by both sides while a step runs: the fraction of the step that has completed.
    10 "progress" Progress(f64) by read;
    /// Sent by the client: its part of the step has ended.
    11 "done" Done(Done) by read;
    /// Sent by the server if the client measures nothing: an interval has ended.
    18 "interval" Interval(Interval) by read;
    /// Sent by the server: its part of the step has ended, with these figures.
    12 "figures" Figures(Option<Figures>) by read;
    /// Sent by the server if data is validated: the messages that the server received are correct.
    16 "checked" Checked;
    /// Sent by the server if counters were requested: how much its counters have changed.
    17 "counted" Counted(Option<Changes>) by read;
    /// Sent by both sides: a remark for the peer's user.
    13 "note" Note(String) by read;
    /// Sent by both sides: a failure. No message follows.
    14 "error" Error(Reason) by read;
    /// Sent by the client: the test has ended.
    15 "end" End;
}

/// The reason why a frame could not be decoded as a message.
#[derive(Debug)]
pub(super) enum Unread {
    /// No message has this number.
    Kind(u16),
    /// The JSON is not valid for this kind of message.
    Body(&'static str, serde_json::Error),
    /// The request has a member that this version does not support.
    Newer(String),
}

impl Message {
    /// Returns the name of the message for error texts.
    pub(super) fn name(&self) -> &'static str {
        name(self.kind())
    }
}

fn read<T: DeserializeOwned>(kind: u16, body: &[u8]) -> Result<T, Unread> {
    decode(body).map_err(|error| Unread::Body(name(kind), error))
}

/// Decodes JSON of a peer. Replaces control characters in all texts, so that the peer cannot control the terminal.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let mut value: Value = serde_json::from_slice(body)?;
    clean(&mut value);
    serde_json::from_value(value)
}

/// Decodes a request. Fails if the request has unsupported members, because a server that ignored such a member would
/// run a different test from the one that the client requested.
fn request(kind: u16, body: &[u8]) -> Result<Box<Request>, Unread> {
    let unread = |error| Unread::Body(name(kind), error);
    let mut received: Value = serde_json::from_slice(body).map_err(unread)?;
    clean(&mut received);
    let request = Request::deserialize(&received).map_err(unread)?;
    let supported = serde_json::to_value(&request).map_err(unread)?;
    match unknown(&received, &supported) {
        Some(member) => Err(Unread::Newer(member)),
        None => Ok(Box::new(request)),
    }
}

/// Returns the name of the first member that has a value but is not among the supported members.
fn unknown(received: &Value, supported: &Value) -> Option<String> {
    // A member whose value is null, false, zero or empty requests nothing.
    let requests = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
        _ => true,
    };
    let (received, supported) = (received.as_object()?, supported.as_object()?);
    received.iter().find_map(|(name, value)| match supported.get(name) {
        None => requests(value).then(|| name.clone()),
        Some(supported) => unknown(value, supported).map(|member| format!("{name}.{member}")),
    })
}

/// Replaces the control characters in all texts of a JSON value.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = cleaned(text).unwrap_or_else(|| std::mem::take(text)),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(values) => {
            let members = std::mem::take(values).into_iter();
            *values = members
                .map(|(name, mut value)| {
                    clean(&mut value);
                    (cleaned(&name).unwrap_or(name), value)
                })
                .collect();
        }
        _ => {}
    }
}

/// Returns the text with its control characters replaced, or `None` if it has none.
fn cleaned(text: &str) -> Option<String> {
    let clean = |letter: char| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter };
    text.contains(char::is_control).then(|| text.chars().map(clean).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::PROTOCOL;
    use crate::endpoint::{Intake, Listening, QpAddress};
    use crate::stats::Seen;

    #[test]
    fn messages_round_trip() {
        let request = Request { plan: Plan::default(), given: std::iter::once("--iters".to_owned()).collect() };
        let hello = Hello { version: "1".to_owned(), busy: None };
        let path = Path { client_gid: Some(3), server_gid: None, mtu: 4096, others: Vec::new() };
        let end = |intake| QpAddress { number: 1, psn: 2, address: u64::MAX, rkey: 4, intake };
        let target = Intake::Dc { number: 0xff_ffff, key: u64::MAX - 1 };
        let ends = [end(None), end(Some(Intake::Xrc { number: 5, srq: 6 })), end(Some(target))];
        let messages = [
            Message::Hello(hello),
            Message::Request(Box::new(request)),
            Message::Path(path),
            Message::PeerInfo(PeerInfo {
                lid: 1,
                gid: None,
                reads: 16,
                queue_pairs: Vec::new(),
                inline: 220,
                listening: Some(Listening { port: 7, token: u64::MAX }),
                others: Vec::new(),
            }),
            Message::PeerInfo(PeerInfo {
                lid: 0,
                gid: None,
                reads: 0,
                queue_pairs: ends.to_vec(),
                inline: 220,
                listening: None,
                others: Vec::new(),
            }),
            Message::Connected,
            Message::Size(u64::MAX),
            Message::Done(Done { is_whole: true }),
            Message::Interval(Interval { start: 0.0, end: 1.5, seen: Seen::Bandwidth { messages: 7 } }),
            Message::Figures(None),
            Message::Counted(Some(Changes([("counters/symbol_error".to_owned(), Some(-3))].into()))),
            Message::Counted(None),
            Message::Error(Reason { text: "a sentence".to_owned(), is_rdma: true }),
            Message::End,
        ];
        for message in messages {
            let body = message.pack().unwrap();
            assert_eq!(Message::unpack(message.kind(), &body).unwrap(), message);
        }
    }

    #[test]
    fn unsupported_member_is_rejected() {
        let request = Request { plan: Plan::default(), given: Given::default() };
        let whole = serde_json::to_value(&request).unwrap();
        let read = |path: &str, value: Value| {
            let mut body = whole.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            body.pointer_mut(parent).unwrap()[name] = value;
            match Message::unpack(2, body.to_string().as_bytes()) {
                Ok(message) => Ok(message == Message::Request(Box::new(request.clone()))),
                Err(Unread::Newer(member)) => Err(member),
                Err(other) => panic!("{other:?}"),
            }
        };
        for (path, member) in [
            ("/plan/colour", "plan.colour"),
            ("/plan/client/floor", "plan.client.floor"),
            ("/plan/amount/messages/pauses", "plan.amount.messages.pauses"),
            ("/weather", "weather"),
        ] {
            assert_eq!(read(path, Value::from(7)), Err(member.to_owned()));
            // Unknown members are accepted if their values mean that the feature is not in use.
            for nothing in [Value::Null, Value::from(false), Value::from(0), Value::from(0.0), Value::Array(Vec::new())]
            {
                assert_eq!(read(path, nothing), Ok(true), "{path}");
            }
        }
    }

    #[test]
    fn plan_members_match_the_protocol_version() {
        // A server rejects a request that has an unknown member, even if the protocol number is the same. To rename a
        // member of the plan therefore requires a new protocol number.
        let names = "operation measure transport sizes_bytes amount is_endless queue_pairs threads tx_depth rx_depth post_list receive_list \
                     cq_moderation is_each_large_signaled is_bidirectional is_reversed inline_bytes mtu_bytes qp_timeout service_level \
                     traffic_class flow_label is_relaxed is_on_demand has_own_regions sleeps_on_events is_validated timeout_seconds \
                     rate_limit_gigabits_per_second burst_size gap_seconds interval_seconds counters uses_rdma_cm client server";
        assert_eq!(PROTOCOL, 4, "the names above belong to protocol 4");
        let plan = serde_json::to_value(Plan::default()).unwrap();
        let missing: Vec<_> = names.split_whitespace().filter(|name| plan.get(name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?} is missing: {plan}");
    }

    #[test]
    fn control_characters_are_replaced() {
        let body = serde_json::to_vec("\u{1b}[2Jgone\u{7}\nline").unwrap();
        let Message::Note(text) = Message::unpack(13, &body).unwrap() else { panic!() };
        assert_eq!(text, "\u{fffd}[2Jgone\u{fffd}\nline");
        let Message::Counted(Some(changes)) = Message::unpack(17, br#"{"\u001b[2Jx": 1, "y": 2}"#).unwrap() else {
            panic!()
        };
        assert_eq!(changes.to_string(), "y +2, \u{fffd}[2Jx +1");
    }

    #[test]
    fn json_depth_is_bounded() {
        assert!(Message::unpack(2, "[".repeat(1 << 20).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_body_does_not_panic(kind in 0_u16..20, body in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Message::unpack(kind, &body);
        }

        #[test]
        fn arbitrary_text_does_not_panic(kind in 0_u16..20, body in "[\\[\\]{}:,\"a-z0-9.-]{0,60}") {
            let _ = Message::unpack(kind, body.as_bytes());
        }
    }
}
