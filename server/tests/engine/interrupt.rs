//! The hard interrupt: the turn is cut at once, nothing that waits is lost, and the queue is run next.

use super::support::{Say, ToolMode, World, frames, id, outline, streamed, text};
use super::wait_for_text;
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_interrupt_cuts_a_tool_and_runs_the_queue_next_on_the_same_stream() {
    for mode in [ToolMode::UntilCancelled, ToolMode::Stubborn] {
        let world = World::new(vec![vec![Say::Call("probe", json!({}))], vec![text("as you like")]]).await;
        *world.script.tool.lock().unwrap() = mode;
        let feed = world.start(&id("s"), "go").await;
        world.script.tool_began.notified().await;
        world.send(&id("s"), "no, this").await;
        let began = Instant::now();
        assert!(world.workspace.session(&id("s")).interrupt().await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let frames = frames(feed).await;
        assert_eq!(outline(&frames), "user tool_call user tool_result stream complete");
        assert_eq!(streamed(&frames), "as you like");
        let request = world.script.requests.lock().unwrap().last().unwrap().clone();
        let told = format!("{:?}", request.last().unwrap());
        assert!(told.contains("Do not retry") && told.contains("no, this"), "{told}");
    }
}

#[tokio::test]
async fn an_interrupt_with_nothing_queued_ends_the_run_and_the_session_is_not_marked_as_stopped() {
    let world = World::new(vec![vec![text("half an ans"), Say::Gate]]).await;
    let feed = world.start(&id("s"), "go").await;
    wait_for_text(&world, "half").await;
    let session = world.workspace.session(&id("s"));
    assert!(session.interrupt().await.unwrap());
    assert_eq!(outline(&frames(feed).await), "user stream complete");
    assert!(!session.interrupt().await.unwrap(), "nothing runs any more");
    let database = world.workspace.path().join(".halo/halo.db");
    let stopped: Option<i64> = rusqlite::Connection::open(database)
        .unwrap()
        .query_row("SELECT stopped_at FROM sessions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stopped, None);
}

#[tokio::test]
async fn messages_while_an_interrupt_is_under_way_belong_to_the_turn_after_it() {
    let world = World::new(vec![vec![Say::Call("probe", json!({}))], vec![text("both")]]).await;
    *world.script.tool.lock().unwrap() = ToolMode::Stubborn;
    let feed = world.start(&id("s"), "go").await;
    world.script.tool_began.notified().await;
    world.send(&id("s"), "first").await;
    let session = world.workspace.session(&id("s"));
    let interrupted = tokio::spawn({
        let session = session.clone();
        async move { session.interrupt().await }
    });
    tokio::task::yield_now().await;
    world.send(&id("s"), "second").await;
    assert!(interrupted.await.unwrap().unwrap());
    assert_eq!(streamed(&frames(feed).await), "both");
    let requests = world.script.requests.lock().unwrap();
    assert_eq!(requests.len(), 2);
    let told = format!("{:?}", requests[1].last().unwrap());
    assert!(told.find("first").unwrap() < told.find("second").unwrap());
}

#[tokio::test]
async fn a_stop_during_an_interrupt_ends_the_run_for_good() {
    let world = World::new(vec![vec![Say::Call("probe", json!({}))]]).await;
    *world.script.tool.lock().unwrap() = ToolMode::Stubborn;
    let feed = world.start(&id("s"), "go").await;
    world.script.tool_began.notified().await;
    world.send(&id("s"), "and this").await;
    let session = world.workspace.session(&id("s"));
    let (interrupted, stopped) = tokio::join!(session.interrupt(), session.stop());
    assert!(interrupted.unwrap() && stopped.unwrap());
    assert_eq!(frames(feed).await.last().unwrap().kind(), "complete");
    assert_eq!(world.script.requests.lock().unwrap().len(), 1, "the queue is kept, not run");
}

#[tokio::test]
async fn many_interrupts_in_a_row_lose_no_message() {
    let world = World::new((0..20).map(|_| vec![text("on it "), Say::Gate]).collect()).await;
    let feed = world.start(&id("s"), "message 0;").await;
    let session = world.workspace.session(&id("s"));
    for n in 1..20 {
        world.send(&id("s"), &format!("message {n};")).await;
        session.interrupt().await.unwrap();
    }
    session.stop().await.unwrap();
    assert_eq!(frames(feed).await.iter().filter(|frame| frame.kind() == "complete").count(), 1);
    // A turn that was cut before its call has left its answer to the next one.
    world.script.gate.add_permits(20);
    frames(world.start(&id("s"), "the last").await).await;
    let told = format!("{:?}", world.script.requests.lock().unwrap().last().unwrap());
    for n in 0..20 {
        assert_eq!(told.matches(&format!("message {n};")).count(), 1, "{n}: {told}");
    }
}
