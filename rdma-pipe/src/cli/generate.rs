//! Prints man pages and completions.

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::io;

/// What `--generate` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// The manual page.
    Man,
    /// Completions of bash.
    Bash,
    /// Completions of zsh.
    Zsh,
    /// Completions of fish.
    Fish,
}

/// Prints a page if the command line requests one. Call this before parsing, because `--generate` needs no other
/// argument.
pub(super) fn printed<C: CommandFactory>(program: &str) -> bool {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != "--generate") {
        return false;
    }
    let page = arguments.next().and_then(|name| Page::from_str(name.to_str()?, true).ok());
    let mut command = C::command();
    let mut out = Vec::new();
    let complete = |shell: Shell, command: &mut clap::Command, out: &mut Vec<u8>| {
        clap_complete::generate(shell, command, program, out);
    };
    match page {
        Some(Page::Man) => {
            if clap_mangen::Man::new(command).render(&mut out).is_err() {
                return false;
            }
        }
        Some(Page::Bash) => complete(Shell::Bash, &mut command, &mut out),
        Some(Page::Zsh) => complete(Shell::Zsh, &mut command, &mut out),
        Some(Page::Fish) => complete(Shell::Fish, &mut command, &mut out),
        None => return false,
    }
    // If standard output is closed, there is no reader to inform.
    _ = io::Write::write_all(&mut io::stdout(), &out);
    true
}
