//! Checks plans. The client checks its plan before it sends it. The server checks the plan again, because it does not
//! trust its peers.

mod combined;
mod ports;

use std::time::Duration;

use thiserror::Error;

use super::{
    ALL_COUNTERS, Measure, Memory, NAMED, Operation, Plan, RunLength, SWEPT, Semantics, SideConfig, Transport, size,
    time,
};

/// The reason why a plan is invalid. The text names the option and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Contradiction(pub String);

/// Limits that the path between both sides imposes on messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Length of the longest message in bytes, if the devices have a limit of their own.
    pub longest: Option<u32>,
}

/// Maximum number of queue pairs.
pub const MOST_QUEUE_PAIRS: u32 = 16384;
/// Maximum number of threads per side.
pub const MOST_THREADS: u32 = 1024;
/// Maximum depth of a queue. A device may support less than this.
pub const MOST_DEPTH: u32 = 65536;
/// Maximum number of messages of a latency test. A latency test keeps one sample per message in memory.
pub const MOST_SAMPLES: u64 = 100_000_000;
/// Maximum number of messages of a bandwidth test.
const MOST_MESSAGES: u64 = 1 << 48;
/// Maximum number of intervals of a timed test.
const MOST_INTERVALS: f64 = 100_000.0;
/// The largest flow label, which has 20 bits.
const MOST_FLOW_LABEL: u64 = (1 << 20) - 1;
/// The LIDs of single ports. LIDs above this range are for multicast.
const LIDS: std::ops::RangeInclusive<u64> = 1..=0xbfff;
/// Maximum number of ports per side.
const MOST_PORTS: usize = 64;
/// Maximum number of counter names.
const MOST_COUNTERS: usize = 256;
/// The longest time that a test may run.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

fn refuse<T>(sentence: impl Into<String>) -> Result<T, Contradiction> {
    Err(Contradiction(sentence.into()))
}

fn within(option: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<(), Contradiction> {
    if range.contains(&value) {
        return Ok(());
    }
    refuse(format!("{option} is {value}; it can be {} to {}", range.start(), range.end()))
}

impl Plan {
    /// Checks that the options are compatible with each other, as far as this can be checked without a device.
    ///
    /// # Errors
    ///
    /// Returns the first conflict.
    pub fn check(&self) -> Result<(), Contradiction> {
        self.check_named(if self.workload.sizes.len() > 1 { SWEPT } else { NAMED })
    }

    /// Like [`check`](Self::check), with the name of the option that set the largest size.
    ///
    /// # Errors
    ///
    /// Returns the first conflict.
    pub fn check_named(&self, option: &str) -> Result<(), Contradiction> {
        let Self { workload, placement, .. } = self;
        self.check_operation()?;
        self.check_sizes(option)?;
        self.check_amount()?;
        self.check_ports()?;
        self.check_queues()?;
        self.check_network()?;
        match workload.measure {
            Measure::Bandwidth => {}
            Measure::Latency(semantics) => self.check_latency(semantics)?,
        }
        self.check_validation()?;
        self.check_memory()?;
        self.check_gap()?;
        self.check_endless()?;
        self.check_counters()?;
        check_config(&placement.client)?;
        check_config(&placement.server)
    }

    /// Checks that the messages fit the path. `option` is the option that set the largest size; the error names it.
    ///
    /// # Errors
    ///
    /// Returns an error that names the largest possible size.
    pub fn check_limits(&self, limits: PathLimits, option: &str) -> Result<(), Contradiction> {
        let Self { workload, attributes, .. } = self;
        let Some(largest) = workload.sizes.iter().max().filter(|largest| !self.fits(**largest, limits)) else {
            return Ok(());
        };
        let (PathLimits { mtu, .. }, most) = (limits, self.limit(limits).unwrap_or(u32::MAX));
        let instead = format!("and the largest message has {largest}; give {option} {most} or less");
        if attributes.transport == Transport::Ud {
            return refuse(format!("a datagram holds at most {mtu} bytes on this path, {instead}, or --transport rc"));
        }
        let service = attributes.transport;
        if self.polls_memory() && most == mtu {
            return refuse(format!(
                "{service} delivers packets in any order, so a write is polled by its last byte only up to one packet \
                 of {mtu} bytes, {instead}, or --imm, or --latency ack"
            ));
        }
        refuse(format!("a {} over {service} holds at most {most} bytes on this path, {instead}", workload.operation))
    }

    /// Whether messages of `size` bytes fit the path.
    pub fn fits(&self, size: u64, limits: PathLimits) -> bool {
        self.limit(limits).is_none_or(|most| size <= u64::from(most))
    }

    /// Returns the length in bytes of the longest message that fits the path. Returns `None` if the path does not limit
    /// messages further than every transport does.
    pub fn limit(&self, PathLimits { mtu, longest }: PathLimits) -> Option<u32> {
        match self.attributes.transport {
            Transport::Ud => Some(mtu),
            Transport::Srd if self.polls_memory() => Some(longest.map_or(mtu, |longest| longest.min(mtu))),
            Transport::Srd => longest,
            Transport::Rc | Transport::Uc | Transport::Xrc | Transport::Dc => None,
        }
    }

    /// Whether receivers poll memory. A latency test of plain writes requires this, because plain writes raise no
    /// completion at their destination.
    pub fn polls_memory(&self) -> bool {
        self.workload.operation == Operation::Write
            && matches!(self.workload.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt))
    }

    /// Whether the receiver counts the messages that arrive, because messages may be lost.
    pub fn counts_arrivals(&self) -> bool {
        let Self { workload, attributes, .. } = self;
        workload.measure == Measure::Bandwidth
            && !attributes.transport.is_reliable()
            && workload.operation.takes_receive()
    }

    /// Whether the receiver checks memory for any message that has arrived. Plain writes over an unreliable transport
    /// require this, because they may be lost and raise no completion at their destination.
    pub fn looks_for_arrivals(&self) -> bool {
        let Self { workload, attributes, .. } = self;
        workload.measure == Measure::Bandwidth
            && !attributes.transport.is_reliable()
            && workload.operation == Operation::Write
    }

    /// Whether the client sends messages.
    pub fn client_sends(&self) -> bool {
        !self.workload.direction.is_reversed()
    }

    /// Whether the server sends messages.
    pub fn server_sends(&self) -> bool {
        let Self { workload, .. } = self;
        workload.direction.is_both()
            || workload.direction.is_reversed()
            || matches!(workload.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt))
    }

    /// Returns the given length of the intervals if all intervals are kept until the end. In an endless test, short
    /// intervals are merged into longer ones instead.
    pub fn interval_kept(&self) -> Option<Duration> {
        self.sampling.interval.filter(|_| !self.workload.is_endless)
    }

    /// Returns how many receives are posted per queue pair. The number is 0 if the operation consumes none.
    pub fn receives(&self) -> u32 {
        if self.workload.operation.takes_receive() { self.queues.rx_depth } else { 0 }
    }

    fn check_operation(&self) -> Result<(), Contradiction> {
        let Self { workload, attributes, .. } = self;
        if attributes.transport.has(workload.operation) {
            return Ok(());
        }
        let instead = match attributes.transport {
            Transport::Srd => "measure another operation, or give --transport rc with a device other than EFA",
            Transport::Ud if !workload.operation.fetches() => "give --transport rc or uc, or measure `send`",
            _ => "give --transport rc",
        };
        refuse(format!(
            "--transport {} does not support {}; {instead}",
            attributes.transport.to_string().to_lowercase(),
            workload.operation
        ))
    }

    fn check_sizes(&self, option: &str) -> Result<(), Contradiction> {
        let Self { workload, attributes, .. } = self;
        if workload.operation.is_atomic() && workload.sizes != [8] {
            return refuse("atomics have eight bytes; leave out --msg-size and --all-sizes");
        }
        if workload.sizes.is_empty() {
            return refuse("no size to measure; --min-msg-size must not exceed --max-msg-size");
        }
        if workload.sizes.len() > size::MOST_SIZES {
            return refuse(format!("more than {} sizes; give a larger --step-factor", size::MOST_SIZES));
        }
        for bytes in &workload.sizes {
            within("--msg-size", *bytes, 1..=size::LARGEST)?;
        }
        self.check_limits(PathLimits { mtu: attributes.mtu.unwrap_or(4096), longest: None }, option)
    }

    fn check_amount(&self) -> Result<(), Contradiction> {
        let most = if self.workload.measure == Measure::Bandwidth { MOST_MESSAGES } else { MOST_SAMPLES };
        match self.workload.amount {
            RunLength::Messages { count, warm_up } => {
                within("--iters", count, 1..=most)?;
                within("--warm-up", warm_up, 0..=most)
            }
            RunLength::Time { time, warm_up } => {
                if time < Duration::from_millis(1) || time > LONGEST {
                    return refuse(format!("--duration is {}; it can be 1ms to a year", time::show(time)));
                }
                if warm_up > LONGEST {
                    return refuse(format!("--warm-up is {}; it can be up to a year", time::show(warm_up)));
                }
                Ok(())
            }
        }
    }

    fn check_queues(&self) -> Result<(), Contradiction> {
        let Self { workload, queues, attributes, sampling, .. } = self;
        // Checks the number of threads first, because it is the default for the number of queue pairs.
        within("--threads", queues.threads.into(), 1..=MOST_THREADS.into())?;
        within("--qp-count", queues.queue_pairs.into(), 1..=MOST_QUEUE_PAIRS.into())?;
        within("--tx-depth", queues.tx_depth.into(), 1..=MOST_DEPTH.into())?;
        within("--rx-depth", queues.rx_depth.into(), 1..=MOST_DEPTH.into())?;
        within("--post-list", queues.post_list.into(), 1..=MOST_DEPTH.into())?;
        within("--cq-mod", queues.cq_moderation.into(), 1..=MOST_DEPTH.into())?;
        let (threads, pairs, depth) = (queues.threads, queues.queue_pairs, queues.tx_depth);
        if threads > pairs {
            return refuse(format!(
                "--threads {threads} is above --qp-count {pairs}; give --qp-count {threads} or more"
            ));
        }
        if queues.post_list > depth {
            let list = queues.post_list;
            return refuse(format!("--post-list {list} is above --tx-depth {depth}; give --tx-depth {list} or more"));
        }
        if queues.cq_moderation > depth {
            let every = queues.cq_moderation;
            return refuse(format!(
                "--cq-mod {every} is above --tx-depth {depth}, so no request would complete; give --cq-mod {depth} or less"
            ));
        }
        if let Some(list) = queues.receive_list {
            within("--recv-post-list", list.into(), 1..=queues.rx_depth.into())?;
            if !workload.operation.takes_receive() {
                return refuse(format!(
                    "--recv-post-list applies to operations that consume receives, and {} does not; leave it out",
                    workload.operation
                ));
            }
        }
        if !attributes.transport.is_ordered() && queues.cq_moderation != 1 {
            return refuse(format!(
                "messages over {} complete in any order, so --cq-mod must be 1; leave it out",
                attributes.transport
            ));
        }
        self.check_completions()?;
        if let Some(interval) = sampling.interval
            && !(Duration::from_millis(1)..=LONGEST).contains(&interval)
        {
            return refuse(format!("--interval is {}; it can be 1ms to a year", time::show(interval)));
        }
        if let (Some(interval), RunLength::Time { time, .. }) = (sampling.interval, workload.amount)
            && time.as_secs_f64() / interval.as_secs_f64() > MOST_INTERVALS
            && !workload.is_endless
        {
            return refuse(format!(
                "--interval {} makes more than {MOST_INTERVALS} intervals in {}; give a longer one",
                time::show(interval),
                time::show(time)
            ));
        }
        match workload.rate_limit {
            Some(rate) if !rate.is_finite() || rate <= 0.0 => refuse("--rate-limit must be above 0 Gb/s"),
            _ => self.check_bursts(),
        }
    }

    fn check_counters(&self) -> Result<(), Contradiction> {
        let Self { sampling, .. } = self;
        let is_all = |name: &String| name == ALL_COUNTERS;
        if sampling.counters.len() > 1 && sampling.counters.iter().any(is_all) {
            return refuse("--counters all includes every counter; leave out the other names");
        }
        if sampling.counters.len() > MOST_COUNTERS {
            return refuse(format!("--counters has more than {MOST_COUNTERS} names; give --counters all"));
        }
        match sampling.counters.iter().find(|name| name.is_empty() || name.len() > 128) {
            Some(name) => refuse(format!(
                "--counters {name:?} is not a counter's name; give all, or names such as port_xmit_data"
            )),
            None => Ok(()),
        }
    }

    fn check_bursts(&self) -> Result<(), Contradiction> {
        let Self { workload, queues, .. } = self;
        let Some(size) = workload.burst_size else { return Ok(()) };
        within("--burst-size", size.into(), 1..=u32::MAX.into())?;
        if workload.rate_limit.is_none() {
            return refuse("--burst-size requires --rate-limit; give --rate-limit as well, or leave it out");
        }
        let list = queues.post_list;
        if size % list != 0 {
            return refuse(format!(
                "--burst-size {size} is not a multiple of --post-list {list}; give a multiple of {list}"
            ));
        }
        Ok(())
    }

    /// Checks that the send queue cannot fill up with unsignaled requests. Without this check, the queue could fill up,
    /// because each post list is posted as a whole.
    fn check_completions(&self) -> Result<(), Contradiction> {
        let Self { queues, .. } = self;
        let (list, every, depth) = (queues.post_list, queues.cq_moderation, queues.tx_depth);
        let (mut common, mut rest) = (list, every);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        // The number of unsignaled requests is always a multiple of the common divisor, so it is at most `every -
        // common`.
        let least = list + (every - common);
        if least > depth {
            return refuse(format!(
                "--cq-mod {every} and --post-list {list} fill the send queue of --tx-depth {depth} before a completion \
                 is due; give --tx-depth {least} or more, or --cq-mod {list}"
            ));
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), Contradiction> {
        let Self { attributes, placement, .. } = self;
        if let Some(mtu) = attributes.mtu
            && ![256, 512, 1024, 2048, 4096].contains(&mtu)
        {
            return refuse(format!("--mtu is {mtu}; it can be 256, 512, 1024, 2048 or 4096"));
        }
        let configs = [&placement.client, &placement.server];
        let has_index = configs.iter().any(|config| config.spots().iter().any(|spot| spot.gid_index.is_some()));
        if attributes.uses_rdma_cm && has_index {
            return refuse(
                "--gid-index and --remote-gid-index conflict with --rdma-cm, which selects GIDs by address; leave them out",
            );
        }
        if attributes.uses_rdma_cm && configs.iter().any(|config| config.pkey_index.is_some()) {
            return refuse(
                "--pkey-index and --remote-pkey-index conflict with --rdma-cm, which selects the partition; leave them out",
            );
        }
        if attributes.uses_rdma_cm && configs.iter().any(|config| config.dlid.is_some()) {
            return refuse("--dlid and --remote-dlid conflict with --rdma-cm, which resolves the path; leave them out");
        }
        if attributes.uses_rdma_cm && matches!(attributes.transport, Transport::Dc | Transport::Srd) {
            return refuse("--rdma-cm supports RC, UC, UD and XRC only; leave it out, or give --transport rc");
        }
        if placement.is_on_demand && matches!(attributes.transport, Transport::Dc | Transport::Srd) {
            let service = attributes.transport;
            return refuse(format!("--odp: devices do not report on-demand paging over {service}; leave it out"));
        }
        within("--qp-timeout", attributes.qp_timeout.into(), 0..=31)?;
        within("--flow-label", attributes.flow_label.into(), 0..=MOST_FLOW_LABEL)?;
        within("--sl", attributes.service_level.into(), 0..=15)
    }
}

fn check_config(config: &SideConfig) -> Result<(), Contradiction> {
    let spots = config.spots();
    if spots.iter().any(|spot| spot.port == Some(0)) {
        return refuse("--ib-port is 0; ports are numbered from 1");
    }
    if let Some(lid) = config.dlid {
        within("--dlid", lid.into(), LIDS)?;
    }
    let devices = spots.iter().map(|spot| spot.device.as_deref());
    let texts = devices.chain([config.memory.as_ref().and_then(Memory::cuda)]);
    if let Some(text) = texts.flatten().find(|text| text.is_empty() || text.len() > 64) {
        return refuse(format!("{text:?} is not the name of a device or GPU; see `stride-perf devices`"));
    }
    match &config.cpus {
        Some(cpus) if cpus.is_empty() || cpus.len() > 65536 => {
            refuse("--cpu requires processor numbers, such as 0,2-5")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
