//! Commands as texts.

use std::io;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use rdma_mummy_sys::ibv_wc_status;

use super::{Device, Error, QueuePair, Refusal};

/// What a [`Command`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// `port down`: [`Device::port_down`].
    PortDown,
    /// `port up`: [`Device::port_up`].
    PortUp,
    /// `device remove`: [`Device::remove`].
    Remove,
    /// `device arrive`: [`Device::arrive`].
    Arrive,
    /// `address change`: [`Device::change_address`].
    ChangeAddress,
    /// `delay TIME`, such as `250us`, `10ms` or `1s`: [`Device::delay`].
    Delay(Duration),
    /// `rate BYTES` for each second, or `rate unlimited`: [`Device::limit_rate`].
    Rate(u64),
    /// `cut TIME`: [`Device::cut`]. Without a device, it applies to the iWARP devices.
    Cut(Duration),
    /// `corrupt`: [`Device::corrupt`]. Without a device, it applies to the iWARP devices.
    Corrupt,
    /// `memory BYTES` or `memory unlimited`: [`Device::limit_memory`].
    Memory(Option<u64>),
    /// `qp NUMBER fail STATUS`: [`QueuePair::fail`].
    Fail(u32, ibv_wc_status),
    /// `qp NUMBER refuse REASON`: [`QueuePair::refuse`].
    Refuse(u32, Refusal),
    /// `qp NUMBER fatal`: [`QueuePair::break_down`].
    BreakDown(u32),
    /// `counters`: [`Device::counters`]. Without a device, it applies to the RoCEv2 devices.
    Counters,
    /// `qp NUMBER counters`: [`QueuePair::counters`].
    CountersOf(u32),
}

/// A fault as a text: the words of the [`Action`], and then optionally `on` and the name of a device. Without a name, it
/// applies to all devices of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What the command does.
    pub action: Action,
    /// The name of the device.
    pub device: Option<String>,
}

impl Command {
    /// Executes the command. Returns the counters as a text, and an empty text after other commands.
    ///
    /// # Errors
    ///
    /// The [`Error`](enum@super::Error) of the first device that fails.
    pub fn run(&self) -> Result<String, Error> {
        let named = self.device.as_deref().map(Device::named).transpose()?;
        let pair = |number| named.map_or_else(|| QueuePair::numbered(number), |device| device.queue_pair(number));
        match self.action {
            Action::Fail(number, status) => pair(number)?.fail(status),
            Action::Refuse(number, refusal) => pair(number)?.refuse(refusal),
            Action::BreakDown(number) => pair(number)?.break_down(),
            Action::CountersOf(number) => return Ok(pair(number)?.counters()?.to_string()),
            Action::Counters => {
                let device = named.or_else(|| Device::all().find(|device| device.is_roce()));
                return Ok(device.map_or_else(|| Device::named("softroce0"), Ok)?.counters()?.to_string());
            }
            _ => self.run_on(named)?,
        }
        Ok(String::new())
    }

    /// Executes a command for one device, or for all.
    fn run_on(&self, named: Option<Device>) -> Result<(), Error> {
        let needs_connections = matches!(self.action, Action::Cut(_) | Action::Corrupt);
        let mut devices = named.map_or_else(|| Device::all().collect(), |device| vec![device]);
        if needs_connections && named.is_none() && devices.iter().any(|device| device.is_iwarp()) {
            devices.retain(|device| device.is_iwarp());
        }
        // Each device gets the command; the first error is that of the command.
        let each = devices.into_iter().map(|device| match self.action {
            Action::PortDown => device.port_down(),
            Action::PortUp => device.port_up(),
            Action::Remove => device.remove(),
            Action::Arrive => device.arrive(),
            Action::ChangeAddress => device.change_address(),
            Action::Delay(delay) => device.delay(delay),
            Action::Rate(rate) => device.limit_rate(rate),
            Action::Memory(limit) => device.limit_memory(limit),
            Action::Cut(time) => device.cut(time),
            Action::Corrupt => device.corrupt(),
            _ => Ok(()),
        });
        each.fold(Ok(()), Result::and)
    }
}

impl FromStr for Command {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = Words(text.split_whitespace());
        let action = words.choose::<Rest>(&[
            ("port", port),
            ("device", device),
            ("address", address),
            ("delay", delay),
            ("rate", rate),
            ("cut", |words| time(words).map(Action::Cut)),
            ("corrupt", |_| Ok(Action::Corrupt)),
            ("memory", memory),
            ("counters", |_| Ok(Action::Counters)),
            ("qp", queue_pair),
        ])?(&mut words)?;
        let device = match words.0.next() {
            None => None,
            Some("on") => Some(words.next("the name of a device")?.to_owned()),
            Some(other) => return Err(unexpected(Some(other), "the end, or on DEVICE")),
        };
        match words.0.next() {
            None => Ok(Self { action, device }),
            other => Err(unexpected(other, "the end")),
        }
    }
}

/// The words of a command.
struct Words<'t>(SplitWhitespace<'t>);

impl<'t> Words<'t> {
    fn next(&mut self, expected: &str) -> Result<&'t str, ParseError> {
        self.0.next().ok_or_else(|| unexpected(None, expected))
    }

    /// Takes a number, or `unlimited`.
    fn limit(&mut self, expected: &str) -> Result<Option<u64>, ParseError> {
        match self.next(expected)? {
            "unlimited" => Ok(None),
            word => {
                word.parse().ok().filter(|limit| *limit > 0).map(Some).ok_or_else(|| unexpected(Some(word), expected))
            }
        }
    }

    /// Takes a word, and returns its value.
    fn choose<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, ParseError> {
        let word = self.0.next();
        let found = choices.iter().find(|(choice, _)| Some(*choice) == word);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
            unexpected(word, &words.join(", "))
        })
    }
}

/// Parses the words after the first one.
type Rest = fn(&mut Words<'_>) -> Result<Action, ParseError>;

fn port(words: &mut Words<'_>) -> Result<Action, ParseError> {
    words.choose(&[("down", Action::PortDown), ("up", Action::PortUp)])
}

fn device(words: &mut Words<'_>) -> Result<Action, ParseError> {
    words.choose(&[("remove", Action::Remove), ("arrive", Action::Arrive)])
}

fn address(words: &mut Words<'_>) -> Result<Action, ParseError> {
    words.choose(&[("change", Action::ChangeAddress)])
}

fn delay(words: &mut Words<'_>) -> Result<Action, ParseError> {
    time(words).map(Action::Delay)
}

fn time(words: &mut Words<'_>) -> Result<Duration, ParseError> {
    const UNITS: [(&str, u64); 3] = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
    let expected = "a time such as 250us, 10ms or 1s";
    let word = words.next(expected)?;
    let time = UNITS.iter().find_map(|(unit, factor)| {
        let number: u64 = word.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*factor).map(Duration::from_micros)
    });
    time.ok_or_else(|| unexpected(Some(word), expected))
}

fn rate(words: &mut Words<'_>) -> Result<Action, ParseError> {
    words.limit("bytes per second, or unlimited").map(|limit| Action::Rate(limit.unwrap_or(0)))
}

fn memory(words: &mut Words<'_>) -> Result<Action, ParseError> {
    words.limit("bytes, or unlimited").map(Action::Memory)
}

fn queue_pair(words: &mut Words<'_>) -> Result<Action, ParseError> {
    type Status = ibv_wc_status;
    let expected = "the number of a queue pair";
    let word = words.next(expected)?;
    let number = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    let number = number.map_err(|_| unexpected(Some(word), expected))?;
    let rest: fn(&mut Words<'_>, u32) -> Result<Action, ParseError> = words.choose::<RestOfPair>(&[
        ("fail", |words, number| {
            let status = words.choose(&[
                ("retry_exc", Status::IBV_WC_RETRY_EXC_ERR),
                ("rnr_retry_exc", Status::IBV_WC_RNR_RETRY_EXC_ERR),
                ("rem_access", Status::IBV_WC_REM_ACCESS_ERR),
                ("rem_inv_req", Status::IBV_WC_REM_INV_REQ_ERR),
                ("rem_op", Status::IBV_WC_REM_OP_ERR),
                ("loc_prot", Status::IBV_WC_LOC_PROT_ERR),
                ("loc_len", Status::IBV_WC_LOC_LEN_ERR),
                ("loc_qp_op", Status::IBV_WC_LOC_QP_OP_ERR),
                ("bad_resp", Status::IBV_WC_BAD_RESP_ERR),
            ]);
            status.map(|status| Action::Fail(number, status))
        }),
        ("refuse", |words, number| {
            let reasons =
                [("access", Refusal::Access), ("invalid", Refusal::Invalid), ("operation", Refusal::Operation)];
            words.choose(&reasons).map(|refusal| Action::Refuse(number, refusal))
        }),
        ("fatal", |_, number| Ok(Action::BreakDown(number))),
        ("counters", |_, number| Ok(Action::CountersOf(number))),
    ])?;
    rest(words, number)
}

/// Parses the words after the number of a queue pair.
type RestOfPair = fn(&mut Words<'_>, u32) -> Result<Action, ParseError>;

fn unexpected(word: Option<&str>, expected: &str) -> ParseError {
    ParseError { word: word.map(str::to_owned), expected: expected.to_owned() }
}

/// A text is not a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid command: {}; expected {expected}", match .word {
    Some(word) => format!("unexpected word {word:?}"),
    None => "it is incomplete".to_owned(),
})]
pub struct ParseError {
    word: Option<String>,
    expected: String,
}

impl From<ParseError> for io::Error {
    fn from(error: ParseError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_has_an_action_and_a_device() {
        let parsed = |text: &str| text.parse::<Command>().map(|Command { action, device }| (action, device));
        assert_eq!(parsed("port down"), Ok((Action::PortDown, None)));
        assert_eq!(parsed("device remove"), Ok((Action::Remove, None)));
        assert_eq!(parsed("device arrive"), Ok((Action::Arrive, None)));
        let ten = Duration::from_millis(10);
        let actions = [
            ("address change", Action::ChangeAddress),
            ("delay 10ms", Action::Delay(ten)),
            ("rate 5", Action::Rate(5)),
            ("rate unlimited", Action::Rate(0)),
            ("cut 10ms", Action::Cut(ten)),
            ("corrupt", Action::Corrupt),
            ("memory 4096", Action::Memory(Some(4096))),
            ("memory unlimited", Action::Memory(None)),
            ("qp 7 fail rem_op", Action::Fail(7, ibv_wc_status::IBV_WC_REM_OP_ERR)),
            ("qp 7 refuse access", Action::Refuse(7, Refusal::Access)),
            ("qp 7 fatal", Action::BreakDown(7)),
            ("counters", Action::Counters),
            ("qp 0x7 counters", Action::CountersOf(7)),
        ];
        for (text, action) in actions {
            assert_eq!(parsed(text), Ok((action, None)), "{text}");
        }
        for text in
            ["delay 10", "delay 99999999999999999999s", "rate 0", "rate -1", "memory x", "qp x fatal", "qp 1 fail ok"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert_eq!(parsed(" port  up on soft1 "), Ok((Action::PortUp, Some("soft1".to_owned()))));
    }

    #[test]
    fn error_names_the_word_and_the_accepted_ones() {
        let error = |text: &str| text.parse::<Command>().unwrap_err().to_string();
        assert_eq!(error("port dwon"), "invalid command: unexpected word \"dwon\"; expected down, up");
        assert_eq!(error("port"), "invalid command: it is incomplete; expected down, up");
        assert_eq!(error("port up on"), "invalid command: it is incomplete; expected the name of a device");
        let expected = "invalid command: unexpected word \"soft0\"; expected the end, or on DEVICE";
        assert_eq!(error("port up soft0"), expected);
        assert_eq!(error("port up on a b"), "invalid command: unexpected word \"b\"; expected the end");
        for text in ["", " ", "prt", "\0", "on soft0"] {
            assert!(error(text).contains("expected port"), "{text:?}");
        }
    }
}
