//! What goes out and what comes of a stream, as snapshots; and that no stream which is cut ends as an answer.

#![allow(clippy::needless_pass_by_value, reason = "json! values read better when handed over")]

use super::{Dialect, OpenAiResponses, Reasoning, ResponsesFold, Seal, is_seal, request};
use crate::clock::SystemClock;
use crate::model::transport::{Endpoint, Reader};
use crate::model::{Block, Completion, ErrorKind, Event, Message, ModelError, Request, Role, ToolSpec};
use bytes::Bytes;
use http::HeaderMap;
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn model() -> OpenAiResponses {
    OpenAiResponses {
        endpoint: Endpoint {
            provider: "ours".into(),
            url: "http://127.0.0.1:1/v1/responses".parse().unwrap(),
            headers: HeaderMap::new(),
            key: None,
            signer: None,
            idle_timeout: Duration::from_secs(1),
            clock: Arc::new(SystemClock),
        },
        id: "thinker".into(),
        max_tokens: Some(32_000),
        reasoning: Reasoning { asked: true, effort: Some("high".into()), replay: true },
        label: Some("high".into()),
        verbosity: Some("low".into()),
        takes_images: true,
        dialect: Dialect { summaries: true },
    }
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn image(data: &str) -> Block {
    Block::Image { mime_type: "image/png".into(), data: data.into() }
}

fn call(id: &str) -> Block {
    let input = serde_json::Map::from_iter([("path".to_owned(), "a \"b\"".into())]);
    Block::ToolUse { id: id.into(), name: "view_image".into(), input }
}

fn result(id: &str, content: &str) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error: false }
}

fn thinking(text: &str, provider: &str, id: &str) -> Block {
    let seal = Seal { provider: provider.into(), id: id.into(), encrypted_content: "c2VhbA==".into() };
    Block::Thinking { text: text.into(), signature: seal.to_signature() }
}

fn request(messages: Vec<(Role, Vec<Block>)>) -> Request {
    let tool = ToolSpec {
        name: "view_image".into(),
        description: "Shows an image.".into(),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    let messages = messages.into_iter().map(|(role, content)| Arc::new(Message { role, content }));
    Request { system: "Be brief.".into(), messages: messages.collect(), tools: Arc::new([tool]) }
}

fn body(model: &OpenAiResponses, request: &Request) -> Value {
    serde_json::to_value(request::body(model, request)).unwrap()
}

#[test]
fn a_conversation_with_reasoning_images_and_tools_goes_out_item_by_item() {
    let said = vec![
        thinking("Look first.", "ours", "rs_1"),
        text("Looking."),
        thinking("", "ours", ""),
        call("call_a"),
        call("call_b"),
    ];
    let results = vec![
        result("call_a", "a picture"),
        image("QUJD"),
        result("call_b", ""),
        text("[2026-12-02T08:00:00Z] and this"),
        image("REVG"),
    ];
    let request = request(vec![
        (Role::User, vec![text("What is on them?"), image("R0hJ")]),
        (Role::Assistant, said),
        (Role::User, results),
    ]);
    insta::assert_json_snapshot!(body(&model(), &request));
}

#[test]
fn a_model_that_cannot_think_is_asked_for_the_answer_alone() {
    let plain =
        OpenAiResponses { max_tokens: None, reasoning: Reasoning::default(), verbosity: None, ..model() };
    let request =
        Request { tools: Arc::new([]), system: "".into(), ..request(vec![(Role::User, vec![text("hi")])]) };
    insta::assert_json_snapshot!(body(&plain, &request));
}

#[rstest]
#[case::of_another_provider(thinking("hm", "theirs", "rs_1"))]
#[case::of_another_protocol(Block::Thinking { text: "hm".into(), signature: Some("c2VhbA==".into()) })]
#[case::without_a_seal(Block::Thinking { text: "hm".into(), signature: None })]
#[case::opaque(Block::RedactedThinking { data: "b3BhcXVl".into() })]
fn reasoning_that_the_provider_did_not_seal_stays_at_home(#[case] block: Block) {
    let request = request(vec![(Role::User, vec![text("x")]), (Role::Assistant, vec![block, text("y")])]);
    let sent = body(&model(), &request);
    assert_eq!(sent["input"][1], json!({"type": "message", "role": "assistant", "content": "y"}));
    assert_eq!(sent["input"].as_array().unwrap().len(), 2);
}

#[test]
fn reasoning_that_nothing_follows_is_not_sent() {
    let said = vec![text("half"), thinking("on", "ours", "rs_1"), thinking("and on", "ours", "rs_2")];
    let request = request(vec![
        (Role::User, vec![text("x")]),
        (Role::Assistant, said),
        (Role::User, vec![text("go on")]),
    ]);
    let sent = body(&model(), &request);
    let kinds: Vec<&str> =
        sent["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "message"]);
}

#[test]
fn an_id_that_is_too_long_is_replaced_alike_in_the_call_and_in_its_result() {
    let long = "functions.view_image:".repeat(9);
    let request = request(vec![
        (Role::User, vec![text("x")]),
        (Role::Assistant, vec![call(&long), call("short")]),
        (Role::User, vec![result(&long, "1"), result("short", "2")]),
    ]);
    let input = body(&model(), &request)["input"].clone();
    let id = input[1]["call_id"].as_str().unwrap();
    assert!(id.len() <= 64 && id.starts_with("call_"), "{id}");
    assert_eq!((&input[3]["call_id"], &input[2]["call_id"]), (&json!(id), &json!("short")));
}

#[test]
fn limits_below_the_least_that_the_api_takes_are_raised() {
    let small = OpenAiResponses { max_tokens: Some(1), ..model() };
    assert_eq!(body(&small, &request(vec![]))["max_output_tokens"], 16);
}

/// What a watcher saw, and the end, in a form for snapshots.
fn fold(events: &[Value]) -> String {
    let (seen, end) = read(sent(events).as_bytes());
    let mut lines: Vec<String> = seen.iter().map(|event| format!("{event:?}")).collect();
    lines.push(format!("{end:#?}"));
    lines.join("\n")
}

fn sent(events: &[Value]) -> String {
    events.iter().fold(String::new(), |stream, event| stream + "data: " + &event.to_string() + "\n\n")
}

fn read(stream: &[u8]) -> (Vec<Event>, Result<Completion, ModelError>) {
    let mut reader = Reader::new(ResponsesFold::new("ours".into(), false));
    let mut seen = Vec::new();
    for chunk in stream.chunks(100) {
        if let Err(error) = reader.push(Bytes::copy_from_slice(chunk), &mut seen) {
            return (seen, Err(error));
        }
    }
    match reader.end(&mut seen) {
        Ok(()) => {
            let Some(Event::Done(completion)) = seen.pop() else { panic!("no end") };
            (seen, Ok(completion))
        }
        Err(error) => (seen, Err(error)),
    }
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, id: &str, piece: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "item_id": id, "delta": piece})
}

fn completed(output: Value) -> Value {
    let usage = json!({"input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 64}, "output_tokens_details": {"reasoning_tokens": 8}});
    json!({"type": "response.completed",
        "response": {"object": "response", "status": "completed", "error": null, "output": output, "usage": usage}})
}

fn message(content: Value) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
}

fn function_call(id: &str, call: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments})
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"object": "response", "status": "in_progress", "output": []}})
}

fn plain() -> Vec<Value> {
    let whole = message(json!([{"type": "output_text", "text": "größer 🦀", "annotations": []}]));
    vec![
        created(),
        json!({"type": "response.in_progress", "response": {"status": "in_progress", "output": []}}),
        added(0, message(json!([]))),
        json!({"type": "response.content_part.added", "output_index": 0, "item_id": "msg_1", "content_index": 0}),
        delta("output_text", 0, "msg_1", "größer"),
        delta("output_text", 0, "msg_1", " 🦀"),
        json!({"type": "response.output_text.done", "output_index": 0, "item_id": "msg_1", "text": "größer 🦀"}),
        done(0, whole.clone()),
        completed(json!([whole])),
    ]
}

fn reasoned() -> Vec<Value> {
    let summary = |number: u64, piece: &str| {
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "rs_1",
            "summary_index": number, "delta": piece})
    };
    let rs = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbA==", "summary": [
        {"type": "summary_text", "text": "First this."}, {"type": "summary_text", "text": "Then that."}]});
    let call = function_call("fc_1", "call_1", "file_read", "{\"path\":\"a\"}");
    vec![
        created(),
        added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "item_id": "rs_1"}),
        summary(0, "First "),
        summary(0, "this."),
        summary(1, "Then that."),
        done(0, rs.clone()),
        added(1, function_call("fc_1", "call_1", "file_read", "")),
        delta("function_call_arguments", 1, "fc_1", "{\"path\""),
        delta("function_call_arguments", 1, "fc_1", ":\"a\"}"),
        done(1, call.clone()),
        completed(json!([rs, call])),
    ]
}

fn parallel() -> Vec<Value> {
    let (one, two) =
        (function_call("fc_1", "c1", "f", "{\"n\":1}"), function_call("fc_2", "c2", "g", "{\"n\":2}"));
    let text = message(json!([{"type": "output_text", "text": "Both."}]));
    vec![
        created(),
        delta("output_text", 0, "msg_1", "Both."),
        added(1, function_call("fc_1", "c1", "f", "")),
        added(2, function_call("fc_2", "c2", "g", "")),
        delta("function_call_arguments", 2, "fc_2", "{\"n\""),
        delta("function_call_arguments", 1, "fc_1", "{\"n\":"),
        delta("function_call_arguments", 2, "fc_2", ":2}"),
        delta("function_call_arguments", 1, "fc_1", "1}"),
        done(2, two.clone()),
        done(1, one.clone()),
        completed(json!([text, one, two])),
    ]
}

fn failed() -> Vec<Value> {
    let error = json!({"code": "server_error", "message": "The model failed."});
    let response = json!({"object": "response", "status": "failed", "error": error, "output": []});
    let mut events = plain()[..5].to_vec();
    events.push(json!({"type": "response.failed", "response": response}));
    events
}

#[test]
fn plain_text() {
    insta::assert_snapshot!(fold(&plain()));
}

#[test]
fn reasoning_and_a_call() {
    insta::assert_snapshot!(fold(&reasoned()));
}

#[test]
fn parallel_calls() {
    insta::assert_snapshot!(fold(&parallel()));
}

#[test]
fn an_error_in_the_middle() {
    insta::assert_snapshot!(fold(&failed()));
}

#[test]
fn no_cut_at_any_byte_ends_as_an_answer() {
    for events in [plain(), reasoned(), parallel(), failed()] {
        let stream = sent(&events);
        // Without its last line ends, the closing event is still whole.
        for cut in 0..stream.trim_end().len() {
            let (_, end) = read(&stream.as_bytes()[..cut]);
            let kind = end.unwrap_err().kind;
            assert!(matches!(kind, ErrorKind::EmptyResponse | ErrorKind::Server), "{kind:?} at {cut}");
        }
    }
}

#[test]
fn a_seal_is_known_by_its_beginning_and_opens_unchanged() {
    let seal = Seal { provider: "p".into(), id: "rs".into(), encrypted_content: "e/+=".into() };
    let signature = seal.to_signature().unwrap();
    assert!(is_seal(&signature) && !is_seal("EqoBCkgIBxABGAIiQ"));
    assert_eq!(Seal::of(&signature), Some(seal));
    assert_eq!(Seal::of("openai-responses:{"), None);
}
