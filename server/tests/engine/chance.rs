//! Whole trees of sub-agents under chance: killed at any moment, with a store that fails, stopped while they grow; and
//! compactions amid everything else.

use super::broken::{ACTIVE, until_none};
use super::delegation::{children, column, is_report, start};
use super::support::{Say, Script, World, frames, id, inbound, text};
use super::trouble::{jam, unjam};
use futures_util::future::join_all;
use halo_server::model::{ErrorKind, ModelError};
use halo_server::session::ids::SessionId;
use serde_json::json;
use std::time::Duration;

/// What stays true of a tree that has come to rest, whatever happened to it.
async fn is_whole(world: &World, root: &SessionId, what: &str) {
    until_none(world, ACTIVE).await;
    world.quiet(root).await;
    let rows = world.rows(root).await;
    let count = |of: &dyn Fn(&serde_json::Value) -> bool| rows.iter().filter(|row| of(row)).count();
    let nudges =
        count(&|row| row["content"].as_str().is_some_and(|text| text.contains("The server restarted")));
    assert!(nudges <= 1, "{what}: {rows:?}");
    for child in children(world) {
        let marks = |kind: &str| count(&|row| row["type"] == kind && row["taskId"] == child.as_str());
        assert_eq!((marks("agent_start"), marks("agent_done")), (1, 1), "{what}: {child} {rows:?}");
        let last = |row: &str| row.contains(&format!("session {child})")) && !row.contains("[Interim report");
        let heard = count(&|row| is_report(row) && last(&row.to_string()));
        assert!(heard <= 1, "{what}: {child} {rows:?}");
        if child.depth() == 2 {
            assert!(heard + nudges > 0, "{what}: nobody tells the root of {child}: {rows:?}");
        }
    }
}

/// A root with two sub-agents, one of which has one of its own.
fn tree(script: &Script, gate: bool) {
    let leaf = |said: &str| if gate { vec![Say::Gate, text(said)] } else { vec![text(said)] };
    script.when("go", vec![start("left"), start("right"), Say::Call("probe", json!({}))]);
    script.when("left", vec![start("deep work")]);
    script.when("right", leaf("right done"));
    script.when("deep work", leaf("deep done"));
    script.when("deep done", vec![text("left done")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_the_server_is_killed_a_tree_comes_to_rest_and_its_root_hears_of_each_part() {
    let shots = tempfile::tempdir().unwrap();
    let mut taken = 0;
    for _ in 0..4 {
        let world = World::new(vec![]).await;
        tree(&world.script, false);
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let camera = tokio::task::spawn_blocking({
            let (over, database) = (over.clone(), world.workspace.path().join(".halo/halo.db"));
            let shots = shots.path().to_owned();
            move || {
                let conn = rusqlite::Connection::open(database).unwrap();
                let mut shot = taken;
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    let halo = shots.join(format!("{shot}/ws/.halo"));
                    std::fs::create_dir_all(&halo).unwrap();
                    conn.execute("VACUUM INTO ?1", [halo.join("halo.db").to_str().unwrap()]).unwrap();
                    shot += 1;
                }
                shot
            }
        });
        frames(world.start(&id("s"), "go").await).await;
        until_none(&world, ACTIVE).await;
        world.quiet(&id("s")).await;
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        taken = camera.await.unwrap();
        is_whole(&world, &id("s"), "alive").await;
    }
    for shot in 0..taken {
        let folder = tempfile::tempdir().unwrap();
        std::fs::rename(shots.path().join(format!("{shot}/ws")), folder.path().join("ws")).unwrap();
        let world = World::at(folder, Script::new(vec![])).await;
        if world.workspace.exists(&id("s")).await.unwrap() {
            is_whole(&world, &id("s"), &format!("shot {shot} of {taken}")).await;
        }
    }
    assert!(taken > 20, "{taken}");
}

/// A tree of which nothing of this kind can be stored for a moment, at one of three moments.
async fn jammed(table: &str, how: &str, when: usize) {
    let what = format!("{how} of {table}, {when}");
    let world = World::new(vec![]).await;
    tree(&world.script, when > 0);
    let root = id("s");
    let feed = world.start(&root, "go").await;
    if when > 0 {
        frames(feed).await;
        while children(&world).len() < 3 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    if when == 2 {
        for child in children(&world) {
            world.workspace.session(&child).send(inbound("by the way")).await.unwrap();
        }
    }
    jam(world.folder.path(), table, how);
    world.script.gate.add_permits(10);
    tokio::time::sleep(Duration::from_millis(60)).await;
    unjam(world.folder.path());
    until_none(&world, ACTIVE).await;
    world.quiet(&root).await;
    let rows = world.rows(&root).await;
    for child in children(&world).iter().filter(|child| child.depth() == 2) {
        assert!(
            rows.iter().any(|row| is_report(row) && row.to_string().contains(child.as_str())),
            "{what}: {child} {rows:?}"
        );
    }
}

#[tokio::test]
async fn whatever_cannot_be_stored_for_a_while_a_tree_comes_to_rest_and_its_root_hears_of_each_part() {
    let writes = [
        ("log", "INSERT"),
        ("model_messages", "INSERT"),
        ("queue", "INSERT"),
        ("queue", "DELETE"),
        ("mail", "INSERT"),
        ("mail", "DELETE"),
        ("runs", "INSERT"),
        ("runs", "DELETE"),
        ("sessions", "INSERT"),
        ("sessions", "UPDATE"),
        ("inflight", "INSERT"),
        ("inflight", "DELETE"),
    ];
    for when in 0..3 {
        join_all(writes.map(|(table, how)| jammed(table, how, when))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_a_tree_that_grows_as_fast_as_it_can() {
    for round in 0..10u64 {
        let world = World::new(vec![vec![start("x"), start("x")]; 4000]).await;
        let root = id("s");
        let _feed = world.start(&root, "go").await;
        tokio::time::sleep(Duration::from_millis(20 + round * 30)).await;
        let began = std::time::Instant::now();
        assert!(world.workspace.session(&root).stop().await.unwrap());
        let took = began.elapsed();
        assert_eq!(column(&world, "SELECT session_id FROM runs"), [""; 0], "round {round}");
        assert_eq!(column(&world, ACTIVE), [""; 0], "round {round}");
        let requests = world.script.requests.lock().unwrap().len();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(world.script.requests.lock().unwrap().len(), requests, "round {round}");
        assert!(took < Duration::from_secs(2), "round {round}: {took:?} for {}", children(&world).len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compactions_amid_messages_stops_and_interrupts_keep_the_history_acceptable() {
    let step = |seed: &mut u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize
    };
    for round in 0..60u64 {
        let mut seed = round;
        let mut answers = Vec::new();
        for _ in 0..200 {
            answers.push(match step(&mut seed) % 6 {
                0 => vec![text("part "), Say::Gate, text("more")],
                1 => vec![Say::Call("probe", json!({})), Say::Count(95_000)],
                2 => vec![text("full"), Say::Count(95_000)],
                3 => vec![text("look"), Say::Call("probe", json!({})), Say::Call("probe", json!({}))],
                4 => vec![Say::Fail(ModelError {
                    kind: ErrorKind::ContextOverflow,
                    status: Some(400),
                    message: "prompt is too long".into(),
                    retry_after: None,
                    fault: None,
                })],
                _ => vec![text(&"word ".repeat(200))],
            });
        }
        let world = World::new(answers).await;
        world.script.window.lock().unwrap().1 = 1 + (round as usize % 5);
        let session = world.workspace.session(&id("s"));
        let _feed = world.start(&id("s"), "m").await;
        let mut asked = Vec::new();
        for n in 0..40 {
            match step(&mut seed) % 8 {
                0..3 => drop(session.send(inbound(&format!("m{n}"))).await.unwrap()),
                3 => drop(session.interrupt().await.unwrap()),
                4 => drop(session.stop().await.unwrap()),
                5 => {
                    let session = session.clone();
                    asked.push(tokio::spawn(async move { session.compact().await.unwrap() }));
                }
                6 => world.script.gate.add_permits(1),
                _ => tokio::time::sleep(Duration::from_micros(500)).await,
            }
        }
        world.script.gate.add_permits(1000);
        for answer in asked {
            tokio::time::timeout(Duration::from_secs(10), answer).await.expect("an answer").unwrap();
        }
        world.quiet(&id("s")).await;
        let requests = world.script.requests.lock().unwrap().clone();
        requests.iter().map(Vec::as_slice).for_each(super::compaction::strict);
        let rows = world.rows(&id("s")).await;
        let mut open = false;
        for row in rows.iter().filter(|row| row["type"] == "notification") {
            let text = row["content"].as_str().unwrap();
            if text == "Compacting context…" {
                assert!(!open, "round {round}: {rows:?}");
                open = true;
            } else if text.contains("ompact") && !text.starts_with("[error]") {
                assert!(open, "round {round}: {rows:?}");
                open = false;
            }
        }
        assert!(!open, "round {round}: {rows:?}");
        let calls = rows.iter().filter_map(|row| row["contentBlocks"].as_array()).flatten();
        assert!(
            calls
                .filter(|block| block["type"] == "tool_call")
                .all(|block| block["toolCall"]["output"].is_string())
        );
    }
}
