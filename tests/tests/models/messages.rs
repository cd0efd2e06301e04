//! Messages: every oddity of its streams, and what we send.

use super::{KEY, build, model, request, result_block, run, text_block, texts, tool_calls, tool_use, user};
use halo_server::model::registry::{CacheTtl, Caching, CallSettings, ModelChoice, Registry, Thinking};
use halo_server::model::{Block, Completion, ErrorKind, Event, Message, ModelError, Role, StopReason, Usage};
use halo_tests::model_server::reply::Reply;
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::Duration;

async fn stream(events: &[Value]) -> (Vec<Event>, Result<Completion, ModelError>) {
    reply(Reply::events(events.iter().map(ToString::to_string))).await
}

async fn reply(reply: Reply) -> (Vec<Event>, Result<Completion, ModelError>) {
    let server = ModelServer::start().await.unwrap();
    server.push(reply);
    run(model(&server, Protocol::Anthropic).as_ref(), request(vec![user("x")])).await
}

fn start(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

/// The last two events of a stream.
fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}),
        json!({"type": "message_stop"}),
    ]
}

fn with_end(mut events: Vec<Value>, reason: &str) -> Vec<Value> {
    events.extend(end(reason));
    events
}

fn hello() -> Vec<Value> {
    vec![
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "hello"})),
    ]
}

#[tokio::test]
async fn thinking_is_kept_with_its_signature_and_goes_back_unchanged() {
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::Anthropic);
    server.push(Script::call("file_read", json!({"path": "a"})).thinking("first ").thinking("second"));
    let mut history = vec![user("x")];
    let (events, end) = run(model.as_ref(), request(history.clone())).await;
    let mut completion = end.unwrap();
    assert!(events.contains(&Event::Thinking("second".into())), "{events:?}");
    let thinking = Block::Thinking { text: "first second".into(), signature: Some("c2VhbA==".into()) };
    assert_eq!(completion.content[0], thinking);
    let id = tool_calls(&completion)[0].0.to_owned();
    completion.content.insert(1, Block::RedactedThinking { data: "b3BhcXVl".into() });
    // Of another provider, so without a seal: stays at home.
    completion.content.insert(0, Block::Thinking { text: "foreign".into(), signature: None });
    history.push(Message { role: Role::Assistant, content: completion.content });
    history.push(Message { role: Role::User, content: vec![text_block("and"), result_block(&id, "text")] });
    run(model.as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap().body;
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "first second", "signature": "c2VhbA=="},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                {"type": "tool_use", "id": id, "name": "file_read", "input": {"path": "a"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": "text"},
                {"type": "text", "text": "and"}]},
        ])
    );
}

#[tokio::test]
async fn a_block_that_only_the_provider_can_read_is_kept() {
    let mut events = vec![start(0, json!({"type": "redacted_thinking", "data": "b3BhcXVl"}))];
    events.push(start(1, json!({"type": "thinking", "thinking": "", "signature": ""})));
    events.push(delta(1, json!({"type": "signature_delta", "signature": "s"})));
    events.push(start(2, json!({"type": "text", "text": "hello"})));
    let completion = stream(&with_end(events, "end_turn")).await.1.unwrap();
    assert_eq!(
        completion.content,
        [
            Block::RedactedThinking { data: "b3BhcXVl".into() },
            Block::Thinking { text: String::new(), signature: Some("s".into()) },
            text_block("hello"),
        ]
    );
}

#[rstest]
#[case::in_pieces(&["", "{\"pa", "th\": \"x\"}"], json!({"path": "x"}), false)]
#[case::none(&[], json!({}), false)]
#[case::empty(&[""], json!({}), false)]
#[case::cut(&["{\"path"], json!({}), true)]
#[case::no_object(&["[1]"], json!({}), true)]
#[tokio::test]
async fn arguments_are_put_together(#[case] pieces: &[&str], #[case] input: Value, #[case] malformed: bool) {
    let mut events = vec![start(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}))];
    events.extend(
        pieces.iter().map(|piece| delta(0, json!({"type": "input_json_delta", "partial_json": piece}))),
    );
    events.push(start(1, json!({"type": "tool_use", "id": "t", "name": "g", "input": {"whole": true}})));
    let completion = stream(&with_end(events, "tool_use")).await.1.unwrap();
    let calls = tool_calls(&completion);
    assert_eq!(calls[0], ("t", "f", input));
    // The second has its arguments in its start, and an id that was used before.
    assert_eq!((calls[1].1, &calls[1].2), ("g", &json!({"whole": true})));
    assert_ne!(calls[1].0, "t");
    assert_eq!(completion.malformed.len(), usize::from(malformed));
    assert_eq!(completion.stop, StopReason::ToolUse);
}

#[rstest]
#[case("end_turn", StopReason::EndTurn)]
#[case("stop_sequence", StopReason::EndTurn)]
#[case("pause_turn", StopReason::EndTurn)]
#[case("max_tokens", StopReason::MaxTokens)]
#[case("model_context_window_exceeded", StopReason::MaxTokens)]
#[case("refusal", StopReason::Refusal { explanation: "refusal".into() })]
#[tokio::test]
async fn the_stop_reason_is_understood(#[case] reason: &str, #[case] stop: StopReason) {
    assert_eq!(stream(&with_end(hello(), reason)).await.1.unwrap().stop, stop);
}

#[tokio::test]
async fn a_refusal_tells_its_category_and_explanation() {
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "No exploits."});
    let events = [
        json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}),
        json!({"type": "message_stop"}),
    ];
    let stop = stream(&events).await.1.unwrap().stop;
    assert_eq!(stop, StopReason::Refusal { explanation: "cyber: No exploits.".into() });
}

#[rstest]
#[case::in_the_start(json!({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 1}), json!({"output_tokens": 9}))]
#[case::zeros_in_the_start(json!({"input_tokens": 0, "output_tokens": 0}), json!({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 9}))]
#[case::zeros_at_the_end(json!({"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}), json!({"input_tokens": 0, "cache_read_input_tokens": null, "output_tokens": 9}))]
#[tokio::test]
async fn usage_is_read_where_the_provider_puts_it(#[case] first: Value, #[case] last: Value) {
    let mut events = vec![json!({"type": "message_start", "message": {"usage": first}})];
    events.extend(hello());
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}));
    events.push(json!({"type": "message_stop"}));
    let usage = stream(&events).await.1.unwrap().usage;
    assert_eq!(usage, Usage { input: 5, output: 9, cache_read: 3, cache_write: 2 });
}

#[tokio::test]
async fn a_stream_without_message_stop_is_a_failure() {
    let mut events = with_end(hello(), "end_turn");
    events.pop();
    assert_eq!(stream(&events).await.1.unwrap_err().kind, ErrorKind::EmptyResponse);
}

#[tokio::test]
async fn an_error_event_ends_the_stream() {
    let mut events = hello();
    events.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    let (events, end) = stream(&with_end(events, "end_turn")).await;
    assert_eq!(texts(&events), ["hello"]);
    let error = end.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Server);
    assert!(error.message.contains("Overloaded"), "{error}");
}

#[tokio::test]
async fn unknown_events_and_blocks_do_no_harm() {
    let mut events = vec![json!({"type": "ping"}), json!({"type": "news", "index": 9}), json!({})];
    events.push(start(7, json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}})));
    events.push(delta(7, json!({"type": "input_json_delta", "partial_json": "{}"})));
    events.push(delta(7, json!({"type": "riddle_delta", "riddle": 1})));
    events.extend(hello());
    let completion = stream(&with_end(events, "end_turn")).await.1.unwrap();
    assert_eq!(completion.content, [text_block("hello")]);
}

#[rstest]
#[case::data_without_space("data:")]
#[case::crlf("data: ")]
#[tokio::test]
async fn every_spelling_of_the_stream_is_read_wherever_it_is_cut(#[case] prefix: &str) {
    let newline = if prefix == "data: " { "\r\n" } else { "\n" };
    let mut body = String::from(": hi\n\n");
    for event in with_end(vec![start(0, json!({"type": "text", "text": "größer 🦀"}))], "end_turn") {
        body.extend(["event: x", newline, prefix, &event.to_string(), newline, newline]);
    }
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::Anthropic);
    for size in [1, 7, body.len()] {
        server.push(Reply::chunks(body.as_bytes().chunks(size)));
        let completion = super::ask(model.as_ref(), "x").await.unwrap();
        assert_eq!(completion.content, [text_block("größer 🦀")], "chunks of {size}");
    }
}

#[tokio::test]
async fn an_answer_as_one_object_is_taken_as_well() {
    let body = json!({"id": "m", "type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "Reading."},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"n": 1}}],
        "usage": {"input_tokens": 3, "output_tokens": 2}});
    let (events, end) = reply(Reply::status(200, &body.to_string())).await;
    let completion = end.unwrap();
    assert_eq!(texts(&events), ["Reading."]);
    assert_eq!(tool_calls(&completion), [("t", "f", json!({"n": 1}))]);
    assert_eq!((completion.usage.input, completion.stop), (3, StopReason::ToolUse));
}

#[rstest]
#[case::off(Some(Caching::Off), Value::Null)]
#[case::as_the_file_offers(None, json!({"type": "ephemeral"}))]
#[case::five_minutes(Some(Caching::For(CacheTtl::FiveMinutes)), json!({"type": "ephemeral"}))]
#[case::an_hour(Some(Caching::For(CacheTtl::OneHour)), json!({"type": "ephemeral", "ttl": "1h"}))]
#[tokio::test]
async fn the_request_has_its_limits_its_thinking_and_its_cache_marks(
    #[case] prompt_caching: Option<Caching>,
    #[case] mark: Value,
) {
    let server = ModelServer::start().await.unwrap();
    let thinking = Thinking { enabled: true, effort: Some("low".into()), budget_tokens: None };
    let id = "claude-sonnet-4-6".to_owned();
    let choice = ModelChoice { id, prompt_caching, thinking: Some(thinking), ..ModelChoice::default() };
    let model = build(&server, Protocol::Anthropic, choice, Duration::from_secs(60));
    assert_eq!(model.thinking_effort(), Some("low"));
    let said = Message { role: Role::Assistant, content: vec![text_block("yes"), text_block(" ")] };
    let image = Block::Image { mime_type: "image/png".into(), data: "QUJD".into() };
    let last = Message { role: Role::User, content: vec![text_block("three"), image] };
    let empty = Message { role: Role::Assistant, content: vec![text_block("")] };
    let history = vec![user("one"), said.clone(), user("two"), said, empty, last];
    run(model.as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap();
    assert_eq!(sent.path, "/v1/messages");
    assert_eq!(sent.headers["x-api-key"], KEY);
    assert_eq!(sent.headers["anthropic-version"], "2023-06-01");
    let marked = |mut block: Value| {
        if !mark.is_null() {
            block["cache_control"] = mark.clone();
        }
        block
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let source = json!({"type": "base64", "media_type": "image/png", "data": "QUJD"});
    assert_eq!(
        sent.body,
        json!({
            "model": "claude-sonnet-4-6",
            "max_tokens": 64000,
            "stream": true,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low"},
            "system": [marked(text("Be brief."))],
            "tools": [{"name": "file_read", "description": "Reads a file.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
            "messages": [
                {"role": "user", "content": [text("one")]},
                {"role": "assistant", "content": [text("yes")]},
                {"role": "user", "content": [marked(text("two"))]},
                {"role": "assistant", "content": [text("yes")]},
                {"role": "user", "content": [text("three"), marked(json!({"type": "image", "source": source}))]},
            ],
        })
    );
}

#[rstest]
#[case::fits(Some(20_000), Some(8000), json!({"type": "enabled", "budget_tokens": 8000}))]
#[case::cut_to_leave_room(Some(5000), Some(8000), json!({"type": "enabled", "budget_tokens": 3976}))]
#[case::no_room_at_all(Some(1500), Some(8000), Value::Null)]
#[tokio::test]
async fn a_budget_of_thinking_stays_below_the_limit_of_the_answer(
    #[case] max_tokens: Option<u64>,
    #[case] budget_tokens: Option<u64>,
    #[case] expected: Value,
) {
    let server = ModelServer::start().await.unwrap();
    let thinking = Some(Thinking { enabled: true, effort: None, budget_tokens });
    let id = "claude-haiku-4-5".to_owned();
    let choice = ModelChoice { id, max_tokens, thinking, ..ModelChoice::default() };
    let model = build(&server, Protocol::Anthropic, choice, Duration::from_secs(60));
    super::ask(model.as_ref(), "x").await.unwrap();
    assert_eq!(server.last_request().unwrap().body["thinking"], expected);
}

/// By a number of tokens, the API lets a model think within a turn only if that turn began with thinking.
#[tokio::test]
async fn a_turn_that_began_without_thinking_goes_on_without() {
    let server = ModelServer::start().await.unwrap();
    let thinking = Some(Thinking { enabled: true, effort: None, budget_tokens: Some(2000) });
    let choice = ModelChoice { id: "claude-haiku-4-5".into(), thinking, ..ModelChoice::default() };
    let model = build(&server, Protocol::Anthropic, choice, Duration::from_secs(60));
    let sealed = Block::Thinking { text: "hm".into(), signature: Some("c2ln".into()) };
    let said = |content: Vec<Block>| Message { role: Role::Assistant, content };
    let called = |id: &str| tool_use(id, "file_read", json!({}));
    let answered = |id: &str| Message { role: Role::User, content: vec![result_block(id, "x")] };
    let thoughtless = vec![user("1"), said(vec![called("a")]), answered("a")];
    let thoughtful = vec![
        user("1"),
        said(vec![sealed, called("a")]),
        answered("a"),
        // Within the turn the model need not think again.
        said(vec![called("b")]),
        answered("b"),
    ];
    let new_turn = [thoughtless.clone(), vec![said(vec![text_block("done")]), user("2")]].concat();
    for (history, thinks) in [(thoughtless, false), (thoughtful, true), (new_turn, true)] {
        run(model.as_ref(), request(history)).await.1.unwrap();
        let sent = server.last_request().unwrap().body;
        assert_eq!(sent["thinking"].is_object(), thinks, "{sent}");
    }
}

/// A vendor's seals mean nothing to others, who refuse a conversation that holds one.
#[tokio::test]
async fn the_seals_of_a_vendor_go_back_to_it_and_to_no_other() {
    let server = ModelServer::start().await.unwrap();
    let events = with_end(
        vec![
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "a1b2"})),
            start(1, json!({"type": "text", "text": "ok"})),
        ],
        "end_turn",
    );
    server.push(Reply::events(events.iter().map(ToString::to_string)));
    let at = |provider: &str| {
        let endpoint = Some(server.anthropic_endpoint());
        let choice = ModelChoice { provider: provider.into(), endpoint, ..ModelChoice::default() };
        let registry = Registry::new("/nonexistent".into());
        registry.build(&choice, &|_, _| Some(KEY.into()), &CallSettings::default()).unwrap()
    };
    let (_, end) = run(at("minimax").as_ref(), request(vec![user("x")])).await;
    let said = Message { role: Role::Assistant, content: end.unwrap().content };
    let history = vec![user("x"), said, user("y")];
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "a1b2"});
    for (provider, expected) in [("minimax", thinking), ("anthropic", json!({"type": "text", "text": "ok"}))]
    {
        run(at(provider).as_ref(), request(history.clone())).await.1.unwrap();
        let sent = server.last_request().unwrap().body;
        assert_eq!(sent["messages"][1]["content"][0], expected, "{provider}");
    }
}

#[tokio::test]
async fn an_image_goes_out_within_the_result_that_shows_it() {
    let server = ModelServer::start().await.unwrap();
    let image = |data: &str| Block::Image { mime_type: "image/png".into(), data: data.into() };
    let content = vec![
        result_block("a", "a.png"),
        image("QQ=="),
        result_block("b", ""),
        image("Qg=="),
        text_block("and mine"),
        image("TUlORQ=="),
    ];
    let history = vec![
        user("look"),
        Message {
            role: Role::Assistant,
            content: vec![tool_use("a", "view_image", json!({})), tool_use("b", "view_image", json!({}))],
        },
        Message { role: Role::User, content },
    ];
    run(model(&server, Protocol::Anthropic).as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap().body["messages"][2]["content"].clone();
    let kinds = |content: &Value| {
        let kinds = content.as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(kinds(&sent), ["tool_result", "tool_result", "text", "image"]);
    assert_eq!(kinds(&sent[0]["content"]), ["text", "image"]);
    assert_eq!(kinds(&sent[1]["content"]), ["image"]);
    assert_eq!(sent[1]["content"][0]["source"]["data"], "Qg==");
}

#[tokio::test]
async fn ids_of_another_provider_are_written_in_letters_that_this_one_takes() {
    let server = ModelServer::start().await.unwrap();
    let history = vec![
        user("x"),
        Message { role: Role::Assistant, content: vec![tool_use("functions.read:0", "f", json!({}))] },
        Message { role: Role::User, content: vec![result_block("functions.read:0", "text")] },
    ];
    run(model(&server, Protocol::Anthropic).as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap().body;
    assert_eq!(sent["messages"][1]["content"][0]["id"], "functions_read_0");
    assert_eq!(sent["messages"][2]["content"][0]["tool_use_id"], "functions_read_0");
}
