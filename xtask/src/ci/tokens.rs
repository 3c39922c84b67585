//! How often a Rust file says `unsafe`, and of what: told by its tokens, so that macros count as what they expand to does.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What is unsafe in a file, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// `unsafe { … }`: where somebody has proved something.
    pub(super) blocks: usize,
    /// `unsafe fn`: where callers have to, and functions that C calls.
    pub(super) functions: usize,
    /// `unsafe impl`, and the traits that they are of.
    pub(super) impls: usize,
    /// `unsafe extern { … }` and `#[unsafe(no_mangle)]`.
    pub(super) linkage: usize,
}

impl Counts {
    /// Those of a file.
    pub(super) fn of(source: &str) -> Result<Self> {
        let tokens: TokenStream =
            source.parse().map_err(|error| anyhow!("it is not made of Rust's tokens: {error}"))?;
        let mut counts = Self::default();
        counts.add_tokens(tokens);
        Ok(counts)
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.functions += other.functions;
        self.impls += other.impls;
        self.linkage += other.linkage;
    }

    /// Whether there is nothing unsafe.
    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "unsafe" => self.add_item(&tokens[index + 1..]),
                _ => {}
            }
        }
    }

    /// Adds what the tokens behind `unsafe` begin.
    fn add_item(&mut self, rest: &[TokenTree]) {
        let word = |at: usize| match rest.get(at) {
            Some(TokenTree::Ident(ident)) => ident.to_string(),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => "{".to_owned(),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => "(".to_owned(),
            Some(TokenTree::Literal(_)) => "\"".to_owned(),
            _ => String::new(),
        };
        // `extern` may name an ABI.
        let behind = if word(1) == "\"" { 2 } else { 1 };
        match (word(0).as_str(), word(behind).as_str()) {
            ("{", _) => self.blocks += 1,
            // With parentheses at once it is the type of a pointer, which nobody proves anything for.
            ("fn", "(") => {}
            ("fn", _) => self.functions += 1,
            ("extern", "fn") => self.functions += usize::from(word(behind + 1) != "("),
            ("impl" | "trait", _) => self.impls += 1,
            ("extern", "{") | ("(", _) => self.linkage += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    fn of(source: &str) -> [usize; 4] {
        let Counts { blocks, functions, impls, linkage } = Counts::of(source).unwrap();
        [blocks, functions, impls, linkage]
    }

    #[test]
    fn each_kind_is_counted() {
        assert_eq!(of("fn f() { unsafe { g(); unsafe { h() } } }"), [2, 0, 0, 0]);
        assert_eq!(of("unsafe fn f(); pub unsafe extern \"C\" fn g() {} unsafe extern fn h() {}"), [0, 3, 0, 0]);
        assert_eq!(of("unsafe trait T {} unsafe impl<X> T for X {}"), [0, 0, 2, 0]);
        assert_eq!(of("unsafe extern \"C\" { fn f(); } #[unsafe(no_mangle)] fn g() {}"), [0, 0, 0, 2]);
    }

    #[test]
    fn types_texts_and_comments_do_not_count() {
        assert_eq!(of("type F = unsafe extern \"C\" fn(u8); type G = unsafe fn(); // unsafe { }"), [0; 4]);
        assert_eq!(of("/// unsafe { }\nconst TEXT: &str = \"unsafe { }\"; fn unsafe_(r#unsafe_: u8) {}"), [0; 4]);
    }

    #[test]
    fn macros_count_as_what_they_make() {
        assert_eq!(
            of("macro_rules! m { ($n:ident) => { unsafe fn $n() { unsafe { f() } } }; } m!(unsafe { f() });"),
            [2, 1, 0, 0]
        );
    }

    #[test]
    fn what_is_no_rust_is_an_error() {
        assert!(Counts::of("fn f( {").is_err());
    }
}
