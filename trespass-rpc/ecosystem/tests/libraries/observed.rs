//! Tests spans, metrics, and another codec.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

use trespass::Transport;
use trespass_rpc::{
    CallOptions, Channel, CodecError, Decode, Encode, Endpoint, Observed, Protobuf, Rkyv, Server, Status,
};
use trespass_rpc_ecosystem::{ADDRESS, Service, SumsClient, SumsServer, on_both, options};

/// A recorder that counts how often each counter and histogram was used, by name and labels.
#[derive(Clone, Debug, Default)]
struct Numbers(Arc<Mutex<BTreeMap<String, u64>>>);

struct Number(Numbers, String);

impl CounterFn for Number {
    fn increment(&self, by: u64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += by;
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Number {
    fn record(&self, seconds: f64) {
        assert!(seconds >= 0.0);
        self.increment(1);
    }
}

impl Numbers {
    fn number(&self, key: &Key) -> Arc<Number> {
        let labels: Vec<_> = key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect();
        Arc::new(Number(self.clone(), format!("{}{}", key.name(), labels.concat())))
    }
}

impl metrics::Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.number(key))
    }
}

/// A subscriber that records the names of spans with their fields.
#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

struct Fields<'s>(&'s mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("trespass_rpc")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        self.0.lock().unwrap().push(text);
        Id::from_u64(self.1.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()[span.into_u64() as usize - 1]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn calls_and_requests_have_spans_and_numbers() {
    let (numbers, spans) = (Numbers::default(), Spans::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = || {
        runtime.block_on(async {
            let options = options(Transport::Tcp);
            let server = Server::new(Observed::new(SumsServer::new(Service::default())));
            let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap();
            let endpoint = Endpoint::spawn(&options).unwrap();
            let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
            let client = SumsClient::new(Observed::new(channel));
            assert_eq!(client.add(1, 2).await, Ok(3));
            assert_eq!(client.add(1, 3).await, Ok(4));
            assert_eq!(client.panic().await.unwrap_err().rpc().unwrap().status, Status::INTERNAL);
            // The caller drops the call, so the request ends on the server too.
            tokio::select! {
                _ = client.wait(60_000) => panic!("it waits"),
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
            let hurried = client.clone().with(CallOptions::default().timeout(std::time::Duration::from_millis(50)));
            assert_eq!(hurried.wait(60_000).await.unwrap_err().rpc().unwrap().status, Status::DEADLINE);
            for ended in ["wait status=2", "wait status=3", "panic status=9"] {
                while !numbers.0.lock().unwrap().contains_key(&format!("rpc_requests method=test.Sums/{ended}")) {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        });
    };
    metrics::with_local_recorder(&numbers, || tracing::subscriber::with_default(spans.clone(), run));
    let numbers = numbers.0.lock().unwrap();
    for (number, count) in [
        ("rpc_calls method=test.Sums/add status=0", 2),
        ("rpc_requests method=test.Sums/add status=0", 2),
        ("rpc_calls_seconds method=test.Sums/add", 2),
        ("rpc_requests_seconds method=test.Sums/add", 2),
        ("rpc_calls method=test.Sums/panic status=9", 1),
        ("rpc_calls method=test.Sums/wait status=2", 1),
    ] {
        assert_eq!(numbers.get(number), Some(&count), "{number} in {numbers:?}");
    }
    let spans = spans.0.lock().unwrap();
    for span in [
        "call method=\"test.Sums/add\" status=0",
        "request method=\"test.Sums/add\" status=0",
        "call method=\"test.Sums/panic\" status=9",
        "request method=\"test.Sums/panic\" status=9",
        "request method=\"test.Sums/wait\" status=3",
        "call method=\"test.Sums/wait\" status=2",
    ] {
        assert!(spans.iter().any(|known| known == span), "{span} in {spans:?}");
    }
}

/// A service whose method uses one message for the arguments, one for the result, and one for the error.
#[trespass_rpc::service(name = "test.Upper", codec = Protobuf)]
trait Upper {
    async fn upper(&self, text: String) -> Result<String, u32>;
}

struct Plain;

impl Upper for Plain {
    async fn upper(&self, text: String) -> Result<String, u32> {
        if text.is_empty() { Err(7) } else { Ok(text.to_uppercase()) }
    }
}

#[test]
fn messages_of_protocol_buffers_survive_the_round_trip() {
    on_both(|options| async move {
        let server = Server::new(UpperServer::new(Plain));
        let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = UpperClient::over(channel).unwrap();
        assert_eq!(client.upper("text".to_owned()).await, Ok("TEXT".to_owned()));
        assert_eq!(client.upper(String::new()).await, Err(trespass_rpc::Error::Application(7)));
    });
}

#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct Shelf {
    books: Vec<(u64, String)>,
}

/// A service whose arguments, results and errors are archives of rkyv.
#[trespass_rpc::service(name = "test.Shelves", codec = Rkyv)]
trait Shelves {
    async fn add(&self, shelf: Shelf, title: String) -> Result<Shelf, u8>;
}

struct Library;

impl Shelves for Library {
    async fn add(&self, mut shelf: Shelf, title: String) -> Result<Shelf, u8> {
        if title.is_empty() {
            return Err(9);
        }
        shelf.books.push((shelf.books.len() as u64, title));
        Ok(shelf)
    }
}

#[test]
fn archives_of_rkyv_survive_the_round_trip() {
    on_both(|options| async move {
        let server = Server::new(ShelvesServer::new(Library));
        let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = ShelvesClient::over(channel).unwrap();
        let empty = Shelf { books: Vec::new() };
        let one = client.add(empty.clone(), "Walden".to_owned()).await.unwrap();
        assert_eq!(one.books, [(0, "Walden".to_owned())]);
        assert_eq!(client.add(one, String::new()).await, Err(trespass_rpc::Error::Application(9)));
    });
}

#[test]
fn damaged_archive_is_an_error() {
    let shelf = Shelf { books: vec![(1, "a title that is not stored inline".to_owned()); 3] };
    let mut bytes = Vec::new();
    Rkyv::encode(&shelf, &mut bytes).unwrap();
    assert_eq!(Rkyv::decode(&bytes), Ok(shelf));
    let cut: Result<Shelf, CodecError> = Rkyv::decode(&bytes[..bytes.len() - 1]);
    assert!(cut.is_err());
}
