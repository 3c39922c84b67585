//! Every call that destroys an object fails.

use std::collections::BTreeSet;

use sideway_tests::recording::{Failure, Recording, Warnings};

use super::{ACTS, ends, whole};

#[test]
fn object_that_cannot_be_destroyed_is_leaked_once_and_logged() {
    let warnings = Warnings::listen();
    for &act in ACTS {
        let endings: BTreeSet<&'static str> =
            whole(act, Recording::calls).into_iter().filter(ends).map(|call| call.verb).collect();
        assert!(!endings.is_empty(), "{}", act.name);
        let recording = Recording::new();
        for &verb in &endings {
            recording.fail_always(verb, Failure::documented(libc::EBUSY));
        }
        warnings.take();
        let reported = usize::from((act.run)(&recording).is_err());
        let log = recording.calls();
        let refused: Vec<_> = log.iter().filter(|call| call.failed.is_some() && ends(call)).collect();
        let what = format!("{}: {refused:?}", act.name);
        assert!(!refused.is_empty(), "{what}");
        // The program destroys an object only once, because C may have destroyed half of it.
        let objects: Vec<_> = refused.iter().map(|call| &call.arguments).collect();
        assert_eq!(objects.iter().collect::<BTreeSet<_>>().len(), objects.len(), "{what}");
        let lines = warnings.take();
        assert_eq!(lines.len() + reported, refused.len(), "{what}: {lines:#?}");
        // A refused object still exists, with its parents.
        assert!(recording.live().len() >= refused.len(), "{what}: {:?}", recording.live());
        assert_eq!(recording.violations(), [""; 0], "{what}");
    }
}
