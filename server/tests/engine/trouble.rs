//! A store that fails for a while, and messages at awkward moments.

use super::crash;
use super::support::{Say, streamed};
use super::support::{Script, ToolMode, World, frames, id, inbound, outline, text};
use halo_server::model::Block;
use halo_server::session::ids::EventId;
use halo_server::session::{From, Inbound, InboundImage, Sent, SessionError};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Makes every change of the table fail, as a full disk would.
pub fn jam(folder: &Path, table: &str, how: &str) {
    let conn = rusqlite::Connection::open(folder.join("ws/.halo/halo.db")).unwrap();
    conn.execute_batch(&format!(
        "CREATE TRIGGER jam BEFORE {how} ON {table} BEGIN SELECT RAISE(ABORT, 'jammed'); END"
    ))
    .unwrap();
}

pub fn unjam(folder: &Path) {
    let conn = rusqlite::Connection::open(folder.join("ws/.halo/halo.db")).unwrap();
    conn.execute_batch("DROP TRIGGER jam").unwrap();
}

fn count(folder: &Path, table: &str) -> i64 {
    let conn = rusqlite::Connection::open(folder.join("ws/.halo/halo.db")).unwrap();
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_message_that_comes_while_a_stop_is_under_way_gets_its_answer() {
    let world = Arc::new(World::new(vec![vec![Say::Call("probe", json!({}))], vec![text("here")]]).await);
    *world.script.tool.lock().unwrap() = ToolMode::Stubborn;
    let stopped = world.start(&id("s"), "go").await;
    world.script.tool_began.notified().await;
    let session = world.workspace.session(&id("s"));
    let stop = tokio::spawn({
        let session = session.clone();
        async move { session.stop().await }
    });
    // The tool does not end by itself, so the stop takes a while.
    tokio::task::yield_now().await;
    let Sent::Started(feed) = session.send(inbound("and now?")).await.unwrap() else {
        panic!("the message was counted to what was stopped")
    };
    assert!(stop.await.unwrap().unwrap());
    assert_eq!(outline(&frames(stopped).await), "user tool_call tool_result complete");
    assert_eq!(streamed(&frames(feed).await), "here");
}

#[tokio::test]
async fn the_largest_place_there_is_gets_a_resync() {
    let world = World::new(vec![]).await;
    let all = frames(world.start(&id("s"), "go").await).await;
    let place: EventId = all[0].id.as_ref().unwrap().parse().unwrap();
    let place = EventId { seq: u64::MAX, ..place };
    assert_eq!(outline(&world.follow(&id("s"), From::After(Some(place))).await), "resync complete");
}

#[tokio::test]
async fn the_end_of_a_run_that_could_not_be_stored_is_stored_when_the_store_works_again() {
    let world = World::new(vec![vec![Say::Gate, text("answer")]]).await;
    let feed = world.start(&id("s"), "go").await;
    jam(world.folder.path(), "runs", "DELETE");
    world.script.gate.add_permits(1);
    assert_eq!(outline(&frames(feed).await), "user stream error");
    assert_eq!(count(world.folder.path(), "runs"), 1);
    unjam(world.folder.path());
    while count(world.folder.path(), "runs") == 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.rows(&id("s")).await.last().unwrap()["content"], "answer");
}

#[tokio::test]
async fn the_end_of_a_run_that_could_not_be_stored_is_stored_at_the_servers_end() {
    let world = World::new(vec![vec![Say::Gate, text("answer")]]).await;
    let feed = world.start(&id("s"), "go").await;
    jam(world.folder.path(), "runs", "DELETE");
    world.script.gate.add_permits(1);
    frames(feed).await;
    unjam(world.folder.path());
    let world = World::at(world.end().await, Script::new(vec![])).await;
    let look = world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap();
    assert!(!look.running, "the run was over");
    assert_eq!(world.rows(&id("s")).await.last().unwrap()["content"], "answer");
}

#[tokio::test]
async fn an_interrupted_run_that_cannot_be_taken_up_loses_nothing_and_goes_on_later() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "go").await).await;
    let folder = world.end().await;
    crash(folder.path(), 0);
    jam(folder.path(), "queue", "DELETE");
    let world = World::at(folder, Script::new(vec![vec![text("going on")]])).await;
    let session = world.workspace.session(&id("s"));
    assert!(!session.snapshot().await.unwrap().unwrap().running);
    assert!(session.send(inbound("more")).await.is_err(), "it would stand before what was left");
    assert_eq!(count(world.folder.path(), "queue"), 1);
    unjam(world.folder.path());
    while count(world.folder.path(), "queue") == 1 || count(world.folder.path(), "runs") == 1 {
        tokio::task::yield_now().await;
    }
    let rows = world.rows(&id("s")).await;
    assert_eq!(rows.iter().filter(|row| row["interrupted"] == true).count(), 1);
    assert_eq!(rows.last().unwrap()["content"], "going on");
    let request = format!("{:?}", world.script.requests.lock().unwrap().last().unwrap());
    assert_eq!(request.matches("The server restarted").count(), 1);
    assert_eq!(request.matches("waiting").count(), 1);
}

#[tokio::test]
async fn a_long_turn_puts_only_its_latest_part_on_disk_again_and_again() {
    const CALLS: usize = 30;
    let call = || vec![Say::Call("probe", json!({}))];
    let mut answers: Vec<_> = (0..CALLS).map(|_| call()).collect();
    answers.push(vec![text("done")]);
    let world = World::new(answers).await;
    *world.script.tool.lock().unwrap() = ToolMode::AnswersLong(40_000);
    let largest = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let (seen, file) = (largest.clone(), world.folder.path().join("ws/.halo/halo.db"));
    *world.script.look.lock().unwrap() = Some(Box::new(move || {
        let conn = rusqlite::Connection::open(&file).unwrap();
        let size = conn.query_row("SELECT max(length(row)) FROM inflight", [], |row| row.get(0)).unwrap();
        seen.fetch_max(size, std::sync::atomic::Ordering::SeqCst);
    }));
    frames(world.start(&id("s"), "go").await).await;
    assert!(largest.load(std::sync::atomic::Ordering::SeqCst) < 400_000, "{largest:?}");
    let rows = world.rows(&id("s")).await;
    let blocks: Vec<_> =
        rows.iter().filter_map(|row| row["contentBlocks"].as_array()).flatten().cloned().collect();
    let calls: Vec<_> = blocks.iter().filter(|block| block["type"] == "tool_call").collect();
    assert!(calls.len() == CALLS && calls.iter().all(|call| call["toolCall"]["output"].is_string()));
    assert_eq!(rows.last().unwrap()["content"], "done");
}

#[tokio::test]
async fn an_agent_that_is_switched_off_gets_no_new_session() {
    let world = World::new(vec![]).await;
    let conn = rusqlite::Connection::open(world.workspace.path().join(".halo/halo.db")).unwrap();
    conn.execute("INSERT INTO disabled_items VALUES ('agent', 'default', 'global', 1)", ()).unwrap();
    let sent = world.workspace.session(&id("s")).send(inbound("go")).await;
    assert!(matches!(sent, Err(SessionError::AgentNotAvailable)));
    assert!(!world.workspace.exists(&id("s")).await.unwrap());
}

#[tokio::test]
async fn a_model_without_vision_gets_a_note_instead_of_an_image_and_one_with_vision_still_gets_it() {
    let world = World::new(vec![]).await;
    world.script.blind.store(true, std::sync::atomic::Ordering::SeqCst);
    let image = InboundImage { mime_type: "image/png".into(), data: "AAAA".into() };
    let message = Inbound { images: vec![image], ..inbound("see") };
    let Sent::Started(feed) = world.workspace.session(&id("s")).send(message).await.unwrap() else {
        panic!("busy")
    };
    frames(feed).await;
    world.script.blind.store(false, std::sync::atomic::Ordering::SeqCst);
    frames(world.start(&id("s"), "and now?").await).await;
    let requests = world.script.requests.lock().unwrap().clone();
    let has_image =
        |n: usize| requests[n][0].content.iter().any(|block| matches!(block, Block::Image { .. }));
    assert!(!has_image(0) && has_image(1));
    assert!(format!("{:?}", requests[0]).contains("takes no images"));
}
