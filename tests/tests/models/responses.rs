//! Responses: every oddity of its streams, and what we send.

use super::{
    KEY, ask, build, model, request, result_block, run, text_block, texts, tool_calls, tool_use, user,
};
use halo_server::model::registry::{CallSettings, ModelChoice, Registry, Thinking};
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
    run(model(&server, Protocol::Responses).as_ref(), request(vec![user("x")])).await
}

/// An event with these fields.
fn event(kind: &str, mut fields: Value) -> Value {
    fields["type"] = format!("response.{kind}").into();
    fields
}

fn ended(status: &str, output: Value) -> Value {
    event(status, json!({"response": {"status": status, "output": output, "error": null}}))
}

fn completed(output: Value) -> Value {
    ended("completed", output)
}

fn said(text: &str) -> Value {
    json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn added(fields: Value, item: Value) -> Value {
    let mut fields = fields;
    fields["item"] = item;
    event("output_item.added", fields)
}

fn done(fields: Value, item: Value) -> Value {
    let mut fields = fields;
    fields["item"] = item;
    event("output_item.done", fields)
}

fn arguments(mut fields: Value, piece: &str) -> Value {
    fields["delta"] = piece.into();
    event("function_call_arguments.delta", fields)
}

/// A call on the wire; empty ids are left out.
fn call(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    let mut item = json!({"type": "function_call", "name": name, "arguments": arguments});
    for (key, value) in [("id", id), ("call_id", call_id)] {
        if !value.is_empty() {
            item[key] = value.into();
        }
    }
    item
}

fn inputs(completion: &Completion) -> Vec<Value> {
    tool_calls(completion).into_iter().map(|(_, name, input)| json!([name, input])).collect()
}

/// Two calls begin, their arguments come in turns, both are done; the closing event holds no output, so that the
/// pieces alone tell the calls apart.
#[rstest]
#[case::as_it_should_be([json!({"output_index": 0, "item_id": "a"}), json!({"output_index": 1, "item_id": "b"})], ["a", "b"], ["x", "y"])]
#[case::indexes_with_gaps([json!({"output_index": 7}), json!({"output_index": 3})], ["", ""], ["x", "y"])]
#[case::indexes_as_text([json!({"output_index": "0"}), json!({"output_index": "1"})], ["", ""], ["x", "y"])]
#[case::a_shared_index([json!({"output_index": 0, "item_id": "a"}), json!({"output_index": 0, "item_id": "b"})], ["a", "b"], ["x", "y"])]
#[case::no_index([json!({"item_id": "a"}), json!({"item_id": "b"})], ["a", "b"], ["x", "y"])]
#[case::a_repeated_id([json!({"output_index": 0, "item_id": "a"}), json!({"output_index": 1, "item_id": "a"})], ["a", "a"], ["x", "x"])]
#[case::another_id_in_every_event([json!({"output_index": 0, "item_id": "p"}), json!({"output_index": 1, "item_id": "q"})], ["a", "b"], ["x", "y"])]
#[case::no_ids([json!({"output_index": 0}), json!({"output_index": 1})], ["", ""], ["", ""])]
#[tokio::test]
async fn parallel_calls_keep_apart(
    #[case] places: [Value; 2],
    #[case] ids: [&str; 2],
    #[case] call_ids: [&str; 2],
) {
    let [first, second] = places;
    let whole = |n: usize, arguments: &str| call(ids[n], call_ids[n], ["f", "g"][n], arguments);
    let events = [
        added(first.clone(), whole(0, "")),
        added(second.clone(), whole(1, "{}")),
        arguments(first.clone(), "{\"n\""),
        arguments(second.clone(), "{\"n\":"),
        arguments(first.clone(), ":1}"),
        arguments(second.clone(), "2}"),
        done(second, whole(1, "")),
        done(first, whole(0, "")),
        completed(Value::Null),
    ];
    let completion = stream(&events).await.1.unwrap();
    assert_eq!(inputs(&completion), [json!(["f", {"n": 1}]), json!(["g", {"n": 2}])]);
    let found: Vec<_> = tool_calls(&completion).into_iter().map(|(id, ..)| id).collect();
    assert!(found[0] != found[1] && !found.contains(&""), "{found:?}");
    assert_eq!(found[0].starts_with(call_ids[0]), found[0].len() == 1 || call_ids[0].is_empty());
    assert_eq!(completion.stop, StopReason::ToolUse);
}

#[rstest]
#[case::empty("", json!({}), false)]
#[case::an_object("{\"path\": \"x\"}", json!({"path": "x"}), false)]
#[case::cut("{\"path", json!({}), true)]
#[case::no_object("[1]", json!({}), true)]
#[tokio::test]
async fn arguments_that_are_no_object_do_not_run(
    #[case] text: &str,
    #[case] input: Value,
    #[case] malformed: bool,
) {
    let completion =
        stream(&[completed(json!([call("a", "t", "f", text), call("b", "u", "g", "{}")]))]).await.1.unwrap();
    assert_eq!(tool_calls(&completion), [("t", "f", input), ("u", "g", json!({}))]);
    assert_eq!(completion.malformed.len(), usize::from(malformed));
}

#[tokio::test]
async fn what_the_closing_event_leaves_out_is_taken_from_the_pieces() {
    let index = json!({"output_index": 0});
    let events = [
        added(index.clone(), call("a", "t", "f", "")),
        arguments(index.clone(), "{\"n\":1}"),
        event("function_call_arguments.done", json!({"output_index": 0, "arguments": "{\"n\":12}"})),
        completed(json!([call("a", "t", "f", "")])),
    ];
    let completion = stream(&events).await.1.unwrap();
    assert_eq!(tool_calls(&completion), [("t", "f", json!({"n": 12}))]);
}

#[tokio::test]
async fn a_call_that_was_never_done_does_not_run() {
    let index = json!({"output_index": 0});
    let mut events = vec![
        added(index.clone(), call("a", "t", "f", "")),
        arguments(index.clone(), "{}"),
        completed(json!([])),
    ];
    assert_eq!(stream(&events).await.1.unwrap_err().kind, ErrorKind::EmptyResponse);
    events.insert(2, done(index, call("a", "t", "f", "{}")));
    assert_eq!(tool_calls(&stream(&events).await.1.unwrap()).len(), 1);
}

#[rstest]
#[case::no_closing_event(vec![event("output_text.delta", json!({"delta": "hello"})), done(json!({}), said("hello"))])]
#[case::no_output(vec![event("output_text.delta", json!({"delta": "hello"})), completed(json!([]))])]
#[case::output_of_nothing(vec![completed(json!([said("")]))])]
#[case::only_reasoning(vec![completed(json!([{"type": "reasoning", "id": "r", "summary": [{"text": "hm"}]}]))])]
#[case::incomplete_and_nothing(vec![ended("incomplete", json!([]))])]
#[case::not_finished(vec![json!({"object": "response", "status": "in_progress", "output": [said("half")]})])]
#[tokio::test]
async fn an_answer_with_nothing_in_it_or_without_an_end_is_an_error(#[case] events: Vec<Value>) {
    assert_eq!(stream(&events).await.1.unwrap_err().kind, ErrorKind::EmptyResponse);
}

#[rstest]
#[case(json!({"reason": "max_output_tokens"}), Ok(StopReason::MaxTokens))]
#[case(Value::Null, Ok(StopReason::MaxTokens))]
#[case(json!({"reason": "content_filter"}), Ok(StopReason::Refusal { explanation: "content_filter".into() }))]
#[case(json!({"reason": "lost_interest"}), Err(ErrorKind::Server))]
#[tokio::test]
async fn an_incomplete_answer_says_why(
    #[case] details: Value,
    #[case] expected: Result<StopReason, ErrorKind>,
) {
    let output = json!([said("half"), call("a", "t", "f", "{\"n\":")]);
    let response = json!({"status": "incomplete", "incomplete_details": details, "output": output});
    // Some gateways name the event as if all were well.
    for kind in ["incomplete", "completed"] {
        let (_, end) = stream(&[event(kind, json!({"response": response}))]).await;
        let stop = end.map(|completion| completion.stop).map_err(|error| error.kind);
        assert_eq!(stop, expected);
    }
}

#[tokio::test]
async fn a_refusal_tells_its_reason() {
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]});
    let events = [
        event("refusal.delta", json!({"output_index": 0, "delta": "I will"})),
        event("refusal.delta", json!({"output_index": 0, "delta": " not."})),
        completed(json!([refusal])),
    ];
    let completion = stream(&events).await.1.unwrap();
    assert_eq!(completion.stop, StopReason::Refusal { explanation: "I will not.".into() });
    assert_eq!(completion.content, []);
}

#[rstest]
#[case::failed(event("failed", json!({"response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}}})), ErrorKind::Throttle)]
#[case::failed_by_the_server(event("failed", json!({"response": {"error": {"code": "server_error", "message": "x"}}})), ErrorKind::Server)]
#[case::too_long(event("failed", json!({"response": {"error": {"code": "context_length_exceeded", "message": "x"}}})), ErrorKind::ContextOverflow)]
#[case::a_bad_image(event("failed", json!({"response": {"error": {"code": "invalid_base64_image", "message": "x"}}})), ErrorKind::BadImage)]
#[case::failed_without_a_word(event("failed", json!({"response": {"status": "failed", "error": null}})), ErrorKind::Server)]
#[case::cancelled(event("cancelled", json!({"response": {"status": "cancelled"}})), ErrorKind::Server)]
#[case::error_event(json!({"type": "error", "code": "server_error", "message": "x", "param": null}), ErrorKind::Server)]
#[case::error_within(json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}), ErrorKind::Fatal)]
#[case::no_response(event("completed", json!({})), ErrorKind::Server)]
#[tokio::test]
async fn an_error_ends_the_stream(#[case] error: Value, #[case] kind: ErrorKind) {
    let hello = event("output_text.delta", json!({"output_index": 0, "delta": "hello"}));
    let (events, end) = stream(&[hello, error, completed(json!([said("hello")]))]).await;
    assert_eq!(texts(&events), ["hello"]);
    assert_eq!(end.unwrap_err().kind, kind);
}

#[rstest]
#[case::hits(json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}}), 4, 5)]
#[case::elsewhere(json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 0}, "cache_read_tokens": 2}), 7, 2)]
#[case::more_hits_than_input(json!({"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}}), 0, 5)]
#[case::nulls(json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": null}), 9, 0)]
#[tokio::test]
async fn cache_hits_are_no_input(#[case] usage: Value, #[case] input: u64, #[case] cache_read: u64) {
    let response = json!({"status": "completed", "output": [said("ok")], "usage": usage});
    let completion = stream(&[event("completed", json!({"response": response}))]).await.1.unwrap();
    assert_eq!(completion.usage, Usage { input, output: 4, cache_read, cache_write: 0 });
}

#[tokio::test]
async fn unknown_events_and_items_do_no_harm() {
    let search = json!({"type": "web_search_call", "id": "w", "status": "completed"});
    let events = [
        json!({"type": "keepalive"}),
        json!({}),
        added(json!({"output_index": 0}), search.clone()),
        event("web_search_call.searching", json!({"output_index": 0, "item_id": "w"})),
        done(json!({"output_index": 0}), search.clone()),
        event("output_text.annotation.added", json!({"output_index": 1, "annotation": {}})),
        event("output_text.delta", json!({"output_index": 1, "delta": "hel"})),
        event("output_text.done", json!({"output_index": 1, "text": "hello"})),
        completed(json!([search, said("hello")])),
        json!("after the end nothing is read"),
    ];
    let (events, end) = stream(&events).await;
    assert_eq!(end.unwrap().content, [text_block("hello")]);
    assert_eq!(texts(&events), ["hel", "lo"]);
}

#[tokio::test]
async fn an_answer_as_one_object_is_taken_as_well() {
    let body = json!({"id": "r", "object": "response", "status": "completed", "error": null,
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"effort": null},
        "output": [said("Reading."), call("a", "t", "f", "{\"n\":1}")],
        "usage": {"input_tokens": 3, "output_tokens": 2}});
    let (events, end) = reply(Reply::status(200, &body.to_string())).await;
    let completion = end.unwrap();
    assert_eq!(texts(&events), ["Reading."]);
    assert_eq!(tool_calls(&completion), [("t", "f", json!({"n": 1}))]);
    assert_eq!((completion.usage.input, completion.stop), (3, StopReason::ToolUse));
}

#[tokio::test]
async fn the_type_may_stand_in_the_event_line_alone_and_done_may_follow() {
    let body = json!({"response": {"status": "completed", "output": [said("ok")]}});
    let bytes = format!(
        "event: response.output_text.delta\r\ndata:{{\"delta\":\"ok\"}}\r\n\r\n\
         event: response.completed\ndata: {body}\n\ndata: [DONE]\n\n"
    );
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::Responses);
    for size in [1, 7, bytes.len()] {
        server.push(Reply::chunks(bytes.as_bytes().chunks(size)));
        assert_eq!(ask(model.as_ref(), "x").await.unwrap().content, [text_block("ok")], "chunks of {size}");
    }
}

#[tokio::test]
async fn sealed_reasoning_goes_back_to_the_provider_and_to_no_other() {
    let server = ModelServer::start().await.unwrap();
    let responses = model(&server, Protocol::Responses);
    server.push(Script::call("file_read", json!({"path": "a"})).thinking("first ").thinking("second"));
    let mut history = vec![user("x")];
    let (events, end) = run(responses.as_ref(), request(history.clone())).await;
    let completion = end.unwrap();
    assert!(events.contains(&Event::Thinking("second".into())), "{events:?}");
    let Block::Thinking { text, signature: Some(_) } = &completion.content[0] else {
        panic!("{completion:?}")
    };
    assert_eq!(text, "first second");
    let id = tool_calls(&completion)[0].0.to_owned();
    history.push(Message { role: Role::Assistant, content: completion.content });
    history.push(Message { role: Role::User, content: vec![result_block(&id, "text"), text_block("and")] });
    run(responses.as_ref(), request(history.clone())).await.1.unwrap();
    let sent = server.last_request().unwrap().body;
    assert_eq!(
        sent["input"],
        json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "first second"}],
                "encrypted_content": "c2VhbA=="},
            {"type": "function_call", "call_id": id, "name": "file_read", "arguments": "{\"path\":\"a\"}"},
            {"type": "function_call_output", "call_id": id, "output": "text"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and"}]},
        ])
    );
    for other in [Protocol::Anthropic, Protocol::OpenAi] {
        run(model(&server, other).as_ref(), request(history.clone())).await.1.unwrap();
        let sent = server.last_request().unwrap().body.to_string();
        assert!(!sent.contains("c2VhbA==") && !sent.contains("first second"), "{sent}");
    }
}

#[tokio::test]
async fn the_request_has_its_limits_its_effort_and_its_key() {
    let server = ModelServer::start().await.unwrap();
    let thinking = Thinking { enabled: true, effort: Some("high".into()), budget_tokens: None };
    let choice = ModelChoice { id: "thinker".into(), thinking: Some(thinking), ..ModelChoice::default() };
    let model = build(&server, Protocol::Responses, choice, Duration::from_secs(60));
    assert_eq!(model.thinking_effort(), Some("high"));
    ask(model.as_ref(), "x").await.unwrap();
    let sent = server.last_request().unwrap();
    assert_eq!(sent.path, "/v1/responses");
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    let mut body = sent.body;
    body["input"].take();
    assert_eq!(
        body,
        json!({
            "model": "thinker",
            "stream": true,
            "store": false,
            "max_output_tokens": 32000,
            "reasoning": {"effort": "high", "summary": "auto"},
            "text": {"verbosity": "low"},
            "include": ["reasoning.encrypted_content"],
            "instructions": "Be brief.",
            "input": null,
            "tools": [{"type": "function", "name": "file_read", "description": "Reads a file.",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}, "strict": false}],
        })
    );
}

#[tokio::test]
async fn a_tool_result_carries_its_images() {
    let server = ModelServer::start().await.unwrap();
    let image = Block::Image { mime_type: "image/png".into(), data: "QUJD".into() };
    let history = vec![
        user("x"),
        Message { role: Role::Assistant, content: vec![tool_use("a", "view_image", json!({}))] },
        Message { role: Role::User, content: vec![result_block("a", "seen"), image, text_block("and")] },
    ];
    run(model(&server, Protocol::Responses).as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap().body;
    assert_eq!(
        sent["input"][2]["output"],
        json!([{"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}])
    );
    assert_eq!(sent["input"][3]["content"], json!([{"type": "input_text", "text": "and"}]));
}

#[tokio::test]
async fn bedrock_is_asked_for_no_summaries() {
    let server = ModelServer::start().await.unwrap();
    let models = tempfile::tempdir().unwrap();
    let endpoint = server.openai_endpoint();
    let text =
        format!("id: mine\nruntime: bedrock-mantle\ndefaultEndpoint: {endpoint}\nmodels: [{{ id: m }}]\n");
    std::fs::write(models.path().join("mine.yaml"), text).unwrap();
    let registry = Registry::new(models.path().to_owned());
    for (effort, expected) in [(Some("max"), json!({"effort": "max"})), (None, Value::Null)] {
        let thinking = Thinking { enabled: true, effort: effort.map(str::to_owned), budget_tokens: None };
        let choice = ModelChoice { thinking: Some(thinking), ..registry.default_choice("mine").unwrap() };
        let model = registry.build(&choice, &|_, _| None, &CallSettings::default()).unwrap();
        ask(model.as_ref(), "x").await.unwrap();
        assert_eq!(server.last_request().unwrap().body["reasoning"], expected);
    }
}
