//! A session of a hundred turns of chance: tool calls of every kind, errors, cut answers, messages into the middle,
//! interrupts, stops and compactions. Whatever happens, each request is one that a strict provider takes, each turn
//! comes to an end, and the session is idle after it.

#![allow(clippy::print_stdout, reason = "the seed, for whoever repeats a failure")]

use halo_tests::model_server::reply::{Reply, Step};
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame};
use halo_tests::within;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::Duration;

const TURNS: usize = 100;
/// Tokens that fill the window of 100,000 to the point at which it is compacted.
const FULL: usize = 95_000;

/// A call of chance; some name no tool, miss an argument, or fail.
fn call(random: &mut StdRng) -> (&'static str, Value) {
    let n = random.random_range(0..1000);
    match random.random_range(0..10) {
        0 => (
            "file_write",
            json!({"path": format!("notes/{n}.txt"), "content": format!("{n}\n").repeat(n + 1)}),
        ),
        1 => ("file_read", json!({"path": format!("notes/{n}.txt")})),
        2 => ("file_edit", json!({"path": "README.md", "old_string": n.to_string(), "new_string": "x"})),
        3 => ("file_list", json!({"recursive": true})),
        4 => ("grep", json!({"pattern": n.to_string()})),
        5 => ("glob", json!({"pattern": "**/*.txt"})),
        6 => ("shell_exec", json!({"command": format!("seq {n}; exit {}", n % 3)})),
        7 => ("shell_exec", json!({"command": "sleep 0.05"})),
        8 => ("no_such_tool", json!({"n": n})),
        _ => ("file_read", json!({})),
    }
}

/// An answer of chance, with or without calls.
fn answer(random: &mut StdRng, calls: usize) -> Script {
    let words = random.random_range(0..40);
    let mut script = Script::text((0..words).map(|n| format!("w{n} ")));
    if words == 0 && calls == 0 {
        script = Script::text(["done"]);
    }
    if random.random_ratio(1, 4) {
        script = script.thinking("what now? ");
    }
    if words > 5 && random.random_ratio(1, 5) {
        script = script.pause(Duration::from_millis(2));
    }
    for _ in 0..calls {
        let (name, arguments) = call(random);
        script = script.and_call(name, arguments);
    }
    let read = if random.random_ratio(1, 12) { FULL } else { random.random_range(1..20_000) };
    script.usage(read, words)
}

/// A failure of chance.
fn failure(random: &mut StdRng) -> Reply {
    let error = |kind: &str, message: &str| {
        json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
    };
    match random.random_range(0..5) {
        0 => Reply::status(429, &error("rate_limit_error", "slow down")).header("retry-after", "0"),
        1 => Reply::status(503, &error("overloaded_error", "busy")).header("retry-after", "0"),
        2 => {
            Reply::status(400, &error("invalid_request_error", "prompt is too long: 100001 tokens > 100000"))
        }
        3 => Reply::status(401, &error("authentication_error", "no such key")),
        _ => Reply::events(["{"]).then(Step::Cut),
    }
}

/// What happens to a turn while it runs.
async fn disturb(random: &mut StdRng, client: &Client, session: &str, turn: usize) {
    tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
    match random.random_range(0..8) {
        0 => drop(client.turn(session, &format!("by the way, {turn}")).await),
        1 => {
            client.turn(session, &format!("rather this, {turn}")).await;
            client.turn(session, "/session interrupt").await;
        }
        2 => drop(client.turn(session, "/session interrupt").await),
        3 => drop(client.stop(session).await),
        4 => drop(client.turn(session, "/session compact").await),
        _ => {}
    }
}

async fn come_to_rest(client: &Client, session: &str) {
    let rest = async {
        while client.history(session).await["running"] != false {
            client.subscribe(session, None).await.rest().await;
        }
    };
    within("the session comes to rest", rest).await;
}

#[rstest]
#[tokio::test]
async fn a_hundred_turns_of_chance_keep_the_history_valid_and_end_idle(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses)] protocol: Protocol,
) {
    let seed = std::env::var("LONG_SESSION_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("LONG_SESSION_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);

    let model = ModelServer::start().await.expect("a model server");
    let home = Place::new();
    home.scripted(&model, protocol);
    home.write("README.md", "hello\n");
    let server = Server::launch(home, Launch::default()).await;
    let client = server.client("full").await;
    let session = client.mint().await;
    for turn in 0..TURNS {
        let calls = random.random_range(0..4);
        for _ in 0..calls {
            if random.random_ratio(1, 8) {
                model.push(failure(&mut random));
            }
            let count = random.random_range(1..4);
            model.push(answer(&mut random, count));
        }
        model.push(answer(&mut random, 0));
        let stream = client.chat(&session, &format!("turn {turn}")).await;
        let (frames, ()) = tokio::join!(stream.rest(), disturb(&mut random, &client, &session, turn));
        let last = frames.last().map(Frame::kind);
        assert!(matches!(last, Some("complete" | "error")), "turn {turn}: {frames:?}");
        come_to_rest(&client, &session).await;
        assert_eq!(model.refused(), [""; 0], "turn {turn}");
        model.forget_the_rest();
    }
    let frames = client.turn(&session, "and in the end?").await;
    assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
    let history = client.history(&session).await;
    assert_eq!(history["running"], false);
    let rows = history["messages"].as_array().expect("rows");
    for turn in 0..TURNS {
        let text = format!("turn {turn}");
        assert_eq!(
            rows.iter().filter(|row| row["type"] == "user" && row["content"] == text).count(),
            1,
            "{text}"
        );
    }
    let has = |text: &str| {
        rows.iter().any(|row| row["content"].as_str().is_some_and(|content| content.contains(text)))
    };
    assert!(has("ompacted"), "a compaction was among them");
}
