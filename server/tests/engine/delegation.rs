//! Sub-agents: started, heard, stopped, taken up again, and never lost.

use super::crash;
use super::support::{Say, ToolMode, World, frames, id, inbound, outline, streamed, text};
use halo_server::access::AccessLevel;
use halo_server::model::{Block, ErrorKind, Message, ModelError};
use halo_server::session::Inbound;
use halo_server::session::ids::SessionId;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn start(task: &str) -> Say {
    Say::Call("start_session", json!({"agent_id": "default", "message": task}))
}

/// The last tool result of a conversation.
pub fn result(messages: &[Arc<Message>]) -> Value {
    let blocks = messages.iter().rev().flat_map(|message| message.content.iter());
    let text = blocks.filter_map(|block| match block {
        Block::ToolResult { content, .. } => Some(content.as_str()),
        _ => None,
    });
    serde_json::from_str(text.into_iter().next().unwrap()).unwrap()
}

/// Arguments for the sub-session that was just started.
pub fn to_child(messages: &[Arc<Message>]) -> Value {
    let child = result(messages)["session_id"].clone();
    json!({"session_id": child, "target_session_id": child, "message": "more, please"})
}

pub fn column(world: &World, sql: &str) -> Vec<String> {
    let conn = rusqlite::Connection::open(world.workspace.path().join(".halo/halo.db")).unwrap();
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

pub fn children(world: &World) -> Vec<SessionId> {
    let ids = column(world, "SELECT id FROM sessions WHERE parent_id IS NOT NULL ORDER BY id");
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

pub fn is_report(row: &Value) -> bool {
    row["type"] == "user" && row["content"].as_str().unwrap().starts_with("(from: session ")
}

pub async fn reports(world: &World, id: &SessionId) -> Vec<String> {
    let rows = world.rows(id).await;
    rows.iter().filter(|row| is_report(row)).map(|row| row["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_sub_agent_works_and_its_report_wakes_its_parent() {
    let world = World::new(vec![]).await;
    world.script.when("delegate this", vec![start("count the files")]);
    world.script.when("count the files", vec![Say::Gate, text("there are 7")]);
    world.script.when("there are 7", vec![text("seven, it says")]);
    let root = id("s");
    let first = frames(world.start(&root, "delegate this").await).await;
    assert_eq!(outline(&first), "user tool_call tool_result stream complete");
    world.script.gate.add_permits(1);
    world.row_where(&root, |row| row["content"] == "seven, it says").await;
    world.quiet(&root).await;
    let child = &children(&world)[0];
    let rows = world.rows(&root).await;
    let marks: Vec<(&str, &str)> = rows
        .iter()
        .filter(|row| row.get("taskId").is_some())
        .map(|row| (row["type"].as_str().unwrap(), row["taskId"].as_str().unwrap()))
        .collect();
    assert_eq!(marks, [("agent_start", child.as_str()), ("agent_done", child.as_str())]);
    assert_eq!(rows.iter().find(|row| row["type"] == "agent_start").unwrap()["content"], "count the files");
    assert_eq!(reports(&world, &root).await, [format!("(from: session {child})\nthere are 7")]);
    let own = world.rows(child).await;
    assert_eq!(
        own.iter().find(|row| row["type"] == "user").unwrap()["content"],
        format!("(from: session {root})\ncount the files")
    );
    assert_eq!(column(&world, "SELECT access_level FROM sessions WHERE parent_id IS NOT NULL"), ["full"]);
    assert_eq!(
        column(&world, "SELECT title FROM sessions WHERE parent_id IS NOT NULL AND stopped_at > 0"),
        ["count the files"]
    );
}

#[tokio::test]
async fn two_sub_agents_at_once_each_report_once_and_the_model_learns_who_is_still_at_work() {
    let world = World::new(vec![]).await;
    world.script.when("both", vec![start("task one"), start("task two")]);
    world.script.when("task one", vec![text("one is done")]);
    world.script.when("task two", vec![Say::Gate, text("two is done")]);
    let root = id("s");
    frames(world.start(&root, "both").await).await;
    world.row_where(&root, |row| is_report(row) && row.to_string().contains("one is done")).await;
    let notice = world.row_where(&root, |row| row["type"] == "notification").await;
    assert!(
        notice["content"].as_str().unwrap().starts_with("[System] Sub-agents still at work:\n- task two"),
        "{notice}"
    );
    world.script.gate.add_permits(1);
    world.row_where(&root, |row| row["content"] == "[System] All sub-agents are done.").await;
    world.quiet(&root).await;
    let mut heard = reports(&world, &root).await;
    heard.sort_by_key(|text| text.contains("two"));
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard[0].ends_with("one is done") && heard[1].ends_with("two is done"));
    let told = format!("{:?}", world.script.requests.lock().unwrap());
    assert!(told.contains("Sub-agents that are still at work") && told.contains("None of your sub-agents"));
}

#[tokio::test]
async fn a_sub_agent_reports_when_its_own_are_done_too() {
    let world = World::new(vec![]).await;
    world.script.when("the tree", vec![start("middle")]);
    world.script.when("middle", vec![start("leaf work")]);
    world.script.when("leaf work", vec![Say::Gate, text("leaf done")]);
    world.script.when("leaf done", vec![text("middle done")]);
    let root = id("s");
    frames(world.start(&root, "the tree").await).await;
    let middle = loop {
        if let [middle, leaf] = &children(&world)[..] {
            assert!(leaf.is_below(middle) && leaf.root() == root && leaf.depth() == 3);
            break middle.clone();
        }
        tokio::task::yield_now().await;
    };
    world.row_where(&middle, |row| row["type"] == "assistant" && row["content"] == "ok").await;
    assert!(reports(&world, &root).await.is_empty(), "it is not done while its own are at work");
    world.script.gate.add_permits(1);
    world.row_where(&root, is_report).await;
    world.quiet(&root).await;
    assert_eq!(reports(&world, &root).await, [format!("(from: session {middle})\nmiddle done")]);
    let marks = world.rows(&root).await.iter().filter(|row| row["type"] == "agent_done").count();
    assert_eq!(marks, 2);
}

#[tokio::test]
async fn a_failed_sub_agent_says_so_first() {
    let world = World::new(vec![]).await;
    let denied = ModelError {
        kind: ErrorKind::Account,
        status: Some(402),
        message: "API error 402: no balance".into(),
        retry_after: None,
        fault: None,
    };
    world.script.when("go", vec![start("costly work")]);
    world.script.when("costly work", vec![Say::Fail(denied)]);
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    world.row_where(&root, is_report).await;
    let report = reports(&world, &root).await.remove(0);
    let body = report.split_once('\n').unwrap().1;
    assert!(body.starts_with("[SUB-AGENT ABORTED: ") && body.contains("API error 402: no balance"), "{body}");
    assert!(body.contains("fix the model configuration first") && body.ends_with("(no output)"), "{body}");
}

#[tokio::test]
async fn stop_reaches_parallel_sub_agents_and_their_own_within_two_seconds_and_nobody_reports() {
    for mode in [ToolMode::UntilCancelled, ToolMode::Stubborn] {
        let world = World::new(vec![]).await;
        *world.script.tool.lock().unwrap() = mode;
        world.script.when("go", vec![start("left"), start("right")]);
        world.script.when("left", vec![start("below left")]);
        world.script.when("right", vec![start("below right")]);
        world.script.when("below left", vec![Say::Call("probe", json!({}))]);
        world.script.when("below right", vec![Say::Call("probe", json!({}))]);
        let root = id("s");
        let first = frames(world.start(&root, "go").await).await;
        assert_eq!(first.last().unwrap().kind(), "complete");
        while column(&world, "SELECT row FROM log WHERE session_id LIKE '%>%>%' AND row LIKE '%probe%'").len()
            < 2
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        assert!(world.workspace.session(&root).stop().await.unwrap(), "something of the tree ran");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(!world.workspace.session(&root).stop().await.unwrap());
        world.quiet(&root).await;
        assert!(
            column(&world, "SELECT id FROM sessions WHERE parent_id IS NOT NULL AND stopped_at IS NULL")
                .is_empty()
        );
        assert!(reports(&world, &root).await.is_empty());
        for child in children(&world) {
            assert!(reports(&world, &child).await.iter().all(|text| !text.contains("ABORTED")));
        }
        let requests = world.script.requests.lock().unwrap().len();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.script.requests.lock().unwrap().len(), requests, "nothing runs on");
    }
}

#[tokio::test]
async fn a_sub_agent_that_somebody_else_stops_is_not_waited_for_for_ever() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("long work")]);
    world.script.when("long work", vec![text("half of it"), Say::Gate]);
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    assert!(world.workspace.session(&child).stop().await.unwrap());
    world.row_where(&root, is_report).await;
    let report = reports(&world, &root).await.remove(0);
    assert!(report.contains("[SUB-AGENT ABORTED: ") && report.contains("it was stopped"), "{report}");
}

#[tokio::test]
async fn a_stopped_sub_agent_is_taken_up_again_and_answers_what_it_is_asked_in_between() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("first part")]);
    world.script.when("first part", vec![text("first answer")]);
    world.script.when("first answer", vec![text("heard one")]);
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    world.row_where(&root, |row| row["content"] == "heard one").await;
    let child = children(&world).remove(0);
    world.script.when(
        "again",
        vec![Say::Ask("query_session", |messages| {
            let blocks = format!("{messages:?}");
            let at = blocks.rfind("(from: session ").unwrap() + "(from: session ".len();
            let child = blocks[at..].split(')').next().unwrap();
            json!({"target_session_id": child, "message": "second part"})
        })],
    );
    world.script.when("second part", vec![text("second answer"), Say::Gate]);
    frames(world.start(&root, "again").await).await;
    world.row_where(&child, |row| row["content"] == "second answer").await;
    // Another message while it works: what it has answered so far goes to the parent at once.
    world.workspace.session(&child).send(inbound("by the way")).await.unwrap();
    world.script.when("by the way", vec![text("third answer")]);
    world.script.gate.add_permits(1);
    world.row_where(&root, |row| is_report(row) && row.to_string().contains("third answer")).await;
    world.quiet(&root).await;
    let heard = reports(&world, &root).await;
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[1].ends_with("[Interim report · status: still running] second answer"), "{heard:?}");
}

#[tokio::test]
async fn an_interrupt_turns_a_sub_agent_to_the_message_at_once() {
    let world = World::new(vec![]).await;
    *world.script.tool.lock().unwrap() = ToolMode::UntilCancelled;
    world.script.when("go", vec![start("slow work")]);
    world.script.when("slow work", vec![Say::Call("probe", json!({}))]);
    world.script.when("session_id", vec![Say::Gate, Say::Ask("interrupt_session", to_child)]);
    world.script.when("more, please", vec![text("turned to it")]);
    let root = id("s");
    let feed = world.start(&root, "go").await;
    world.script.tool_began.notified().await;
    world.script.gate.add_permits(1);
    frames(feed).await;
    world.row_where(&root, |row| is_report(row) && row.to_string().contains("turned to it")).await;
    let child = children(&world).remove(0);
    assert!(world.rows(&child).await.iter().any(|row| row.to_string().contains("[interrupted by user]")));
}

#[tokio::test]
async fn the_session_tools_refuse_what_is_not_the_callers() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("other"), "hello").await).await;
    world.script.when(
        "go",
        vec![
            Say::Call("query_session", json!({"target_session_id": "other", "message": "hi"})),
            Say::Call("stop_session", json!({"session_id": "s"})),
            Say::Call("archive_session", json!({"session_id": "s>none"})),
            Say::Call("start_session", json!({"agent_id": "nobody", "message": "x"})),
            Say::Call("start_session", json!({"agent_id": "default"})),
            Say::Call(
                "start_session",
                json!({"agent_id": "default", "message": "x", "working_dir": "../.."}),
            ),
            Say::Call("start_session", json!({"agent_id": "default", "message": "x", "working_dir": "none"})),
            Say::Call("query_agent", json!({"agent_id": "nobody"})),
            Say::Call("query_agent", json!({"agent_id": "default"})),
        ],
    );
    frames(world.start(&id("s"), "go").await).await;
    let rows = world.rows(&id("s")).await;
    let answers: Vec<Value> =
        rows.iter().filter_map(|row| serde_json::from_str(row["toolOutput"].as_str()?).unwrap()).collect();
    let errors: Vec<&str> = answers.iter().filter_map(|answer| answer["error"].as_str()).collect();
    assert_eq!(errors[0], "session other not found");
    assert!(errors[1].contains("yourself"));
    assert_eq!(errors[2], "session s>none not found");
    assert!(errors[3].starts_with("agent \"nobody\" not found."));
    assert_eq!(errors[4], "agent_id and message are required");
    assert_eq!(errors[5], "working_dir \"../..\" is outside the workspace");
    assert_eq!(errors[6], "working_dir \"none\" does not exist");
    assert_eq!(errors[7], "agent \"nobody\" not found.");
    assert_eq!((answers[8]["code"].as_i64(), answers[8]["tools"][0].as_str()), (Some(0), Some("probe")));
    assert!(children(&world).is_empty(), "nothing was started");
}

#[tokio::test]
async fn after_a_crash_sub_agents_are_stopped_and_their_root_goes_on() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("long work")]);
    world.script.when("long work", vec![text("half of it"), Say::Gate]);
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    let script = world.script.clone();
    let world = World::at(world.end().await, script).await;
    let nudge = world
        .row_where(&root, |row| {
            row["content"].as_str().is_some_and(|text| text.starts_with("[System] The server restarted"))
        })
        .await;
    assert!(nudge["content"].as_str().unwrap().contains("sub-agents were stopped"));
    world.row_where(&root, |row| row["type"] == "agent_done").await;
    world.quiet(&root).await;
    assert!(
        column(&world, "SELECT id FROM sessions WHERE parent_id IS NOT NULL AND stopped_at IS NULL")
            .is_empty()
    );
    let rows = world.rows(&child).await;
    assert_eq!(rows.last().unwrap()["interrupted"], true, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row["type"] == "user").count(), 1, "only the root is told");
}

#[tokio::test]
async fn a_report_that_was_left_when_the_server_died_is_delivered_once() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "hello").await).await;
    let folder = world.end().await;
    let conn = rusqlite::Connection::open(folder.path().join("ws/.halo/halo.db")).unwrap();
    let item = json!({"kind": "report", "text": "done before the end"}).to_string();
    conn.execute("INSERT INTO mail (to_session, from_session, item) VALUES ('s', 's>x', ?1)", [item])
        .unwrap();
    drop(conn);
    crash(folder.path(), 0);
    let world = World::at(folder, super::support::Script::new(vec![])).await;
    world.row_where(&id("s"), is_report).await;
    world.quiet(&id("s")).await;
    let world = World::at(world.end().await, super::support::Script::new(vec![])).await;
    assert_eq!(reports(&world, &id("s")).await, ["(from: session s>x)\ndone before the end"]);
}

#[tokio::test]
async fn a_long_report_keeps_its_head_and_says_where_the_rest_is() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("write a lot")]);
    world.script.when("write a lot", vec![Say::Text("é".repeat(20_000))]);
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    world.row_where(&root, is_report).await;
    let report = reports(&world, &root).await.remove(0);
    assert!(report.contains(&"é".repeat(8192)) && !report.contains(&"é".repeat(8193)));
    assert!(
        report.contains("[Report truncated: 20000 chars total, showing first 8192. Use get_session_output(")
    );
}

#[tokio::test]
async fn a_message_to_a_sub_agent_gives_nobody_more_than_is_theirs_and_keeps_its_level() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("work")]);
    frames(world.start(&id("s"), "go").await).await;
    world.row_where(&id("s"), is_report).await;
    world.quiet(&id("s")).await;
    let child = children(&world).remove(0);
    let lookup = world.script.levels.lock().unwrap().len();
    let reader = Inbound { access: AccessLevel::ReadOnly, ..inbound("let me see") };
    let halo_server::session::Sent::Started(feed) =
        world.workspace.session(&child).send(reader).await.unwrap()
    else {
        panic!("it was idle")
    };
    frames(feed).await;
    assert_eq!(world.script.levels.lock().unwrap()[lookup], AccessLevel::ReadOnly);
    assert_eq!(column(&world, "SELECT access_level FROM sessions WHERE parent_id IS NOT NULL"), ["full"]);
}

#[tokio::test]
async fn what_is_archived_is_on_no_list_and_what_is_deleted_leaves_nothing_behind() {
    let world = World::new(vec![]).await;
    world.script.when("go", vec![start("long work")]);
    world.script.when("long work", vec![text("half of it"), Say::Gate]);
    let root: SessionId = "web_a_1".parse().unwrap();
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    let session = world.workspace.session(&root);
    session.archive().await.unwrap();
    assert!(world.workspace.roots("web_a_", None, 50).await.unwrap().0.is_empty());
    assert!(world.workspace.latest_root("web_a_").await.unwrap().is_none());
    assert_eq!(column(&world, "SELECT id FROM sessions WHERE archived_at > 0").len(), 2);
    let again = frames(world.start(&root, "are you there?").await).await;
    assert_eq!(streamed(&again), "ok");
    assert_eq!(
        world.workspace.roots("web_a_", None, 50).await.unwrap().0.len(),
        1,
        "a message brings it back"
    );
    session.delete().await.unwrap();
    assert!(!world.workspace.exists(&root).await.unwrap() && !world.workspace.exists(&child).await.unwrap());
    for table in ["log", "model_messages", "queue", "inflight", "runs"] {
        assert!(column(&world, &format!("SELECT session_id FROM {table}")).is_empty(), "{table}");
    }
    frames(world.start(&root, "a new one").await).await;
    assert_eq!(world.rows(&root).await.iter().filter(|row| row["type"] == "user").count(), 1);
}
