//! A rank: which tests it serves and measures.

use std::collections::BTreeSet;

use super::message::{Ended, Kind, Order, Report, Trouble};

/// What a rank does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Send a message to rank 0.
    Send(Report),
    /// Start a server for one test.
    Serve {
        /// The test.
        test: u64,
        /// The rail.
        rail: usize,
    },
    /// Measure a test.
    Measure {
        /// The test.
        test: u64,
        /// The rail.
        rail: usize,
        /// The address of the server.
        address: String,
        /// The TCP port of the server.
        port: u16,
    },
    /// Stop the server of a test, if it still runs.
    Stop(u64),
    /// End, successfully or with this error.
    End(Result<(), String>),
}

/// The state of a rank.
#[derive(Debug)]
pub struct Member {
    rails: usize,
    /// Maximum number of tests that the rank takes part in at the same time.
    most: usize,
    serving: BTreeSet<u64>,
    measuring: BTreeSet<u64>,
}

impl Member {
    /// Creates the state of a rank of a mesh with `ranks` ranks, which has this number of rails.
    pub fn new(ranks: usize, rails: usize) -> Self {
        // In a busy round, a rank has two tests; in an incast, one for each other rank.
        Self { rails, most: ranks + 2, serving: BTreeSet::new(), measuring: BTreeSet::new() }
    }

    /// Handles a message of rank 0.
    pub fn order(&mut self, order: Order) -> Task {
        let is_full = self.serving.len() + self.measuring.len() >= self.most;
        match order {
            Order::Serve { .. } | Order::Measure { .. } if is_full => {
                Task::End(Err("rank 0 requests more tests than there are ranks".to_owned()))
            }
            Order::Serve { test, rail } | Order::Measure { test, rail, .. } if rail as usize >= self.rails => {
                let text = format!(
                    "this rank has {} rails, none with the index {rail}; give all ranks as many devices",
                    self.rails
                );
                Task::Send(failed(test, text))
            }
            Order::Serve { test, rail } => {
                self.serving.insert(test);
                Task::Serve { test, rail: rail as usize }
            }
            Order::Measure { test, rail, address, port } => {
                self.measuring.insert(test);
                Task::Measure { test, rail: rail as usize, address, port }
            }
            Order::Stop { test } => Task::Stop(test),
            Order::End => Task::End(Ok(())),
            Order::Reject { why, .. } => Task::End(Err(why)),
            Order::Welcome => Task::End(Err("rank 0 sent a message out of order".to_owned())),
        }
    }

    /// Handles the end of a server.
    pub fn served(&mut self, test: u64) {
        self.serving.remove(&test);
    }

    /// Handles the end of a measurement.
    pub fn measured(&mut self, ended: Ended) -> Task {
        self.measuring.remove(&ended.test);
        Task::Send(Report::Ended(Box::new(ended)))
    }
}

/// Returns the report of a test that this rank could not begin.
pub fn failed(test: u64, text: String) -> Report {
    let trouble = Some(Trouble { text, kind: Kind::Other });
    Report::Ended(Box::new(Ended { test, seconds: 0.0, ports: None, rows: Vec::new(), warnings: Vec::new(), trouble }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_rail_fails_the_test() {
        let mut member = Member::new(2, 1);
        assert_eq!(member.order(Order::Serve { test: 1, rail: 0 }), Task::Serve { test: 1, rail: 0 });
        let Task::Send(Report::Ended(ended)) = member.order(Order::Serve { test: 2, rail: 1 }) else { panic!() };
        assert!(ended.test == 2 && ended.trouble.unwrap().text.contains("rails"));
    }

    #[test]
    fn flood_of_tests_ends_the_rank() {
        let mut member = Member::new(2, 1);
        let orders = (0..5).map(|test| member.order(Order::Serve { test, rail: 0 }));
        assert_eq!(orders.filter(|task| matches!(task, Task::End(Err(_)))).count(), 1);
        member.served(0);
        assert!(matches!(member.order(Order::Serve { test: 9, rail: 0 }), Task::Serve { .. }));
        assert_eq!(member.order(Order::End), Task::End(Ok(())));
    }
}
