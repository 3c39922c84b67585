//! trespass-rpc: unary and streaming calls with a pool, which connects again.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use trespass::Transport;
use trespass_rpc::{CallOptions, Endpoint, Error, Pool, Server};
use trespass_rpc_ecosystem::{ADDRESS, Listed, Refusal, Service, SumsClient, SumsServer, options};

use crate::harness::{Ended, Left};
use crate::schedules::{is_survived, sweep};

const PATIENCE: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 40;

/// Repeats an idempotent call until it succeeds.
async fn repeat<T, F: Future<Output = Result<T, Error<Refusal>>>>(
    name: &str,
    call: impl Fn() -> F,
) -> Result<T, String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match timeout(PATIENCE, call()).await.unwrap_or_else(|_| panic!("{name} outlives its time limit")) {
            Ok(found) => return Ok(found),
            Err(Error::Rpc(error)) => last = format!("{name}: {error}"),
            Err(Error::Application(refusal)) => last = format!("{name}: {refusal:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
    Err(last)
}

/// The items of a stream, until its end.
async fn items(client: &SumsClient<Pool>) -> Result<(), Error<Refusal>> {
    let mut answers = client.count(100, 1_000);
    let mut expected = 0;
    while let Some(answer) = answers.next().await {
        assert_eq!(answer?, (expected, vec![expected as u8; 1_000]), "lost, twice or changed");
        expected += 1;
    }
    assert_eq!(expected, 100, "the stream ended early without an error");
    Ok(())
}

async fn doubles(client: &SumsClient<Pool>) -> Result<(), Error<Refusal>> {
    let mut answers = client.double(Listed(0..500));
    let mut expected = 0;
    while let Some(answer) = answers.next().await {
        assert_eq!(answer?, 2 * expected, "lost, twice or changed");
        expected += 1;
    }
    assert_eq!(expected, 500, "the stream ended early without an error");
    Ok(())
}

async fn talk(transport: Transport) -> Ended {
    let mut options = options(transport);
    options.worker.linger = Duration::from_secs(1);
    options.connect = Duration::from_secs(3);
    let server = Endpoint::spawn(&options).map_err(|error| format!("server: {error}"))?;
    let serving = Server::new(SumsServer::new(Service::default())).bind_on(&server, &ADDRESS).await;
    let serving = serving.map_err(|error| format!("bind: {error}"))?;
    let endpoint = Endpoint::spawn(&options).map_err(|error| format!("client: {error}"))?;
    let pool = Pool::new(&endpoint, serving.local_addr().to_string()).connections(2);
    let limit = CallOptions::default().timeout(Duration::from_secs(10));
    let client = SumsClient::new(pool).with(limit);
    for number in 0..10 {
        assert_eq!(repeat("add", || client.add(number, 1)).await?, number + 1);
    }
    assert_eq!(repeat("zeros", || client.zeros(100_000)).await?, vec![0; 100_000]);
    repeat("count", || items(&client)).await?;
    repeat("double", || doubles(&client)).await
}

fn calls(transport: Transport) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(talk(transport))
}

#[test]
fn calls_of_a_pool() {
    sweep("rpc", || calls(Transport::Any), Left::Nothing, is_survived);
}
