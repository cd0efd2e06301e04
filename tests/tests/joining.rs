//! Joining: whoever reads the history and then subscribes after its `eventId` has the whole answer, without a hole
//! and without a repeat, whatever has happened between the two. `JOINING_SEED` repeats a run's random choices.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]
#![allow(clippy::print_stdout, reason = "the seed, for whoever repeats a failure")]

use futures_util::{StreamExt, stream};
use halo_tests::model_server::{ModelServer, Protocol, script::media_line};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, first, kinds_of, text_of};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::time::Duration;

/// How often each test joins.
const ROUNDS: usize = 200;
/// How many of them at once.
const AT_ONCE: usize = 16;
/// Words of an answer.
const WORDS: u32 = 60;

/// What happens between the history and the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// A moment passes.
    AMoment,
    /// The run ends.
    ItsEnd,
    /// The run ends, and another has said something.
    TheNextRun,
}

/// What chance has chosen for one round.
#[derive(Debug)]
struct Chance {
    /// So many frames of text have come when the history is read.
    frames: u32,
    /// And then so much time has passed.
    then: Duration,
    /// Between history and subscription, at least.
    between: Duration,
}

/// What people see of an answer: its text without `MEDIA:` lines, and the paths of those.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    text: String,
    files: Vec<String>,
}

impl Seen {
    /// What a row says. Its end may be in the middle of a line, but never of a `MEDIA:` line.
    fn of_row(text: &str) -> Self {
        let mut seen = Self::default();
        for line in text.split_inclusive('\n') {
            match line.strip_prefix("MEDIA: ").and_then(|rest| rest.strip_suffix('\n')) {
                Some(path) => seen.files.push(path.to_owned()),
                None => seen.text.push_str(line),
            }
        }
        seen
    }

    /// The same after these frames.
    fn and(mut self, frames: &[Frame]) -> Self {
        self.text.push_str(&text_of(frames));
        let files = frames.iter().filter(|frame| frame.kind() == "file");
        self.files.extend(files.map(|frame| frame.data["path"].as_str().unwrap().to_owned()));
        self
    }
}

/// The order of the answer, and all that there is to see of it.
fn answer() -> (String, Seen) {
    let word =
        |n: u32| if n.is_multiple_of(10) { format!("w{n}\n{}", media_line(n)) } else { format!("w{n} ") };
    let text: String = (1..=WORDS).map(word).collect();
    (format!("N:{WORDS} D:1 MEDIA"), Seen::of_row(&text))
}

/// The frames that follow a place come with the ids that follow it, one by one.
fn assert_follows(frames: &[Frame], place: &str) {
    let (run, seq) = place.split_once('.').unwrap();
    let after: u64 = seq.parse().unwrap();
    let ids: Vec<_> = frames.iter().skip(1).map(|frame| frame.id.clone().unwrap_or_default()).collect();
    let expected: Vec<_> = (1..=ids.len() as u64).map(|step| format!("{run}.{}", after + step)).collect();
    assert_eq!(ids, expected);
}

async fn round(client: Client, chance: Chance, between: Between) {
    let (order, all) = answer();
    let session = client.mint().await;
    let mut chat = client.chat(&session, &order).await;
    let mut said = chat.until("user").await;
    for _ in 0..chance.frames {
        said.extend(chat.next().await);
    }
    tokio::time::sleep(chance.then).await;

    let history = client.history(&session).await;
    let rows = history["messages"].as_array().unwrap();
    let answers: Vec<&Value> = rows.iter().filter(|row| row["type"] == "assistant").collect();
    let place = history["eventId"].as_str().unwrap();
    let running = history["running"].as_bool().unwrap();
    assert!(answers.len() <= 1, "one answer: {history}");
    assert!(answers.iter().all(|row| (row["streaming"] == true) == running), "{history}");
    let row = Seen::of_row(answers.first().map_or("", |row| row["content"].as_str().unwrap()));

    if between != Between::AMoment {
        while let Some(frame) = chat.next().await {
            said.push(frame);
        }
    }
    if between == Between::TheNextRun {
        client.chat(&session, "HOLD").await.until("stream").await;
    }
    tokio::time::sleep(chance.between).await;
    let mut rest = client.subscribe(&session, Some(place)).await;
    if between == Between::TheNextRun && !running {
        // That run was seen to its end: the next one follows from its start.
        let next = rest.until("stream").await;
        assert_eq!(kinds_of(&next), ["session", "user", "stream"]);
        assert_eq!(first(&next, "stream")["text"], "held ");
        assert_eq!(row, all, "{chance:?}");
    } else {
        let rest = rest.rest().await;
        assert_eq!(rest.last().map(Frame::kind), Some("complete"));
        assert!(!rest.iter().any(|frame| matches!(frame.kind(), "user" | "resync")), "{rest:?}");
        if running {
            assert_follows(&rest, place);
        }
        assert_eq!(row.and(&rest), all, "{chance:?}, history and then {rest:?}");
    }

    while let Some(frame) = chat.next().await {
        said.push(frame);
    }
    assert_eq!(Seen::default().and(&said), all, "the stream of the message itself");
    if between == Between::TheNextRun {
        assert!(client.stop(&session).await);
    }
}

async fn join(between: Between) {
    let seed = std::env::var("JOINING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("JOINING_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    let chances: Vec<Chance> = (0..ROUNDS)
        .map(|_| Chance {
            frames: random.random_range(0..WORDS),
            then: Duration::from_micros(random.random_range(0..3000)),
            between: Duration::from_micros(random.random_range(0..20_000)),
        })
        .collect();
    let rounds = chances.into_iter().map(|chance| round(client.clone(), chance, between));
    stream::iter(rounds).for_each_concurrent(AT_ONCE, |round| round).await;
}

#[tokio::test]
async fn history_and_then_the_stream_are_the_whole_answer() {
    join(Between::AMoment).await;
}

#[tokio::test]
async fn so_they_are_when_the_run_ends_between_the_two() {
    join(Between::ItsEnd).await;
}

#[tokio::test]
async fn so_they_are_when_the_next_run_has_begun_between_the_two() {
    join(Between::TheNextRun).await;
}
