//! Sessions with long logs: that a page, and a turn, cost the same however much there was before.

use crate::report::Report;
use halo_tests::place::Place;
use halo_tests::processes::resident_kib;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame};
use rusqlite::{Connection, params};
use serde_json::json;
use std::time::Instant;

/// How often each request is measured, after a tenth as many that are not.
const TIMES: usize = 500;
/// Rows of a page.
const PAGE: usize = 50;

/// A server with one session of so many rows in its log and a short model history, as after a compaction.
async fn with_log(rows: usize) -> (Server, Client, String) {
    eprintln!("… a log of {rows} rows");
    let mut server = Server::launch(Place::new(), Launch::default()).await;
    let client = server.client("full").await;
    let session = client.mint().await;
    client.turn(&session, "say hello").await;
    server.stop().await;
    let mut db = Connection::open(server.workspace().join(".halo/halo.db")).expect("the database");
    let write = db.transaction().expect("a transaction");
    let top: i64 = write
        .query_row("SELECT max(seq) FROM log WHERE session_id = ?1", [&session], |row| row.get(0))
        .expect("the log");
    for seq in top + 1..=rows as i64 {
        let text = "Some words of an answer, as long as answers are on the average. ".repeat(6);
        let id = format!("m_mx50d6he_{}", base36(seq));
        let row = json!({"id": id, "type": "assistant", "role": "assistant", "content": text,
            "timestamp": 1_796_148_373_010_i64, "agentName": "Default"});
        let insert = "INSERT INTO log (session_id, seq, at, row) VALUES (?1, ?2, 1796148373010, ?3)";
        let mut insert = write.prepare_cached(insert).expect("a statement");
        insert.execute(params![session, seq, row.to_string()]).expect("a row");
    }
    write.commit().expect("it is stored");
    drop(db);
    server.restart().await;
    let client = client.at(server.url());
    (server, client, session)
}

fn base36(mut number: i64) -> String {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('?'));
        number /= 36;
    }
    digits.iter().rev().collect()
}

/// Pages of history at the end and in the middle.
pub async fn pages(report: &mut Report) {
    for rows in [1_000, 10_000, 100_000] {
        let (server, client, session) = with_log(rows).await;
        let tail = format!("/api/web/history?sessionId={session}&limit={PAGE}");
        let middle = format!("{tail}&before=m_0_{}", base36(rows as i64 / 2));
        for (what, path) in [("tail", &tail), ("middle", &middle)] {
            let mut times = Vec::with_capacity(TIMES);
            for n in 0..TIMES + TIMES / 10 {
                let begin = Instant::now();
                let answer = client.get(path).await;
                let took = begin.elapsed();
                assert_eq!(answer.body["messages"].as_array().map(Vec::len), Some(PAGE), "{answer:?}");
                if n >= TIMES / 10 {
                    times.push(took);
                }
            }
            report.add("log", format!("{what} of {rows} rows"), times, resident_kib(server.pid()));
        }
    }
}

/// Turns with the demo model that answers at once. The two servers take turns, so that whatever else this machine
/// does meanwhile slows both.
pub async fn turns(report: &mut Report) {
    let mut cases = Vec::new();
    for rows in [10, 100_000] {
        cases.push((rows, with_log(rows).await, Vec::with_capacity(TIMES)));
    }
    for n in 0..TIMES + TIMES / 10 {
        for (_, (_, client, session), times) in &mut cases {
            let begin = Instant::now();
            let frames = client.turn(session, "say hello").await;
            let took = begin.elapsed();
            assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
            if n >= TIMES / 10 {
                times.push(took);
            }
        }
    }
    for (rows, (server, ..), times) in cases {
        report.add("turn_by_log", format!("a turn at row {rows}"), times, resident_kib(server.pid()));
    }
}
