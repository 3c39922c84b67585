//! The installed rdma-core headers: their release, and the functions that they define inline.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::requirements::did_not_run;

/// Whether the installed headers have the release of the bindings; if not, reports it with [`did_not_run`].
/// Another release has other types.
///
/// # Panics
///
/// If they differ and [`REQUIRE_C_TESTS`](crate::requirements::REQUIRE_C_TESTS) is `1`.
#[track_caller]
pub fn are_those_of_the_bindings() -> bool {
    let wanted = release_of_the_bindings();
    match installed_release() {
        Some(installed) if installed == wanted => true,
        Some(installed) => {
            did_not_run(&format!("the headers are from rdma-core {installed}, the bindings from {wanted}"));
            false
        }
        None => {
            did_not_run("pkg-config does not report the libibverbs version of the headers");
            false
        }
    }
}

/// The release in the first line of the generated bindings.
fn release_of_the_bindings() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-mummy-sys/src/bindings/verbs.rs");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let release = text.lines().next().and_then(|line| line.split_once("rdma-core ")?.1.split_once(';'));
    release.map(|(release, _)| release.to_owned()).unwrap_or_default()
}

/// The version from pkg-config: libibverbs 1.14.44.0 belongs to rdma-core 44.0.
fn installed_release() -> Option<String> {
    let output = Command::new("pkg-config").args(["--modversion", "libibverbs"]).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    let (_, release) = version.trim().split_once('.')?.1.split_once('.')?;
    Some(release.to_owned())
}

/// The names of the functions that a header defines inline, in its order.
///
/// # Errors
///
/// The header could not be read.
pub fn inlines(header: &str) -> std::io::Result<Vec<String>> {
    let text = fs::read_to_string(Path::new("/usr/include").join(header))?;
    Ok(inlines_of(&text))
}

fn inlines_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("static ") {
        let rest = text[at..].trim_start_matches("static ");
        let Some(signature) = ["inline", "MLX5DV_ALWAYS_INLINE"].iter().find_map(|word| rest.strip_prefix(word)) else {
            continue;
        };
        let before = signature.split('(').next().unwrap_or_default().trim_end();
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        names.push(before[start..].to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::inlines_of;

    #[test]
    fn definition_over_several_lines_is_found() {
        let text = "static inline struct ibv_mr *\nrdma_reg(int a)\n{\n}\nstatic MLX5DV_ALWAYS_INLINE\nvoid set(int b)\n{}\n\
                    int plain(void);\nstatic inline struct ibv_cq *cast(void) {}\n";
        assert_eq!(inlines_of(text), ["rdma_reg", "set", "cast"]);
    }
}
