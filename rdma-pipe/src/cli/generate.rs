//! Prints man pages and completions.

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::error::Result;
use crate::show::print;

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
pub(super) fn printed<C: CommandFactory>(program: &str) -> Option<Result<()>> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != "--generate") {
        return None;
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
                return None;
            }
        }
        Some(Page::Bash) => complete(Shell::Bash, &mut command, &mut out),
        Some(Page::Zsh) => complete(Shell::Zsh, &mut command, &mut out),
        Some(Page::Fish) => complete(Shell::Fish, &mut command, &mut out),
        None => return None,
    }
    Some(print(&String::from_utf8_lossy(&out)))
}
