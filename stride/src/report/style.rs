//! The colours of the output, and the width of the terminal.

use anstyle::{AnsiColor, Style as Ansi};

/// The styles of the parts of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Style of column heads.
    pub head: Ansi,
    /// Style of secondary information.
    pub dim: Ansi,
    /// Style of improvements.
    pub good: Ansi,
    /// Style of regressions and of missed limits.
    pub bad: Ansi,
    /// Style of the bars of the histogram.
    pub bar: Ansi,
}

impl Style {
    /// Returns styles without colours, for output that is not a terminal.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Returns styles with colours.
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

    /// Returns styles with colours if the stream is a terminal that supports them and neither `NO_COLOR` nor a similar
    /// variable is set.
    pub fn of<S: anstream::stream::RawStream>(stream: &S) -> Self {
        match anstream::AutoStream::choice(stream) {
            anstream::ColorChoice::Never => Self::plain(),
            _ => Self::coloured(),
        }
    }
}

/// Returns the width of the terminal on standard output, or 80 if standard output is not a terminal.
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
