//! Commands as texts.

use std::str::{FromStr, SplitWhitespace};

use super::{Device, Error};

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
    /// Executes the command.
    ///
    /// # Errors
    ///
    /// The [`Error`] of the first device that fails.
    pub fn run(&self) -> Result<(), Error> {
        let devices = match &self.device {
            Some(name) => vec![Device::named(name)?],
            None => Device::all().collect(),
        };
        devices.into_iter().try_for_each(|device| match self.action {
            Action::PortDown => device.port_down(),
            Action::PortUp => device.port_up(),
            Action::Remove => device.remove(),
            Action::Arrive => device.arrive(),
        })
    }
}

impl FromStr for Command {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = Words(text.split_whitespace());
        let action = words.choose::<Rest>(&[("port", port), ("device", device)])?(&mut words)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_has_an_action_and_a_device() {
        let parsed = |text: &str| text.parse::<Command>().map(|Command { action, device }| (action, device));
        assert_eq!(parsed("port down"), Ok((Action::PortDown, None)));
        assert_eq!(parsed("device remove"), Ok((Action::Remove, None)));
        assert_eq!(parsed("device arrive"), Ok((Action::Arrive, None)));
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
