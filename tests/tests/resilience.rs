//! A bad line between adapter and server: whatever is cut, the client sees the exact text, no hole, no repeat.

use agent_client_protocol::v1::schema::StopReason;
use halo_tests::acp::Adapter;
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::proxy::{Cut, Proxy};
use halo_tests::server::{Launch, Server};
use std::time::Duration;

struct Stack {
    _server: Server,
    model: ModelServer,
    proxy: Proxy,
    adapter: Adapter,
}

async fn stack() -> Stack {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::Anthropic);
    let server = Server::launch(place, Launch::default()).await;
    let proxy = Proxy::start(server.address()).await;
    let token = server.place().token("full").await;
    let adapter = Adapter::start(server.place(), &proxy.address(), &token).await;
    Stack { _server: server, model, proxy, adapter }
}

/// Words that differ, some with letters of several bytes.
fn words(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("wörd-{n}-日本 ")).collect()
}

#[tokio::test]
async fn twenty_cuts_during_a_long_answer_leave_no_trace_in_it() {
    let Stack { model, proxy, adapter, _server } = stack().await;
    // Long enough to flow between the cuts, and the last word waits for the last of them.
    let words = words(8000);
    model.push(Script::text(words.clone()).pause(Duration::from_millis(3)).hold_after(words.len() - 1));
    let session = adapter.new_session().await;
    let (end, ()) = tokio::join!(adapter.prompt(&session, "begin"), async {
        for cut in 0..20 {
            let seen = adapter.said(&session).len();
            adapter
                .wait_for("more text comes", &session, |updates| halo_tests::acp::said(updates).len() > seen)
                .await;
            proxy.cut(if cut % 2 == 0 { Cut::Reset } else { Cut::Finish }).await;
        }
        model.release();
    });
    assert_eq!(end, StopReason::EndTurn);
    assert!(
        adapter.said(&session) == words.concat(),
        "{}",
        difference(&adapter.said(&session), &words.concat())
    );
    assert!(adapter.quit().await.success());
}

#[tokio::test]
async fn a_run_that_ends_while_the_line_is_cut_is_told_to_its_end() {
    let Stack { model, proxy, adapter, _server } = stack().await;
    let words = words(200);
    model.push(Script::text(words.clone()).hold_after(100));
    let session = adapter.new_session().await;
    let (end, ()) = tokio::join!(adapter.prompt(&session, "begin"), async {
        let half = words[..100].concat();
        adapter.wait_for("the first half", &session, |updates| halo_tests::acp::said(updates) == half).await;
        proxy.refuse(true);
        proxy.cut(Cut::Reset).await;
        model.release();
        model.wait_until_idle().await;
        // The run has ended at the server, seen from beside the proxy.
        let client = _server.client("full").await;
        let ended = async {
            while client.history(&session).await["running"] != false {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        halo_tests::within("the run ends", ended).await;
        proxy.refuse(false);
    });
    assert_eq!(end, StopReason::EndTurn);
    assert!(
        adapter.said(&session) == words.concat(),
        "{}",
        difference(&adapter.said(&session), &words.concat())
    );
}

#[tokio::test]
async fn a_line_that_stands_still_for_a_while_loses_nothing() {
    let Stack { model, proxy, adapter, _server } = stack().await;
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

/// Where the two begin to differ.
fn difference(said: &str, wanted: &str) -> String {
    let at = said
        .char_indices()
        .zip(wanted.chars())
        .find(|((_, a), b)| a != b)
        .map_or(said.len(), |((at, _), _)| at);
    let around =
        |text: &str| text.get(at.saturating_sub(60)..).unwrap_or(text).chars().take(160).collect::<String>();
    format!(
        "at {at} of {} (wanted {}): {:?} instead of {:?}",
        said.len(),
        wanted.len(),
        around(said),
        around(wanted)
    )
}
