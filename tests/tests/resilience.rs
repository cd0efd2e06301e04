//! A bad line between adapter and server: whatever is cut, the client sees the exact text, no hole, no repeat.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use agent_client_protocol::v1::schema::StopReason;
use halo_tests::acp::{Adapter, said};
use halo_tests::model_server::reply::{Reply, Step};
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::proxy::{Cut, Proxy};
use halo_tests::server::{Launch, Server};
use serde_json::{Value, json};
use std::time::Duration;

struct Stack {
    server: Server,
    model: ModelServer,
    proxy: Proxy,
    adapter: Adapter,
}

async fn stack(protocol: Protocol) -> Stack {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, protocol);
    let server = Server::launch(place, Launch::default()).await;
    let proxy = Proxy::start(server.address()).await;
    let token = server.place().token("full").await;
    let adapter = Adapter::start(server.place(), &proxy.address(), &token).await;
    Stack { server, model, proxy, adapter }
}

/// Words that differ, some with letters of several bytes.
fn words(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("wörd-{n}-日本 ")).collect()
}

/// An answer in parts: before each but the first it holds, and each flows for a while.
fn in_parts(parts: &[Vec<String>]) -> Reply {
    let chunk = |delta: Value, finish: Value| {
        let body = json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        Step::Bytes(format!("data: {body}\n\n").into())
    };
    let mut reply = Reply::events([""; 0]);
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            reply = reply.then(Step::Hold);
        }
        for word in part {
            reply = reply
                .then(chunk(json!({"content": word}), Value::Null))
                .then(Step::Wait(Duration::from_millis(2)));
        }
    }
    reply.then(chunk(json!({}), "stop".into())).then(Step::Bytes("data: [DONE]\n\n".into()))
}

#[tokio::test]
async fn twenty_cuts_during_a_long_answer_leave_no_trace_in_it() {
    const CUTS: usize = 20;
    let Stack { model, proxy, adapter, server: _server } = stack(Protocol::OpenAi).await;
    let words = words(100 * (CUTS + 1));
    let parts: Vec<Vec<String>> = words.chunks(100).map(<[String]>::to_vec).collect();
    model.push(in_parts(&parts));
    let session = adapter.new_session().await;
    let (end, ()) = tokio::join!(adapter.prompt(&session, "begin"), async {
        for cut in 0..CUTS {
            // In the middle of a part, so that the rest of it flows past the cut.
            let seen = words[..100 * cut + 30].concat().len();
            adapter.wait_for("the next part", &session, |updates| said(updates).len() >= seen).await;
            proxy.cut(if cut % 2 == 0 { Cut::Reset } else { Cut::Finish }).await;
            model.release();
        }
    });
    assert_eq!(end, StopReason::EndTurn);
    assert_same(&adapter.said(&session), &words.concat());
    assert!(proxy.accepted() > CUTS);
    assert!(adapter.quit().await.success());
}

#[tokio::test]
async fn a_run_that_ends_while_the_line_is_cut_is_told_to_its_end() {
    let Stack { model, proxy, adapter, server } = stack(Protocol::Anthropic).await;
    let words = words(200);
    model.push(Script::text(words.clone()).hold_after(100));
    let session = adapter.new_session().await;
    let (end, ()) = tokio::join!(adapter.prompt(&session, "begin"), async {
        let half = words[..100].concat();
        adapter.wait_for("the first half", &session, |updates| said(updates) == half).await;
        proxy.refuse(true);
        proxy.cut(Cut::Reset).await;
        // Seen from beside the proxy.
        let client = server.client("full").await;
        let watcher = client.subscribe(&session, None).await;
        model.release();
        assert_eq!(watcher.rest().await.last().unwrap().kind(), "complete");
        proxy.refuse(false);
    });
    assert_eq!(end, StopReason::EndTurn);
    assert_same(&adapter.said(&session), &words.concat());
}

#[tokio::test]
async fn a_line_that_stands_still_for_a_while_loses_nothing() {
    let Stack { model, proxy, adapter, server: _server } = stack(Protocol::Anthropic).await;
    let words = words(50);
    model.push(Script::text(words.clone()).hold_after(10));
    let session = adapter.new_session().await;
    let (end, ()) = tokio::join!(adapter.prompt(&session, "begin"), async {
        adapter.wait_for("the first words", &session, |updates| !updates.is_empty()).await;
        proxy.hold(true);
        model.release();
        model.wait_until_idle().await;
        proxy.hold(false);
    });
    assert_eq!(end, StopReason::EndTurn);
    assert_eq!(adapter.said(&session), words.concat());
}

#[tokio::test]
async fn a_server_that_is_gone_for_good_ends_the_prompt_with_the_reason() {
    let mut server = Server::start().await;
    let token = server.place().token("full").await;
    let adapter = Adapter::start(server.place(), &server.address(), &token).await;
    let session = adapter.new_session().await;
    server.kill9().await;
    assert_eq!(adapter.prompt(&session, "say hello").await, StopReason::EndTurn);
    let said = adapter.said(&session);
    assert!(said.starts_with("[adapter error] "), "{said}");
}

/// Shows where the two begin to differ.
fn assert_same(said: &str, wanted: &str) {
    let same = said.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| text.chars().skip(same.saturating_sub(40)).take(120).collect::<String>();
    assert!(said == wanted, "after {same} characters: {:?} instead of {:?}", around(said), around(wanted));
}
