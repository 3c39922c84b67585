//! HTML under construction.

use std::fmt::{Display, Write};

/// HTML under construction. Markup has to be `'static`, so text from a file can only become an escaped value.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends a template, in which each `{}` stands for the next value. Attributes in templates are quoted.
    pub(super) fn add(&mut self, template: &'static str, values: &[&dyn Display]) {
        let mut parts = template.split("{}");
        self.raw(parts.next().unwrap_or_default());
        debug_assert_eq!(parts.clone().count(), values.len(), "{template}");
        for (part, value) in parts.zip(values) {
            // Writing to a string does not fail.
            let _ = write!(Escaped(&mut self.0), "{value}");
            self.raw(part);
        }
    }

    /// Appends markup, or a style sheet or script, in which `{}` has no meaning.
    pub(super) fn raw(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Escapes what is written to it, for contents of elements and for quoted attributes. Replaces control characters,
/// including those that reverse the direction of text.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(letter),
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                _ if letter.is_control() => self.0.push('\u{fffd}'),
                _ => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_markup_is_not() {
        let mut html = Html::default();
        html.add("<a title=\"{}\">{}</a>", &[&"\"'><script>", &"a & \u{0}\u{202e}{}\u{9b}"]);
        let expected = "<a title=\"&quot;&#39;&gt;&lt;script&gt;\">a &amp; \u{fffd}\u{fffd}{}\u{fffd}</a>";
        assert_eq!(html.into_text(), expected);
    }
}
