//! Runs a row of the table: starts its processes, watches them and checks the result.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use sideway_test_names::{Port, Turn};

use super::Place;
use super::process::{LOOK, Process};
use super::table::{Row, Shape, Way};

/// More than any row takes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// The pause before a client without a server is started again.
const AGAIN: Duration = Duration::from_millis(200);

/// Runs a row.
///
/// # Errors
///
/// What failed, with the output of the programs.
pub(crate) fn play(row: &Row, place: &Place) -> Result<()> {
    // Some programs have no option for the port that they listen on, so other runs must wait.
    let _turn = row.has_fixed_port().then(|| Turn::wait_for(row.name)).transpose()?;
    let deadline = Instant::now() + LIMIT;
    let port = Port::reserve();
    let start = |line: &str| Process::start(command(row.way, line, place, &port));
    match row.shape {
        Shape::One(line) => {
            let mut only = start(line)?;
            finish(&mut only, None, row.expected, deadline)
        }
        Shape::Waiting(line) => said(&mut start(line)?, row.expected, deadline),
        Shape::Pair(server, client) => {
            let mut server = start(server)?;
            listens(&mut server, port.number(), deadline)?;
            let mut client = start(client)?;
            finish(&mut client, Some(&mut server), row.expected, deadline)
        }
        Shape::Compared(server, client, words) => {
            let mut server = start(server)?;
            listens(&mut server, port.number(), deadline)?;
            let mut client = start(client)?;
            finish(&mut client, Some(&mut server), "#bytes", deadline)?;
            let text = place.own.join(row.name).with_extension("txt");
            fs::write(&text, client.printed()).with_context(|| format!("cannot write {}", text.display()))?;
            let mut stride = Process::start(compare(words, place, &text))?;
            finish(&mut stride, None, row.expected, deadline)
                .with_context(|| format!("stride-perf's input:\n{}", client.story()))
        }
        Shape::Said(receiver, ready, sender) => {
            let mut receiver = start(receiver)?;
            said(&mut receiver, ready, deadline)?;
            let mut sender = start(sender)?;
            finish(&mut sender, Some(&mut receiver), row.expected, deadline)
        }
        Shape::Retried(server, client) | Shape::Serving(server, client) => {
            let ends = matches!(row.shape, Shape::Retried(..));
            let named = server.contains("{port}");
            let mut server = start(server)?;
            if named {
                listens(&mut server, port.number(), deadline)?;
            }
            loop {
                let mut attempt = start(client)?;
                let status = attempt.wait(deadline)?;
                let served = server.ended()?.is_some();
                match status {
                    // The client was too early: a server exits after it has served a client.
                    Some(status) if !status.success() && !served && Instant::now() + AGAIN < deadline => {
                        thread::sleep(AGAIN);
                    }
                    _ => return finish(&mut attempt, ends.then_some(&mut server), row.expected, deadline),
                }
            }
        }
    }
}

/// The command of a row. The first word runs through softrnic-run, unless the row has `{run}`, `{sockets}` or `{stride}`.
fn command(way: Way, line: &str, place: &Place, port: &Port) -> Command {
    let run = place.built.run.display().to_string();
    let own = place.own.display().to_string();
    let stride = place.stride.display().to_string();
    let sockets = place.sockets.display().to_string();
    let lens = place.built.run.with_file_name("lens").display().to_string();
    let filled = |word: &str| {
        let word = word.replace("{port}", &port.number().to_string()).replace("{group}", &port.group(7).to_string());
        let word = word.replace("{build}", &own).replace("{lens}", &lens);
        word.replace("{run}", &run).replace("{sockets}", &sockets).replace("{stride}", &stride)
    };
    let mut words: Vec<String> = line.split_whitespace().map(filled).collect();
    if !["{run}", "{sockets}", "{stride}"].iter().any(|place| line.contains(place)) {
        let option = (way != Way::Preload).then(|| "--libraries".to_owned());
        words.splice(0..0, std::iter::once(run.clone()).chain(option));
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for name in ["SOFTRNIC_DEVICES", "SOFTRNIC_PRELOAD", "LD_PRELOAD", "RDMA_MUMMY_LIBIBVERBS", "RDMA_MUMMY_LIBRDMACM"]
    {
        command.env_remove(name);
    }
    // The row uses softrnic, even if this machine has other devices.
    command.env("RDMA_MUMMY_RDMACM", "softrnic");
    if way == Way::Alone {
        command.envs([("RDMA_MUMMY_LIBIBVERBS", "/nonexistent"), ("RDMA_MUMMY_LIBRDMACM", "/nonexistent")]);
    }
    command
}

/// stride-perf, which measures and compares with a text. The speeds do not matter here.
fn compare(words: &str, place: &Place, text: &Path) -> Command {
    let mut command = Command::new(&place.stride);
    command.args(words.split_whitespace()).args(["-d", "soft0", "-n", "100", "--loopback", "--threshold", "1e9"]);
    command.arg("--compare").arg(text).env_remove("SOFTRNIC_DEVICES").env("NO_COLOR", "1");
    command
}

/// Waits for the end of the last process, and then of the other. Both must succeed, and the last must print the
/// expected text.
pub(super) fn finish(
    last: &mut Process,
    mut other: Option<&mut Process>,
    expected: &str,
    deadline: Instant,
) -> Result<()> {
    let status = last.wait(deadline)?;
    let after = other.as_mut().map(|other| other.wait(deadline)).transpose()?;
    let stories = || match &other {
        Some(other) => format!("{}\n{}", other.story(), last.story()),
        None => last.story(),
    };
    match status {
        None => bail!("did not end within {} s\n{}", LIMIT.as_secs(), stories()),
        Some(status) => {
            ensure!(status.success() || asked_too_late(status, &last.printed()), "{status}\n{}", stories());
        }
    }
    match (after, &other) {
        (Some(None), _) => bail!("the server did not end within {} s\n{}", LIMIT.as_secs(), stories()),
        (Some(Some(status)), Some(other)) => {
            let is_well = status.success() || asked_too_late(status, &other.printed());
            ensure!(is_well, "the server: {status}\n{}", stories());
        }
        _ => {}
    }
    ensure!(contains(&last.printed(), expected), "did not print {expected:?}\n{}", stories());
    Ok(())
}

/// Whether rping failed only because of a race in rping: it closes its event channel while its other thread is about to
/// read the next event. If that thread is late, rping exits with an error after a successful run, in which it has
/// received the disconnect event.
fn asked_too_late(status: ExitStatus, printed: &str) -> bool {
    // The program was not killed by a signal.
    status.code().is_some()
        && printed.contains("DISCONNECT EVENT")
        && printed.contains("rdma_get_cm_event: Bad file descriptor")
}

/// Waits until a running process has printed `expected`.
fn said(process: &mut Process, expected: &str, deadline: Instant) -> Result<()> {
    loop {
        if contains(&process.printed(), expected) {
            return Ok(());
        }
        if let Some(status) = process.ended()? {
            // The last output may have arrived as the process exited.
            ensure!(contains(&process.printed(), expected), "{status}\n{}", process.story());
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "did not print {expected:?}\n{}", process.story());
        thread::sleep(LOOK);
    }
}

/// Whether a line contains this, with any number of blanks between two words.
fn contains(printed: &str, expected: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let expected = words(expected);
    printed.lines().map(words).any(|line| line.windows(expected.len()).any(|part| part == expected))
}

/// Waits until the server listens on the port, over TCP or through softrnic's connection manager.
fn listens(server: &mut Process, port: u16, deadline: Instant) -> Result<()> {
    loop {
        if listens_on_tcp(server.id(), port) || listens_on_softrnic(port) {
            return Ok(());
        }
        if let Some(status) = server.ended()? {
            bail!("the server: {status}\n{}", server.story());
        }
        ensure!(Instant::now() < deadline, "the server does not listen\n{}", server.story());
        thread::sleep(LOOK);
    }
}

fn listens_on_tcp(process: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|name| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some(LISTEN)
        })
    })
}

fn listens_on_softrnic(port: u16) -> bool {
    const ACCEPTS: &str = "00010000";
    let wanted = format!("/{port}/");
    fs::read_to_string("/proc/net/unix").unwrap_or_default().lines().any(|line| {
        line.contains("@softrnic/1/cm/")
            && line.contains(&wanted)
            && line.split_whitespace().any(|word| word == ACCEPTS)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::{asked_too_late, contains};

    #[test]
    fn late_event_read_of_rping_is_accepted() {
        let asked = "rdma_get_cm_event: Bad file descriptor";
        let (error, abort) = (ExitStatus::from_raw(255 << 8), ExitStatus::from_raw(6));
        let all = format!("client DISCONNECT EVENT...\n{asked}\n");
        assert!(asked_too_late(error, &all) && !asked_too_late(abort, &all));
        assert!(!asked_too_late(error, asked));
        assert!(!asked_too_late(error, "client DISCONNECT EVENT...\nrdma_get_cm_event: Invalid argument\n"));
    }

    #[test]
    fn words_are_found_across_any_blanks() {
        assert!(contains("a\n 65536      1000   12.3\n", "65536 1000"));
        assert!(!contains("65536 10000", "65536 1000"));
        assert!(!contains("65536\n1000", "65536 1000"));
    }
}
