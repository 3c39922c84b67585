//! Parses the segments of a command line.

use super::Action;

/// An operand of `rdpipe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// `[user@]host`; `None` means this host.
    pub host: Option<String>,
    /// The command to run or the file to use.
    pub action: Action,
}

impl Operand {
    /// Whether the output is the next segment's input.
    pub fn has_output(&self) -> bool {
        matches!(self.action, Action::Run(_) | Action::Read(_))
    }
}

/// Parses `HOST:COMMAND`, or `COMMAND` for this host. A command that consists of `<`, `>` or `>>` and one word reads or
/// writes that file.
pub fn parse(text: &str) -> Operand {
    let is_host = |host: &str| {
        let is_plain = |letter: char| letter.is_alphanumeric() || "._-@[]:%".contains(letter);
        !host.is_empty() && host.chars().all(is_plain) && (!host.contains(':') || host.contains('['))
    };
    let (host, command) = match text.split_once("]:").filter(|(host, _)| host.contains('[')) {
        Some((host, command)) if is_host(host) => (Some(host.replace('[', "")), command),
        _ => match text.split_once(':') {
            Some((host, command)) if is_host(host) => (Some(host.to_owned()), command),
            _ => (None, text),
        },
    };
    Operand { host, action: action(command) }
}

fn action(command: &str) -> Action {
    let trimmed = command.trim();
    let file = |rest: &str| {
        let path = rest.trim();
        let is_word = !path.is_empty()
            && !path.contains(|letter: char| letter.is_whitespace() || "|;&<>()$`\"'\\*?".contains(letter));
        is_word.then(|| path.to_owned())
    };
    // Anything other than a single file name is passed to the shell.
    let lifted = if let Some(rest) = trimmed.strip_prefix(">>") {
        file(rest).map(Action::Append)
    } else if let Some(rest) = trimmed.strip_prefix('>') {
        file(rest).map(Action::Write)
    } else {
        trimmed.strip_prefix('<').and_then(file).map(Action::Read)
    };
    lifted.unwrap_or_else(|| Action::Run(command.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(host: Option<&str>, command: &str) -> Operand {
        Operand { host: host.map(str::to_owned), action: Action::Run(command.to_owned()) }
    }

    #[test]
    fn hosts_and_commands_are_distinguished() {
        assert_eq!(parse("host:wc -c"), run(Some("host"), "wc -c"));
        assert_eq!(parse("u@h-1.x:tr [:lower:] [:upper:]"), run(Some("u@h-1.x"), "tr [:lower:] [:upper:]"));
        assert_eq!(parse("tr [:lower:] [:upper:]"), run(None, "tr [:lower:] [:upper:]"));
        assert_eq!(parse("zfs send tank@s"), run(None, "zfs send tank@s"));
        assert_eq!(parse("[::1]:cat"), run(Some("::1"), "cat"));
    }

    #[test]
    fn files_are_lifted_in_and_out() {
        let file = |text: &str| parse(text).action;
        assert_eq!(file("h:< a"), Action::Read("a".to_owned()));
        assert_eq!(file("h:> TEXT"), Action::Write("TEXT".to_owned()));
        assert_eq!(file("h:>>sums"), Action::Append("sums".to_owned()));
        assert_eq!(file("h:> a b"), Action::Run("> a b".to_owned()));
        assert_eq!(file("h:> $HOME/a"), Action::Run("> $HOME/a".to_owned()));
        assert_eq!(file("h:tee >(wc) | cat"), Action::Run("tee >(wc) | cat".to_owned()));
    }
}
