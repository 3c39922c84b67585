//! Runs a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use signal_hook::iterator::Signals;

use super::exit::Exit;
use super::interrupt::{Signal, end_at_second};
use super::print_line;
use crate::cli::Service;
use crate::control::{self, Event, Host, Stop};
use crate::endpoint::{EndpointFactory, Path, PortInfo};
use crate::plan::{Measure, SideConfig};
use crate::report;
use crate::report::hints::far;
use crate::thread;

/// Serves clients until the server is stopped.
pub(super) fn serve(service: Service, factory: &dyn EndpointFactory) -> Result<Exit> {
    let Service { config, test, contact, is_one_off, warnings } = service;
    warnings.iter().for_each(|warning| print_line(&format!("warning: {warning}")));
    // Checks now whether the devices exist, so that the error is reported to the server's user instead of each client.
    if config != SideConfig::default() {
        factory.look(&config)?;
    }
    let listener = control::listen(&contact).map_err(|failure| anyhow!("{failure}"))?;
    let port = listener.local_addr()?.port();
    let host = Host { config, test };
    end_at_second()?;
    let mut signals = Signals::new(Signal::ALL.map(Signal::number))?;
    let (handle, stop) = (signals.handle(), Stop::new(&listener)?);
    let serving = Arc::new(AtomicBool::new(false));
    // The thread ends when the handle is dropped, or together with the program.
    let is_serving = Arc::clone(&serving);
    let watching = thread::start(move || {
        if signals.forever().next().is_some() {
            if is_serving.load(Ordering::Relaxed) {
                print_line("exits after this test; press Ctrl-C again to exit at once");
            }
            stop.stop();
        }
    })?;
    print_line(&format!("waiting for clients on TCP port {port}; press Ctrl-C to exit"));
    let mut print_event = |event: Event| {
        match event {
            // Until this event, the connection may be that of a port scanner.
            Event::Asked(_) => serving.store(true, Ordering::Relaxed),
            Event::End | Event::Failed(_) => serving.store(false, Ordering::Relaxed),
            _ => {}
        }
        print_event(event);
    };
    let served = control::serve(&listener, factory, &host, contact.timeout, is_one_off, &mut print_event);
    handle.close();
    // Ignores the result, because the thread returns nothing.
    let _ = watching.join();
    match served {
        Ok(()) => Ok(Exit::Done),
        Err(failure) => {
            print_line(&format!("error: {failure}"));
            Ok(Exit::of(&failure))
        }
    }
}

/// Prints a line for each event.
fn print_event(event: Event) {
    if let Event::Met(port_info, _) = &event {
        port_info
            .all()
            .filter_map(|port| far(port, "--cpu"))
            .for_each(|hint| print_line(&format!("  warning: {hint}")));
    }
    print_line(&line(event));
}

fn line(event: Event) -> String {
    match event {
        Event::Client(peer) => format!("{peer}: connected"),
        Event::Asked(plan) => {
            let what = if plan.workload.measure == Measure::Bandwidth { "bandwidth" } else { "latency" };
            let sizes = match plan.workload.sizes.as_slice() {
                [size] => report::bytes_in_words(*size),
                sizes => format!("{} sizes", sizes.len()),
            };
            format!("  {} {what}, {sizes}", plan.workload.operation)
        }
        Event::Note(text) => format!("  {text}"),
        Event::Met(port_info, path) => {
            let ports = port_info.all().zip(path.all());
            let line = |(port, path): (&PortInfo, &Path)| {
                format!("  on {}, MTU {}{}", port.name(), path.mtu, report::bound(port))
            };
            ports.map(line).collect::<Vec<_>>().join("\n")
        }
        Event::Step(size) => format!("  {} done", report::bytes_in_words(size)),
        Event::Cut(size) => format!("  {} ended by the client", report::bytes_in_words(size)),
        Event::End => "  done".to_owned(),
        Event::Failed(text) => format!("  error: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Workload};

    #[test]
    fn sizes_are_printed_with_their_unit() {
        let plan = Plan { workload: Workload { sizes: vec![2], ..Workload::default() }, ..Plan::default() };
        assert_eq!(line(Event::Asked(plan.into())), "  write bandwidth, 2 B");
        assert_eq!(line(Event::Step(2)), "  2 B done");
        assert_eq!(line(Event::Cut(4096)), "  4 KiB ended by the client");
    }
}
