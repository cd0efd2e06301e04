//! The queue under random interleavings: what the model was told in the end is what was sent, each message once and
//! in its order, whatever ran, waited, was stopped or cut meanwhile.

use super::support::{Say, Script, World, id, inbound, text};
use halo_server::model::{Block, Message, Role};
use halo_server::session::{From, Sent};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What somebody does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Send,
    /// Two messages at the same moment: either may be first.
    SendTwo,
    /// Lets one model call go on.
    Release,
    Stop,
    Interrupt,
    /// Lets the other tasks work.
    Breathe,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => Just(Act::Send),
        1 => Just(Act::SendTwo),
        4 => Just(Act::Release),
        1 => Just(Act::Stop),
        1 => Just(Act::Interrupt),
        2 => Just(Act::Breathe),
    ]
}

/// What people said to the model, in its order, without the stamps of arrival.
fn told(request: &[Arc<Message>]) -> Vec<String> {
    let said =
        request.iter().filter(|message| message.role == Role::User).flat_map(|message| &message.content);
    said.filter_map(|block| {
        let Block::Text { text, .. } = block else { return None };
        text.split_once("] ").map(|(_, said)| said.to_owned())
    })
    .collect()
}

/// Gives in which order two messages were taken, from the log.
async fn in_order(world: &World, two: [String; 2]) -> [String; 2] {
    let rows = world.rows(&id("s")).await;
    let place = |message: &String| rows.iter().position(|row| row["content"] == **message).unwrap();
    let [a, b] = two;
    if place(&a) < place(&b) { [a, b] } else { [b, a] }
}

async fn play(acts: Vec<Act>, calls: Vec<bool>) -> Result<(), TestCaseError> {
    let answers = calls.iter().map(|calls_tool| {
        let then = if *calls_tool { Say::Call("probe", json!({})) } else { text("done") };
        vec![text("I "), Say::Gate, then]
    });
    let script = Script::new(answers.collect());
    let world = World::at(tempfile::tempdir().unwrap(), script).await;
    let session = world.workspace.session(&id("s"));
    let mut sent: Vec<String> = Vec::new();
    for act in acts {
        match act {
            Act::Send => {
                let message = format!("message {}", sent.len());
                // The stream is left alone: a run depends on no watcher.
                session.send(inbound(&message)).await.unwrap();
                sent.push(message);
            }
            Act::SendTwo => {
                let two = [0, 1].map(|n| format!("message {} of two, {n}", sent.len()));
                let (a, b) = tokio::join!(session.send(inbound(&two[0])), session.send(inbound(&two[1])));
                prop_assert!(a.is_ok() && b.is_ok());
                sent.extend(in_order(&world, two).await);
            }
            Act::Release => world.script.gate.add_permits(1),
            Act::Stop => drop(session.stop().await.unwrap()),
            Act::Interrupt => drop(session.interrupt().await.unwrap()),
            Act::Breathe => tokio::task::yield_now().await,
        }
    }
    world.script.gate.add_permits(1000);
    world.follow(&id("s"), From::Now).await;
    let Sent::Started(feed) = session.send(inbound("the last")).await.unwrap() else {
        return Err(TestCaseError::fail("a session that has ended its run is idle"));
    };
    sent.push("the last".into());
    super::frames(feed).await;

    let requests = world.script.requests.lock().unwrap().clone();
    for request in &requests {
        let told = told(request);
        prop_assert_eq!(&told[..], &sent[..told.len()], "nothing is lost, doubled, or out of order");
    }
    prop_assert_eq!(told(requests.last().unwrap()).len(), sent.len());
    let rows = world.rows(&id("s")).await;
    let logged: Vec<&str> =
        rows.iter().filter(|row| row["type"] == "user").filter_map(|row| row["content"].as_str()).collect();
    prop_assert_eq!(logged, sent);
    world.engine.shutdown().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_model_is_told_each_message_once_and_in_order(
        acts in prop::collection::vec(act(), 1..30),
        calls in prop::collection::vec(any::<bool>(), 40),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let played = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), play(acts, calls)).await
        });
        played.map_err(|_| TestCaseError::fail("something hangs"))??;
    }
}
