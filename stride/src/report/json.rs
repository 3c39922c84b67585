//! JSON output, which is a document per test or a line per event. `schema/stride-perf.schema.json` describes both.

use std::io::{self, Write};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::verdict::Verdict;
use super::{Environment, Row, Series};
use crate::plan::{Measure, Plan, Semantics};
use crate::stats::{Interval, Seen};

/// The number of the schema, which changes if programs that read the previous schema would misinterpret the data.
pub const FORMAT: u32 = 1;

/// The results of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The value of [`FORMAT`] in the program that wrote the document.
    pub format: u32,
    /// The environment of the test.
    pub environment: Environment,
    /// The semantics of a latency. `None` for a bandwidth.
    pub semantics: Option<Semantics>,
    /// The results of each size, in the order of the test.
    pub rows: Vec<Row>,
    /// Hints for the user.
    pub hints: Vec<String>,
    /// The error that ended the test, if any.
    pub error: Option<String>,
    /// The verdict, if the user gave limits or a baseline and the test is complete.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// An event of a test. Each event is one line of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The test has started.
    Start(Box<Start>),
    /// An interval of a size has ended.
    Interval(Part),
    /// A size is complete.
    Row(Row),
    /// The test has ended.
    End(End),
}

/// The start of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The value of [`FORMAT`] in the program that wrote the stream.
    pub format: u32,
    /// The environment of the test.
    pub environment: Environment,
    /// The semantics of a latency. `None` for a bandwidth.
    pub semantics: Option<Semantics>,
}

/// An interval of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Message size in bytes.
    pub size_bytes: u64,
    /// The figures of the interval.
    #[serde(flatten)]
    pub interval: Interval,
    /// The number of bytes, if this is a bandwidth.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// The rate in 10^9 bits of payload per second, if this is a bandwidth.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gigabits_per_second: Option<f64>,
}

/// The end of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Number of rows.
    pub rows: u64,
    /// Hints for the user.
    pub hints: Vec<String>,
    /// The error that ended the test, if any.
    pub error: Option<String>,
    /// The verdict, if the user gave limits or a baseline and the test is complete.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// Returns the semantics of the latency that a plan measures, if it measures one.
fn semantics(plan: &Plan) -> Option<Semantics> {
    match plan.workload.measure {
        Measure::Bandwidth => None,
        Measure::Latency(semantics) => Some(semantics),
    }
}

impl Event {
    /// Returns the first event of a stream.
    pub fn start(environment: Environment) -> Self {
        let semantics = semantics(&environment.plan);
        Self::Start(Box::new(Start { format: FORMAT, environment, semantics }))
    }

    /// Returns the event that an interval of a size has ended.
    pub fn interval(size: u64, interval: &Interval) -> Self {
        let bytes = match interval.seen {
            Seen::Bandwidth { messages } => Some(messages.saturating_mul(size)),
            Seen::Latency { .. } => None,
        };
        let gigabits_per_second = interval.rates(size).map(|rates| rates.gigabits_per_second);
        Self::Interval(Part { size_bytes: size, interval: *interval, bytes, gigabits_per_second })
    }

    /// Writes the event as one line.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        out.flush()
    }
}

impl Document {
    /// Creates the document of a complete test. If the test is incomplete, the caller has to set [`Document::error`].
    /// If there is a verdict, it has to set [`Document::verdict`].
    pub fn new(environment: Environment, rows: Vec<Row>, hints: Vec<String>) -> Self {
        let semantics = semantics(&environment.plan);
        Self { format: FORMAT, environment, semantics, rows, hints, error: None, verdict: None }
    }

    /// Writes the document with one row per line, so that tools that work by lines can compare documents.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{{\n\"format\": {},", self.format)?;
        writeln!(out, "\"environment\": {},", serde_json::to_string_pretty(&self.environment)?)?;
        writeln!(out, "\"semantics\": {},", serde_json::to_string(&self.semantics)?)?;
        let rows: Vec<_> = self.rows.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
        writeln!(out, "\"rows\": [\n{}\n],", rows.join(",\n"))?;
        writeln!(out, "\"hints\": {},", serde_json::to_string_pretty(&self.hints)?)?;
        writeln!(out, "\"error\": {},", serde_json::to_string(&self.error)?)?;
        writeln!(out, "\"verdict\": {}\n}}", serde_json::to_string_pretty(&self.verdict)?)?;
        out.flush()
    }

    /// Reads the output of [`Document::write`], or a stream of [`Event::write`].
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the text is not such output or has another format number.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            kind: Option<String>,
        }
        /// JSON of perftest.
        #[derive(Deserialize)]
        struct Perftest {
            #[serde(rename = "test_info")]
            _test_info: serde::de::IgnoredAny,
        }
        if let Some(Ok(Event::End(End { error: Some(error), .. }))) =
            serde_json::Deserializer::from_str(text).into_iter::<Event>().next()
        {
            bail!("it has no results: the test did not start: {error}; run it again");
        }
        let head = serde_json::Deserializer::from_str(text).into_iter::<Head>().next().context("it is empty")?;
        ensure!(
            head.is_ok() || serde_json::from_str::<Perftest>(text).is_err(),
            "it is JSON of perftest, which has no units and only the last size; name the text that perftest printed"
        );
        let Head { format: found, kind } = head.context("it is not JSON of stride-perf")?;
        ensure!(
            kind.is_none(),
            "it is the result of a mesh; `stride-perf report` shows it, and `stride-perf mesh` compares with it"
        );
        ensure!(
            found == FORMAT,
            "its format is {found}; this version of stride-perf reads format {FORMAT}; run the test again"
        );
        serde_json::from_str(text).or_else(|whole| {
            let events = serde_json::Deserializer::from_str(text).into_iter::<Event>().collect::<Result<Vec<_>, _>>();
            events.ok().and_then(gathered).ok_or(whole).context("it is not JSON of stride-perf, or it is truncated")
        })
    }

    /// Returns the rows as a series with this name.
    pub fn series(&self, name: &str) -> Series {
        Series::of_plan(name, &self.environment.plan, self.rows.clone())
    }
}

/// Converts a stream into a document. If the stream is truncated, the document contains an error about that.
fn gathered(events: Vec<Event>) -> Option<Document> {
    let mut events = events.into_iter();
    let Some(Event::Start(start)) = events.next() else { return None };
    let mut document = Document::new(start.environment, Vec::new(), Vec::new());
    document.error = Some("the stream ends before the end of the test".to_owned());
    for event in events {
        match event {
            Event::Start(_) => return None,
            Event::Interval(_) => {}
            Event::Row(row) => document.rows.push(row),
            Event::End(end) => {
                (document.hints, document.error, document.verdict) = (end.hints, end.error, end.verdict);
            }
        }
    }
    Some(document)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::endpoint::{Changes, Counted};
    use crate::plan::Transport;
    use crate::report::compare::Comparison;
    use crate::report::limits::Limits;
    use crate::report::sample;
    use crate::stats::Figures;

    fn bandwidth() -> Document {
        let rows = [64, 4096].map(|size| sample::bandwidth_row(size, 1000)).to_vec();
        Document::new(sample::environment(Measure::Bandwidth), rows, vec!["Look.".to_owned()])
    }

    fn latency() -> Document {
        let rows = vec![sample::latency_row(2, 1500)];
        Document::new(sample::environment(Measure::Latency(Semantics::Oneway)), rows, Vec::new())
    }

    fn events(document: &Document) -> Vec<Event> {
        let mut events = vec![Event::start(document.environment.clone())];
        for row in &document.rows {
            let seen = match &row.figures {
                Figures::Bandwidth(_) => Seen::Bandwidth { messages: 1000 },
                Figures::Latency(_) => Seen::Latency { samples: 7, min: 1.0, mean: 2.5, max: 3.0 },
            };
            events.push(Event::interval(row.size, &Interval { start: 0.0, end: 0.5, seen }));
            events.push(Event::Row(row.clone()));
        }
        let (hints, error, verdict) = (document.hints.clone(), document.error.clone(), document.verdict.clone());
        events.push(Event::End(End { rows: document.rows.len() as u64, hints, error, verdict }));
        events
    }

    fn schema(of: &str) -> jsonschema::Validator {
        let mut schema: Value =
            serde_json::from_str(include_str!("../../schema/stride-perf.schema.json")).expect("the schema is JSON");
        schema["$ref"] = json!(format!("#/$defs/{of}"));
        jsonschema::options().build(&schema).expect("the schema is one")
    }

    fn faults(of: &str, value: &Value) -> Vec<String> {
        schema(of).iter_errors(value).map(|error| format!("{error} at {}", error.instance_path())).collect()
    }

    /// Returns the document of a test over two ports.
    fn wide() -> Document {
        Document::new(
            sample::over_two_ports(sample::environment(Measure::Bandwidth)),
            vec![sample::ports_row(64, 1000)],
            Vec::new(),
        )
    }

    #[test]
    fn documents_round_trip() {
        for document in [bandwidth(), wide(), latency(), judged(bandwidth())] {
            let text = sample::written(|out| document.write(out));
            assert_eq!(Document::read(&text).unwrap(), document, "{text}");
        }
    }

    /// Changes a document so that messages may have been lost on both sides.
    fn lose(document: &mut Document) {
        let Figures::Bandwidth(bandwidth) = &mut document.rows[0].figures else { panic!("a bandwidth") };
        (bandwidth.sent, bandwidth.arrived) = (Some(128), Some(100));
    }

    /// Adds counter changes to a document.
    fn counted(mut document: Document) -> Document {
        document.environment.plan.sampling.counters = vec!["symbol_error".to_owned(), "out_of_buffer".to_owned()];
        let of_ports = [("mlx5_0/1", None), ("mlx5_1/1/counters/symbol_error", Some(2))];
        let server = Changes(of_ports.map(|(name, change)| (name.to_owned(), change)).into());
        document.rows[0].counters = Some(Counted { server: Some(server), ..sample::counted() });
        document
    }

    /// Adds missed limits and a missed baseline to a document.
    fn judged(mut document: Document) -> Document {
        let (old, new) = (sample::bandwidth_row(64, 2000), sample::bandwidth_row(64, 1000));
        let series = |row: &Row| Series { rows: vec![row.clone()], ..document.series("it") };
        let comparison = Comparison::of(&series(&old), &series(&new), 5.0).unwrap();
        let misses = Limits { min_gbps: Some(9.0), ..Limits::default() }.missed(&[new], &[4096], &[]);
        document.verdict = Some(Verdict::new(&misses, Some((&comparison, Some(vec!["the MTU".to_owned()])))));
        document
    }

    #[test]
    fn documents_match_the_schema() {
        let mut failed = bandwidth();
        failed.error = Some("the peer is gone".to_owned());
        let mut lost = bandwidth();
        lose(&mut lost);
        let mut limited = bandwidth();
        (limited.environment.plan.attributes.transport, limited.environment.server.longest) =
            (Transport::Srd, Some(8928));
        let mut reached = bandwidth();
        let plan = &mut reached.environment.plan;
        (plan.attributes.uses_rdma_cm, plan.attributes.address) = (true, "192.0.2.7".parse().ok());
        for document in [
            bandwidth(),
            wide(),
            latency(),
            failed,
            lost,
            counted(bandwidth()),
            counted(latency()),
            limited,
            reached,
            judged(bandwidth()),
        ] {
            let text = sample::written(|out| document.write(out));
            let value = serde_json::from_str(&text).unwrap();
            assert_eq!(faults("document", &value), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn events_match_the_schema() {
        let mut lost = bandwidth();
        lose(&mut lost);
        for document in
            [bandwidth(), wide(), latency(), lost, counted(bandwidth()), counted(latency()), judged(bandwidth())]
        {
            for event in events(&document) {
                let text = sample::written(|out| event.write(out));
                assert_eq!(text.lines().count(), 1);
                let value = serde_json::from_str(&text).unwrap();
                assert_eq!(faults("event", &value), Vec::<String>::new(), "{text}");
            }
        }
    }

    #[test]
    fn schema_rejects_invalid_documents() {
        let whole = serde_json::to_value(bandwidth()).unwrap();
        let without = |path: &str, name: &str| {
            let mut value = whole.clone();
            value.pointer_mut(path).and_then(Value::as_object_mut).expect("an object").remove(name).expect("is there");
            faults("document", &value)
        };
        for (path, name) in [
            ("", "environment"),
            ("", "rows"),
            ("/environment", "command_line"),
            ("/environment/plan", "queue_pairs"),
            ("/environment/client", "mtu_bytes"),
            ("/environment/path", "client_gid"),
            ("/rows/0", "size_bytes"),
            ("/rows/0", "messages"),
            ("/rows/0", "average"),
        ] {
            assert_ne!(without(path, name), Vec::<String>::new(), "{path}/{name}");
        }
        let mut value = whole.clone();
        value["rows"][0]["size"] = json!(5);
        assert_ne!(faults("document", &value), Vec::<String>::new(), "the schema rejects unknown members");
    }

    #[test]
    fn interval_event_has_derived_members() {
        let interval = Interval { start: 1.0, end: 1.5, seen: Seen::Bandwidth { messages: 1_000_000 } };
        let value = serde_json::to_value(Event::interval(64, &interval)).unwrap();
        let expected = json!({
            "event": "interval", "size_bytes": 64, "start_seconds": 1.0, "end_seconds": 1.5, "kind": "bandwidth", "messages": 1_000_000,
            "bytes": 64_000_000, "gigabits_per_second": 1.024,
        });
        assert_eq!(value, expected);
        let mut wrong = value.clone();
        wrong.as_object_mut().unwrap().remove("end_seconds");
        assert_ne!(faults("event", &wrong), Vec::<String>::new());
        wrong["end_seconds"] = json!(1.5);
        wrong["samples"] = json!(5);
        assert_ne!(faults("event", &wrong), Vec::<String>::new(), "of a latency");
    }

    #[test]
    fn streams_are_read_as_documents() {
        let document = judged(bandwidth());
        let events = events(&document);
        let text = |events: &[Event]| sample::written(|out| events.iter().try_for_each(|event| event.write(out)));
        assert_eq!(Document::read(&text(&events)).unwrap(), document);
        let cut = Document::read(&text(&events[..3])).unwrap();
        assert_eq!(cut.rows.len(), 1);
        assert!(cut.error.is_some());
    }

    #[test]
    fn documents_with_earlier_names_are_read() {
        let document = bandwidth();
        let text = sample::written(|out| document.write(out));
        let earlier =
            text.replace("\"uses_rdma_cm\"", "\"by_address\"").replace("\"sleeps_on_events\"", "\"has_events\"");
        assert!(earlier.contains("by_address") && earlier.contains("has_events"), "{earlier}");
        assert_eq!(Document::read(&earlier).unwrap(), document);
    }

    #[test]
    fn text_that_is_not_a_document_is_an_error() {
        let message = |text: &str| format!("{:#}", Document::read(text).unwrap_err());
        assert_eq!(message(""), "it is empty");
        assert!(
            message("{}").starts_with("it is not JSON of stride-perf: missing field `format`"),
            "{}",
            message("{}")
        );
        assert!(message("hello").starts_with("it is not JSON of stride-perf: "), "{}", message("hello"));
        assert_eq!(
            message("{\"format\": 7}"),
            "its format is 7; this version of stride-perf reads format 1; run the test again"
        );
        let mesh = message(include_str!("../../schema/mesh-example.json"));
        assert!(mesh.contains("`stride-perf report` shows it, and `stride-perf mesh` compares with it"), "{mesh}");
        let perftest = message("{\n\"test_info\": {\n\"test\": \"Send_BW_Test\"\n},\n\"results\": {\n}\n}\n");
        assert!(perftest.ends_with("name the text that perftest printed"), "{perftest}");
        let error = Some("connection refused".to_owned());
        let end = Event::End(End { rows: 0, hints: Vec::new(), error, verdict: None });
        let text = sample::written(|out| end.write(out));
        assert_eq!(message(&text), "it has no results: the test did not start: connection refused; run it again");
        assert!(message("{\"format\": 1}").contains("missing field"), "{}", message("{\"format\": 1}"));
    }
}
