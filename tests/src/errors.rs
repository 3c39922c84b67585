//! The form of the errors that programs print.

/// Signs of debug output, which no error may contain.
const DEBUG: [&str; 5] = ["panicked", "backtrace", "VerbError", "Some(", "Os {"];

/// The text of the only error in a program's output, after `prefix`, such as `error: `.
///
/// # Panics
///
/// If the output has no error or several, or if the form is wrong. In the right form, the first word is in lower case
/// or an abbreviation, no full stop follows the last word, and nothing is debug output.
#[track_caller]
pub fn text<'a>(output: &'a str, prefix: &str) -> &'a str {
    let errors: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix(prefix)).collect();
    let &[error] = errors.as_slice() else { panic!("one line must start with `{prefix}`:\n{output}") };
    let word = error.split([' ', ':']).next().unwrap_or_default();
    let capitals = word.chars().filter(|letter| letter.is_uppercase()).count();
    let is_capitalized = word.starts_with(char::is_uppercase) && capitals == 1;
    assert!(!word.is_empty() && !is_capitalized, "the first word is in lower case or an abbreviation: {error}");
    assert!(!error.ends_with(['.', '!', '?']), "no full stop at the end: {error}");
    assert!(DEBUG.iter().all(|part| !output.contains(part)), "no debug output: {output}");
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_form_are_accepted() {
        for error in ["port 9 of soft0: no such port; use port 1", "GID index 9 is not in use", "--size is 0"] {
            assert_eq!(text(&format!("soft0\nerror: {error}\n"), "error: "), error);
        }
        for output in [
            "",
            "error: ",
            "error: one\nerror: two",
            "error: Cannot",
            "error: it failed.",
            "error: Some(1)",
            "Error: no",
        ] {
            std::panic::catch_unwind(|| text(output, "error: ").len()).unwrap_err();
        }
    }
}
