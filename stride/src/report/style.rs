//! Terminal colours and width.

use anstyle::{AnsiColor, Style as Ansi};

/// Styles of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Column heads.
    pub head: Ansi,
    /// Secondary information.
    pub dim: Ansi,
    /// Improvements.
    pub good: Ansi,
    /// Regressions and missed limits.
    pub bad: Ansi,
    /// Bars of the histogram.
    pub bar: Ansi,
}

impl Style {
    /// No colours, for output that is not a terminal.
    pub fn plain() -> Self {
        Self::default()
    }

    /// With colours.
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

    /// With colours, if the stream is a terminal that supports them and `NO_COLOR` or the like is not set.
    pub fn of<S: anstream::stream::RawStream>(stream: &S) -> Self {
        match anstream::AutoStream::choice(stream) {
            anstream::ColorChoice::Never => Self::plain(),
            _ => Self::coloured(),
        }
    }
}

/// The width of the terminal on standard output; 80 if it is not a terminal.
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
    fn output_without_terminal_has_no_colours() {
        assert_eq!(Style::of(&Vec::new()), Style::plain());
    }
}
