//! Changes to bindgen's output for which bindgen has no option.

/// Restricts the layout assertions to the targets for which they were computed: sizes of `pthread_mutex_t` and of
/// `long` differ elsewhere.
pub(crate) fn gate_layout_assertions(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_assertion = line.starts_with("#[allow(clippy::unnecessary_operation")
            && lines.peek().is_some_and(|next| next.starts_with("const _: () ="));
        if opens_assertion {
            out.push_str("#[cfg(all(target_os = \"linux\", target_arch = \"x86_64\"))]\n");
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}
