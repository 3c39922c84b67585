//! A server.

use anyhow::{Result, anyhow};

use super::exit::Exit;
use super::say;
use crate::cli::Service;
use crate::exchange::{self, Event, Host};
use crate::fabric::Fabric;
use crate::plan::Measure;
use crate::report;

/// Serves until it is stopped.
pub(super) fn serve(service: Service, fabric: &dyn Fabric) -> Result<Exit> {
    let Service { place, test, contact, is_one_off, warnings } = service;
    warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    let listener = exchange::listen(&contact).map_err(|failure| anyhow!("{failure}"))?;
    let at = listener.local_addr()?;
    say(&format!("waiting for clients on TCP port {}; Ctrl-C ends", at.port()));
    let host = Host { place, test };
    let told = exchange::serve(&listener, fabric, &host, contact.timeout, is_one_off, &mut tell);
    told.map(|()| Exit::Done).map_err(|failure| anyhow!("{failure}"))
}

/// A line for each thing that happens.
fn tell(event: Event) {
    say(&match event {
        Event::Client(whom) => format!("{whom}: has come"),
        Event::Asked(plan) => {
            let what = if plan.measure == Measure::Bandwidth { "bandwidth" } else { "latency" };
            let sizes = match plan.sizes.as_slice() {
                [size] => report::bytes(*size),
                sizes => format!("{} sizes", sizes.len()),
            };
            format!("  {} {what}, {sizes}", plan.operation)
        }
        Event::Note(text) => format!("  {text}"),
        Event::Met(facts, path) => format!("  on {} port {}, MTU {}", facts.device, facts.port, path.mtu),
        Event::Step(size) => format!("  {} done", report::bytes(size)),
        Event::End => "  done".to_owned(),
        Event::Failed(text) => format!("  error: {text}"),
    });
}
