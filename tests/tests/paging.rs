//! Pages as a client sees them while others write: the list of sessions by `cursor`, the history by `before`. What
//! does not change meanwhile comes exactly once, rows of the same millisecond included. `PAGING_SEED` repeats a run's
//! random choices.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]
#![allow(clippy::print_stdout, reason = "the seed, for whoever repeats a failure")]

use halo_tests::server::Server;
use halo_tests::web::Client;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rusqlite::{Connection, params};
use serde_json::Value;
use std::collections::BTreeSet;

/// A time long ago, so that rows from the database are older than what the test says.
const LONG_AGO: i64 = 1_700_000_000_000;
/// How often each list is paged through.
const ROUNDS: usize = 10;

fn random() -> StdRng {
    let seed = std::env::var("PAGING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("PAGING_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

fn base36(number: i64) -> String {
    let digit = |power: u32| char::from_digit((number / 36_i64.pow(power) % 36) as u32, 36).unwrap();
    let text: String = (0..12).rev().map(digit).collect();
    text.trim_start_matches('0').to_owned()
}

/// A server whose workspace has one session with one turn in it, stopped; and that session.
async fn stopped() -> (Server, Client, String) {
    let mut server = Server::start().await;
    let client = server.client("readonly").await;
    let session = client.mint().await;
    client.turn(&session, "hello").await;
    assert!(server.stop().await.0.success());
    (server, client, session)
}

fn database(server: &Server) -> Connection {
    Connection::open(server.workspace().join(".halo/halo.db")).unwrap()
}

#[tokio::test]
async fn a_session_that_is_not_updated_comes_once_in_the_list_while_others_are() {
    let mut random = random();
    let (mut server, client, first) = stopped().await;
    // Copies of the session in groups that share a millisecond; some groups are larger than a page.
    let account = first.split('_').nth(1).unwrap();
    let mut ids = Vec::new();
    let connection = database(&server);
    for (group, at) in [1, 60, 2, 49, 51, 3, 120, 1, 1, 7, 50].into_iter().zip(LONG_AGO..) {
        for _ in 0..group {
            let id = format!("web_{account}_{}_{:08}", base36(at), random.random_range(0..100_000_000_u32));
            let copy = "INSERT INTO sessions (id, agent_id, agent_name, access_level, created_at, updated_at)
                SELECT ?1, agent_id, agent_name, access_level, ?2, ?2 FROM sessions WHERE id = ?3";
            assert_eq!(connection.execute(copy, params![id, at, first]).unwrap(), 1);
            ids.push(id);
        }
    }
    drop(connection);
    server.restart().await;
    let client = client.at(server.url());

    ids.shuffle(&mut random);
    let quiet: BTreeSet<String> = ids.split_off(ROUNDS * 8).into_iter().collect();
    for busy in ids.chunks(8) {
        // From the middle of this round on, these are at the top of the list.
        let mut busy = busy.iter();
        let mut seen: Vec<(i64, String)> = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = client.get(&format!("/api/web/sessions?cursor={cursor}")).await;
            assert_eq!(page.status, 200, "{page:?}");
            let rows = page.body["sessions"].as_array().unwrap();
            let row = |row: &Value| {
                (row["updatedAt"].as_i64().unwrap(), row["sessionId"].as_str().unwrap().to_owned())
            };
            seen.extend(rows.iter().map(row));
            let Some(next) = page.body["nextCursor"].as_i64() else { break };
            assert_eq!(Some(next), seen.last().map(|(at, _)| *at));
            cursor = next.to_string();
            for session in busy.by_ref().take(2) {
                client.turn(session, "hello").await;
            }
        }
        let found: Vec<_> = seen.iter().filter(|(_, id)| quiet.contains(id)).collect();
        assert!(found.windows(2).all(|pair| pair[0].0 >= pair[1].0), "newest first");
        let once: BTreeSet<String> = found.iter().map(|(_, id)| id.clone()).collect();
        assert_eq!(found.len(), once.len(), "a row twice");
        assert_eq!(once, quiet, "each row");
    }
}

#[tokio::test]
async fn a_row_of_a_history_comes_once_in_its_pages_while_rows_are_added_here_and_elsewhere() {
    let mut random = random();
    let (mut server, client, session) = stopped().await;
    // 700 rows with few different times between the session's own, the oldest of them archived.
    let connection = database(&server);
    let top: i64 = connection
        .query_row("SELECT MAX(seq) FROM log WHERE session_id = ?1", [&session], |row| row.get(0))
        .unwrap();
    let count = 700;
    for n in 1..=count {
        let (seq, at) = (top + n, LONG_AGO + n / 90);
        let id = format!("m_{}_{}", base36(at), base36(seq));
        let row = serde_json::json!({ "id": id, "type": "user", "role": "user", "content": format!("row {n}"),
            "timestamp": at });
        let insert = "INSERT INTO log (session_id, seq, at, row, archived) VALUES (?1, ?2, ?3, ?4, 0)";
        connection.execute(insert, params![session, seq, at, row.to_string()]).unwrap();
    }
    let archive = "UPDATE log SET archived = 1 WHERE session_id = ?1 AND seq <= ?2";
    connection.execute(archive, params![session, top + 300]).unwrap();
    drop(connection);
    server.restart().await;
    let client = client.at(server.url());
    let other = client.mint().await;

    for round in 0..ROUNDS {
        let limit = random.random_range(1..=120);
        let newest = client.get(&format!("/api/web/history?sessionId={session}&limit={limit}")).await.body;
        let mut pages = vec![newest];
        while pages.last().unwrap()["hasMore"] == true {
            let before = pages.last().unwrap()["messages"][0]["id"].as_str().unwrap().to_owned();
            if random.random_bool(0.3) {
                let _ = tokio::join!(client.turn(&session, "more"), client.turn(&other, "more"));
            }
            let limit = random.random_range(1..=120);
            let path = format!("/api/web/history?sessionId={session}&limit={limit}&before={before}");
            let page = client.get(&path).await.body;
            assert!(page["messages"].as_array().unwrap().len() <= limit, "{limit}");
            pages.push(page);
        }
        let rows: Vec<&Value> =
            pages.iter().rev().flat_map(|page| page["messages"].as_array().unwrap()).collect();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), rows.len(), "round {round}: a row twice");
        let own: Vec<&str> = rows
            .iter()
            .filter_map(|row| row["content"].as_str())
            .filter(|content| content.starts_with("row "))
            .collect();
        let expected: Vec<String> = (1..=count).map(|n| format!("row {n}")).collect();
        assert_eq!(own, expected, "round {round}");
        assert_eq!(rows[0]["type"], "context", "to the very first");
    }
}
