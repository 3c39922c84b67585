//! What a terminal has: colours, where there are any, and columns.

use anstyle::{AnsiColor, Style as Ansi};

/// How parts of the output look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Heads of columns.
    pub head: Ansi,
    /// What is beside the point.
    pub dim: Ansi,
    /// What is better.
    pub good: Ansi,
    /// What is worse, or missed.
    pub bad: Ansi,
    /// What is drawn.
    pub bar: Ansi,
}

impl Style {
    /// As letters alone: what is not for a terminal.
    pub fn plain() -> Self {
        Self::default()
    }

    /// In colours.
    pub fn coloured() -> Self {
        let of = |colour: AnsiColor| colour.on_default();
        Self {
            head: Ansi::new().bold(),
            dim: Ansi::new().dimmed(),
            good: of(AnsiColor::Green),
            bad: of(AnsiColor::Red),
            bar: of(AnsiColor::Cyan),
        }
    }

    /// In colours where a stream is a terminal that has them, and neither `NO_COLOR` nor the like speaks against it.
    pub fn of<S: anstream::stream::RawStream>(stream: &S) -> Self {
        match anstream::AutoStream::choice(stream) {
            anstream::ColorChoice::Never => Self::plain(),
            _ => Self::coloured(),
        }
    }
}

/// How many columns the terminal of the standard output has; what is none has 80.
pub fn columns() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_has_no_escapes() {
        let head = Style::plain().head;
        assert_eq!(format!("{head}x{head:#}"), "x");
        let head = Style::coloured().head;
        assert!(format!("{head}x{head:#}").contains('\u{1b}'));
    }

    #[test]
    fn what_is_no_terminal_has_no_colours() {
        assert_eq!(Style::of(&Vec::new()), Style::plain());
    }
}
