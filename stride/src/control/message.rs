//! What the sides say to each other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::{Changes, Path, PeerInfo, PortInfo};
use crate::plan::{Given, Plan};
use crate::stats::{Figures, Interval};

/// What both say first, of whichever version they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub version: String,
    /// Why the server does not serve just now.
    #[serde(default)]
    pub busy: Option<String>,
}

/// What the server says of its side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The side.
    pub facts: PortInfo,
    /// The GID that was asked for, by either side.
    pub gid_index: Option<u32>,
    /// Those that were of further ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_gid_indices: Vec<Option<u32>>,
}

/// What was asked for, and what of it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The test.
    pub plan: Plan,
    /// What of it the user has given.
    pub given: Given,
}

/// The end of a step at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// All of the plan was done, and the user has not ended it before.
    pub is_whole: bool,
}

/// Why a side ends the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A sentence for the other's user.
    pub text: String,
    /// It is of RDMA: queue pairs, requests, the bytes that came.
    pub is_rdma: bool,
}

/// The messages, each with its number in a frame, its name in sentences, and the function that reads its JSON.
macro_rules! messages {
    ($($(#[$doc:meta])* $kind:literal $name:literal $Variant:ident $(($Body:ty) by $read:ident)?;)*) => {
        /// A message.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $($(#[$doc])* $Variant $(($Body))?,)*
        }

        impl Message {
            /// Its kind as a number.
            pub(crate) fn kind(&self) -> u16 {
                match self {
                    $(Self::$Variant { .. } => $kind,)*
                }
            }

            /// Its JSON.
            pub(crate) fn pack(&self) -> serde_json::Result<Vec<u8>> {
                match self {
                    $($(Self::$Variant(body) => serde_json::to_vec::<$Body>(body),)?)*
                    _ => Ok(Vec::new()),
                }
            }

            /// The message of a kind, of this JSON. No text in it has characters that steer a terminal.
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
    /// Both: who this is.
    1 "hello" Hello(Hello) by read;
    /// Client: the test.
    2 "request" Request(Box<Request>) by request;
    /// Server: its side is open.
    3 "offer" Offer(Box<Offer>) by read;
    /// Client: how the queue pairs are connected.
    4 "path" Path(Path) by read;
    /// Both: where the queue pairs are.
    5 "ends" PeerInfo(PeerInfo) by read;
    /// Both: the queue pairs are connected.
    6 "connected" Connected;
    /// Client: the next step is of so many bytes.
    7 "size" Size(u64) by read;
    /// Server: it is prepared for it.
    8 "ready" Ready;
    /// Client: it is, too, and begins.
    9 "go" Go;
    /// Both, while a step runs: how much of it is done.
    10 "progress" Progress(f64) by read;
    /// Client: its part of the step is over.
    11 "done" Done(Done) by read;
    /// Server, while a step runs of which the client sees nothing: a part of it is over.
    18 "interval" Interval(Interval) by read;
    /// Server: its part is over, and what it measured.
    12 "figures" Figures(Option<Figures>) by read;
    /// Server, where messages are checked: those that it got are right.
    16 "checked" Checked;
    /// Server, where counters are asked for: by how much they have changed.
    17 "counted" Counted(Option<Changes>) by read;
    /// Both: a sentence for the other's user.
    13 "note" Note(String) by read;
    /// Both: what failed. Nothing comes after it.
    14 "error" Error(Reason) by read;
    /// Client: that was all.
    15 "end" End;
}

/// Why a frame is no message.
#[derive(Debug)]
pub(super) enum Unread {
    /// There is no such kind.
    Kind(u16),
    /// The JSON is not of it.
    Body(&'static str, serde_json::Error),
    /// It asks for what this version does not know.
    Newer(String),
}

impl Message {
    /// Its kind in sentences.
    pub(super) fn name(&self) -> &'static str {
        name(self.kind())
    }
}

fn read<T: DeserializeOwned>(kind: u16, body: &[u8]) -> Result<T, Unread> {
    let mut value: Value = serde_json::from_slice(body).map_err(|error| Unread::Body(name(kind), error))?;
    clean(&mut value);
    serde_json::from_value(value).map_err(|error| Unread::Body(name(kind), error))
}

/// A request of which this version knows all: what it left out would be another test than the one that was asked for.
fn request(kind: u16, body: &[u8]) -> Result<Box<Request>, Unread> {
    let unread = |error| Unread::Body(name(kind), error);
    let mut said: Value = serde_json::from_slice(body).map_err(unread)?;
    clean(&mut said);
    let request = Request::deserialize(&said).map_err(unread)?;
    let known = serde_json::to_value(&request).map_err(unread)?;
    match unknown(&said, &known) {
        Some(member) => Err(Unread::Newer(member)),
        None => Ok(Box::new(request)),
    }
}

/// The first member that asks for something, and that is not among those that are known.
fn unknown(said: &Value, known: &Value) -> Option<String> {
    // What is none, no, zero or empty asks for nothing.
    let asks = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
        _ => true,
    };
    let (said, known) = (said.as_object()?, known.as_object()?);
    said.iter().find_map(|(name, value)| match known.get(name) {
        None => asks(value).then(|| name.clone()),
        Some(known) => unknown(value, known).map(|member| format!("{name}.{member}")),
    })
}

/// Makes every text of the other side's one that can be printed.
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

/// A text without what steers a terminal, where it has any.
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
    fn messages_come_as_they_went() {
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
    fn what_is_asked_for_and_not_known_is_refused() {
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
            // What a newer version says where it is not used.
            for nothing in [Value::Null, Value::from(false), Value::from(0), Value::from(0.0), Value::Array(Vec::new())]
            {
                assert_eq!(read(path, nothing), Ok(true), "{path}");
            }
        }
    }

    #[test]
    fn plan_keeps_the_names_of_its_protocol() {
        // A server of the same protocol refuses a test for a name that it does not have: another name takes the next protocol.
        let names = "operation measure transport sizes_bytes amount is_endless queue_pairs threads tx_depth rx_depth post_list receive_list \
                     cq_moderation is_each_large_signaled is_bidirectional is_reversed inline_bytes mtu_bytes qp_timeout service_level \
                     traffic_class flow_label is_relaxed is_on_demand has_own_regions sleeps_on_events is_validated timeout_seconds \
                     rate_limit_gigabits_per_second burst_size gap_seconds interval_seconds counters uses_rdma_cm client server";
        assert_eq!(PROTOCOL, 4, "the names above are of protocol 4");
        let plan = serde_json::to_value(Plan::default()).unwrap();
        let missing: Vec<_> = names.split_whitespace().filter(|name| plan.get(name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?} is missing: {plan}");
    }

    #[test]
    fn texts_do_not_steer_the_terminal() {
        let body = serde_json::to_vec("\u{1b}[2Jgone\u{7}\nline").unwrap();
        let Message::Note(text) = Message::unpack(13, &body).unwrap() else { panic!() };
        assert_eq!(text, "\u{fffd}[2Jgone\u{fffd}\nline");
        let Message::Counted(Some(changes)) = Message::unpack(17, br#"{"\u001b[2Jx": 1, "y": 2}"#).unwrap() else {
            panic!()
        };
        assert_eq!(changes.to_string(), "y +2, \u{fffd}[2Jx +1");
    }

    #[test]
    fn depth_is_bounded() {
        assert!(Message::unpack(2, "[".repeat(1 << 20).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_a_panic(kind in 0_u16..20, body in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Message::unpack(kind, &body);
        }

        #[test]
        fn any_text_is_read_without_a_panic(kind in 0_u16..20, body in "[\\[\\]{}:,\"a-z0-9.-]{0,60}") {
            let _ = Message::unpack(kind, body.as_bytes());
        }
    }
}
