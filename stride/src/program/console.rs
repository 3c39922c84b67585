//! The console output of a test that runs, and the results of the test.

use std::io::{self, Write, stdout};
use std::net::IpAddr;
use std::time::SystemTime;

use anyhow::Result;

use super::header::head;
use super::interrupt::{Interrupt, Signal};
use super::progress::Progress;
use super::{is_broken_pipe, print_line, undelivered};
use crate::cli::Output;
use crate::control::{Carrier, Cause, Failure, Step, Watch};
use crate::endpoint::{Path, PortInfo};
use crate::plan::Plan;
use crate::report::hints::{Hint, far_sides, same_port, softrnic};
use crate::report::json::Event;
use crate::report::table::{Columns, Table};
use crate::report::{self, Environment, Row, Style};
use crate::stats::{Figures, Interval, Seen};

/// The console output of a test that runs, and the results of the test.
pub(super) struct Console {
    plan: Plan,
    command_line: Vec<String>,
    started: SystemTime,
    is_stream: bool,
    /// Whether the test continues after the program that reads standard output has closed its end of the pipe. The test
    /// continues if results are also written to files or compared with limits.
    goes_on_unseen: bool,
    table: Table,
    progress: Progress,
    interrupt: Interrupt,
    /// The size that is being measured, or was measured last.
    size: Option<u64>,
    /// The signal that ended the test early.
    pub(super) ended_by: Option<Signal>,
    /// The warnings that were printed before the measurement.
    pub(super) warned: Vec<String>,
    /// The environment of the test, once it is known.
    pub(super) environment: Option<Environment>,
    pub(super) rows: Vec<Row>,
    /// The sizes that were completed but have no row.
    pub(super) unmeasured: Vec<u64>,
    /// Sizes for which nothing arrived over one of several paths. If the step was cut short, also those for which
    /// nothing arrived at all. A warning was printed for each of these sizes.
    pub(super) silent: Vec<(u64, String)>,
    /// Whether the program that reads the output of an endless test has closed its end of the pipe.
    is_left_alone: bool,
    /// The transport of the control channel.
    pub(super) exchange: Carrier,
    /// An error that occurred while writing to standard output.
    pub(super) trouble: Option<io::Error>,
}

impl Console {
    pub(super) fn new(plan: &Plan, output: &Output) -> Self {
        let is_stream = output.json_stream;
        let columns = Columns { intervals: true, cpu: true };
        Self {
            plan: plan.clone(),
            command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            started: SystemTime::now(),
            is_stream,
            goes_on_unseen: output.has_other_outputs(),
            table: Table::new(plan.workload.measure, columns, Style::of(&stdout())),
            progress: Progress::new(!is_stream && !plan.workload.is_endless),
            interrupt: Interrupt::default(),
            size: None,
            ended_by: None,
            warned: Vec::new(),
            environment: None,
            rows: Vec::new(),
            unmeasured: Vec::new(),
            silent: Vec::new(),
            is_left_alone: false,
            exchange: Carrier::default(),
            trouble: None,
        }
    }

    /// Returns the text of a failure. If there are several sizes, the text of an RDMA failure also contains the size.
    pub(super) fn error_text(&self, failure: &Failure) -> String {
        match self.size.filter(|_| self.plan.workload.sizes.len() > 1 && failure.cause() == Cause::Rdma) {
            Some(size) => format!("at {}: {failure}", report::bytes_in_words(size)),
            None => failure.to_string(),
        }
    }

    /// Called when the server is unreachable or busy. `why` is the cause.
    pub(super) fn waits(&self, host: &str, why: &str) {
        self.progress.suspend(|| print_line(&format!("waiting for {host}: {why}")));
    }

    /// Called when the server was reached. If requested, librdmacm uses the same address.
    pub(super) fn reached(&mut self, address: Option<IpAddr>) {
        self.plan.attributes.address = address.filter(|_| self.plan.attributes.uses_rdma_cm);
    }

    /// Called when the test has ended.
    pub(super) fn end(&self) {
        self.progress.end();
    }

    /// Prints a part of the table. Returns whether printing succeeded.
    fn print(&mut self, print: impl FnOnce(&Table, &mut dyn Write) -> Result<()>) -> bool {
        let Self { progress, table, trouble, goes_on_unseen, .. } = self;
        match progress.suspend(|| shown(false, |out| print(table, out))) {
            Ok(()) => true,
            Err(error) if *goes_on_unseen && is_broken_pipe(&error) => false,
            Err(error) => {
                let error = error.downcast::<io::Error>().unwrap_or_else(io::Error::other);
                trouble.get_or_insert(error);
                false
            }
        }
    }
}

/// Prints to standard output. A closed pipe is not an error if `goes_on_unseen` is true, because the results also go
/// elsewhere.
pub(super) fn shown(goes_on_unseen: bool, print: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = stdout().lock();
    match print(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(error) if goes_on_unseen && is_broken_pipe(&error) => Ok(()),
        printed => printed,
    }
}

impl Watch for Console {
    fn met(&mut self, client: &PortInfo, server: &PortInfo, path: &Path) {
        // Until this point, a signal may end the program, because there are no results yet.
        match Interrupt::watch() {
            Ok(interrupt) => self.interrupt = interrupt,
            Err(error) => print_line(&format!(
                "warning: cannot catch signals, so Ctrl-C ends the program without results: {error:#}"
            )),
        }
        let stands_in = softrnic(&self.plan, [client, server]);
        let stands_in = stands_in.filter(|hint| *hint == Hint::Softrnic { is_chosen: false });
        self.warned.extend(stands_in.map(|hint| hint.to_string()));
        self.warned.extend(far_sides([client, server]).map(|hint| hint.to_string()));
        self.warned.extend(same_port(client).map(|hint| hint.to_string()));
        self.warned.iter().for_each(|warning| print_line(&format!("warning: {warning}")));
        let sides = [client.clone(), server.clone()];
        let mut environment =
            Environment::new(self.started, self.command_line.clone(), self.plan.clone(), path.clone(), sides);
        environment.exchange = self.exchange;
        self.environment = Some(environment.clone());
        if self.plan.workload.is_endless {
            print_line(endless_notice(&self.plan));
        }
        if self.is_stream {
            self.print(|_, out| Ok(Event::start(environment).write(out)?));
            return;
        }
        if !client.others.is_empty() {
            self.table.name_ports(report::ports(client, server, path));
        }
        let head = head(&self.plan, client, server, path);
        self.print(|table, out| {
            writeln!(out, "{head}")?;
            Ok(table.head(out)?)
        });
    }

    fn progress(&mut self, size: u64, done: f64) -> bool {
        self.size = Some(size);
        self.progress.show(size, done);
        self.ended_by = self.interrupt.signal();
        self.trouble.is_none() && self.ended_by.is_none() && !self.is_left_alone
    }

    fn interval(&mut self, size: u64, interval: &Interval) {
        self.progress.show_interval(size, interval);
        let is_read = if self.is_stream {
            let event = Event::interval(size, interval);
            self.print(|_, out| Ok(event.write(out)?))
        } else {
            !self.plan.workload.is_endless || self.print(|table, out| Ok(table.interval(out, size, interval)?))
        };
        // If no program reads the output any more, an endless test ends as it does after a signal, but only when it has
        // a result.
        let has_some = match interval.seen {
            Seen::Bandwidth { messages: count } | Seen::Latency { samples: count, .. } => count > 0,
        };
        self.is_left_alone |= self.plan.workload.is_endless && has_some && !is_read;
    }

    fn step(&mut self, step: &Step) {
        self.progress.forget();
        let sides = self.environment.as_ref().map(|environment| [&environment.client, &environment.server]);
        for text in undelivered::warnings(step, sides) {
            self.remark(&text);
            self.silent.push((step.size, text));
        }
        // The user may end an endless test before it has a result.
        let is_planned = step.is_whole && !self.plan.workload.is_endless;
        let Some(figures) = together(step).filter(|figures| is_planned || has_some(figures)) else {
            if step.is_whole {
                self.unmeasured.push(step.size);
            }
            if step.is_whole && !self.is_stream {
                self.print(|table, out| Ok(table.blank(out, step.size)?));
            }
            return;
        };
        let row = Row { size: step.size, figures, counters: step.counters.clone(), is_whole: step.is_whole };
        self.rows.push(row.clone());
        let (is_stream, is_endless) = (self.is_stream, self.plan.workload.is_endless);
        self.print(|table, out| {
            if is_stream {
                return Ok(Event::Row(row).write(out)?);
            }
            if is_endless {
                writeln!(out, "total:")?;
            }
            Ok(table.row(out, &row)?)
        });
    }

    fn remark(&mut self, text: &str) {
        self.progress.suspend(|| print_line(&format!("warning: {text}")));
    }

    fn note(&mut self, text: &str) {
        self.progress.suspend(|| print_line(&from_server(text)));
    }
}

/// Returns a remark of the server in a form that names the server.
fn from_server(text: &str) -> String {
    let is_subject = text.starts_with("the server ") || text.starts_with("the server's ");
    if is_subject { text.to_owned() } else { format!("the server: {text}") }
}

/// Whether anything was measured. This includes the result that no message arrived.
fn has_some(figures: &Figures) -> bool {
    match figures {
        Figures::Bandwidth(bandwidth) => {
            bandwidth.messages > 0 || bandwidth.arrived == Some(0) && bandwidth.sent > Some(0)
        }
        Figures::Latency(latency) => latency.samples > 0,
    }
}

/// Returns the combined figures of both sides.
pub(super) fn together(step: &Step) -> Option<Figures> {
    match (&step.client, &step.server) {
        (Some(Figures::Bandwidth(ours)), Some(Figures::Bandwidth(theirs))) if theirs.is_receiver_side() => {
            Some(Figures::Bandwidth(ours.received(theirs)))
        }
        (Some(Figures::Bandwidth(ours)), Some(Figures::Bandwidth(theirs))) if ours.is_receiver_side() => {
            Some(Figures::Bandwidth(theirs.received(ours)))
        }
        (Some(Figures::Bandwidth(ours)), Some(Figures::Bandwidth(theirs))) => {
            Some(Figures::Bandwidth(ours.with(theirs)))
        }
        (ours, theirs) => ours.clone().or_else(|| theirs.clone()),
    }
}

/// Returns the notice that is printed at the start of an endless test.
fn endless_notice(plan: &Plan) -> &'static str {
    if plan.workload.direction.is_both() {
        "runs until Ctrl-C; each row counts what the client sends, the last row both directions"
    } else {
        "runs until Ctrl-C"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Job, Measurement};
    use crate::plan::{Direction, Workload};
    use crate::stats::Bandwidth;

    #[test]
    fn server_remarks_name_the_server_once() {
        for text in ["the server was started with --device a,b", "the server's --dlid has no effect"] {
            assert_eq!(from_server(text), text);
        }
        let text = "--iters of the server is 5";
        assert_eq!(from_server(text), format!("the server: {text}"));
    }

    #[test]
    fn ended_size_without_arrivals_has_a_row() {
        let Ok(Job::Measure(measurement)) = cli::parse("stride-perf write bw -c uc --loopback".split_whitespace())
        else {
            panic!("the command measures")
        };
        let Measurement { plan, output, .. } = *measurement;
        let seen = |is_endless, messages, arrived| {
            let mut screen = Console::new(
                &Plan { workload: Workload { is_endless, ..plan.workload.clone() }, ..plan.clone() },
                &output,
            );
            let sent = Bandwidth { messages, seconds: 1.0, sent: Some(messages), ..Bandwidth::default() };
            let taken = Bandwidth { arrived, ..Bandwidth::default() };
            let [client, server] = [sent, taken].map(|side| Some(Figures::Bandwidth(side)));
            // An endless test is complete when the user ends it.
            screen.step(&Step { size: 64, client, server, counters: None, is_whole: is_endless });
            (screen.rows.len(), screen.silent.len())
        };
        assert_eq!(seen(true, 50, Some(0)), (1, 0));
        assert_eq!(seen(false, 50, Some(0)), (1, 1));
        assert_eq!(seen(false, 50, Some(50)), (1, 0));
        // The test was ended before its first message.
        assert_eq!([seen(true, 0, Some(0)), seen(false, 0, Some(0))], [(0, 0); 2]);
    }

    #[test]
    fn endless_notice_explains_bidirectional_rows() {
        assert_eq!(endless_notice(&Plan::default()), "runs until Ctrl-C");
        let both = endless_notice(&Plan {
            workload: Workload { direction: Direction::Both, ..Workload::default() },
            ..Plan::default()
        });
        assert!(both.contains("each row counts what the client sends"), "{both}");
    }
}
