//! What holds for every provider alike: time, errors, odd bodies, cancelling.

use super::{KEY, ask, build, model, request, run, texts, tool_calls, user};
use futures_util::StreamExt;
use halo_server::model::registry::ModelChoice;
use halo_server::model::{ErrorKind, Event, StopReason};
use halo_tests::model_server::reply::{Reply, Step};
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use rstest::rstest;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

#[rstest]
#[tokio::test]
async fn text_streams_as_it_comes_and_the_whole_follows(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, protocol);
    let mut stream = model.call(request(vec![user("HOLD")]));
    let first = loop {
        match stream.next().await.unwrap().unwrap() {
            Event::Activity => {}
            event => break event,
        }
    };
    assert_eq!(first, Event::Text("held ".into()));
    server.release();
    let rest: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert_eq!(texts(&rest), ["free"]);
    let Some(Event::Done(completion)) = rest.last() else { panic!("{rest:?}") };
    assert_eq!(completion.content, [super::text_block("held free")]);
    assert_eq!((&completion.stop, completion.usage.input), (&StopReason::EndTurn, 10));
    // The answer was read to its end, so the connection is free for the next call.
    server.wait_until_idle().await;
}

#[rstest]
#[tokio::test]
async fn calls_share_a_connection(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, protocol);
    for _ in 0..8 {
        // The end of the body comes after the closing event, as it does over a real network.
        server.push(Script::text(["ok"]).reply(protocol).then(Step::Wait(Duration::from_millis(20))));
        ask(model.as_ref(), "x").await.unwrap();
        server.wait_until_idle().await;
    }
    // A connection may come back a moment too late for the next call, but not every time.
    let peers: HashSet<_> = server.requests().into_iter().map(|request| request.peer).collect();
    assert!(peers.len() < 8, "{peers:?}");
}

#[rstest]
#[tokio::test]
async fn dropping_the_stream_ends_the_call(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, protocol);
    let mut stream = model.call(request(vec![user("HOLD")]));
    stream.next().await.unwrap().unwrap();
    drop(stream);
    server.wait_until_idle().await;
}

#[rstest]
#[tokio::test]
async fn a_silent_provider_is_given_up(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = build(&server, protocol, ModelChoice::default(), Duration::from_millis(100));
    let error = ask(model.as_ref(), "HOLD").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Network);
    assert!(error.message.ends_with("the model was silent for 0.1 s"), "{error}");
    server.wait_until_idle().await;
}

#[rstest]
#[case::comment(": still here\n\n")]
#[case::one_byte(":")]
#[tokio::test]
async fn any_byte_shows_that_a_provider_is_alive(#[case] sign: &str) {
    let server = ModelServer::start().await.unwrap();
    let model = build(&server, Protocol::OpenAi, ModelChoice::default(), Duration::from_millis(600));
    // Longer in all than the limit, but never silent for as long.
    let mut reply = Reply::chunks([""; 0]);
    for _ in 0..8 {
        reply = reply
            .then(Step::Bytes(sign.as_bytes().to_vec().into()))
            .then(Step::Wait(Duration::from_millis(100)));
    }
    let end = "\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\n";
    server.push(reply.then(Step::Bytes(end.into())));
    let (events, end) = run(model.as_ref(), request(vec![user("x")])).await;
    assert_eq!(end.unwrap().content, [super::text_block("ok")]);
    assert!(events.iter().filter(|event| **event == Event::Activity).count() >= 8, "{events:?}");
}

#[rstest]
#[case(401, ErrorKind::Account)]
#[case(404, ErrorKind::Fatal)]
#[case(429, ErrorKind::Throttle)]
#[case(500, ErrorKind::Server)]
#[case(529, ErrorKind::Server)]
#[tokio::test]
async fn a_refusal_is_classified_and_named(
    #[case] code: u16,
    #[case] kind: ErrorKind,
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let error = ask(model(&server, protocol).as_ref(), &format!("FAIL:{code}")).await.unwrap_err();
    assert_eq!((error.kind, error.status), (kind, Some(code)));
    let provider = match protocol {
        Protocol::OpenAi => "openai",
        Protocol::Anthropic => "anthropic",
        Protocol::Responses => "responses",
        Protocol::Bedrock => "bedrock",
    };
    assert!(error.message.starts_with(&format!("{provider}: API error {code}: {{\"error\":")), "{error}");
}

#[tokio::test]
async fn a_wait_that_the_provider_asks_for_is_passed_on() {
    let server = ModelServer::start().await.unwrap();
    server.push(Reply::status(429, "slow down").header("retry-after", "7"));
    let error = ask(model(&server, Protocol::OpenAi).as_ref(), "x").await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
}

#[rstest]
#[case::as_status(Reply::status(401, &format!("Incorrect API key provided: {KEY}")))]
#[case::in_the_stream(Reply::events([format!("{{\"error\":{{\"message\":\"bad key {KEY}\"}}}}")]))]
#[case::unreadable(Reply::events([format!("bad key {KEY}")]))]
#[case::cut_within_the_key(Reply::status(400, &format!("{}{KEY}", "x".repeat(1990))))]
#[case::cut_within_the_key_in_the_stream(Reply::events([format!("{}{KEY}", "x".repeat(190))]))]
#[tokio::test]
async fn a_provider_that_repeats_the_key_does_not_get_it_into_our_errors(
    #[case] reply: Reply,
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses)] protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    server.push(reply);
    let error = ask(model(&server, protocol).as_ref(), "x").await.unwrap_err();
    assert!(error.message.contains("[key]"), "{error}");
    assert!(!format!("{error:?}").contains(&KEY[..4]));
}

#[tokio::test]
async fn an_endless_error_body_is_cut() {
    let server = ModelServer::start().await.unwrap();
    server.push(Reply::status(400, &"x".repeat(5_000_000)));
    let error = ask(model(&server, Protocol::OpenAi).as_ref(), "x").await.unwrap_err();
    assert_eq!(error.message, format!("openai: API error 400: {}", "x".repeat(2000)));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = ModelServer::start().await.unwrap();
    server.push(Reply::status(307, "").header("location", "/v1/messages"));
    let error = ask(model(&server, Protocol::OpenAi).as_ref(), "x").await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::Fatal, Some(307)));
    assert!(error.message.contains("redirect"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_web_page_in_place_of_a_stream_points_to_the_endpoint(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses)] protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    server
        .push(Reply::chunks(["\n<!doctype html><title>Log in</title>"]).header("content-type", "text/html"));
    let error = ask(model(&server, protocol).as_ref(), "x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fatal);
    assert!(error.message.contains("check the endpoint"), "{error}");
}

#[rstest]
#[case::nothing(&[], ErrorKind::EmptyResponse)]
#[case::only_a_comment(&[": hi\n\n"], ErrorKind::EmptyResponse)]
#[case::no_json(&["data: oops\n\n"], ErrorKind::Server)]
#[case::no_object(&["data: [1]\n\n"], ErrorKind::Server)]
#[tokio::test]
async fn an_answer_that_is_none_is_an_error(
    #[case] chunks: &[&str],
    #[case] kind: ErrorKind,
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses)] protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    server.push(Reply::chunks(chunks));
    assert_eq!(ask(model(&server, protocol).as_ref(), "x").await.unwrap_err().kind, kind);
}

#[rstest]
#[tokio::test]
async fn a_cut_connection_is_a_network_error_and_half_a_call_never_runs(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses)] protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let whole = match protocol {
        Protocol::OpenAi => {
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#
        }
        Protocol::Anthropic => {
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#
        }
        // Its frames are no text: see `bedrock`.
        Protocol::Bedrock => return,
        Protocol::Responses => {
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}}"#
        }
    };
    server.push(Reply::events([whole]).then(Step::Cut));
    server.push(Reply::events([whole]));
    let model = model(&server, protocol);
    let error = ask(model.as_ref(), "x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Network, "{error}");
    assert!(error.message.contains("the connection was cut"), "{error}");
    // The same with an orderly end of the body.
    let error = ask(model.as_ref(), "x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::EmptyResponse, "{error}");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_a_network_error() {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::OpenAi);
    drop(server);
    let error = ask(model.as_ref(), "x").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Network);
    assert!(error.message.starts_with("openai: "), "{error}");
}

#[rstest]
#[tokio::test]
async fn a_conversation_with_tools_passes_a_strict_provider(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, protocol);
    let script = Script::call("file_read", json!({"path": "a"})).and_call("file_read", json!({"path": "b"}));
    server.push(script.thinking("two files"));
    let mut history = vec![user("[2026-12-01T18:06:13.010Z] read both")];
    let completion = run(model.as_ref(), request(history.clone())).await.1.unwrap();
    assert_eq!(completion.stop, StopReason::ToolUse);
    let results =
        tool_calls(&completion).iter().map(|(id, _, _)| super::result_block(id, "the text")).collect();
    history.push(super::Message { role: super::Role::Assistant, content: completion.content });
    history.push(super::Message { role: super::Role::User, content: results });
    let completion = run(model.as_ref(), request(history.clone())).await.1.unwrap();
    assert_eq!(completion.content, [super::text_block("result: the text")]);
    // A result that is missing is told apart from other refusals, so that the history can be mended.
    let Some(last) = history.last_mut() else { panic!() };
    last.content.pop();
    let error = run(model.as_ref(), request(history)).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupted, "{error}");
}

#[rstest]
#[tokio::test]
async fn after_results_of_tools_a_model_may_say_nothing(
    #[values(Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Bedrock)]
    protocol: Protocol,
) {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, protocol);
    server.push(Script::default());
    assert_eq!(ask(model.as_ref(), "x").await.unwrap_err().kind, ErrorKind::EmptyResponse);
    server.push(Script::default());
    let history = vec![
        user("x"),
        super::Message { role: super::Role::Assistant, content: vec![super::tool_use("a", "f", json!({}))] },
        super::Message { role: super::Role::User, content: vec![super::result_block("a", "done")] },
    ];
    let completion = run(model.as_ref(), request(history)).await.1.unwrap();
    assert_eq!((completion.content, completion.stop), (vec![], StopReason::EndTurn));
}
