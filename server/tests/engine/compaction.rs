//! Compaction and the image budget: the model gets a summary and a tail that the strictest provider takes, people get
//! a start and an outcome, and nothing loops or is lost.

use super::support::{Say, Script, ToolMode, World, frames, id, inbound, kinds, outline, streamed, text};
use super::trouble::{jam, unjam};
use halo_server::model::{Block, ErrorKind, Message, ModelError, Role};
use halo_server::session::{Compaction, From, Handle, Inbound, InboundImage, Sent};
use halo_server::store::sessions;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const START: &str = "Compacting context…";
const FAILED: &str = "Compaction failed — context unchanged";

fn fail(kind: ErrorKind, message: &str) -> Say {
    Say::Fail(ModelError { kind, status: Some(400), message: message.into(), retry_after: None, fault: None })
}

/// A session of this many short turns, and what follows in the script.
async fn after_turns(turns: usize, then: Vec<Vec<Say>>) -> World {
    let mut answers = vec![vec![text("ok")]; turns];
    answers.extend(then);
    let world = World::new(answers).await;
    for n in 0..turns {
        frames(world.start(&id("s"), &format!("m{n}")).await).await;
    }
    world
}

fn session(world: &World) -> Handle {
    world.workspace.session(&id("s"))
}

/// The notices of the log; each start is followed by one outcome.
async fn notices(world: &World) -> Vec<String> {
    let rows = world.rows(&id("s")).await;
    let notices = rows.iter().filter(|row| row["type"] == "notification");
    let notices: Vec<String> = notices.map(|row| row["content"].as_str().unwrap().to_owned()).collect();
    for (n, notice) in notices.iter().enumerate() {
        if notice == START {
            assert!(notices.get(n + 1).is_some_and(|next| next != START), "{notices:?}");
        }
    }
    notices
}

async fn until_announced(world: &World) {
    loop {
        let rows = world.rows(&id("s")).await;
        if rows.iter().any(|row| row["content"] == START) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn requests(world: &World) -> Vec<Vec<Arc<Message>>> {
    world.script.requests.lock().unwrap().clone()
}

fn is_for_summary(request: &[Arc<Message>]) -> bool {
    format!("{:?}", request.last()).contains("Summary of the conversation wanted")
}

/// What the strictest provider asks of a request.
pub fn strict(request: &[Arc<Message>]) {
    let mut open: Vec<&str> = Vec::new();
    for (n, message) in request.iter().enumerate() {
        assert_eq!(message.role == Role::User, n % 2 == 0, "{request:?}");
        let mut answered = Vec::new();
        for (n, block) in message.content.iter().enumerate() {
            if let Block::ToolResult { tool_use_id, .. } = block {
                assert_eq!(answered.len(), n, "results come first");
                answered.push(tool_use_id.as_str());
            }
        }
        assert_eq!(answered, open, "{request:?}");
        open = message
            .content
            .iter()
            .filter_map(|block| if let Block::ToolUse { id, .. } = block { Some(id.as_str()) } else { None })
            .collect();
    }
    assert!(open.is_empty() && request.len() % 2 == 1);
}

fn stored(folder: &Path) -> Vec<String> {
    let conn = rusqlite::Connection::open(folder.join("ws/.halo/halo.db")).unwrap();
    sessions::messages(&conn, "s").unwrap().into_iter().map(|(_, message)| message).collect()
}

#[tokio::test]
async fn at_ninety_percent_of_the_window_a_summary_takes_the_place_of_all_but_the_last_five() {
    let world = after_turns(
        3,
        vec![
            vec![text("nearly full"), Say::Count(90_000)],
            vec![text("SO FAR"), Say::Call("probe", json!({}))],
            vec![text("after")],
        ],
    )
    .await;
    frames(world.start(&id("s"), "more").await).await;
    let all = frames(world.start(&id("s"), "and more").await).await;
    assert_eq!(outline(&all), "user stream complete");
    assert_eq!(streamed(&all), "after", "nothing of the summary is shown");
    assert_eq!(notices(&world).await, [START, "Auto-compacted 4 older messages"]);
    let requests = requests(&world);
    requests.iter().map(Vec::as_slice).for_each(strict);
    assert!(is_for_summary(&requests[4]) && requests[4].len() == 9, "the whole conversation is summed up");
    let last = format!("{:?}", requests[5]);
    assert!(last.contains("[Conversation Summary") && last.contains("SO FAR") && last.contains("and more"));
    assert!(
        !last.contains("m1") && last.contains("m2") && !last.contains("Summary of the conversation wanted")
    );
    assert_eq!(stored(world.folder.path()).len(), 1 + 5 + 1);
    let rows = world.rows(&id("s")).await;
    assert!(kinds(&rows).ends_with("user notification usage notification usage assistant"));
    assert_eq!(rows.iter().filter(|row| row["type"] == "user").count(), 5, "the log keeps every row");
    let conn = rusqlite::Connection::open(world.folder.path().join("ws/.halo/halo.db")).unwrap();
    let tokens = sessions::get(&conn, "s").unwrap().unwrap();
    assert_eq!((tokens.context_tokens, tokens.total_output_tokens), (110, 60));
    frames(world.start(&id("s"), "again").await).await;
    assert_eq!(notices(&world).await.len(), 2, "there is room again");
}

#[tokio::test]
async fn a_tail_full_of_tools_stays_acceptable_and_keeps_only_the_newest_result_whole() {
    let call = |n: u32| vec![Say::Call("probe", json!({ "n": n }))];
    let mut last = call(5);
    last.push(Say::Count(95_000));
    for keep in 2..7 {
        let mut answers = vec![call(1), call(2), call(3), call(4), last.clone(), vec![text("SO FAR")]];
        answers.push(vec![text("done")]);
        let world = World::new(answers).await;
        world.script.window.lock().unwrap().1 = keep;
        *world.script.tool.lock().unwrap() = ToolMode::AnswersLong(500);
        let all = frames(world.start(&id("s"), "go").await).await;
        assert_eq!(streamed(&all), "done");
        let requests = requests(&world);
        requests.iter().map(Vec::as_slice).for_each(strict);
        let whole = |request: &[Arc<Message>]| {
            let blocks = request.iter().flat_map(|message| &message.content);
            blocks
                .filter(|block| matches!(block, Block::ToolResult { content, .. } if content.len() == 500))
                .count()
        };
        assert_eq!((whole(&requests[4]), whole(&requests[6])), (4, 1));
        notices(&world).await;
    }
}

#[tokio::test]
async fn where_the_summary_fails_the_conversation_is_compacted_without_the_model() {
    let reason = format!("cannot {}", "x".repeat(100));
    for (answer, note) in [
        (vec![fail(ErrorKind::Fatal, &reason)], format!("{}…", &reason[..80])),
        (vec![], "no summary produced".to_owned()),
    ] {
        let world = after_turns(4, vec![vec![text("full"), Say::Count(95_000)], answer]).await;
        frames(world.start(&id("s"), "more").await).await;
        let all = frames(world.start(&id("s"), "and more").await).await;
        assert_eq!(streamed(&all), "ok");
        let outcome =
            format!("Auto-compacted 6 older messages (local fallback — LLM summary failed: {note})");
        assert_eq!(notices(&world).await, [START.to_owned(), outcome]);
        let last = format!("{:?}", requests(&world).last().unwrap());
        assert!(last.contains("[Conversation Summary") && last.contains("user: [") && last.contains("m1"));
    }
}

#[tokio::test]
async fn a_conversation_that_the_provider_finds_too_long_is_compacted_and_sent_again() {
    let world = after_turns(4, vec![vec![fail(ErrorKind::ContextOverflow, "prompt is too long")]]).await;
    let all = frames(world.start(&id("s"), "more").await).await;
    assert_eq!(outline(&all), "user stream complete");
    assert_eq!(notices(&world).await.len(), 2);
    let requests = requests(&world);
    requests.iter().map(Vec::as_slice).for_each(strict);
    assert_eq!((requests.len(), requests[4].len(), requests[5].len()), (6, 9, 5));
}

#[tokio::test]
async fn a_provider_that_finds_everything_too_long_gets_two_more_tries_and_people_one_error() {
    let refusal = || vec![fail(ErrorKind::ContextOverflow, "prompt is too long")];
    let world = after_turns(4, vec![refusal(), refusal(), refusal(), vec![text("ok again")]]).await;
    let all = frames(world.start(&id("s"), &"long ".repeat(1000)).await).await;
    assert_eq!(outline(&all), "user error");
    let error = all[1].json["error"].as_str().unwrap();
    assert!(error.starts_with("prompt is too long — ") && error.contains("/new"), "{error}");
    assert_eq!(requests(&world).len(), 4 + 3);
    notices(&world).await;
    assert_eq!(streamed(&frames(world.start(&id("s"), "short").await).await), "ok again");
}

#[tokio::test]
async fn a_turn_whose_compactions_do_not_help_ends_with_an_error_after_two() {
    let full = || vec![Say::Call("probe", json!({})), Say::Count(95_000)];
    let sum = || vec![text("SO FAR")];
    let world = World::new(vec![full(), sum(), full(), sum(), full(), sum(), full()]).await;
    world.script.window.lock().unwrap().1 = 1;
    let all = frames(world.start(&id("s"), "go").await).await;
    assert_eq!(all.last().unwrap().kind(), "error");
    let error = all.last().unwrap().json["error"].as_str().unwrap();
    assert!(error.contains("100000 tokens") && error.contains("/new"), "{error}");
    let requests = requests(&world);
    assert_eq!(requests.iter().filter(|request| is_for_summary(request)).count(), 2);
    assert_eq!(requests.len(), 5);
    notices(&world).await;
}

#[tokio::test]
async fn a_message_larger_than_the_window_leaves_the_history_as_it_is_and_the_next_one_works() {
    let world = after_turns(4, vec![]).await;
    *world.script.window.lock().unwrap() = (6000, 5);
    let before = stored(world.folder.path());
    let all = frames(world.start(&id("s"), &"large ".repeat(6000)).await).await;
    assert_eq!(outline(&all), "user error");
    assert_eq!(notices(&world).await, [START, FAILED, START, FAILED]);
    assert_eq!(stored(world.folder.path())[..8], before);
    let all = frames(world.start(&id("s"), "small").await).await;
    assert_eq!(outline(&all), "user stream complete", "it can be summed up now");
    let last = format!("{:?}", requests(&world).last().unwrap());
    assert!(last.contains("small") && !last.contains(&"large ".repeat(1000)));
}

#[tokio::test]
async fn a_short_conversation_is_not_compacted_and_nothing_is_announced() {
    let full = vec![text("full"), Say::Count(99_000)];
    let world = World::new(vec![full]).await;
    frames(world.start(&id("s"), "go").await).await;
    frames(world.start(&id("s"), "more").await).await;
    assert_eq!(notices(&world).await, [""; 0]);
    assert_eq!(session(&world).compact().await.unwrap(), Compaction::Nothing);
    assert_eq!(notices(&world).await, [""; 0]);
    let unknown = world.workspace.session(&id("unknown"));
    assert!(unknown.compact().await.is_err() && unknown.context().await.unwrap().is_none());
}

#[tokio::test]
async fn a_provider_that_counts_nothing_is_met_with_estimates() {
    let answers = (0..10).map(|_| vec![text(&"word ".repeat(1000)), Say::Count(0)]).collect();
    let world = World::new(answers).await;
    *world.script.window.lock().unwrap() = (8000, 2);
    for n in 0..7 {
        let all = frames(world.start(&id("s"), &format!("m{n}")).await).await;
        assert_eq!(all.last().unwrap().kind(), "complete");
    }
    let used = session(&world).context().await.unwrap().unwrap().used;
    assert!(used > 1400 && used < 8700, "{used}");
    assert!(notices(&world).await[1].starts_with("Auto-compacted"));
}

#[tokio::test]
async fn somebody_who_asks_for_a_compaction_gets_its_outcome_and_the_log_tells_of_it() {
    let gated = vec![Say::Gate, text("SO FAR")];
    let world = after_turns(4, vec![gated]).await;
    let asked = tokio::spawn({
        let session = session(&world);
        async move { session.compact().await.unwrap() }
    });
    until_announced(&world).await;
    assert!(session(&world).snapshot().await.unwrap().unwrap().running);
    assert_eq!(session(&world).compact().await.unwrap(), Compaction::Busy);
    let follow = session(&world).subscribe(From::Now).await.unwrap().unwrap();
    world.script.gate.add_permits(1);
    assert_eq!(outline(&frames(follow).await), "complete");
    assert_eq!(asked.await.unwrap(), Compaction::Done { messages: 3 });
    assert!(!session(&world).snapshot().await.unwrap().unwrap().running);
    let notices = notices(&world).await;
    assert_eq!(notices.len(), 2);
    assert!(notices[1].starts_with("Context compacted: 3 messages, about 110 → "), "{notices:?}");
    frames(world.start(&id("s"), "more").await).await;
    let last = format!("{:?}", requests(&world).last().unwrap());
    assert!(last.contains("SO FAR") && last.contains("m3") && !last.contains("m1"));
}

#[tokio::test]
async fn a_compaction_that_somebody_asked_for_has_no_fallback() {
    for (answer, result, notice) in [
        (vec![fail(ErrorKind::Account, "bad key")], Compaction::Failed("bad key".into()), FAILED),
        (vec![], Compaction::NoSummary, "Compaction skipped — no summary produced"),
    ] {
        let world = after_turns(4, vec![answer]).await;
        let before = stored(world.folder.path());
        assert_eq!(session(&world).compact().await.unwrap(), result);
        assert_eq!(notices(&world).await, [START, notice]);
        assert_eq!(stored(world.folder.path()), before);
        assert_eq!(outline(&frames(world.start(&id("s"), "more").await).await), "user stream complete");
    }
}

#[tokio::test]
async fn a_compaction_that_is_stopped_or_interrupted_changes_nothing() {
    for interrupt in [false, true] {
        let world = after_turns(4, vec![vec![Say::Gate]]).await;
        let before = stored(world.folder.path());
        let asked = tokio::spawn({
            let session = session(&world);
            async move { session.compact().await.unwrap() }
        });
        until_announced(&world).await;
        let began = Instant::now();
        let session = session(&world);
        assert!(if interrupt { session.interrupt().await.unwrap() } else { session.stop().await.unwrap() });
        assert!(began.elapsed() < Duration::from_secs(2));
        assert_eq!(asked.await.unwrap(), Compaction::Cancelled);
        assert_eq!(notices(&world).await, [START, "Compact cancelled"]);
        assert_eq!(stored(world.folder.path()), before);
    }
}

#[tokio::test]
async fn a_message_during_a_compaction_waits_and_is_run_after_it() {
    let world = after_turns(4, vec![vec![Say::Gate, text("SO FAR")], vec![text("answer"), Say::Gate]]).await;
    let asked = tokio::spawn({
        let session = session(&world);
        async move { session.compact().await.unwrap() }
    });
    until_announced(&world).await;
    let runs = || {
        let conn = rusqlite::Connection::open(world.folder.path().join("ws/.halo/halo.db")).unwrap();
        conn.query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(runs(), 0, "a compaction is nothing to go on with after a crash");
    let follow = session(&world).subscribe(From::Now).await.unwrap().unwrap();
    let Sent::Queued(_) = world.send(&id("s"), "and now?").await else { panic!("the session is busy") };
    world.script.gate.add_permits(1);
    assert_eq!(asked.await.unwrap(), Compaction::Done { messages: 3 });
    assert_eq!(runs(), 1);
    world.script.gate.add_permits(1);
    let all = frames(follow).await;
    assert_eq!(outline(&all), "user stream complete");
    assert_eq!(streamed(&all), "answer");
    let last = format!("{:?}", requests(&world).last().unwrap());
    assert!(last.contains("SO FAR") && last.contains("and now?"));
}

#[tokio::test]
async fn stop_cuts_an_automatic_compaction_at_once_and_the_run_ends_once() {
    let full = vec![text("full"), Say::Count(95_000)];
    let world = after_turns(4, vec![full, vec![Say::Gate]]).await;
    frames(world.start(&id("s"), "more").await).await;
    let feed = world.start(&id("s"), "and more").await;
    until_announced(&world).await;
    let began = Instant::now();
    assert!(session(&world).stop().await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(outline(&frames(feed).await), "user complete");
    assert_eq!(notices(&world).await, [START, "Compact cancelled"]);
    assert_eq!(stored(world.folder.path()).len(), 11);
}

/// What a `kill -9` at this moment would leave.
fn as_killed(world: &World) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let (from, to) = (world.workspace.path().join(".halo"), copy.path().join("ws/.halo"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    copy
}

#[tokio::test]
async fn a_crash_or_an_end_of_the_server_during_a_compaction_leaves_an_outcome() {
    let world = after_turns(4, vec![vec![Say::Gate]]).await;
    let _asked = tokio::spawn({
        let session = session(&world);
        async move { session.compact().await }
    });
    until_announced(&world).await;
    let killed = as_killed(&world);
    let ended = world.end().await;
    for (folder, outcome) in [(killed, FAILED), (ended, "Compact cancelled")] {
        let world = World::at(folder, Script::new(vec![])).await;
        assert!(!session(&world).snapshot().await.unwrap().unwrap().running, "nothing was going on");
        assert_eq!(notices(&world).await, [START, outcome]);
        assert_eq!(stored(world.folder.path()).len(), 8);
        assert_eq!(outline(&frames(world.start(&id("s"), "more").await).await), "user stream complete");
    }
}

#[tokio::test]
async fn a_crash_during_an_automatic_compaction_leaves_an_outcome_and_the_run_goes_on() {
    let full = vec![text("full"), Say::Count(95_000)];
    let world = after_turns(4, vec![full, vec![Say::Gate]]).await;
    frames(world.start(&id("s"), "more").await).await;
    let _feed = world.start(&id("s"), "and more").await;
    until_announced(&world).await;
    let killed = as_killed(&world);
    let world = World::at(killed, Script::new(vec![vec![Say::Gate, text("SO FAR")]])).await;
    let follow = session(&world).subscribe(From::Now).await.unwrap().unwrap();
    world.script.gate.add_permits(1);
    assert_eq!(streamed(&frames(follow).await), "ok");
    assert_eq!(notices(&world).await, [START, FAILED, START, "Auto-compacted 7 older messages"]);
}

#[tokio::test]
async fn a_compaction_that_cannot_be_stored_leaves_the_history_and_an_outcome() {
    let world = after_turns(4, vec![vec![text("SO FAR")]]).await;
    let before = stored(world.folder.path());
    jam(world.folder.path(), "model_messages", "DELETE");
    let Compaction::Failed(why) = session(&world).compact().await.unwrap() else { panic!("it was stored") };
    assert!(why.contains("could not be stored"), "{why}");
    assert_eq!(stored(world.folder.path()), before);
    unjam(world.folder.path());
    assert_eq!(notices(&world).await, [START, FAILED]);
    frames(world.start(&id("s"), "more").await).await;
    assert!(format!("{:?}", requests(&world).last().unwrap()).contains("m0"));
}

#[tokio::test]
async fn older_images_leave_a_conversation_that_has_too_many_or_too_large_ones() {
    let send = |count: usize, bytes: usize| {
        let image = InboundImage { mime_type: "image/png".into(), data: "A".repeat(bytes) };
        Inbound { images: vec![image; count], ..inbound("see") }
    };
    for (first, second, removed, left) in
        [((60, 4), (60, 4), 71, 49), ((3, 8 << 20), (1, 4), 2, 2), ((60, 4), (40, 4), 0, 100)]
    {
        let world = World::new(vec![]).await;
        for (count, bytes) in [first, second, (0, 0)] {
            let Sent::Started(feed) = session(&world).send(send(count, bytes)).await.unwrap() else {
                panic!("busy")
            };
            frames(feed).await;
        }
        let notice =
            format!("Removed {removed} older image(s) from context to keep the request under the size limit");
        let expected = if removed == 0 { vec![] } else { vec![notice] };
        assert_eq!(notices(&world).await, expected);
        let requests = requests(&world);
        let blocks = requests.last().unwrap().iter().flat_map(|message| &message.content);
        let images: Vec<bool> = blocks.map(|block| matches!(block, Block::Image { .. })).collect();
        assert_eq!(images.iter().filter(|image| **image).count(), left);
        assert!(removed == 0 || !images[1], "the oldest go first");
        let stored = stored(world.folder.path()).concat();
        assert_eq!(stored.matches("\"type\":\"image\"").count(), left);
    }
}

#[tokio::test]
async fn how_full_the_context_is_can_be_asked_at_any_time() {
    let world = World::new(vec![vec![text("ok"), Say::Count(40_000)]]).await;
    frames(world.start(&id("s"), "go").await).await;
    let context = session(&world).context().await.unwrap().unwrap();
    assert_eq!((context.used, context.window, context.threshold), (40_010, 100_000, 90_000));
    assert_eq!((context.agent.as_str(), context.model.as_str()), ("Default", "scripted"));
    assert!(context.tools.contains(&"probe".to_owned()));
    let folder = world.end().await;
    let world = World::at(folder, Script::new(vec![])).await;
    assert_eq!(session(&world).context().await.unwrap().unwrap(), context);
    let rows: Value = world.rows(&id("s")).await.into();
    assert_eq!(rows.as_array().unwrap().len(), 4);
}
