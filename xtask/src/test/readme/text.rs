//! Commands in a document, each with the output that the document shows.

use anyhow::{Result, ensure};

/// A block of code that a reader types into a shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its first command in the document.
    pub(super) line: usize,
    pub(super) commands: Vec<Command>,
}

/// A command as the document shows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// The text for the shell, without a prompt, a comment or `&`.
    pub(super) text: String,
    /// Whether the command runs beside the later commands of the block, in a terminal of its own or after `&`.
    pub(super) is_server: bool,
    /// The lines that it prints.
    pub(super) output: Vec<String>,
}

/// The blocks `console` and `sh` of a document. In `console`, a command follows a prompt. In `sh`, each line is one.
pub(super) fn blocks(document: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    // The kind of the block that the line is in.
    let mut kind = None;
    for (number, line) in (1..).zip(document.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match (kind, fence) {
            (None, Some(name)) => {
                kind = Some(name);
                blocks.extend(is_shell(name).then_some(Block { line: number + 1, commands: Vec::new() }));
            }
            (Some(_), Some(_)) => kind = None,
            (Some(name), None) if is_shell(name) => match blocks.last_mut() {
                Some(block) => block.add(line, name)?,
                None => anyhow::bail!("line {number}: in no block"),
            },
            _ => {}
        }
    }
    Ok(blocks)
}

fn is_shell(name: &str) -> bool {
    ["console", "sh"].contains(&name)
}

impl Block {
    fn add(&mut self, line: &str, kind: &str) -> Result<()> {
        if let Some(last) = self.commands.last_mut()
            && let Some(start) = last.text.strip_suffix('\\')
        {
            last.text = format!("{start}{}", line.trim_start());
            return Ok(());
        }
        let typed = if kind == "sh" { Some(line) } else { prompted(line) };
        match (typed, self.commands.last_mut()) {
            (Some(typed), _) => self.commands.push(Command::typed(typed)),
            // Empty lines separate commands.
            (None, _) if line.is_empty() => {}
            (None, Some(last)) => last.output.push(line.to_owned()),
            (None, None) => anyhow::bail!("line {}: output without a command", self.line),
        }
        let last = self.commands.last().map_or("", |last| &last.text);
        ensure!(!last.is_empty(), "line {}: a prompt without a command", self.line);
        Ok(())
    }
}

/// The text after the prompt `$ `, or after that of a host, such as `host1$ `.
fn prompted(line: &str) -> Option<&str> {
    let (host, typed) = line.split_once("$ ")?;
    host.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit()).then_some(typed)
}

impl Command {
    fn typed(text: &str) -> Self {
        let (text, comment) = text.split_once(" # ").unwrap_or((text, ""));
        let text = text.trim_end();
        let before = text.strip_suffix('&').or_else(|| Some(text.rsplit_once(" & sleep ")?.0));
        let is_server = before.is_some() || comment.trim_start_matches("the ").starts_with("server");
        Self { text: before.unwrap_or(text).trim_end().to_owned(), is_server, output: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str, is_server: bool, output: &[&str]) -> Command {
        Command { text: text.to_owned(), is_server, output: output.iter().map(|&line| line.to_owned()).collect() }
    }

    #[test]
    fn commands_are_read_with_their_output() {
        let text = "# A\n```console\n$ one -a   # why\nfirst\n…\n\nhost1$ two  # the server: on host1\n$ three & sleep 1\n\
                    $ four \\\n    five\n```\n```rust\n$ no\n```\n```sh\nsix '$ x'\nseven &\n```\n";
        let first = vec![
            command("one -a", false, &["first", "…"]),
            command("two", true, &[]),
            command("three", true, &[]),
            command("four five", false, &[]),
        ];
        let second = vec![command("six '$ x'", false, &[]), command("seven", true, &[])];
        let expected = [Block { line: 3, commands: first }, Block { line: 16, commands: second }];
        assert_eq!(blocks(text).unwrap(), expected);
    }

    #[test]
    fn output_without_a_command_is_an_error() {
        assert!(blocks("```console\nfirst\n```\n").unwrap_err().to_string().contains("without a command"));
        assert!(blocks("```console\n$ \n```\n").is_err());
    }
}
