//! Waiting for clients.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use sideway::rdmacm::{ConnectError, ConnectStep, Listener, Request};

use super::arguments::Arguments;
use super::server::serve;
use super::voice::Voice;

/// Clients that are served at once with -P; others are sent away.
const MOST: usize = 64;

/// Lines that wait for being printed: a client whose lines nobody reads is served no further.
const LINES: usize = 64;

/// What comes from those who serve clients.
#[derive(Debug)]
enum News {
    /// To be printed.
    Line(String),
    /// One client failed.
    Failed(anyhow::Error),
    /// There will be no more clients.
    Over(anyhow::Error),
}

/// Serves one client.
pub(crate) fn one(arguments: &Arguments, say: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    let mut voice = voice(arguments, say);
    let listener = listen(arguments, &mut voice)?;
    let request = listener.accept(arguments.wait.0)?;
    serve(request, arguments, &mut voice)
}

/// Serves clients, each in a thread of its own, until the program is killed. What fails with one of them is told.
pub(crate) fn all(arguments: Arguments, say: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    let listener = listen(&arguments, &mut voice(&arguments, say))?;
    let (news, heard) = mpsc::sync_channel(LINES);
    let arguments = Arc::new(arguments);
    thread::spawn(move || {
        let error = accept(&listener, &arguments, &news);
        // Who prints has gone only when the program ends.
        let _ = news.send(News::Over(error));
    });
    for news in heard {
        match news {
            News::Line(line) => say(line)?,
            // Nothing is left to do if even that fails.
            News::Failed(error) => drop(writeln!(io::stderr(), "{error:#}")),
            News::Over(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes clients until that fails.
fn accept(listener: &Listener, arguments: &Arc<Arguments>, news: &SyncSender<News>) -> anyhow::Error {
    loop {
        let served =
            listener.accept(arguments.wait.0).map_err(Into::into).and_then(|request| start(request, arguments, news));
        match served {
            Ok(()) => {}
            Err(error) if is_of_client(&error) => drop(news.send(News::Failed(error))),
            Err(error) => return error,
        }
    }
}

/// Whether the failure is one of a client, and another may come.
fn is_of_client(error: &anyhow::Error) -> bool {
    let step = error.downcast_ref::<ConnectError>().map(ConnectError::step);
    matches!(step, Some(ConnectStep::Accept | ConnectStep::Reject))
}

/// Serves a client in a thread of its own.
fn start(request: Request, arguments: &Arc<Arguments>, news: &SyncSender<News>) -> Result<()> {
    let who = request.peer_address().map_or_else(|| "a client".into(), |address| address.to_string());
    // Each thread holds the arguments, and so does who starts them.
    if Arc::strong_count(arguments) > MOST {
        request.reject(b"busy")?;
        return Ok(news.send(News::Failed(anyhow!("{who} was sent away: {MOST} clients are being served")))?);
    }
    let (arguments, news) = (Arc::clone(arguments), news.clone());
    let work = move || {
        let mut say = |line| Ok(news.send(News::Line(line))?);
        if let Err(error) = serve(request, &arguments, &mut voice(&arguments, &mut say)) {
            // Who prints has gone only when the program ends.
            let _ = news.send(News::Failed(error.context(format!("{who} was not served to the end"))));
        }
    };
    thread::Builder::new().spawn(work).context("a thread for a client does not start")?;
    Ok(())
}

fn listen(arguments: &Arguments, voice: &mut Voice<'_>) -> Result<Listener> {
    let host = arguments.address.as_deref().unwrap_or("0.0.0.0");
    let mut builder = Listener::builder();
    builder.setup_timeout(arguments.timeout.0.unwrap_or(Duration::MAX));
    let listener = builder.bind((host, arguments.port))?;
    voice.step(format_args!("listening at {}", listener.local_address()))?;
    Ok(listener)
}

fn voice<'a>(arguments: &Arguments, say: &'a mut dyn FnMut(String) -> Result<()>) -> Voice<'a> {
    Voice::new("server ping data", arguments.verbose, arguments.debug, say)
}
