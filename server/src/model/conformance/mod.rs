//! What every provider's stream must come to, tried on one file a stream: `fixtures/<protocol>/<shape>.sse`, with the
//! events and the end of each as a snapshot. A cut at any byte is never taken for an answer and never leaves half a
//! tool call; how the bytes are spelt and divided makes no difference. [`bodies`] has the other direction: what goes
//! out for a rich conversation, one snapshot a provider.

mod bodies;
mod stub;

use super::registry::{CallSettings, ModelChoice, Registry};
use super::transport::{Fold, Reader};
use super::{Block, Completion, Event, ModelError, anthropic, openai, responses};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use stub::Stub;

/// What a watcher saw, and the end.
type Outcome = (Vec<Event>, Result<Completion, ModelError>);

/// The protocols, by the names of their folders.
const PROTOCOLS: [&str; 3] = ["chat", "messages", "responses"];

/// The streams of a protocol by name, in order.
fn fixtures(protocol: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model/conformance/fixtures").join(protocol);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn fold<'a>(protocol: &str, chunks: impl Iterator<Item = &'a [u8]>) -> Outcome {
    match protocol {
        "chat" => read(Reader::new(openai::ChatFold::new(false)), chunks),
        "messages" => read(Reader::new(anthropic::MessagesFold::new(false)), chunks),
        _ => read(Reader::new(responses::ResponsesFold::new("mine".into(), false)), chunks),
    }
}

fn read<'a, F: Fold>(mut reader: Reader<F>, chunks: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut seen = Vec::new();
    for chunk in chunks {
        if let Err(error) = reader.push(Bytes::copy_from_slice(chunk), &mut seen) {
            return (seen, Err(error));
        }
        if reader.closed() {
            break;
        }
    }
    match reader.end(&mut seen) {
        Ok(()) => {
            let Some(Event::Done(completion)) = seen.pop() else { panic!("no end") };
            (seen, Ok(with_known_ids(completion)))
        }
        Err(error) => (seen, Err(error)),
    }
}

/// Ids of our own making are random; numbers stand for them here.
fn with_known_ids(mut completion: Completion) -> Completion {
    let mut known = HashMap::new();
    let mut next = 0;
    for block in &mut completion.content {
        let Block::ToolUse { id, .. } = block else { continue };
        if id.strip_prefix("call_").is_some_and(|rest| rest.len() == 32) {
            next += 1;
            let fresh = format!("(ours {next})");
            known.insert(std::mem::replace(id, fresh.clone()), fresh);
        }
    }
    for (id, _) in &mut completion.malformed {
        if let Some(fresh) = known.get(id) {
            id.clone_from(fresh);
        }
    }
    completion
}

fn whole(protocol: &str, stream: &str) -> Outcome {
    fold(protocol, std::iter::once(stream.as_bytes()))
}

/// The text and the thinking that a watcher saw.
fn shown(events: &[Event]) -> (String, String) {
    let mut shown = (String::new(), String::new());
    for event in events {
        match event {
            Event::Text(text) => shown.0.push_str(text),
            Event::Thinking(text) => shown.1.push_str(text),
            Event::Activity | Event::Done(_) => {}
        }
    }
    shown
}

/// An end that comes before all bytes did must be a failure, or the very same answer: only what was spent may be
/// unknown yet.
fn assert_no_half_answer(full: &Outcome, cut: &Outcome, place: &str) {
    let (all, part) = (shown(&full.0), shown(&cut.0));
    assert!(all.0.starts_with(&part.0) && all.1.starts_with(&part.1), "{place}: {part:?}");
    if let Ok(half) = &cut.1 {
        let Ok(full) = &full.1 else { panic!("{place}: an answer, though the whole stream is none") };
        let same = Completion { usage: full.usage, ..half.clone() };
        assert_eq!(&same, full, "{place}");
    }
}

#[test]
fn every_stream_comes_to_what_its_snapshot_says() {
    for protocol in PROTOCOLS {
        for (name, stream) in fixtures(protocol) {
            let (seen, end) = whole(protocol, &stream);
            let mut lines: Vec<String> = seen.iter().map(|event| format!("{event:?}")).collect();
            lines.push(format!("{end:#?}"));
            let about =
                stream.lines().next().and_then(|line| line.strip_prefix(": ")).unwrap_or("One object");
            insta::with_settings!({ description => about, omit_expression => true, prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(format!("{protocol}__{name}"), lines.join("\n"));
            });
        }
    }
}

/// Every cut of every stream of a protocol, without a network so that it is quick.
fn cut_everywhere(protocol: &str) {
    for (name, stream) in fixtures(protocol) {
        let full = whole(protocol, &stream);
        for cut in 0..stream.len() {
            let end = fold(protocol, std::iter::once(&stream.as_bytes()[..cut]));
            assert_no_half_answer(&full, &end, &format!("{protocol}/{name} cut at {cut}"));
        }
    }
}

#[test]
fn no_cut_of_a_chat_stream_is_taken_for_an_answer() {
    cut_everywhere("chat");
}

#[test]
fn no_cut_of_a_messages_stream_is_taken_for_an_answer() {
    cut_everywhere("messages");
}

#[test]
fn no_cut_of_a_responses_stream_is_taken_for_an_answer() {
    cut_everywhere("responses");
}

#[test]
fn byte_by_byte_a_stream_gives_the_same_events() {
    for protocol in PROTOCOLS {
        for (name, stream) in fixtures(protocol) {
            let single = fold(protocol, stream.as_bytes().chunks(1));
            assert_eq!(single, whole(protocol, &stream), "{protocol}/{name}");
        }
    }
}

/// Writes a stream in another way that means the same.
type Spell = fn(&str) -> String;

#[test]
fn the_spelling_of_a_stream_makes_no_difference() {
    let spellings: [(&str, Spell); 6] = [
        ("CRLF", |stream| stream.replace('\n', "\r\n")),
        ("CR", |stream| stream.replace('\n', "\r")),
        ("no space", |stream| stream.replace("data: ", "data:").replace("event: ", "event:")),
        ("a byte order mark", |stream| format!("\u{feff}{stream}")),
        ("comments", |stream| stream.replace("\n\n", "\n: ping\n\n: ping\n\n")),
        ("other fields", |stream| stream.replace("\n\n", "\nid: 7\nretry: 100\n\n")),
    ];
    for protocol in PROTOCOLS {
        for (name, stream) in fixtures(protocol).into_iter().filter(|(name, _)| name != "one_object") {
            let expected = whole(protocol, &stream);
            for (spelling, spell) in spellings {
                let spelt = spell(&stream);
                assert_eq!(whole(protocol, &spelt), expected, "{protocol}/{name} with {spelling}");
                // Wherever a chunk ends: within a line end, a character, the mark.
                let single = fold(protocol, spelt.as_bytes().chunks(1));
                assert_eq!(single, expected, "{protocol}/{name} with {spelling}, byte by byte");
            }
        }
    }
}

/// Through the real transport: a stub that sends so much of a stream and then closes or breaks the connection.
#[tokio::test]
async fn over_the_network_a_cut_stream_is_no_answer_either() {
    for (protocol, runtime) in
        PROTOCOLS.into_iter().zip(["openai-chat", "anthropic-messages", "openai-responses"])
    {
        for (name, stream) in fixtures(protocol) {
            let full = whole(protocol, &stream);
            let middle = stream.len() / 2;
            for (length, broken) in [(middle, true), (middle, false), (stream.len(), false)] {
                let stub = Stub::sending(&stream.as_bytes()[..length], broken).await;
                let end = call(runtime, &stub.endpoint).await;
                let place = format!("{protocol}/{name}, {length} bytes, broken: {broken}");
                assert_no_half_answer(&full, &end, &place);
                if length == stream.len() {
                    assert_eq!(end.1.is_ok(), full.1.is_ok(), "{place}: {:?}", end.1);
                    assert_eq!(shown(&end.0), shown(&full.0), "{place}");
                }
                stub.asked().await;
            }
        }
    }
}

async fn call(runtime: &str, endpoint: &str) -> Outcome {
    let files = tempfile::tempdir().unwrap();
    let text = format!("id: mine\nruntime: {runtime}\ndefaultEndpoint: {endpoint}\nmodels: [{{ id: m }}]\n");
    fs::write(files.path().join("mine.yaml"), text).unwrap();
    let choice = ModelChoice { provider: "mine".into(), ..ModelChoice::default() };
    let registry = Registry::new(files.path().to_owned());
    let model = registry.build(&choice, &|_, _| None, &CallSettings::default()).unwrap();
    let mut events = model.call(bodies::hello());
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Done(completion)) => return (seen, Ok(with_known_ids(completion))),
            Ok(event) => seen.push(event),
            Err(error) => return (seen, Err(error)),
        }
    }
    panic!("the stream ended without an end");
}
