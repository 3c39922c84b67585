//! The seeds of the corpus: inputs that are valid, and inputs that are almost valid.

use crate::cm::fuzz::seeds as cm;
use crate::ipc::fuzz::seeds as ipc;
use crate::net::roce::fuzz::seeds as roce;

/// The path of an input in the corpus, and its bytes.
type Seed = (String, Vec<u8>);

pub(super) fn all() -> Vec<Seed> {
    let mut all = Vec::new();
    let mut add = |path: &str, bytes: Vec<u8>| all.push((path.to_owned(), bytes));
    for (path, text) in [
        ("devices/good-names", "soft0, soft_b,x"),
        ("devices/good-count", "3"),
        ("devices/good-empty", " \n"),
        ("devices/bad-number", "-1"),
        ("devices/bad-many", "5000"),
        ("devices/bad-name", "a/b"),
        ("devices/bad-twice", "a,b,a"),
        ("names/good-port", "0: 00000002 00000000 00010000 0005 01 28137 @softrnic/1/cm/262/7471/any4"),
        ("names/good-address", "0: 00000002 00000000 00010000 0005 01 28137 @softrnic/1/cm/262/1/fe80::1"),
        ("names/good-member", "0: 2 0 0 5 01 9 @softrnic/1/group/ff0e0000000000000000000000000001/2f"),
        ("names/bad-port", "0: 00000002 00000000 00010000 0005 01 28137 @softrnic/1/cm/262/99999/any"),
        ("names/bad-connected", "0: 00000002 00000000 00010000 0005 03 28137 @softrnic/1/cm/262/7471/any4"),
        ("names/bad-member", "0: 2 0 0 5 01 9 @softrnic/1/group/ff0e0000000000000000000000000001/-2f"),
        ("names/bad-path", "0: 2 0 0 1 01 9 /run/x y"),
    ] {
        add(path, text.as_bytes().to_vec());
    }
    all.extend(ipc::all().chain(cm::all()).chain(roce::all()).map(|(path, bytes)| (path.to_owned(), bytes)));
    all
}
