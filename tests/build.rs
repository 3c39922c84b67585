//! Reads the committed bindings and generates the table that `tests/c/layout.rs` compares with C: every type with its
//! members, every constant with its value.
//!
//! Members of a type without a name in C are listed under the named type around it: `wr.rdma.rkey` of `ibv_send_wr`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

const MODULES: &[&str] = &["verbs", "rdma_cma", "mlx5dv", "mlx5_wqe_ctrl_seg", "efadv"];

/// A `struct` or a `union`, with its members: name and, if its first line has it, type.
struct Aggregate {
    keyword: &'static str,
    members: Vec<(String, String)>,
}

#[derive(Default)]
struct Parsed {
    aggregates: BTreeMap<String, Aggregate>,
    /// Enums with the Rust type of their values.
    enums: BTreeMap<String, String>,
    /// Constants with type and value.
    constants: Vec<(String, String, String)>,
}

fn main() {
    // Read when the script runs, because cargo does not compile it again if the repository's folder is moved.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let bindings = Path::new(&package).join("../rdma-mummy-sys/src/bindings");
    println!("cargo::rerun-if-changed={}", bindings.display());
    let mut out = String::new();
    for module in MODULES {
        let path = bindings.join(format!("{module}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        write_module(&mut out, module, &parse(&text));
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(folder.join("bindings_layout.rs"), out).expect("OUT_DIR can be written");
}

fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let item = line.trim();
        if let Some((keyword, name)) = opens_aggregate(line) {
            let members = lines.by_ref().take_while(|line| *line != "}").filter_map(member).collect();
            parsed.aggregates.insert(name.to_owned(), Aggregate { keyword, members });
        } else if let Some((name, value)) = item.strip_prefix("pub struct ").and_then(|rest| rest.split_once("(pub ")) {
            parsed.enums.insert(name.to_owned(), value.trim_end_matches(");").to_owned());
        } else if item.starts_with("pub const ") && item.contains(':') && !item.contains("fn ") {
            let mut whole = item.to_owned();
            while !whole.ends_with(';') {
                whole += lines.next().expect("a constant ends").trim();
            }
            parsed.constants.extend(constant(&whole));
        }
    }
    parsed
}

fn opens_aggregate(line: &str) -> Option<(&'static str, &str)> {
    ["struct", "union"].into_iter().find_map(|keyword| {
        let name = line.strip_prefix("pub ")?.strip_prefix(keyword)?.strip_suffix(" {")?.trim();
        (!name.contains('<')).then_some((keyword, name))
    })
}

/// A member that C can name; placeholders for contents that C hides are left out.
fn member(line: &str) -> Option<(String, String)> {
    let (name, kind) = line.strip_prefix("    pub ")?.split_once(": ")?;
    (name != "_address").then(|| (name.to_owned(), kind.trim_end_matches(',').to_owned()))
}

/// `pub const NAME: TYPE = VALUE;` or `pub const NAME: TYPE = TYPE(VALUE,);`
fn constant(item: &str) -> Option<(String, String, String)> {
    let (name, rest) = item.strip_prefix("pub const ")?.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    let value = value.trim_end_matches(';').trim_start_matches(kind).trim_matches(['(', ')', ',', ' ']);
    Some((name.to_owned(), kind.to_owned(), value.to_owned()))
}

fn write_module(out: &mut String, module: &str, parsed: &Parsed) {
    let path = format!("rdma_mummy_sys::bindings::{module}");
    writeln!(out, "const {}: Header = Header {{\n    types: &[", module.to_uppercase()).expect("a String grows");
    for (name, aggregate) in &parsed.aggregates {
        // An opaque type has no members, and C does not have its size either.
        if name.contains("__bindgen_ty_") || aggregate.members.is_empty() {
            continue;
        }
        let keyword = aggregate.keyword;
        writeln!(out, "        kind!({path}::{name}, \"{keyword} {name}\", [").expect("a String grows");
        write_members(out, parsed, &format!("{path}::{name}"), aggregate, "", "");
        writeln!(out, "        ]),").expect("a String grows");
    }
    for name in parsed.enums.keys() {
        writeln!(out, "        kind!({path}::{name}, \"enum {name}\", []),").expect("a String grows");
    }
    writeln!(out, "    ],\n    constants: &[").expect("a String grows");
    for (name, kind, value) in &parsed.constants {
        let of_enum = parsed.enums.get(kind).map_or(kind.as_str(), String::as_str);
        let wide = of_enum == "u64" || of_enum.ends_with("long") || of_enum.ends_with("longlong");
        let bits = if wide { 64 } else { 32 };
        writeln!(out, "        Constant {{ name: \"{name}\", value: {value}, bits: {bits} }},")
            .expect("a String grows");
    }
    writeln!(out, "    ],\n}};").expect("a String grows");
}

/// The members, each with its path in Rust (`rust`) and in C (`c`), and the members of its type if that has no name.
fn write_members(out: &mut String, parsed: &Parsed, whole: &str, aggregate: &Aggregate, rust: &str, c: &str) {
    for (name, kind) in &aggregate.members {
        let in_rust = format!("{rust}{name}");
        let in_c = if name.starts_with("__bindgen_anon_") { c.to_owned() } else { format!("{c}{}", c_name(name)) };
        if !in_c.is_empty() && !in_c.ends_with('.') {
            let array = if kind.starts_with("__IncompleteArrayField") { "unsized_member" } else { "member" };
            writeln!(out, "            {array}!({whole}, \"{in_c}\", {in_rust}),").expect("a String grows");
        }
        if let Some(inner) = parsed.aggregates.get(kind).filter(|_| kind.contains("__bindgen_ty_")) {
            let below = if in_c.is_empty() || in_c.ends_with('.') { in_c } else { format!("{in_c}.") };
            write_members(out, parsed, whole, inner, &format!("{in_rust}."), &below);
        }
    }
}

/// The C name of a member whose name is a Rust keyword.
fn c_name(name: &str) -> &str {
    match name.strip_suffix('_') {
        Some(word @ ("type" | "in" | "priv" | "match" | "ref" | "move" | "use")) => word,
        _ => name,
    }
}
