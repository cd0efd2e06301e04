//! One database, many who write it: twenty sessions of a server, twenty writers of another process, and a second
//! server that reads, for a minute. Nobody ever hears that the database is locked, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halo_server::session::rows::{Place as At, user};
use halo_server::store::schema::Schema;
use halo_server::store::sessions::{self, SessionRow, Write};
use halo_server::store::{Database, log};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, text_of};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WRITERS: usize = 20;
const LASTS: Duration = Duration::from_secs(60);

fn session(id: &str) -> SessionRow {
    SessionRow {
        id: id.into(),
        parent_id: None,
        agent_id: "default".into(),
        agent_name: "Default".into(),
        description: None,
        prompt_context: None,
        working_dir: None,
        access_level: "full".into(),
        created_at: 1,
        updated_at: 1,
        stopped_at: None,
        archived_at: None,
        title: None,
        context_tokens: 0,
        total_output_tokens: 0,
    }
}

/// Turns of one session, one after the other; how many there were.
async fn talks(client: Client, writer: usize, end: Instant) -> usize {
    let id = client.mint().await;
    let mut turns = 0;
    while Instant::now() < end {
        let said = format!("writer {writer} turn {turns}");
        let frames = client.turn(&id, &format!("say {said}")).await;
        assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
        assert_eq!(text_of(&frames), said);
        turns += 1;
    }
    let history = client.history(&id).await;
    let users = history["messages"].as_array().unwrap().iter().filter(|row| row["type"] == "user").count();
    assert_eq!(users, turns);
    turns
}

/// Rows of one session, one after the other, written past the server; how many there were.
async fn writes(db: Database, writer: usize, end: Instant) -> usize {
    let id = format!("other_{writer}");
    let made = id.clone();
    db.write(move |conn| sessions::apply(conn, &made, &[Write::Create(session(&made))])).await.unwrap();
    let mut seq = 0;
    while Instant::now() < end {
        seq += 1;
        let row = user(At { seq, at: seq }, "a row of another process");
        let write = Write::Log { seq, at: seq, task: false, row };
        let id = id.clone();
        db.write(move |conn| sessions::apply(conn, &id, std::slice::from_ref(&write))).await.unwrap();
    }
    assert_eq!(db.read(move |conn| log::top(conn, &id)).await.unwrap(), seq);
    seq as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_writers_and_a_second_process_never_find_the_database_locked() {
    let server = Server::start().await;
    let client = server.client("full").await;
    client.turn("web_first", "say hello").await;
    // Another server with a home of its own, which only reads the workspace.
    let second = Server::launch(Place::new(), Launch::default()).await;
    let token = second.place().token_for("full", &server.workspace()).await;
    let reader = Client::new(second.url(), Some(&token));
    let file = server.workspace().join(".halo/halo.db");
    let db =
        tokio::task::spawn_blocking(move || Database::open(&file, Schema::Workspace)).await.unwrap().unwrap();

    let end = Instant::now() + LASTS;
    let (turns, rows) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (client, turns) = (client.clone(), Arc::clone(&turns));
        writers.spawn(async move {
            turns.fetch_add(talks(client, writer, end).await, Ordering::Relaxed);
        });
        let (db, rows) = (db.clone(), Arc::clone(&rows));
        writers.spawn(async move {
            rows.fetch_add(writes(db, writer, end).await, Ordering::Relaxed);
        });
    }
    let mut reads = 0;
    while Instant::now() < end {
        let history = reader.history("web_first").await;
        assert_eq!(history["messages"].as_array().unwrap().len(), 4);
        let answer =
            reader.post("/api/web/chat", &json!({"message": "say no", "sessionId": "web_first"})).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        reads += 1;
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    db.close().await;
    println!(
        "{} turns, {} rows of another process, {reads} reads",
        turns.load(Ordering::Relaxed),
        rows.load(Ordering::Relaxed)
    );
    for server in [&server, &second] {
        let said = server.stderr().to_lowercase();
        assert!(!said.contains("locked") && !said.contains("busy") && !said.contains("error"), "{said}");
    }
}
