//! `continue_task`: work that a message has interrupted is taken up again once the message is answered, when the agent
//! asks for it, and only then.

use super::support::{Say, ToolMode, World, frames, id, outline, streamed, text};
use super::wait_for_text;
use halo_server::model::Block;
use serde_json::{Value, json};

const WORD: &str = "[System] You called continue_task";

fn ask() -> Say {
    Say::Call("continue_task", json!({}))
}

/// Starts work, sends a message into it, and lets the work yield.
async fn interrupted(answers: Vec<Vec<Say>>) -> (World, Vec<super::support::Frame>) {
    let mut all = vec![vec![text("work "), Say::Gate, Say::Call("probe", json!({}))]];
    all.extend(answers);
    let world = World::new(all).await;
    let feed = world.start(&id("s"), "do the work").await;
    wait_for_text(&world, "work").await;
    world.send(&id("s"), "what time is it?").await;
    world.script.gate.add_permits(1);
    let frames = frames(feed).await;
    world.quiet(&id("s")).await;
    (world, frames)
}

/// What `continue_task` answered, call by call.
fn answers_of_the_tool(world: &World) -> Vec<Value> {
    let requests = world.script.requests.lock().unwrap();
    let blocks = requests.last().unwrap().iter().flat_map(|message| &message.content);
    let results = blocks.filter_map(|block| match block {
        Block::ToolResult { content, .. } => serde_json::from_str::<Value>(content).ok(),
        _ => None,
    });
    results.filter(|answer| answer["code"].is_number()).collect()
}

async fn words(world: &World) -> usize {
    let rows = world.rows(&id("s")).await;
    rows.iter().filter(|row| row["content"].as_str().is_some_and(|text| text.starts_with(WORD))).count()
}

#[tokio::test]
async fn an_interrupted_agent_that_asks_gets_one_turn_to_go_on_after_its_answer() {
    let (world, frames) = interrupted(vec![vec![ask()], vec![text("noon. ")], vec![text("work done")]]).await;
    assert_eq!(
        outline(&frames),
        "user stream user tool_call tool_result tool_call tool_result stream user stream complete"
    );
    assert!(
        frames.iter().any(|frame| frame.json["text"].as_str().is_some_and(|text| text.starts_with(WORD)))
    );
    assert_eq!(streamed(&frames), "work noon. work done");
    assert_eq!(answers_of_the_tool(&world)[0]["state"], "resume_armed");
    let requests = world.script.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    let last = format!("{:?}", requests[3].last().unwrap());
    assert!(last.contains(WORD), "{last}");
    assert_eq!(words(&world).await, 1);
}

#[tokio::test]
async fn a_turn_that_interrupted_nothing_and_one_that_goes_on_arm_nothing() {
    let (world, frames) = interrupted(vec![
        vec![ask()],
        vec![text("noon. ")],
        // The turn to go on asks again, and so does one that a person begins.
        vec![ask()],
        vec![text("done")],
    ])
    .await;
    assert_eq!(streamed(&frames), "work noon. done");
    world.script.when("later", vec![ask()]);
    assert_eq!(
        outline(&super::support::frames(world.start(&id("s"), "later").await).await).matches("user").count(),
        1
    );
    let states: Vec<Value> =
        answers_of_the_tool(&world).iter().map(|answer| answer["state"].clone()).collect();
    assert_eq!(states, ["resume_armed", "not_interrupted", "not_interrupted"]);
    assert_eq!(words(&world).await, 1);
}

#[tokio::test]
async fn without_the_tool_interrupted_work_stays_where_it_is() {
    let (world, frames) = interrupted(vec![vec![text("noon")]]).await;
    assert_eq!(outline(&frames), "user stream user tool_call tool_result stream complete");
    assert_eq!(words(&world).await, 0);
}

#[tokio::test]
async fn a_message_that_waits_goes_before_the_turn_to_go_on_which_may_be_asked_for_again() {
    let world = World::new(vec![
        vec![text("work "), Say::Gate, Say::Call("probe", json!({}))],
        vec![ask()],
        vec![text("noon "), Say::Gate],
        vec![text("noted "), ask()],
        vec![text("as said ")],
        vec![text("done")],
    ])
    .await;
    let feed = world.start(&id("s"), "do the work").await;
    wait_for_text(&world, "work").await;
    world.send(&id("s"), "what time is it?").await;
    world.script.gate.add_permits(1);
    world
        .row_where(&id("s"), |row| row["content"].as_str().is_some_and(|text| text.starts_with("noon")))
        .await;
    world.send(&id("s"), "and note this").await;
    world.script.gate.add_permits(1);
    let frames = frames(feed).await;
    assert_eq!(streamed(&frames), "work noon noted as said done");
    assert_eq!(words(&world).await, 1);
}

#[tokio::test]
async fn stop_and_interrupt_take_the_wish_back() {
    for stop in [true, false] {
        let world = World::new(vec![
            vec![text("work "), Say::Gate, Say::Call("probe", json!({}))],
            vec![ask()],
            vec![text("noon "), Say::Gate],
        ])
        .await;
        let feed = world.start(&id("s"), "do the work").await;
        wait_for_text(&world, "work").await;
        world.send(&id("s"), "what time is it?").await;
        world.script.gate.add_permits(1);
        world
            .row_where(&id("s"), |row| row["content"].as_str().is_some_and(|text| text.starts_with("noon")))
            .await;
        let session = world.workspace.session(&id("s"));
        assert!(if stop { session.stop().await } else { session.interrupt().await }.unwrap());
        assert_eq!(frames(feed).await.last().unwrap().kind(), "complete");
        assert_eq!(words(&world).await, 0, "stop: {stop}");
        assert_eq!(world.script.requests.lock().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_hard_interrupt_that_brings_a_message_lets_the_agent_go_on_after_it() {
    let world = World::new(vec![
        vec![Say::Call("probe", json!({}))],
        vec![ask()],
        vec![text("yes ")],
        vec![text("done")],
    ])
    .await;
    *world.script.tool.lock().unwrap() = ToolMode::UntilCancelled;
    let feed = world.start(&id("s"), "do the work").await;
    world.script.tool_began.notified().await;
    world.send(&id("s"), "still there?").await;
    assert!(world.workspace.session(&id("s")).interrupt().await.unwrap());
    assert_eq!(streamed(&frames(feed).await), "yes done");
    assert_eq!(words(&world).await, 1);
}

#[tokio::test]
async fn a_call_that_leads_nowhere_is_told_so_beside_its_answer() {
    let again = || vec![Say::Call("probe", json!({"at": 1}))];
    let world = World::new(vec![again(), again(), again(), again()]).await;
    frames(world.start(&id("s"), "go").await).await;
    let request = world.script.requests.lock().unwrap().last().unwrap().clone();
    let results: Vec<String> = request
        .iter()
        .flat_map(|message| &message.content)
        .filter_map(|block| match block {
            Block::ToolResult { content, .. } => Some(content.clone()),
            _ => None,
        })
        .collect();
    let told: Vec<bool> = results.iter().map(|text| text.contains("[Loop warning: probe")).collect();
    assert_eq!(told, [false, false, true, false]);
    let rows = world.rows(&id("s")).await;
    assert!(!format!("{rows:?}").contains("Loop warning"), "people read what the tool said");
}
