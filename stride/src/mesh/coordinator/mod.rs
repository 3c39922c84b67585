//! Rank 0's state: admits ranks, starts the tests of each round, and collects the results.

mod addresses;
mod results;
mod settings;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

pub use self::addresses::Addresses;
use self::addresses::{between, public};
pub use self::results::Results;
use self::results::{MAX_WARNINGS, check, short};
pub use self::settings::Settings;
use super::Rank;
use super::cell::{Cell, RankInfo};
use super::document::{RoundInfo, label};
use super::message::{Ended, Join, Kind, Order, Report, Trouble, longest_report};
use super::schedule::Round;
use crate::plan::time;

/// Maximum number of progress reports of a test: this number, and [`BEATS_PER_SECOND`].
const BEATS: f64 = 20.0;
const BEATS_PER_SECOND: f64 = 5.0;

/// What the process of rank 0 does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message to a rank.
    Send(Rank, Order),
    /// Close the connection to a rank.
    Close(Rank),
    /// Print a line for the user.
    Print(String),
}

#[derive(Debug, Default)]
struct Member {
    host: Option<String>,
    addresses: Option<Addresses>,
    lost: Option<String>,
    ports: Vec<Option<String>>,
}

impl Member {
    fn is_alive(&self) -> bool {
        self.host.is_some() && self.lost.is_none()
    }
}

#[derive(Debug)]
enum Phase {
    Joining,
    Round { index: usize, begun: Duration, tests: Vec<Running>, longest: f64 },
    Ended,
}

/// A test of the current round.
#[derive(Debug)]
struct Running {
    client: Rank,
    server: Rank,
    stage: Stage,
    /// When the current stage began, and when the last sign of life arrived.
    begun: Duration,
    seen: Duration,
    beats: f64,
    cell: Option<Cell>,
}

impl Running {
    /// Returns the rank that the test waits for.
    fn actor(&self) -> Rank {
        if self.stage == Stage::Listening { self.server } else { self.client }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Listening,
    Measuring,
    Done,
}

/// Rank 0's state. Times are those since it was created.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    members: Vec<Member>,
    phase: Phase,
    /// The number of the first test of the current round.
    first_test: u64,
    actions: VecDeque<Action>,
    results: Results,
}

impl Coordinator {
    /// Creates the state before any rank has joined.
    pub fn new(settings: Settings) -> Self {
        let member = || Member { ports: vec![None; settings.rails as usize], ..Member::default() };
        let members = (0..settings.ranks).map(|_| member()).collect();
        let (actions, results) = (VecDeque::new(), Results::default());
        Self { settings, members, phase: Phase::Joining, first_test: 0, actions, results }
    }

    /// Admits a rank.
    ///
    /// # Errors
    ///
    /// Returns the reply to a rank that cannot be admitted.
    pub fn join(&mut self, join: Join, addresses: Addresses, now: Duration) -> Result<Rank, Order> {
        let reject = |why: String, is_final| Err(Order::Reject { why, is_final });
        let (ranks, rank) = (self.settings.ranks, join.rank);
        if join.job != self.settings.job {
            // Another mesh may meet at this port later.
            return reject("rank 0 at this address belongs to another job".to_owned(), false);
        }
        if join.size != ranks {
            return reject(
                format!("this rank counts {} ranks, and rank 0 counts {ranks}; start all by one launcher", join.size),
                true,
            );
        }
        if join.test.version != self.settings.test.version {
            let (theirs, own) = (short(join.test.version), &self.settings.test.version);
            return reject(
                format!("this rank has stride-perf {theirs}, and rank 0 has {own}; use one version on all hosts"),
                true,
            );
        }
        if join.test.digest != self.settings.test.digest {
            return reject("this rank has another test than rank 0; give all ranks the same options".to_owned(), true);
        }
        let is_joining = matches!(self.phase, Phase::Joining);
        let Some(member) = self.members.get_mut(rank as usize) else {
            return reject(format!("rank {rank} is not below the number of ranks, {ranks}"), true);
        };
        if member.host.is_some() {
            return reject(format!("rank {rank} has joined before; give each process its own rank"), true);
        }
        if !is_joining {
            return reject("the mesh began without this rank; give a longer --wait-server".to_owned(), true);
        }
        (member.host, member.addresses) = (Some(short(join.host)), Some(addresses));
        self.actions.push_back(Action::Send(rank, Order::Welcome));
        self.begin_if_complete(now);
        Ok(rank)
    }

    /// Starts the first round if no rank is missing.
    fn begin_if_complete(&mut self, now: Duration) {
        let is_settled = self.members.iter().all(|member| member.host.is_some() || member.lost.is_some());
        if is_settled && matches!(self.phase, Phase::Joining) {
            if self.members.iter().filter(|member| member.is_alive()).count() < 2 {
                return self.end(Some("fewer than two ranks have started".to_owned()));
            }
            self.begin(0, now);
        }
    }

    /// Handles a message of a rank.
    pub fn report(&mut self, rank: Rank, report: Report, now: Duration) {
        if let Err(what) = self.handle(rank, report, now) {
            self.lose(rank, format!("it {what}"), now);
        }
    }

    fn handle(&mut self, rank: Rank, report: Report, now: Duration) -> Result<(), String> {
        let first_test = self.first_test;
        let Phase::Round { index, tests, longest, .. } = &mut self.phase else {
            // The last results can cross the end of the mesh.
            return if matches!(self.phase, Phase::Ended) {
                Ok(())
            } else {
                Err("sent a message before it had a test".to_owned())
            };
        };
        let id = match &report {
            Report::Join(_) => return Err("joined twice".to_owned()),
            Report::Listening { test, .. } | Report::Alive { test } => *test,
            Report::Ended(ended) => ended.test,
        };
        if id < first_test {
            // The test was given up.
            return Ok(());
        }
        let position = usize::try_from(id - first_test).unwrap_or(usize::MAX);
        let Some(test) = tests.get_mut(position) else { return Err(format!("named test {id}, which does not run")) };
        let rail = self.settings.rounds[*index].rail;
        match report {
            _ if test.stage == Stage::Done => {}
            Report::Listening { port, .. } if rank == test.server && test.stage == Stage::Listening => {
                (test.stage, test.begun, test.seen) = (Stage::Measuring, now, now);
                let of = |rank: Rank| self.members.get(rank as usize).and_then(|member| member.addresses);
                let address = between(of(test.client), of(test.server)).to_string();
                self.actions.push_back(Action::Send(test.client, Order::Measure { test: id, rail, address, port }));
            }
            Report::Alive { .. } if rank == test.client && test.stage == Stage::Measuring => {
                test.seen = now;
                test.beats += 1.0;
                if test.beats > BEATS + BEATS_PER_SECOND * now.saturating_sub(test.begun).as_secs_f64() {
                    return Err("sent too many messages".to_owned());
                }
            }
            Report::Ended(ended) if rank == test.actor() => {
                check(&ended, &self.settings)?;
                *longest = longest.max(ended.seconds);
                let sides = [test.client, test.server];
                for (member, port) in sides.into_iter().zip(ended.ports.clone().into_iter().flatten()) {
                    self.members[member as usize].ports[rail as usize] = Some(short(port));
                }
                for warning in ended.warnings.iter().take(MAX_WARNINGS) {
                    if self.results.warnings.len() < MAX_WARNINGS {
                        self.results.warnings.insert(short(warning.clone()));
                    }
                }
                self.finish(position, *ended, now);
            }
            _ => return Err(format!("sent a message about test {id}, which is not its own or at another stage")),
        }
        Ok(())
    }

    /// Ends a test with its results.
    fn finish(&mut self, position: usize, ended: Ended, now: Duration) {
        let Phase::Round { index, tests, .. } = &mut self.phase else { return };
        let (round, rail, mode) = (*index as u64, self.settings.rounds[*index].rail, self.settings.rounds[*index].mode);
        let Some(test) = tests.get_mut(position).filter(|test| test.stage != Stage::Done) else { return };
        let (client, server, was) = (test.client, test.server, test.stage);
        test.stage = Stage::Done;
        let error = ended.trouble.map(|trouble| {
            self.results.troubles.insert(trouble.kind);
            short(trouble.text)
        });
        if error.is_some() && self.members[server as usize].is_alive() {
            let id = self.first_test + position as u64;
            self.actions.push_back(Action::Send(server, Order::Stop { test: id }));
        }
        let (from, to) = self.settings.swapped((client, server));
        let seconds = (was == Stage::Measuring).then_some(ended.seconds);
        test.cell = Some(Cell { round, mode, rail, from, to, seconds, rows: ended.rows, error });
        self.advance(now);
    }

    /// Removes a rank whose connection has ended, or that does not follow the protocol.
    pub fn lose(&mut self, rank: Rank, why: String, now: Duration) {
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        if !member.is_alive() || matches!(self.phase, Phase::Ended) {
            return;
        }
        let why = short(why);
        if matches!(self.phase, Phase::Joining) {
            // The rank, or another process of the same number, may join again.
            (member.host, member.addresses) = (None, None);
            return self.actions.push_back(Action::Close(rank));
        }
        member.lost = Some(why.clone());
        let name = self.name(rank);
        self.actions.push_back(Action::Close(rank));
        self.actions.push_back(Action::Print(format!("{name} left the mesh: {why}; its tests fail, the others go on")));
        self.results.troubles.insert(Kind::Contact);
        let Phase::Round { tests, .. } = &self.phase else { return };
        // If only the server is lost, the client reports what it found.
        let is_over = |test: &Running| test.client == rank || test.server == rank && test.stage == Stage::Listening;
        let over: Vec<_> =
            (0..tests.len()).filter(|&at| tests[at].stage != Stage::Done && is_over(&tests[at])).collect();
        for position in over {
            // The round may have ended with the test before this one.
            self.finish(position, lost(format!("{name} left the mesh: {why}")), now);
        }
    }

    /// Handles the failure to start a rank. If all others have joined, does not wait for it.
    pub fn start_failed(&mut self, rank: Rank, why: String, now: Duration) {
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        if member.lost.is_some() || member.host.is_some() && !matches!(self.phase, Phase::Joining) {
            // Its connection ends as well.
            return;
        }
        if member.host.take().is_some() {
            self.actions.push_back(Action::Close(rank));
        }
        (member.addresses, member.lost) = (None, Some(why.clone()));
        self.results.troubles.insert(Kind::Contact);
        self.actions.push_back(Action::Print(format!("warning: {} did not start: {why}", self.name(rank))));
        self.begin_if_complete(now);
    }

    /// Returns when [`tick`](Self::tick) must be called next.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Joining => Some(self.settings.join),
            Phase::Round { tests, .. } => {
                let open = tests.iter().filter(|test| test.stage != Stage::Done);
                open.map(|test| test.seen + self.settings.silence).min()
            }
            Phase::Ended => None,
        }
    }

    /// Handles the passage of time.
    pub fn tick(&mut self, now: Duration) {
        match &self.phase {
            Phase::Joining if now >= self.settings.join => {
                let absent: Vec<_> =
                    (0..self.settings.ranks).filter(|&rank| !self.members[rank as usize].is_alive()).collect();
                let limit = time::show(self.settings.join);
                let joined = self.members.len() - absent.len();
                for &rank in &absent {
                    self.members[rank as usize].lost = Some(format!("it did not join within {limit}"));
                }
                self.results.troubles.insert(Kind::Contact);
                let text = format!(
                    "{joined} of {} ranks joined within {limit}; {} missing: {}",
                    self.members.len(),
                    absent.len(),
                    list(&absent)
                );
                if joined < 2 {
                    let remedy =
                        "check that the launcher starts all ranks and that they reach rank 0, or give --rendezvous";
                    return self.end(Some(format!("{text}; {remedy}")));
                }
                self.actions.push_back(Action::Print(format!("warning: {text}; the others go on")));
                self.begin(0, now);
            }
            Phase::Round { tests, .. } => {
                let silence = self.settings.silence;
                let hung = tests.iter().filter(|test| test.stage != Stage::Done && now >= test.seen + silence);
                let hung: BTreeSet<_> = hung.map(Running::actor).collect();
                for rank in hung {
                    self.lose(
                        rank,
                        format!("it was silent for {}; it may be hung or stopped", time::show(silence)),
                        now,
                    );
                }
            }
            _ => {}
        }
    }

    /// Ends the mesh early. The results so far remain.
    pub fn interrupt(&mut self, why: String) {
        if !matches!(self.phase, Phase::Ended) {
            self.end(Some(why));
        }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// Returns how long a rank may be silent while it has a test.
    pub fn silence(&self) -> Duration {
        self.settings.silence
    }

    /// Returns the maximum length of a message of a rank.
    pub fn longest_report(&self) -> u32 {
        longest_report(self.settings.sizes.len())
    }

    /// Whether the mesh has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Returns the next action.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the results.
    pub fn into_results(mut self) -> Results {
        let hosts: Vec<_> = self.members.iter().map(|member| member.host.clone()).collect();
        let all: Vec<_> = self.members.iter().map(|member| member.addresses).collect();
        let addresses: Vec<_> = all.iter().map(|own| own.map(|own| public(own, &all))).collect();
        let members = self.members.into_iter().zip(addresses).zip(0..);
        self.results.ranks = members
            .map(|((member, address), rank)| RankInfo {
                rank,
                label: label(&hosts, rank),
                host: member.host,
                address: address.map(|address| address.to_string()),
                ports: member.ports,
                error: member.lost,
            })
            .collect();
        self.results
    }

    fn name(&self, rank: Rank) -> String {
        match self.members.get(rank as usize).and_then(|member| member.host.as_deref()) {
            Some(host) => format!("rank {rank} ({host})"),
            None => format!("rank {rank}"),
        }
    }

    /// Starts a round. If none of its tests can run, starts the next one.
    fn begin(&mut self, index: usize, now: Duration) {
        if index == 0 {
            let alive = self.members.iter().filter(|member| member.is_alive()).count();
            let rounds = self.settings.rounds.len();
            self.actions.push_back(Action::Print(format!("{alive} ranks have joined; {rounds} rounds")));
        }
        let mut index = index;
        while let Some(round) = self.settings.rounds.get(index).cloned() {
            let new = |(client, server): (Rank, Rank)| Running {
                client,
                server,
                stage: Stage::Listening,
                begun: now,
                seen: now,
                beats: 0.0,
                cell: None,
            };
            let mut tests: Vec<_> = round.pairs.iter().map(|pair| new(self.settings.swapped(*pair))).collect();
            for (test, id) in tests.iter_mut().zip(self.first_test..) {
                let absent =
                    [test.client, test.server].into_iter().find(|&rank| !self.members[rank as usize].is_alive());
                match absent {
                    None => {
                        self.actions.push_back(Action::Send(test.server, Order::Serve { test: id, rail: round.rail }))
                    }
                    Some(rank) => {
                        let why = self.members[rank as usize].lost.clone().unwrap_or_default();
                        let error = Some(format!("{} is absent: {why}", self.name(rank)));
                        test.stage = Stage::Done;
                        let (mode, rail) = (round.mode, round.rail);
                        let ((from, to), round) = (self.settings.swapped((test.client, test.server)), index as u64);
                        test.cell = Some(Cell { round, mode, rail, from, to, seconds: None, rows: Vec::new(), error });
                    }
                }
            }
            let is_over = tests.iter().all(|test| test.stage == Stage::Done);
            self.phase = Phase::Round { index, begun: now, tests, longest: 0.0 };
            if !is_over {
                return;
            }
            self.keep(now);
            index += 1;
        }
        self.end(None);
    }

    /// Starts the next round if all tests of this one have ended.
    fn advance(&mut self, now: Duration) {
        let Phase::Round { index, tests, .. } = &self.phase else { return };
        if tests.iter().all(|test| test.stage == Stage::Done) {
            let next = index + 1;
            self.keep(now);
            self.begin(next, now);
        }
    }

    /// Stores the results of the current round.
    fn keep(&mut self, now: Duration) {
        let Phase::Round { index, begun, tests, longest } = std::mem::replace(&mut self.phase, Phase::Ended) else {
            return;
        };
        let Round { mode, rail, .. } = self.settings.rounds[index];
        let seconds = now.saturating_sub(begun).as_secs_f64();
        let overhead_seconds = (seconds - longest).max(0.0);
        self.results.rounds.push(RoundInfo { round: index as u64, mode, rail, seconds, overhead_seconds });
        self.first_test += tests.len() as u64;
        self.results.cells.extend(tests.into_iter().filter_map(|test| test.cell));
    }

    fn end(&mut self, error: Option<String>) {
        self.results.error = error;
        if let Phase::Round { tests, .. } = &mut self.phase {
            // The tests that have ended have results, even if their round has not ended.
            self.results.cells.extend(std::mem::take(tests).into_iter().filter_map(|test| test.cell));
        }
        self.phase = Phase::Ended;
        let alive = self.members.iter().zip(0..).filter(|(member, _)| member.is_alive());
        self.actions.extend(alive.map(|(_, rank)| Action::Send(rank, Order::End)));
    }
}

/// Returns the end of a test whose rank is lost.
fn lost(text: String) -> Ended {
    let trouble = Some(Trouble { text, kind: Kind::Contact });
    Ended { test: 0, seconds: 0.0, ports: None, rows: Vec::new(), warnings: Vec::new(), trouble }
}

/// Lists ranks for the user; long lists are cut.
fn list(ranks: &[Rank]) -> String {
    let shown: Vec<_> = ranks.iter().take(8).map(Rank::to_string).collect();
    let more = if ranks.len() > shown.len() { ", …" } else { "" };
    format!("rank {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests;
