//! `kill -9` of the server at random points of a turn, many times: what was acknowledged is still there, no
//! session hangs, the next prompt works, every database is whole.

use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, text_of};
use halo_tests::within;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

const KILLS: usize = 50;
const SESSIONS: usize = 4;

/// What a session was told, and what of it the server acknowledged.
#[derive(Default)]
struct Told {
    id: String,
    acknowledged: Vec<String>,
}

#[tokio::test]
async fn fifty_kills_lose_no_acknowledged_message_and_leave_no_session_stuck() {
    let seed: u64 =
        std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("CRASH_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = Server::launch(Place::new(), Launch::default()).await;
    let mut client = server.client("full").await;
    let mut sessions: Vec<Told> = Vec::new();
    let mut cut_off = 0;
    for life in 0..KILLS {
        if life % 10 == 0 {
            sessions.clear();
            for _ in 0..SESSIONS {
                sessions.push(Told { id: client.mint().await, acknowledged: Vec::new() });
            }
        }
        let pause = Duration::from_micros(random.random_range(0..90_000));
        let messages = sessions.iter().enumerate().flat_map(|(at, told)| {
            let id = told.id.clone();
            // The second one may find the session busy, and is queued.
            (0..2).map(move |turn| (at, id.clone(), format!("life {life} session {at} message {turn}")))
        });
        let mut turns = JoinSet::new();
        for (at, id, marker) in messages.collect::<Vec<_>>() {
            let message = format!("{marker}\n{}", orders(&mut random));
            turns.spawn(talk(client.clone(), at, id, marker, message));
        }
        tokio::time::sleep(pause).await;
        server.kill9().await;
        while let Some(told) = within("every stream ends", turns.join_next()).await {
            let (at, marker, frames) = told.expect("no panic");
            let acknowledged = frames.iter().any(|frame| matches!(frame.kind(), "user" | "queued"));
            cut_off += usize::from(acknowledged && !frames.iter().any(Frame::is_last));
            if acknowledged {
                sessions[at].acknowledged.push(marker);
            }
        }
        check_databases(server.place().root(), life);
        server.restart().await;
        client = client.at(server.url());
        for told in &sessions {
            check_session(&client, told, life).await;
        }
    }
    assert!(
        cut_off > KILLS / 2,
        "only {cut_off} turns were cut in the middle: the kills came too late or too early"
    );
}

/// Sends a message and keeps what comes until the connection breaks.
async fn talk(
    client: Client,
    at: usize,
    id: String,
    marker: String,
    message: String,
) -> (usize, String, Vec<Frame>) {
    let body = json!({"message": message, "sessionId": id});
    let mut frames = Vec::new();
    if let Ok(mut stream) = client.try_stream(client.request(Method::POST, "/api/web/chat").json(&body)).await
    {
        while let Some(frame) = stream.next().await {
            frames.push(frame);
        }
    }
    (at, marker, frames)
}

/// Some work of different kinds and lengths.
fn orders(random: &mut StdRng) -> &'static str {
    const ORDERS: [&str; 5] = [
        "count 3000",
        "read README.md",
        "write out.txt a\\nb\nread README.md\nlist",
        "run sleep 0.03; echo done",
        "run sleep 0.2\nfind marzipan",
    ];
    ORDERS[random.random_range(0..ORDERS.len())]
}

/// Every acknowledged message is in the log once, the session comes to rest, and the next prompt works.
async fn check_session(client: &Client, told: &Told, life: usize) {
    let rest = async {
        while client.history(&told.id).await["running"] != false {
            // Follows the run that the restart has taken up again, to its end.
            let mut frames = client.subscribe(&told.id, None).await;
            while frames.next().await.is_some_and(|frame| !frame.is_last()) {}
        }
    };
    within(&format!("session {} comes to rest in life {life}", told.id), rest).await;
    let history = client.history(&told.id).await;
    let logged = user_texts(&history);
    for marker in &told.acknowledged {
        let count = logged.iter().filter(|text| text.lines().any(|line| line == marker)).count();
        assert_eq!(count, 1, "life {life}: {marker:?} was acknowledged: {logged:#?}");
    }
    let answer = format!("after life {life}");
    let frames = client.turn(&told.id, &format!("say {answer}")).await;
    assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
    assert_eq!(text_of(&frames), answer, "{frames:?}");
}

fn user_texts(history: &Value) -> Vec<String> {
    let rows = history["messages"].as_array().expect("messages").iter();
    let users = rows.filter(|row| row["role"] == "user");
    users.map(|row| row["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Checks copies, so that the look itself mends nothing.
fn check_databases(root: &Path, life: usize) {
    let copies = tempfile::tempdir().expect("a folder");
    let mut found = 0;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "db") {
                found += 1;
                let copy = copies.path().join(format!("{found}.db"));
                for tail in ["", "-wal"] {
                    let (from, to) = (with_tail(&path, tail), with_tail(&copy, tail));
                    if from.exists() {
                        std::fs::copy(from, to).expect("a copy");
                    }
                }
                let database = rusqlite::Connection::open(&copy).expect("a database");
                let verdict: String =
                    database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a verdict");
                assert_eq!(verdict, "ok", "life {life}: {}", path.display());
            }
        }
    }
    assert!(found >= 3, "accounts, runs, workspace: {found}");
}

fn with_tail(path: &Path, tail: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(tail);
    name.into()
}
