//! The form of a row: a program, its options and how its processes start.
//!
//! In a command, `{port}` is a reserved TCP port, `{group}` a reserved multicast group, `{build}` the folder of our own
//! programs, `{sockets}` trespass-run, `{stride}` stride-perf, and `{lens}` lens.

use std::mem::{Discriminant, discriminant};

/// How the program loads softrnic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By `LD_PRELOAD`, before the system's libraries.
    Preload,
    /// By `LD_LIBRARY_PATH`, in place of the system's libraries.
    Libraries,
    /// By `LD_LIBRARY_PATH`, on a system that does not have these libraries.
    Alone,
}

/// The number of processes, and when the second starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// One process, which exits by itself.
    One(&'static str),
    /// One process, which is killed after it has printed the expected text.
    Waiting(&'static str),
    /// A server, and a client that starts when the server listens.
    Pair(&'static str, &'static str),
    /// A server, and a client that is started again until the server serves it, because only softrnic has the server's
    /// listening address.
    Retried(&'static str, &'static str),
    /// Like `Retried`, with a server that keeps running.
    Serving(&'static str, &'static str),
    /// Like `Pair`; then stride-perf measures the same on softrnic's device, and compares with the client's output.
    Compared(&'static str, &'static str, &'static str),
    /// A receiver that prints a text once it is ready, and a sender.
    Said(&'static str, &'static str, &'static str),
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    pub(crate) shape: Shape,
    /// A text that the last process prints on success.
    pub(crate) expected: &'static str,
    /// Whether the row runs in the gate even if another row of its kind does.
    pub(crate) always: bool,
}

impl Row {
    /// The gate runs one row of each kind: a program, the way to start it, and how its processes find each other. All
    /// rows in which stride-perf reads other programs' output are one kind.
    pub(crate) fn kind(&self) -> (Way, &'static str, Discriminant<Shape>) {
        let (Shape::One(line)
        | Shape::Waiting(line)
        | Shape::Pair(line, _)
        | Shape::Retried(line, _)
        | Shape::Serving(line, _)
        | Shape::Compared(line, ..)
        | Shape::Said(line, ..)) = self.shape;
        // Runs with variables set by `env` count as one kind, although the variables select another part of the
        // program.
        let is_program = |word: &&str| !["stdbuf", "-oL", "{run}", "env"].contains(word);
        let program = line.split(' ').find(is_program).unwrap_or(line);
        let program = if matches!(self.shape, Shape::Compared(..)) { "stride-perf" } else { program };
        (self.way, program, discriminant(&self.shape))
    }

    /// Whether the row downloads its program.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.shape, Shape::One(line) if line.contains("wheels.sh"))
    }

    /// Whether the server has no option for its port.
    pub(crate) fn has_fixed_port(&self) -> bool {
        match self.shape {
            Shape::Retried(line, _) | Shape::Said(line, ..) => !line.contains("{port}"),
            // The port of iSER.
            Shape::One(line) => line.contains("tgt.sh"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    #[test]
    fn each_program_is_a_separate_kind() {
        let kind = |name: &str| rows().find(|row| row.name == name).map(Row::kind);
        assert_eq!(kind("rc_pingpong"), kind("rc_pingpong_events"));
        assert_eq!(kind("stride_reads_write_bw"), kind("stride_reads_read_lat"));
        assert_ne!(kind("write_bw"), kind("write_bw_by_address"));
        assert_ne!(kind("write_bw"), kind("write_bw_alone"));
        assert_ne!(kind("mckey"), kind("ibv_asyncwatch"));
        assert_eq!(kind("ucx_rc_tag"), kind("ucx_rc_put"));
        assert_ne!(kind("ucx_rc_tag"), kind("ucx_ud_tag"));
    }

    #[test]
    fn row_names_are_unique() {
        for (place, row) in rows().enumerate() {
            assert!(rows().take(place).all(|other| other.name != row.name), "{}", row.name);
        }
    }
}
