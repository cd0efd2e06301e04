//! Sub-agents, stop and compaction at their worst moments: the store fails, everything happens at once, somebody gives
//! a lower level. Nothing is lost, doubled or waited for in vain.

use super::delegation::{children, column, is_report, reports, result, start};
use super::support::{Say, Script, ToolMode, World, frames, id, inbound, text};
use super::trouble::{jam, unjam};
use halo_server::access::AccessLevel;
use halo_server::model::{ErrorKind, ModelError};
use halo_server::session::ids::SessionId;
use halo_server::session::{Compaction, Inbound, Sent};
use serde_json::json;
use std::time::Duration;

fn sql(world: &World, statements: &str) {
    let conn = rusqlite::Connection::open(world.workspace.path().join(".halo/halo.db")).unwrap();
    conn.execute_batch(statements).unwrap();
}

/// Waits until the query gives nothing.
pub async fn until_none(world: &World, query: &str) {
    let look = async {
        while !column(world, query).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), look).await.expect(query);
}

pub const ACTIVE: &str = "SELECT id FROM sessions WHERE parent_id IS NOT NULL AND stopped_at IS NULL";

#[tokio::test]
async fn a_root_whose_level_was_lowered_gets_no_more_out_of_its_sub_agents() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("first work")]);
    frames(world.start(&root, "go").await).await;
    world.row_where(&root, is_report).await;
    world.quiet(&root).await;
    for tool in ["query_session", "interrupt_session"] {
        let before = world.script.levels.lock().unwrap().len();
        world.script.when("now write", vec![Say::Ask("session_list", |_| json!({}))]);
        let ask = |messages: &[std::sync::Arc<halo_server::model::Message>]| {
            let child = result(messages)["sessions"][0]["id"].clone();
            json!({"session_id": child, "target_session_id": child, "message": "more, please"})
        };
        world.script.when("\\\"count\\\":1", vec![Say::Ask(tool, ask)]);
        let reader = Inbound { access: AccessLevel::ReadOnly, ..inbound("now write") };
        let Sent::Started(feed) = world.workspace.session(&root).send(reader).await.unwrap() else {
            panic!()
        };
        frames(feed).await;
        world.quiet(&root).await;
        let child = children(&world).remove(0);
        let asked = world.rows(&child).await;
        assert!(asked.iter().any(|row| row.to_string().contains("more, please")), "{asked:?}");
        let levels = world.script.levels.lock().unwrap()[before..].to_vec();
        assert!(levels.iter().all(|level| *level == AccessLevel::ReadOnly), "{levels:?}");
    }
    assert_eq!(column(&world, "SELECT access_level FROM sessions WHERE parent_id IS NOT NULL"), ["full"]);
}

#[tokio::test]
async fn of_many_sub_agents_the_last_one_still_counts_as_at_work() {
    let world = World::new(vec![]).await;
    let root = id("s");
    let mut calls: Vec<Say> = (0..54).map(|_| start("short")).collect();
    calls.push(start("endless"));
    world.script.when("go", calls);
    world.script.when("endless", vec![Say::Gate, text("at last")]);
    frames(world.start(&root, "go").await).await;
    while column(&world, ACTIVE).len() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until_none(&world, "SELECT item FROM mail UNION ALL SELECT session_id FROM runs WHERE session_id = 's'")
        .await;
    let notices = || async {
        let rows = world.rows(&root).await;
        let notices = rows.iter().filter(|row| row["type"] == "notification");
        notices.map(|row| row["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let seen = notices().await;
    assert!(seen.iter().all(|notice| notice.contains("- endless")), "{seen:?}");
    world.script.gate.add_permits(1);
    until_none(&world, ACTIVE).await;
    world.quiet(&root).await;
    assert_eq!(notices().await.last().unwrap(), "[System] All sub-agents are done.");
    assert_eq!(reports(&world, &root).await.len(), 55);
}

#[tokio::test]
async fn a_sub_agent_whose_own_was_archived_by_somebody_else_is_not_left_waiting() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("middle")]);
    world.script.when("middle", vec![start("leaf work")]);
    world.script.when("leaf work", vec![text("begun"), Say::Gate]);
    frames(world.start(&root, "go").await).await;
    let leaf = loop {
        if let [_, leaf] = &children(&world)[..] {
            break leaf.clone();
        }
        tokio::task::yield_now().await;
    };
    world.row_where(&leaf, |row| row["content"] == "begun").await;
    until_none(&world, "SELECT session_id FROM runs WHERE session_id NOT LIKE '%>%>%'").await;
    // The root learns of the leaf's id.
    *NAMED.lock().unwrap() = leaf.to_string();
    world.script.when(
        "set it aside",
        vec![Say::Ask("archive_session", |_| json!({"session_id": *NAMED.lock().unwrap()}))],
    );
    frames(world.start(&root, "set it aside").await).await;
    world.row_where(&root, is_report).await;
    until_none(&world, "SELECT id FROM sessions WHERE parent_id = 's' AND stopped_at IS NULL").await;
}

static NAMED: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

#[tokio::test]
async fn a_report_that_cannot_be_taken_in_is_taken_in_when_the_store_works_again() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("the work")]);
    world.script.when("the work", vec![Say::Gate, text("it is done")]);
    frames(world.start(&root, "go").await).await;
    until_none(&world, "SELECT item FROM mail").await;
    jam(world.folder.path(), "mail", "DELETE");
    world.script.gate.add_permits(1);
    until_none(&world, ACTIVE).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    unjam(world.folder.path());
    until_none(&world, "SELECT item FROM mail").await;
    world.quiet(&root).await;
    assert_eq!(reports(&world, &root).await.len(), 1);
    let told = format!("{:?}", world.script.requests.lock().unwrap().last().unwrap());
    assert_eq!(told.matches("it is done").count(), 1);
}

#[tokio::test]
async fn a_sub_agent_whose_next_turn_could_not_be_stored_still_reports() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("the work")]);
    world.script.when("the work", vec![text("half of it"), Say::Gate]);
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    world.workspace.session(&child).send(inbound("by the way")).await.unwrap();
    jam(world.folder.path(), "queue", "DELETE");
    world.script.gate.add_permits(1);
    while world.workspace.session(&child).snapshot().await.unwrap().unwrap().running {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    unjam(world.folder.path());
    world.row_where(&root, |row| is_report(row) && row.to_string().contains("ABORTED")).await;
    world.quiet(&root).await;
    let heard = reports(&world, &root).await;
    assert!(heard.len() == 2 && heard[1].contains("[SUB-AGENT ABORTED: "), "{heard:?}");
    assert!(column(&world, ACTIVE).is_empty());
}

/// Leaves a report for the session as a sub-session's end does, in the instant before its owner hears of it.
fn leave_report(world: &World, to: &SessionId) {
    let item = json!({"kind": "report", "text": "just done"}).to_string();
    sql(
        world,
        &format!("INSERT INTO mail (to_session, from_session, item) VALUES ('{to}', '{to}>x', '{item}')"),
    );
}

#[tokio::test]
async fn a_report_that_waits_does_not_bring_an_archived_session_back() {
    let world = World::new(vec![]).await;
    let root: SessionId = "web_a_1".parse().unwrap();
    frames(world.start(&root, "go").await).await;
    leave_report(&world, &root);
    world.workspace.session(&root).archive().await.unwrap();
    let world = World::at(world.end().await, Script::new(vec![])).await;
    assert!(world.workspace.session(&root).snapshot().await.unwrap().is_some());
    world.quiet(&root).await;
    assert!(world.workspace.roots("web_a_", None, 50).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn a_report_that_was_left_before_a_stop_starts_nothing_after_it() {
    let world = World::new(vec![]).await;
    let root = id("s");
    frames(world.start(&root, "go").await).await;
    leave_report(&world, &root);
    world.workspace.session(&root).stop().await.unwrap();
    for table in ["mail", "runs"] {
        assert!(column(&world, &format!("SELECT 'x' FROM {table}")).is_empty(), "{table}");
    }
    assert_eq!(reports(&world, &root).await.len(), 1, "it is kept");
    frames(world.start(&root, "and?").await).await;
    let told = format!("{:?}", world.script.requests.lock().unwrap().last().unwrap());
    assert!(told.contains("just done") && told.contains("and?"));
}

#[tokio::test]
async fn however_many_letters_were_left_all_are_taken() {
    let world = World::new(vec![]).await;
    frames(world.start(&id("s"), "hello").await).await;
    let item = json!({"kind": "report", "text": "done before the end"}).to_string();
    sql(
        &world,
        &format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
             INSERT INTO mail (to_session, from_session, item) SELECT 's', 's>x', '{item}' FROM n"
        ),
    );
    let world = World::at(world.end().await, Script::new(vec![])).await;
    until_none(&world, "SELECT item FROM mail").await;
    world.quiet(&id("s")).await;
    assert_eq!(reports(&world, &id("s")).await.len(), 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_a_root_that_its_sub_agent_keeps_talking_to() {
    for round in 0..40u64 {
        let world = World::new(vec![]).await;
        let root = id("s");
        world.script.when("go", vec![start("talk")]);
        let ping = || vec![Say::Call("query_session", json!({"target_session_id": "s", "message": "ping"}))];
        world.script.when("talk", ping());
        for _ in 0..400 {
            world.script.when("\\\"session_id\\\":\\\"s\\\"", ping());
            world.script.when("ping", vec![text("hm")]);
        }
        frames(world.start(&root, "go").await).await;
        world.row_where(&root, |row| row["content"].as_str().is_some_and(|text| text.contains("ping"))).await;
        tokio::time::sleep(Duration::from_micros(round * 150)).await;
        // False when the sub-agent has just given up.
        world.workspace.session(&root).stop().await.unwrap();
        let running = column(&world, "SELECT session_id FROM runs");
        assert_eq!(running, [""; 0], "round {round}");
        let requests = world.script.requests.lock().unwrap().len();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(world.script.requests.lock().unwrap().len(), requests, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_in_the_instant_of_a_stop_wakes_nobody_after_it() {
    for round in 0..60u64 {
        let world = World::new(vec![]).await;
        let root = id("s");
        world.script.when("go", vec![start("short"), start("long"), start("short")]);
        world.script.when("short", vec![Say::Gate, text("short one")]);
        world.script.when("short", vec![Say::Gate, text("short one")]);
        world.script.when("long", vec![text("it takes"), Say::Call("probe", json!({}))]);
        *world.script.tool.lock().unwrap() = ToolMode::UntilCancelled;
        frames(world.start(&root, "go").await).await;
        world.script.tool_began.notified().await;
        until_none(&world, "SELECT item FROM mail").await;
        world.script.gate.add_permits(2);
        tokio::time::sleep(Duration::from_micros(round * 40)).await;
        assert!(world.workspace.session(&root).stop().await.unwrap());
        let requests = world.script.requests.lock().unwrap().len();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(column(&world, "SELECT session_id FROM runs"), [""; 0], "round {round}");
        assert_eq!(world.script.requests.lock().unwrap().len(), requests, "round {round}");
    }
}

#[tokio::test]
async fn a_compaction_that_cannot_be_stored_loses_no_text_and_leaves_no_outcome_alone() {
    let overflow = ModelError {
        kind: ErrorKind::ContextOverflow,
        status: Some(400),
        message: "prompt is too long".into(),
        retry_after: None,
        fault: None,
    };
    let mut answers = vec![vec![text("ok")]; 4];
    answers.push(vec![text("first I look"), Say::Call("probe", json!({}))]);
    answers.push(vec![Say::Gate, Say::Fail(overflow)]);
    let world = World::new(answers).await;
    for n in 0..4 {
        frames(world.start(&id("s"), &format!("m{n}")).await).await;
    }
    let feed = world.start(&id("s"), "more").await;
    world.row_where(&id("s"), |row| row["type"] == "tool_result").await;
    jam(world.folder.path(), "model_messages", "DELETE");
    world.script.gate.add_permits(1);
    let all = frames(feed).await;
    assert_eq!(all.last().unwrap().kind(), "error");
    unjam(world.folder.path());
    world.quiet(&id("s")).await;
    let rows = world.rows(&id("s")).await;
    let said = |text: &str| rows.iter().filter(|row| row["content"] == text).count();
    assert_eq!(said("first I look"), 1, "{rows:?}");
    assert_eq!(
        (said("Compacting context…"), said("Compaction failed — context unchanged")),
        (1, 1),
        "{rows:?}"
    );
}

#[tokio::test]
async fn sub_agents_that_could_not_be_marked_at_the_start_are_marked_later() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("long work")]);
    world.script.when("long work", vec![text("half of it"), Say::Gate]);
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    let folder = world.end().await;
    jam(folder.path(), "sessions", "UPDATE");
    let world = World::at(folder, Script::new(vec![])).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    unjam(world.folder.path());
    world.row_where(&root, |row| row["type"] == "agent_done").await;
    world
        .row_where(&root, |row| {
            row["content"].as_str().is_some_and(|text| text.starts_with("[System] The server restarted"))
        })
        .await;
    world.quiet(&root).await;
    assert!(column(&world, ACTIVE).is_empty());
}

#[tokio::test]
async fn a_sub_agent_that_is_stopped_while_it_compacts_says_so() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("middle")]);
    world.script.when("middle", vec![start("leaf work")]);
    world.script.when("leaf work", vec![text("begun"), Say::Gate]);
    frames(world.start(&root, "go").await).await;
    let (middle, leaf) = loop {
        if let [middle, leaf] = &children(&world)[..] {
            break (middle.clone(), leaf.clone());
        }
        tokio::task::yield_now().await;
    };
    world.row_where(&leaf, |row| row["content"] == "begun").await;
    until_none(&world, "SELECT session_id FROM runs WHERE session_id NOT LIKE '%>%>%'").await;
    world.script.when("Summary of the conversation wanted", vec![Say::Gate]);
    world.script.window.lock().unwrap().1 = 1;
    let session = world.workspace.session(&middle);
    let asked = tokio::spawn({
        let session = session.clone();
        async move { session.compact().await.unwrap() }
    });
    world.row_where(&middle, |row| row["content"] == "Compacting context…").await;
    assert!(session.stop().await.unwrap());
    asked.await.unwrap();
    let report = world.row_where(&root, is_report).await;
    assert!(report["content"].as_str().unwrap().contains("it was stopped"), "{report}");
    world.quiet(&root).await;
    assert_eq!(reports(&world, &root).await.len(), 1);
}

#[tokio::test]
async fn a_sub_agent_that_was_cut_and_told_nothing_says_that_it_is_not_done() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("the work")]);
    world.script.when("the work", vec![text("half of it"), Say::Gate]);
    frames(world.start(&root, "go").await).await;
    let child = children(&world).remove(0);
    world.row_where(&child, |row| row["content"] == "half of it").await;
    assert!(world.workspace.session(&child).interrupt().await.unwrap());
    let report = world.row_where(&root, is_report).await;
    let report = report["content"].as_str().unwrap();
    assert!(report.contains("[SUB-AGENT ABORTED: ") && report.ends_with("half of it"), "{report}");
}

#[tokio::test]
async fn after_a_cut_answer_and_a_restart_the_message_before_it_still_counts() {
    let world = World::new(vec![vec![text("ok")], vec![text("well"), Say::Gate]]).await;
    frames(world.start(&id("s"), "hello").await).await;
    let feed = world.start(&id("s"), &"large ".repeat(10_000)).await;
    super::wait_for_text(&world, "well").await;
    assert!(world.workspace.session(&id("s")).interrupt().await.unwrap());
    frames(feed).await;
    let used = |world: &World| {
        let session = world.workspace.session(&id("s"));
        async move { session.context().await.unwrap().unwrap().used }
    };
    let before = used(&world).await;
    assert!(before > 15_000, "{before}");
    let world = World::at(world.end().await, Script::new(vec![])).await;
    assert_eq!(used(&world).await, before);
}

#[tokio::test]
async fn a_sub_agent_with_a_report_left_by_its_own_is_told_and_nothing_is_doubled_after_a_crash() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("middle")]);
    world.script.when("middle", vec![start("leaf work")]);
    world.script.when("leaf work", vec![Say::Gate, text("leaf done")]);
    frames(world.start(&root, "go").await).await;
    while children(&world).len() < 2 {
        tokio::task::yield_now().await;
    }
    until_none(&world, "SELECT session_id FROM runs WHERE session_id NOT LIKE '%>%>%'").await;
    until_none(&world, "SELECT item FROM mail").await;
    // The leaf ends, and the server dies before the middle one hears of it.
    jam(world.folder.path(), "mail", "DELETE");
    world.script.gate.add_permits(1);
    until_none(&world, "SELECT session_id FROM runs").await;
    let folder = world.end().await;
    unjam(folder.path());
    let world = World::at(folder, Script::new(vec![])).await;
    let root_rows = || world.rows(&root);
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.quiet(&root).await;
    let middle = children(&world).remove(0);
    let told = world.rows(&middle).await;
    assert_eq!(told.iter().filter(|row| is_report(row) && row.to_string().contains("leaf done")).count(), 1);
    let rows = root_rows().await;
    let done =
        rows.iter().filter(|row| row["type"] == "agent_done" && row["taskId"] == middle.as_str()).count();
    assert_eq!(done, 1, "{rows:?}");
    assert!(
        rows.iter()
            .any(|row| is_report(row) || row["content"].as_str().unwrap().starts_with("[System] The server"))
    );
}

#[tokio::test]
async fn the_conversation_of_a_finished_sub_agent_leaves_memory_and_is_there_when_it_is_asked() {
    let world = World::new(vec![]).await;
    let root = id("s");
    world.script.when("go", vec![start("the work")]);
    world.script.when("the work", vec![text("it is done")]);
    frames(world.start(&root, "go").await).await;
    world.row_where(&root, is_report).await;
    world.quiet(&root).await;
    let child = children(&world).remove(0);
    let held = || {
        let requests = world.script.requests.lock().unwrap();
        let own = requests.iter().find(|request| format!("{:?}", request[0]).contains("the work")).unwrap();
        std::sync::Arc::strong_count(&own[0])
    };
    assert_eq!(held(), 1, "only the test has it");
    let Sent::Started(feed) = world.send(&child, "and then?").await else { panic!("it was idle") };
    frames(feed).await;
    let requests = world.script.requests.lock().unwrap().clone();
    let last = requests.iter().find(|request| format!("{:?}", request.last()).contains("and then?")).unwrap();
    assert!(format!("{last:?}").contains("the work") && format!("{last:?}").contains("it is done"));
}

#[tokio::test]
async fn a_compaction_that_somebody_asked_for_never_makes_a_conversation_that_does_not_fit() {
    let world = World::new(vec![vec![text("ok")]; 4]).await;
    for n in 0..4 {
        frames(world.start(&id("s"), &format!("m{n}")).await).await;
    }
    *world.script.window.lock().unwrap() = (3000, 2);
    world
        .script
        .when("Summary of the conversation wanted", vec![Say::Text("long ".repeat(100_000)), Say::Count(1)]);
    let messages = || column(&world, "SELECT message FROM model_messages ORDER BY seq");
    let before = messages();
    let session = world.workspace.session(&id("s"));
    let Compaction::Failed(why) = session.compact().await.unwrap() else { panic!("it was done") };
    assert!(why.contains("does not fit"), "{why}");
    assert_eq!(messages(), before);
}
