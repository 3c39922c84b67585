//! Compares the library's exports with the headers' declarations and with the exports of rdma-core's libraries.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::linking::flags;
use super::{Door, said, well};
use crate::capi::SOURCES;
use crate::repo::root;

/// The headers of the two libraries.
const HEADERS: [&str; 5] =
    ["infiniband/verbs.h", "infiniband/sa.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h"];
/// The symbol version of all exports of the library.
const VERSION: &str = "RDMA_MUMMY_0";
/// Functions that rdma-core's libraries export for programs and this one does not.
const LEFT_OUT: [&str; 1] = [
    // Old drivers called this function when they were loaded. No header declares it any more.
    "ibv_register_driver",
];

/// Checks that both libraries have each function that the headers declare without a definition. The error names missing
/// functions and functions that do not link.
pub(super) fn declared(door: &Door) -> Result<()> {
    let declared = prototypes(door)?;
    for known in ["ibv_open_device", "rdma_connect", "rdma_create_srq", "rsocket"] {
        ensure!(declared.contains(known), "the compiler does not report that the headers declare {known}");
    }
    for file in [door.built.shared(), door.built.archive()] {
        missing(&declared, &names(&file)?, &file)?;
    }
    let mut text = String::from("#define _GNU_SOURCE\n");
    for header in HEADERS {
        writeln!(text, "#include <{header}>")?;
    }
    // Removes macros of the same names.
    for name in &declared {
        writeln!(text, "#undef {name}")?;
    }
    text.push_str("#include <stdio.h>\n\nstatic void *const all[] = {\n");
    for name in &declared {
        writeln!(text, "\t(void *){name},")?;
    }
    text.push_str("};\n\nint main(void)\n{\n\tfor (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)\n");
    text.push_str("\t\tif (!all[i])\n\t\t\treturn 1;\n\tputs(\"all is well\");\n\treturn 0;\n}\n");
    let source = door.programs.join("every_function.c");
    std::fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
    let (one, other) = (source.with_extension("static"), source.with_extension("shared"));
    door.built.compile(&source, &one)?;
    door.built.compile_shared(&source, &other)?;
    well(Command::new(one), "all is well")?;
    well(Command::new(other), "all is well")
}

/// Checks that both libraries have each function that rdma-core's libraries export for programs, except those left out
/// on purpose.
pub(super) fn exported(door: &Door) -> Result<()> {
    let mut wanted = BTreeSet::new();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        let file = said(Command::new("cc").arg(format!("-print-file-name={library}")))?;
        let file = Path::new(file.trim());
        ensure!(file.is_absolute(), "cc does not find {library}");
        let public = symbols(file)?.into_iter().filter(|symbol| !symbol.version.contains("_PRIVATE"));
        let (data, functions): (Vec<_>, Vec<_>) =
            public.partition(|symbol| !matches!(symbol.kind.as_str(), "T" | "W" | "i"));
        ensure!(data.is_empty(), "{} exports more than functions: {data:?}", file.display());
        ensure!(!functions.is_empty(), "{} exports nothing", file.display());
        wanted.extend(functions.into_iter().map(|symbol| symbol.name));
    }
    for name in LEFT_OUT {
        ensure!(wanted.remove(name), "{name} is left out, but no library exports it");
    }
    for file in [door.built.shared(), door.built.archive()] {
        missing(&wanted, &names(&file)?, &file)?;
    }
    Ok(())
}

/// Exports have the library's own version, and a program with the static library exports none of them. rdma-core's
/// libraries in the same process therefore bind to none of these functions.
pub(super) fn versions(door: &Door) -> Result<()> {
    let all = symbols(&door.built.shared())?;
    ensure!(!all.is_empty(), "the shared library exports nothing");
    let others: Vec<_> = all.iter().filter(|symbol| symbol.version != VERSION).collect();
    ensure!(others.is_empty(), "not of version {VERSION}: {others:?}");
    let (source, program) = (root()?.join(SOURCES).join("examples/devices.c"), door.programs.join("exporting"));
    said(
        Command::new("cc")
            .arg("-rdynamic")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(flags(door, "rdma_mummy-static")?),
    )?;
    ensure!(names(&program)?.contains("main"), "{} exports nothing at all", program.display());
    let leaked: Vec<_> = symbols(&program)?.into_iter().filter(|symbol| symbol.name.contains("ibv_")).collect();
    ensure!(leaked.is_empty(), "{} exports {leaked:?}", program.display());
    Ok(())
}

fn missing(wanted: &BTreeSet<String>, there: &BTreeSet<String>, file: &Path) -> Result<()> {
    let missing: Vec<&str> = wanted.difference(there).map(String::as_str).collect();
    ensure!(missing.is_empty(), "{} lacks {}", file.display(), missing.join(" "));
    Ok(())
}

/// A symbol that an object exports.
#[derive(Debug)]
struct Symbol {
    kind: String,
    name: String,
    version: String,
}

/// The dynamic symbols of an object.
fn symbols(file: &Path) -> Result<Vec<Symbol>> {
    let text = said(Command::new("nm").args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(file))?;
    Ok(text.lines().filter_map(symbol).collect())
}

/// A line of nm: address, kind, and name with version; the versions themselves are lines too.
fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace().rev();
    let (full, kind) = (words.next()?, words.next()?);
    let (name, version) = full.split_once('@').unwrap_or((full, ""));
    let is_version = kind == "A";
    (!is_version).then(|| Symbol {
        kind: kind.to_owned(),
        name: name.to_owned(),
        version: version.trim_start_matches('@').to_owned(),
    })
}

/// The global symbols of an object or an archive, for the linker.
fn names(file: &Path) -> Result<BTreeSet<String>> {
    if file.extension().is_some_and(|extension| extension == "a") {
        let text = said(Command::new("nm").args(["--extern-only", "--defined-only"]).arg(file))?;
        return Ok(text.lines().filter_map(symbol).map(|symbol| symbol.name).collect());
    }
    Ok(symbols(file)?.into_iter().map(|symbol| symbol.name).collect())
}

/// The functions that the headers declare and leave to a library, from the compiler's list.
fn prototypes(door: &Door) -> Result<BTreeSet<String>> {
    let source = door.programs.join("headers.c");
    let mut text = String::from("#define _GNU_SOURCE\n");
    for header in HEADERS {
        writeln!(text, "#include <{header}>")?;
    }
    std::fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
    let list = source.with_extension("aux");
    said(Command::new("cc").arg("-fsyntax-only").arg("-aux-info").arg(&list).arg(&source))?;
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let (defined, declared): (Vec<_>, Vec<_>) =
        text.lines().filter_map(prototype).partition(|(_, is_defined)| *is_defined);
    let defined: BTreeSet<String> = defined.into_iter().map(|(name, _)| name).collect();
    Ok(declared.into_iter().map(|(name, _)| name).filter(|name| !defined.contains(name)).collect())
}

/// A line of gcc's list: `/* FILE:LINE:NC */ extern int name (int);`, where `C` is a declaration and `F` a definition.
/// The name, and whether it is defined; none for other headers.
fn prototype(line: &str) -> Option<(String, bool)> {
    let (place, declaration) = line.strip_prefix("/* ")?.split_once(" */ ")?;
    let mut parts = place.rsplit(':');
    let (kind, _line, file) = (parts.next()?, parts.next()?, parts.next()?);
    let is_header = HEADERS.iter().any(|header| file.ends_with(&format!("/{header}")));
    let before = declaration.split_once(" (")?.0;
    let name = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    is_header.then(|| (name.to_owned(), kind.ends_with('F')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_compiler_are_parsed() {
        let of = |text: &str| prototype(&format!("/* /usr/include/{text}"));
        let name = |name: &str, is_defined| Some((name.to_owned(), is_defined));
        assert_eq!(of("infiniband/verbs.h:5:NC */ extern const char *ibv_x (enum a);"), name("ibv_x", false));
        assert_eq!(of("rdma/rdma_cma.h:5:NC */ extern struct b **rdma_x (int *);"), name("rdma_x", false));
        assert_eq!(of("rdma/rsocket.h:17:NF */ static int r2 (int (*)(void));"), name("r2", true));
        assert_eq!(of("stdio.h:5:NC */ extern int puts (const char *);"), None);
    }

    #[test]
    fn lines_of_nm_are_parsed() {
        let of = |line: &str| symbol(line).map(|symbol| (symbol.kind, symbol.name, symbol.version));
        let owned = |kind: &str, name: &str, version: &str| Some((kind.into(), name.into(), version.into()));
        assert_eq!(of("0000000000010dd0 T ibv_x@@IBVERBS_1.1"), owned("T", "ibv_x", "IBVERBS_1.1"));
        assert_eq!(of("0000000000010dd0 T ibv_x@IBVERBS_1.0"), owned("T", "ibv_x", "IBVERBS_1.0"));
        assert_eq!(of("0000000000010dd0 W w"), owned("W", "w", ""));
        assert_eq!(of("0000000000000000 A IBVERBS_1.1"), None);
        assert_eq!(of(""), None);
    }
}
