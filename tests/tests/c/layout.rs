//! The layout of every type and the value of every constant of the bindings, compared with the C compiler's.
//!
//! bindgen asserts its own layout at compile time; this test queries the C compiler.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write;
use std::path::Path;

use sideway_tests::{headers, requirements};

/// The contents of the bindings of one header.
struct Header {
    types: &'static [Kind],
    constants: &'static [Constant],
}

/// A type, measured in Rust.
struct Kind {
    name: &'static str,
    size: usize,
    align: usize,
    members: &'static [Member],
}

/// A member by its C path, with no size if C has none for it.
struct Member {
    path: &'static str,
    offset: usize,
    size: Option<usize>,
}

struct Constant {
    name: &'static str,
    value: i128,
    bits: u32,
}

macro_rules! kind {
    ($type:ty, $name:literal, [$($member:expr),* $(,)?]) => {
        Kind { name: $name, size: size_of::<$type>(), align: align_of::<$type>(), members: &[$($member),*] }
    };
}

macro_rules! member {
    ($type:ty, $path:literal, $($rust:ident).+) => {
        Member {
            path: $path,
            offset: std::mem::offset_of!($type, $($rust).+),
            // SAFETY: never called: only the type of the pointer matters.
            size: Some(target_size(|whole: *const $type| unsafe { &raw const (*whole).$($rust).+ })),
        }
    };
}

macro_rules! unsized_member {
    ($type:ty, $path:literal, $($rust:ident).+) => {
        Member { path: $path, offset: std::mem::offset_of!($type, $($rust).+), size: None }
    };
}

const fn target_size<Whole, Part>(_: fn(*const Whole) -> *const Part) -> usize {
    size_of::<Part>()
}

include!(concat!(env!("OUT_DIR"), "/bindings_layout.rs"));

/// A number in Rust, and the C expression that must equal it in the lowest `bits` bits.
struct Question {
    c: String,
    rust: u64,
    bits: u32,
}

impl Question {
    fn new(c: String, rust: usize) -> Self {
        Question { c, rust: rust as u64, bits: 64 }
    }
}

impl Header {
    fn questions(&self) -> Vec<Question> {
        let mut all = Vec::new();
        for Kind { name, size, align, members } in self.types {
            all.push(Question::new(format!("sizeof({name})"), *size));
            all.push(Question::new(format!("_Alignof({name})"), *align));
            for Member { path, offset, size } in *members {
                all.push(Question::new(format!("offsetof({name}, {path})"), *offset));
                if let Some(size) = size {
                    all.push(Question::new(format!("sizeof((({name} *)0)->{path})"), *size));
                }
            }
        }
        all.extend(self.constants.iter().map(|constant| Question {
            c: constant.name.to_owned(),
            rust: constant.value as u64,
            bits: constant.bits,
        }));
        all
    }

    /// Queries the C compiler.
    fn compare(&self, name: &str, headers: &[&str]) {
        let Some(compiler) = requirements::c_compiler() else { return };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if !headers.iter().all(|header| compiler.has_header(folder, header)) || !headers::are_those_of_the_bindings() {
            return;
        }
        let questions = self.questions();
        let mut source = "#include <stddef.h>\n".to_owned();
        for header in headers {
            writeln!(source, "#include <{header}>").unwrap();
        }
        writeln!(source, "const unsigned long long answers[] = {{").unwrap();
        for question in &questions {
            writeln!(source, "\t(unsigned long long)({}),", question.c).unwrap();
        }
        writeln!(source, "}};\nconst unsigned long long answer_count = sizeof(answers) / sizeof(answers[0]);").unwrap();

        let probe = compiler.load(folder, &format!("layout-{name}"), &source, &[]);
        // SAFETY: the probe above defines both with these types, and stays loaded while they are read.
        let answers = unsafe {
            let count = **probe.get::<*const u64>(b"answer_count").unwrap();
            let answers = *probe.get::<*const u64>(b"answers").unwrap();
            std::slice::from_raw_parts(answers, count as usize)
        };
        assert_eq!(answers.len(), questions.len());

        let mut different = String::new();
        for (Question { c, rust, bits }, answer) in questions.iter().zip(answers) {
            if (rust ^ answer) << (64 - bits) != 0 {
                writeln!(different, "{c}: {answer} in C, {rust} in Rust").unwrap();
            }
        }
        assert!(different.is_empty(), "{different}");
        let members: usize = self.types.iter().map(|kind| kind.members.len()).sum();
        assert!(members > 0);
        let (types, constants) = (self.types.len(), self.constants.len());
        // Not `eprintln!`, which the test harness hides when a test passes.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{name}: {types} types with {members} members and {constants} constants are as in C\n"),
        );
    }
}

#[test]
fn verbs() {
    VERBS.compare("verbs", &["infiniband/verbs.h", "infiniband/tm_types.h"]);
}

#[test]
fn rdma_cma() {
    RDMA_CMA.compare("rdma_cma", &["rdma/rdma_cma.h", "infiniband/ib.h"]);
}

#[test]
fn mlx5dv() {
    MLX5DV.compare("mlx5dv", &["infiniband/mlx5dv.h"]);
    MLX5_WQE_CTRL_SEG.compare("mlx5_wqe_ctrl_seg", &["infiniband/mlx5dv.h"]);
}

#[test]
fn efadv() {
    EFADV.compare("efadv", &["infiniband/efadv.h"]);
}
