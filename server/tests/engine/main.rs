//! What the session engine promises, on a real database, with a scripted model and tool.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod chance;
mod compaction;
mod delegation;
mod interrupt;
mod many;
mod queue;
mod resume;
mod support;
mod trouble;

use futures_util::StreamExt;
use halo_server::model::{Block, ErrorKind, ModelError, Role};
use halo_server::session::ids::{EventId, row_seq};
use halo_server::session::{From, HistoryQuery, Sent};
use halo_server::store::Database;
use halo_server::store::schema::Schema;
use halo_server::store::sessions::{self, Write};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::*;

#[tokio::test]
async fn a_turn_is_streamed_and_logged() {
    let world = World::new(vec![vec![text("Hello "), text("world")]]).await;
    let frames = frames(world.start(&id("s"), "hi\nthere").await).await;
    assert_eq!(outline(&frames), "user stream complete");
    assert_eq!(streamed(&frames), "Hello world");
    let rows = world.rows(&id("s")).await;
    assert_eq!(kinds(&rows), "context user usage assistant");
    assert_eq!(rows[1]["content"], "hi\nthere");
    assert_eq!(rows[3]["content"], "Hello world");
    assert_eq!(rows[3]["contentBlocks"][0]["type"], "text");
    let (roots, more) = world.workspace.roots("s", None, 50).await.unwrap();
    assert_eq!((roots[0].title.as_deref(), more), (Some("hi"), false));
}

#[tokio::test]
async fn a_tool_call_is_on_disk_before_the_tool_runs_and_its_result_before_the_next_call() {
    let world =
        World::new(vec![vec![text("look"), Say::Call("probe", json!({"path": "x"}))], vec![text("done")]])
            .await;
    let file = world.workspace.path().join(".halo/halo.db");
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let noted = seen.clone();
    *world.script.look.lock().unwrap() = Some(Box::new(move || {
        let conn = rusqlite::Connection::open(&file).unwrap();
        let messages = sessions::messages(&conn, "s").unwrap();
        *noted.lock().unwrap() = messages.last().unwrap().1.clone();
    }));
    let frames = frames(world.start(&id("s"), "go").await).await;
    assert_eq!(outline(&frames), "user stream tool_call tool_result stream complete");
    assert!(seen.lock().unwrap().contains("\"tool_use\""), "the stored history ends in the call");
    assert_eq!(frames[2].json["toolUseId"], frames[3].json["toolUseId"]);
    let rows = world.rows(&id("s")).await;
    assert_eq!(kinds(&rows), "context user tool_call usage tool_result usage assistant");
    let blocks = rows.last().unwrap()["contentBlocks"].as_array().unwrap();
    assert_eq!(blocks[1]["toolCall"]["input"], "{\"path\":\"x\"}");
    assert_eq!(blocks[1]["toolCall"]["output"], "seen");
    let second = world.script.requests.lock().unwrap()[1].clone();
    assert!(
        matches!(&second.last().unwrap().content[0], Block::ToolResult { content, .. } if content == "seen")
    );
}

#[tokio::test]
async fn messages_to_a_busy_session_are_folded_into_one_turn_on_the_same_stream() {
    let world = World::new(vec![vec![text("one"), Say::Gate], vec![text("two")]]).await;
    let feed = world.start(&id("s"), "first").await;
    let Sent::Queued(place) = world.send(&id("s"), "second").await else { panic!("not queued") };
    let Sent::Queued(_) = world.send(&id("s"), "third").await else { panic!("not queued") };
    let follow =
        world.workspace.session(&id("s")).subscribe(From::After(Some(place))).await.unwrap().unwrap();
    world.script.gate.add_permits(1);
    let all = frames(feed).await;
    assert_eq!(all.iter().filter(|frame| frame.kind() == "user").count(), 3);
    assert_eq!(all.iter().filter(|frame| frame.kind() == "complete").count(), 1);
    assert!(streamed(&all).ends_with("two"));
    let rest = frames(follow).await;
    assert_eq!(rest.last().unwrap().kind(), "complete");
    assert_eq!(rest.last().unwrap().id, all.last().unwrap().id);
    let requests = world.script.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2);
    let last = requests[1].last().unwrap();
    assert_eq!(last.role, Role::User);
    let texts: Vec<&str> = last
        .content
        .iter()
        .filter_map(|block| if let Block::Text { text } = block { Some(text.as_str()) } else { None })
        .collect();
    assert!(texts[0].ends_with("second") && texts[1].ends_with("third"), "{texts:?}");
}

#[tokio::test]
async fn a_queued_message_makes_the_turn_yield_after_its_batch_of_tools() {
    let world = World::new(vec![vec![Say::Gate, Say::Call("probe", json!({}))], vec![text("both")]]).await;
    let feed = world.start(&id("s"), "first").await;
    world.send(&id("s"), "second").await;
    world.script.gate.add_permits(1);
    assert_eq!(outline(&frames(feed).await), "user tool_call tool_result stream complete");
    let requests = world.script.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2, "the second call already has the queued message");
    let last = requests[1].last().unwrap();
    assert!(
        matches!(last.content[0], Block::ToolResult { .. })
            && matches!(&last.content[1], Block::Text { text } if text.ends_with("second"))
    );
}

#[tokio::test]
async fn stop_in_the_middle_of_text_keeps_what_was_said_and_ends_with_complete() {
    let world = World::new(vec![vec![text("half an ans"), Say::Gate]]).await;
    let feed = world.start(&id("s"), "go").await;
    let began = Instant::now();
    wait_for_text(&world, "half").await;
    assert!(world.workspace.session(&id("s")).stop().await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(outline(&frames(feed).await), "user stream complete");
    let rows = world.rows(&id("s")).await;
    assert_eq!(rows.last().unwrap()["content"], "half an ans");
    assert!(!world.workspace.session(&id("s")).stop().await.unwrap(), "nothing runs any more");
    frames(world.start(&id("s"), "more").await).await;
    let request = world.script.requests.lock().unwrap().last().unwrap().clone();
    let said = format!("{:?}", request[1]);
    assert!(said.contains("half an ans") && said.contains("interrupted by the user here"));
}

#[tokio::test]
async fn stop_ends_a_tool_and_tells_the_model_what_ran_and_what_did_not() {
    for mode in [ToolMode::UntilCancelled, ToolMode::Stubborn] {
        let world =
            World::new(vec![vec![Say::Call("probe", json!({})), Say::Call("probe", json!({}))]]).await;
        *world.script.tool.lock().unwrap() = mode;
        let feed = world.start(&id("s"), "go").await;
        world.script.tool_began.notified().await;
        let began = Instant::now();
        assert!(world.workspace.session(&id("s")).stop().await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let frames = frames(feed).await;
        let results: Vec<&str> = frames.iter().filter_map(|frame| frame.json["result"].as_str()).collect();
        assert_eq!(results, ["[interrupted by user]", "[not run — interrupted]"]);
        assert_eq!(frames.last().unwrap().kind(), "complete");
        support::frames(world.start(&id("s"), "more").await).await;
        let request = world.script.requests.lock().unwrap().last().unwrap().clone();
        let results = format!("{:?}", request[2]);
        assert!(results.contains("Do not retry") && results.contains("safe to issue it again"), "{results}");
    }
}

#[tokio::test]
async fn stop_keeps_the_queue_in_the_history_without_running_it() {
    let world = World::new(vec![vec![text("one"), Say::Gate]]).await;
    let feed = world.start(&id("s"), "first").await;
    wait_for_text(&world, "one").await;
    world.send(&id("s"), "second").await;
    world.workspace.session(&id("s")).stop().await.unwrap();
    assert_eq!(frames(feed).await.last().unwrap().kind(), "complete");
    assert_eq!(world.script.requests.lock().unwrap().len(), 1);
    frames(world.start(&id("s"), "third").await).await;
    let request = format!("{:?}", world.script.requests.lock().unwrap().last().unwrap());
    assert!(request.contains("second") && request.contains("third"));
}

#[tokio::test]
async fn every_place_of_a_run_can_be_resumed_without_hole_or_repeat() {
    let words: Vec<Say> = (0..40).map(|n| text(&format!("w{n} "))).collect();
    let world = World::new(vec![words]).await;
    let all = frames(world.start(&id("s"), "go").await).await;
    for (n, frame) in all.iter().enumerate().take(all.len() - 1) {
        let place: EventId = frame.id.as_ref().unwrap().parse().unwrap();
        let rest = world.follow(&id("s"), From::After(Some(place))).await;
        let ids = |frames: &[Frame]| frames.iter().map(|frame| frame.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&rest), ids(&all[n + 1..]));
    }
}

#[tokio::test]
async fn an_unknown_place_gets_a_resync_and_the_run_from_its_start() {
    let world = World::new(vec![vec![text("one "), Say::Gate, text("two")]]).await;
    let feed = world.start(&id("s"), "go").await;
    wait_for_text(&world, "one").await;
    let unknown: EventId = "feedbeef.3".parse().unwrap();
    for from in [From::After(Some(unknown.clone())), From::After(None), From::Replay] {
        let mut follow = world.workspace.session(&id("s")).subscribe(from).await.unwrap().unwrap();

        let first = parse(&follow.0.next().await.unwrap());
        assert_eq!(first[0].json, json!({"type": "resync"}));
        let next = parse(&follow.0.next().await.unwrap());
        assert_eq!(next[0].kind(), "user");
    }
    world.script.gate.add_permits(1);
    frames(feed).await;
    assert_eq!(outline(&world.follow(&id("s"), From::After(Some(unknown))).await), "resync complete");
}

#[tokio::test]
async fn history_and_the_stream_after_it_make_the_whole_text() {
    for _ in 0..50 {
        let words: Vec<Say> = (0..30).map(|n| text(&format!("w{n} "))).collect();
        let world = World::new(vec![words.clone()]).await;
        let whole = (0..30).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ") + " ";
        let feed = world.start(&id("s"), "go").await;
        tokio::task::yield_now().await;
        let look = world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap();
        let rows = world.rows(&id("s")).await;
        let before = match &look.streaming {
            Some(row) => serde_json::from_str::<serde_json::Value>(row).unwrap()["content"]
                .as_str()
                .unwrap()
                .to_owned(),
            None if look.running => String::new(),
            None => rows.last().unwrap()["content"].as_str().unwrap().to_owned(),
        };
        let rest = world.follow(&id("s"), From::After(look.event_id)).await;
        assert_eq!(before + &streamed(&rest), whole);
        frames(feed).await;
    }
}

#[tokio::test]
async fn a_failed_call_is_tried_again_and_what_was_shown_is_not_repeated() {
    let error = ModelError {
        kind: ErrorKind::Network,
        status: None,
        message: "cut".into(),
        retry_after: Some(Duration::ZERO),
        fault: None,
    };
    let world =
        World::new(vec![vec![text("Hello wo"), Say::Fail(error)], vec![text("Hello "), text("world")]]).await;
    let frames = frames(world.start(&id("s"), "go").await).await;
    assert_eq!(streamed(&frames), "Hello world");
    let rows = world.rows(&id("s")).await;
    let said = rows.iter().filter(|row| row["type"] == "assistant").filter_map(|row| row["content"].as_str());
    assert_eq!(said.collect::<String>(), "Hello world");
}

#[tokio::test]
async fn an_account_error_ends_the_run_at_once_with_what_the_provider_said() {
    let error = ModelError {
        kind: ErrorKind::Account,
        status: Some(401),
        message: "bad key".into(),
        retry_after: None,
        fault: None,
    };
    let world = World::new(vec![vec![Say::Fail(error)]]).await;
    let all = frames(world.start(&id("s"), "go").await).await;
    assert_eq!(outline(&all), "user error");
    assert!(all[1].json["error"].as_str().unwrap().starts_with("bad key — check"));
    assert_eq!(outline(&frames(world.start(&id("s"), "again").await).await), "user stream complete");
}

#[tokio::test]
async fn an_orderly_end_leaves_the_run_to_the_next_life_without_counting_as_a_crash() {
    let mut folder = None;
    for _ in 0..5 {
        let script = Script::new(vec![vec![text("begun"), Say::Gate]]);
        let world = World::at(folder.take().unwrap_or_else(|| tempfile::tempdir().unwrap()), script).await;
        if world.workspace.exists(&id("s")).await.unwrap() {
            assert!(world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap().running);
        } else {
            world.start(&id("s"), "go").await;
        }
        wait_for_text(&world, "begun").await;
        folder = Some(world.end().await);
    }
    let world = World::at(folder.unwrap(), Script::new(vec![])).await;
    world.follow(&id("s"), From::Now).await;
    let rows = world.rows(&id("s")).await;
    assert_eq!(rows.iter().filter(|row| row["interrupted"] == true).count(), 5);
    let nudges = rows
        .iter()
        .filter(|row| row["content"].as_str().unwrap().starts_with("[System] The server restarted at"));
    assert_eq!(nudges.count(), 5);
    assert_eq!(rows.last().unwrap()["content"], "ok");
}

/// What a crash leaves: a run in the ledger, a call without a result, a row in flight, a queue.
fn crash(folder: &std::path::Path, crashes: i64) {
    let conn = rusqlite::Connection::open(folder.join("ws/.halo/halo.db")).unwrap();
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "probe", "input": {}}]});
    let block = json!({"type": "tool_call", "toolCall": {"name": "probe", "input": "{}", "toolUseId": "c1"}, "turnId": "t"});
    let entry = json!({"at": 1, "text": "waiting", "access": "full"});
    let next = sessions::counters(&conn, "s").unwrap();
    sessions::apply(
        &conn,
        "s",
        &[
            Write::RunStarted { at: 1, crashes },
            Write::Message { seq: next.message, message: call.to_string() },
            Write::Inflight(Some(json!({"at": 1, "blocks": [block]}).to_string())),
            Write::Enqueue { seq: 1, entry: entry.to_string() },
        ],
    )
    .unwrap();
}

#[tokio::test]
async fn after_a_crash_an_interrupted_session_goes_on_with_its_queue() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "go").await).await;
    let folder = world.end().await;
    crash(folder.path(), 0);
    let world = World::at(folder, Script::new(vec![vec![Say::Gate, text("going on")]])).await;
    let follow = world.workspace.session(&id("s")).subscribe(From::Now).await.unwrap();
    world.script.gate.add_permits(1);
    frames(follow.expect("the run goes on by itself")).await;
    let rows = world.rows(&id("s")).await;
    let cut = rows.iter().find(|row| row["interrupted"] == true).unwrap();
    assert_eq!(cut["contentBlocks"][0]["toolCall"]["output"], "[interrupted by a server restart]");
    assert_eq!(rows.last().unwrap()["content"], "going on");
    let request = world.script.requests.lock().unwrap()[0].clone();
    let last = format!("{:?}", request.last().unwrap());
    assert!(
        last.contains("Do not retry") && last.contains("The server restarted") && last.contains("waiting")
    );
    let folder = world.end().await;
    let db = Database::open(&folder.path().join("ws/.halo/halo.db"), Schema::Workspace).unwrap();
    assert_eq!(db.read(sessions::unfinished).await.unwrap(), []);
    db.close().await;
}

#[tokio::test]
async fn three_crashes_in_a_row_end_a_run_with_an_error_row() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "go").await).await;
    let folder = world.end().await;
    crash(folder.path(), 2);
    let world = World::at(folder, Script::new(vec![])).await;
    let look = world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap();
    assert!(!look.running);
    let rows = world.rows(&id("s")).await;
    assert!(rows.last().unwrap()["content"].as_str().unwrap().contains("crashed 3 times"));
    assert!(world.script.requests.lock().unwrap().is_empty());
    assert_eq!(outline(&frames(world.start(&id("s"), "again").await).await), "user stream complete");
}

#[tokio::test]
async fn a_second_process_on_a_workspace_reads_says_who_runs_it_and_takes_over_when_that_one_ends() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "go").await).await;
    let runs = Database::open(&world.folder.path().join("other.db"), Schema::Runs).unwrap();
    let other = World::second(&world, runs).await;
    let Err(error) = other.session(&id("s")).send(inbound("x")).await else {
        panic!("two owners of one workspace")
    };
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    let look = other.session(&id("s")).snapshot().await.unwrap().unwrap();
    assert_eq!(look.top, 4);
    let _folder = world.end().await;
    let Sent::Started(feed) = other.session(&id("s")).send(inbound("x")).await.unwrap() else {
        panic!("busy")
    };
    assert_eq!(outline(&frames(feed).await), "user stream complete");
}

#[tokio::test]
async fn a_workspace_that_was_removed_and_made_anew_is_opened_anew() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "go").await).await;
    let path = world.workspace.path().to_owned();
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let anew = world.engine.workspace(&path).await.unwrap();
    assert!(!anew.exists(&id("s")).await.unwrap());
    let Sent::Started(feed) = anew.session(&id("s")).send(inbound("x")).await.unwrap() else {
        panic!("busy")
    };
    frames(feed).await;
    assert!(path.join(".halo/halo.db").is_file());
    assert!(anew.exists(&id("s")).await.unwrap());
}

#[tokio::test]
async fn a_run_that_was_stopped_does_not_come_back_after_the_server_ends() {
    let world = World::new(vec![vec![Say::Call("probe", json!({}))]]).await;
    *world.script.tool.lock().unwrap() = ToolMode::Stubborn;
    let _feed = world.start(&id("s"), "go").await;
    world.script.tool_began.notified().await;
    let session = world.workspace.session(&id("s"));
    let stop = tokio::spawn(async move { session.stop().await });
    tokio::task::yield_now().await;
    let world = World::at(world.end().await, Script::new(vec![])).await;
    assert!(!world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap().running);
    let _ = stop.await.unwrap();
}

#[tokio::test]
async fn fifty_sessions_at_once_each_get_their_own_answer() {
    let world = Arc::new(World::new(vec![]).await);
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let world = world.clone();
            tokio::spawn(async move {
                let session = id(&format!("s{n}"));
                for turn in 0..4 {
                    let frames = frames(world.start(&session, &format!("m{turn}")).await).await;
                    assert_eq!(outline(&frames), "user stream complete");
                }
                assert_eq!(kinds(&world.rows(&session).await).matches("assistant").count(), 4);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn wait_for_text(world: &World, start: &str) {
    loop {
        let look = world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap();
        if look.streaming.is_some_and(|row| row.contains(&format!("\"content\":\"{start}"))) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_page_of_history_has_the_newest_rows_and_tells_whether_older_ones_exist() {
    let world = World::new(vec![]).await;
    for n in 0..3 {
        frames(world.start(&id("s"), &format!("m{n}")).await).await;
    }
    let top = world.workspace.session(&id("s")).snapshot().await.unwrap().unwrap().top;
    let page = |limit, before| {
        let world = &world;
        async move {
            let query = HistoryQuery { since: None, limit, before };
            let (rows, more) = world.workspace.history(&id("s"), query, top).await.unwrap();
            let rows: Vec<_> = rows.map(Result::unwrap).collect::<Vec<_>>().await.concat();
            (
                rows.iter()
                    .map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap()["id"].clone())
                    .collect::<Vec<_>>(),
                more,
            )
        }
    };
    let all = page(None, None).await.0;
    assert_eq!(all.len(), 10);
    assert_eq!(page(Some(4), None).await, (all[6..].to_vec(), true));
    let before = row_seq(all[6].as_str().unwrap());
    assert_eq!(page(Some(4), before).await, (all[2..6].to_vec(), true));
    assert_eq!(page(Some(7), before).await, (all[..6].to_vec(), false));
    assert_eq!(page(None, Some(1)).await, (vec![], false));
}

#[tokio::test]
async fn a_message_or_a_notice_stands_between_what_was_written_before_and_after_it() {
    let limited = ModelError {
        kind: ErrorKind::Throttle,
        status: Some(429),
        message: "slow down".into(),
        retry_after: Some(Duration::ZERO),
        fault: None,
    };
    let world = World::new(vec![
        vec![text("one "), Say::Gate, text("two "), Say::Fail(limited)],
        vec![text("one two three")],
        vec![text("four")],
    ])
    .await;
    let feed = world.start(&id("s"), "go").await;
    wait_for_text(&world, "one").await;
    world.send(&id("s"), "wait").await;
    world.script.gate.add_permits(1);
    assert_eq!(streamed(&frames(feed).await), "one two threefour");
    let rows = world.rows(&id("s")).await;
    assert_eq!(
        kinds(&rows),
        "context user assistant user assistant notification usage assistant usage assistant"
    );
    let said: Vec<&str> = rows
        .iter()
        .filter(|row| row["type"] == "assistant")
        .filter_map(|row| row["content"].as_str())
        .collect();
    assert_eq!(said, ["one ", "two ", "three", "four"]);
}
