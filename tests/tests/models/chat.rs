//! Chat Completions: every oddity of its streams, and what we send.

use super::{
    KEY, ask, build, model, request, result_block, run, text_block, texts, tool_calls, tool_use, user,
};
use halo_server::model::registry::{CallSettings, ModelChoice, Registry, Thinking};
use halo_server::model::{Block, Completion, ErrorKind, Event, Message, ModelError, Role, StopReason, Usage};
use halo_tests::model_server::reply::{Reply, Step};
use halo_tests::model_server::{ModelServer, Protocol};
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// Streams these events as they are (`[DONE]` and finish reasons included) and gives what came of them.
async fn stream(events: &[Value]) -> (Vec<Event>, Result<Completion, ModelError>) {
    reply(Reply::events(events.iter().map(|event| event.as_str().map_or(event.to_string(), str::to_owned))))
        .await
}

async fn reply(reply: Reply) -> (Vec<Event>, Result<Completion, ModelError>) {
    let server = ModelServer::start().await.unwrap();
    server.push(reply);
    run(model(&server, Protocol::OpenAi).as_ref(), request(vec![user("x")])).await
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// Streams fragments of tool calls, one a chunk, and gives the completion.
async fn fragments(fragments: Vec<Value>) -> Completion {
    let mut events: Vec<Value> =
        fragments.into_iter().map(|call| delta(json!({"tool_calls": [call]}))).collect();
    events.push(finish("tool_calls"));
    events.push("[DONE]".into());
    let completion = stream(&events).await.1.unwrap();
    assert_eq!(completion.stop, StopReason::ToolUse);
    let ids: HashSet<_> = tool_calls(&completion).iter().map(|(id, ..)| (*id).to_owned()).collect();
    assert_eq!(ids.len(), tool_calls(&completion).len(), "ids repeat: {completion:?}");
    assert!(!ids.contains(""));
    completion
}

fn inputs(completion: &Completion) -> Vec<Value> {
    tool_calls(completion).into_iter().map(|(_, name, input)| json!([name, input])).collect()
}

#[tokio::test]
async fn arguments_in_pieces_are_joined() {
    let completion = fragments(vec![
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}),
        json!({"index": 0, "function": {"arguments": "{\"pa"}}),
        json!({"index": 0, "function": {"arguments": "th\": \"x"}}),
        json!({"index": 0, "id": null, "function": {"name": null, "arguments": "\"}"}}),
    ])
    .await;
    assert_eq!(tool_calls(&completion), [("a", "f", json!({"path": "x"}))]);
}

#[tokio::test]
async fn parallel_calls_are_told_apart_by_index_even_when_interleaved() {
    let completion = fragments(vec![
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"n\":"}}),
        json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"n\":"}}),
        json!({"index": 0, "function": {"arguments": "1}"}}),
        json!({"index": 1, "function": {"arguments": "2}"}}),
    ])
    .await;
    assert_eq!(tool_calls(&completion), [("a", "f", json!({"n": 1})), ("b", "g", json!({"n": 2}))]);
}

#[tokio::test]
async fn parallel_calls_that_share_an_index_are_told_apart_by_id() {
    let completion = fragments(vec![
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
        json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{\"n\":"}}),
        json!({"index": 0, "id": "b", "function": {"arguments": "2}"}}),
        json!({"index": 0, "id": "a", "function": {"arguments": "{\"n\":1}"}}),
    ])
    .await;
    assert_eq!(tool_calls(&completion), [("a", "f", json!({"n": 1})), ("b", "f", json!({"n": 2}))]);
}

#[tokio::test]
async fn calls_without_ids_get_ids_of_their_own() {
    let completion = fragments(vec![
        json!({"index": 0, "function": {"name": "f", "arguments": "{\"n\":1}"}}),
        json!({"index": 0, "function": {"name": "f", "arguments": "{\"n\":2}"}}),
        json!({"index": 1, "id": "", "function": {"name": "g", "arguments": "{}"}}),
    ])
    .await;
    assert_eq!(inputs(&completion), [json!(["f", {"n": 1}]), json!(["f", {"n": 2}]), json!(["g", {}])]);
}

#[tokio::test]
async fn calls_that_repeat_an_id_keep_apart() {
    let completion = fragments(vec![
        json!({"index": 0, "id": "call_0", "function": {"name": "f", "arguments": "{\"n\":1}"}}),
        json!({"index": 1, "id": "call_0", "function": {"name": "f", "arguments": "{\"n\":2}"}}),
    ])
    .await;
    assert_eq!(inputs(&completion), [json!(["f", {"n": 1}]), json!(["f", {"n": 2}])]);
    assert_eq!(tool_calls(&completion)[0].0, "call_0");
}

#[tokio::test]
async fn an_id_that_comes_with_every_fragment_starts_no_new_call() {
    let completion = fragments(vec![
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"n\""}}),
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ":1"}}),
        json!({"index": 0, "id": "another", "function": {"arguments": "}"}}),
    ])
    .await;
    assert_eq!(tool_calls(&completion), [("a", "f", json!({"n": 1}))]);
}

#[tokio::test]
async fn calls_without_an_index_are_taken_in_order() {
    let call = |n: u32| json!({"id": format!("c{n}"), "function": {"name": "f", "arguments": format!("{{\"n\":{n}}}")}});
    let events = [
        delta(json!({"tool_calls": [call(1), call(2)]})),
        delta(json!({"tool_calls": [call(3)]})),
        finish("stop"),
        "[DONE]".into(),
    ];
    let completion = stream(&events).await.1.unwrap();
    let expected = [1, 2, 3].map(|n| (format!("c{n}"), json!({"n": n})));
    let found: Vec<_> =
        tool_calls(&completion).into_iter().map(|(id, _, input)| (id.to_owned(), input)).collect();
    assert_eq!(found, expected);
}

#[rstest]
#[case::empty(json!(""), json!({}))]
#[case::blank(json!(" "), json!({}))]
#[case::missing(Value::Null, json!({}))]
#[case::an_object_instead_of_text(json!({"path": "x"}), json!({"path": "x"}))]
#[tokio::test]
async fn arguments_may_be_nothing_or_an_object(#[case] arguments: Value, #[case] input: Value) {
    let call = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}});
    let completion = fragments(vec![call]).await;
    assert_eq!(tool_calls(&completion), [("a", "f", input)]);
    assert_eq!(completion.malformed, []);
}

#[rstest]
#[case::cut("{\"path\": \"x")]
#[case::a_list("[1]")]
#[case::a_string("\"x\"")]
#[case::null("null")]
#[case::no_json("path=x")]
#[tokio::test]
async fn arguments_that_are_no_object_are_marked_and_the_other_calls_stand(#[case] arguments: &str) {
    let completion = fragments(vec![
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}),
        json!({"index": 1, "id": "b", "function": {"name": "f", "arguments": "{\"n\":2}"}}),
    ])
    .await;
    assert_eq!(tool_calls(&completion), [("a", "f", json!({})), ("b", "f", json!({"n": 2}))]);
    assert_eq!(completion.malformed.len(), 1);
    assert_eq!(completion.malformed[0].0, "a");
    assert!(completion.malformed[0].1.starts_with("the arguments are not"), "{:?}", completion.malformed);
}

#[tokio::test]
async fn a_call_without_a_name_never_runs() {
    let completion =
        fragments(vec![json!({"index": 0, "id": "a", "function": {"arguments": "{\"n\":1}"}})]).await;
    assert_eq!(completion.malformed, [("a".to_owned(), "the call names no tool".to_owned())]);
}

#[tokio::test]
async fn the_old_form_of_a_call_is_understood() {
    let events = [
        delta(json!({"function_call": {"name": "f", "arguments": ""}})),
        delta(json!({"function_call": {"arguments": "{\"n\":1}"}})),
        finish("function_call"),
        "[DONE]".into(),
    ];
    let completion = stream(&events).await.1.unwrap();
    assert_eq!((inputs(&completion), completion.stop), (vec![json!(["f", {"n": 1}])], StopReason::ToolUse));
}

#[tokio::test]
async fn null_content_and_usage_in_a_chunk_without_choices_are_lived_with() {
    let events = [
        delta(json!({"role": "assistant", "content": null, "tool_calls": null})),
        delta(json!({"content": "hi", "reasoning_content": null})),
        json!({"choices": [{"index": 0, "delta": null, "finish_reason": ""}]}),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 60}}}),
        json!({"choices": null, "usage": null}),
        "[DONE]".into(),
    ];
    let (events, end) = stream(&events).await;
    let completion = end.unwrap();
    assert_eq!(texts(&events), ["hi"]);
    assert_eq!(completion.content, [text_block("hi")]);
    assert_eq!(completion.usage, Usage { input: 40, output: 7, cache_read: 60, cache_write: 0 });
}

#[rstest]
#[case(json!({"prompt_tokens": 10, "prompt_tokens_details": null, "cached_tokens": 4}), 6, 4)]
#[case(json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 3}), 7, 3)]
#[case(json!({"prompt_tokens": 10, "cache_read_tokens": 2}), 8, 2)]
#[case(json!({"prompt_tokens": 1, "cached_tokens": 5}), 0, 5)]
#[case(json!({"prompt_tokens": 10}), 10, 0)]
#[tokio::test]
async fn cache_hits_are_taken_out_of_the_prompt(
    #[case] usage: Value,
    #[case] input: u64,
    #[case] cache_read: u64,
) {
    let end = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage});
    let usage = stream(&[end]).await.1.unwrap().usage;
    assert_eq!((usage.input, usage.cache_read), (input, cache_read));
}

#[rstest]
#[case::reasoning_content("reasoning_content")]
#[case::reasoning("reasoning")]
#[tokio::test]
async fn reasoning_streams_and_is_kept_before_the_text(#[case] field: &str) {
    let events = [
        delta(json!({field: "hm, "})),
        delta(json!({field: "so"})),
        delta(json!({"content": "yes"})),
        finish("stop"),
    ];
    let (events, end) = stream(&events).await;
    assert!(events.contains(&Event::Thinking("hm, ".into())), "{events:?}");
    let thinking = Block::Thinking { text: "hm, so".into(), signature: None };
    assert_eq!(end.unwrap().content, [thinking, text_block("yes")]);
}

#[rstest]
#[case::stop("stop", StopReason::EndTurn)]
#[case::unknown("eos", StopReason::EndTurn)]
#[case::tool_calls_without_calls("tool_calls", StopReason::EndTurn)]
#[case::length("length", StopReason::MaxTokens)]
#[case::filter("content_filter", StopReason::Refusal { explanation: "content_filter".into() })]
#[tokio::test]
async fn the_finish_reason_is_understood(#[case] reason: &str, #[case] stop: StopReason) {
    let completion =
        stream(&[delta(json!({"content": "x"})), finish(reason), "[DONE]".into()]).await.1.unwrap();
    assert_eq!(completion.stop, stop);
}

#[tokio::test]
async fn a_refusal_in_words_is_a_refusal() {
    let events = [delta(json!({"refusal": "I will "})), delta(json!({"refusal": "not."})), finish("stop")];
    let stop = stream(&events).await.1.unwrap().stop;
    assert_eq!(stop, StopReason::Refusal { explanation: "I will not.".into() });
}

#[tokio::test]
async fn a_finish_reason_is_end_enough_without_done_and_even_when_the_connection_breaks() {
    let events = [delta(json!({"content": "x"})), finish("stop")].map(|event| event.to_string());
    for broken in [Reply::events(&events), Reply::events(&events).then(Step::Cut)] {
        assert_eq!(reply(broken).await.1.unwrap().content, [text_block("x")]);
    }
    // Done without a finish reason: the provider says itself that this is all.
    let done = reply(Reply::events([events[0].as_str(), "[DONE]"])).await.1;
    assert_eq!(done.unwrap().content, [text_block("x")]);
}

#[tokio::test]
async fn an_end_without_finish_reason_and_done_is_a_failure() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
    let error = stream(&[delta(call)]).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::EmptyResponse);
}

#[rstest]
#[case::data_without_space("data:{D1}\n\ndata:{D2}\n\ndata:[DONE]\n\n")]
#[case::crlf("data: {D1}\r\n\r\ndata: {D2}\r\n\r\ndata: [DONE]\r\n\r\n")]
#[case::cr("data: {D1}\r\rdata: {D2}\r\rdata: [DONE]\r\r")]
#[case::comments(": OPENROUTER PROCESSING\n\ndata: {D1}\n\n:\n\ndata: {D2}\n\ndata: [DONE]\n\n")]
#[case::byte_order_mark("\u{feff}data: {D1}\n\ndata: {D2}\n\ndata: [DONE]\n\n")]
#[case::names_and_ids("id: 7\nevent: message\ndata: {D1}\n\nid: 8\ndata: {D2}\n\ndata: [DONE]\n\n")]
#[case::no_last_blank_line("data: {D1}\n\ndata: {D2}")]
#[tokio::test]
async fn every_spelling_of_the_stream_is_read_wherever_it_is_cut(#[case] template: &str) {
    let body = template.replace("{D1}", &delta(json!({"content": "größer 🦀 "})).to_string()).replace(
        "{D2}",
        &json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}).to_string(),
    );
    let server = ModelServer::start().await.unwrap();
    let model = model(&server, Protocol::OpenAi);
    for size in [1, 7, body.len()] {
        server.push(Reply::chunks(body.as_bytes().chunks(size)));
        let completion = ask(model.as_ref(), "x").await.unwrap();
        assert_eq!(completion.content, [text_block("größer 🦀 ok")], "chunks of {size}");
    }
}

#[rstest]
#[case(json!({"error": {"message": "Rate limit reached", "type": "rate_limit_error"}}), ErrorKind::Throttle)]
#[case(json!({"error": {"code": 503, "message": "upstream"}, "choices": []}), ErrorKind::Server)]
#[case(json!({"object": "error", "message": "maximum context length is 8192"}), ErrorKind::ContextOverflow)]
#[tokio::test]
async fn an_error_within_the_stream_ends_it(#[case] error: Value, #[case] kind: ErrorKind) {
    let (events, end) = stream(&[delta(json!({"content": "x"})), error, finish("stop")]).await;
    assert_eq!(texts(&events), ["x"]);
    assert_eq!(end.unwrap_err().kind, kind);
}

#[tokio::test]
async fn an_answer_as_one_object_is_taken_as_well() {
    let body = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Reading.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
    let (events, end) = reply(Reply::status(200, &body.to_string())).await;
    let completion = end.unwrap();
    assert_eq!(texts(&events), ["Reading."]);
    assert_eq!(tool_calls(&completion), [("a", "f", json!({"n": 1}))]);
    assert_eq!(completion.usage.output, 2);
}

#[tokio::test]
async fn the_history_goes_out_in_the_form_of_the_protocol() {
    let server = ModelServer::start().await.unwrap();
    let choice = ModelChoice {
        max_tokens: Some(500),
        thinking: Some(Thinking { enabled: true, effort: Some("high".into()), budget_tokens: None }),
        ..ModelChoice::default()
    };
    let model = build(&server, Protocol::OpenAi, choice, Duration::from_secs(60));
    let thinking = Block::Thinking { text: "private".into(), signature: Some("s".into()) };
    let image = Block::Image { mime_type: "image/png".into(), data: "QUJD".into() };
    let history = vec![
        user("look"),
        Message {
            role: Role::Assistant,
            content: vec![thinking, text_block("I look."), tool_use("a", "file_read", json!({"path": "x"}))],
        },
        Message {
            role: Role::User,
            content: vec![result_block("a", "text"), image.clone(), text_block("and this"), image],
        },
    ];
    run(model.as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap();
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(
        sent.body,
        json!({
            "model": "some-model",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 500,
            "reasoning_effort": "high",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "type": "function",
                    "function": {"name": "file_read", "arguments": "{\"path\":\"x\"}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "text"},
                {"role": "user", "content": [
                    {"type": "text", "text": "[Shown by the tool results above:]"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
                    {"type": "text", "text": "and this"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}]},
            ],
            "tools": [{"type": "function", "function": {"name": "file_read", "description": "Reads a file.",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}],
        })
    );
}

#[rstest]
#[case::plain("openai-chat", false)]
#[case::deepseek("deepseek", true)]
#[case::kimi("kimi", true)]
#[case::zhipu("zhipu", true)]
#[case::hunyuan("hunyuan", false)]
#[tokio::test]
async fn reasoning_goes_back_with_its_tool_calls_only_where_the_vendor_wants_it(
    #[case] runtime: &str,
    #[case] replayed: bool,
) {
    let server = ModelServer::start().await.unwrap();
    let models = tempfile::tempdir().unwrap();
    let endpoint = server.openai_endpoint();
    let text = format!("id: mine\nruntime: {runtime}\ndefaultEndpoint: {endpoint}\nmodels: [{{ id: m }}]\n");
    std::fs::write(models.path().join("mine.yaml"), text).unwrap();
    let registry = Registry::new(models.path().to_owned());
    let choice = registry.default_choice("mine").unwrap();
    let model = registry.build(&choice, &|_, _| None, &CallSettings::default()).unwrap();
    let thought = |more: Block| Message {
        role: Role::Assistant,
        content: vec![Block::Thinking { text: "hm".into(), signature: None }, more],
    };
    let history = vec![
        user("x"),
        thought(tool_use("a", "f", json!({}))),
        Message { role: Role::User, content: vec![result_block("a", "text")] },
        thought(text_block("done")),
        user("y"),
    ];
    run(model.as_ref(), request(history)).await.1.unwrap();
    let sent = server.last_request().unwrap();
    let expected = if replayed { json!("hm") } else { Value::Null };
    assert_eq!(sent.body["messages"][2]["reasoning_content"], expected);
    assert_eq!(sent.body["messages"][4]["reasoning_content"], Value::Null);
    assert!(sent.headers.get("authorization").is_none());
}

/// What a vendor gets of thinking that is left alone, turned off, and turned on at `high`.
#[rstest]
#[case::plain("openai-chat", "m", [json!({}), json!({}), json!({"reasoning_effort": "high"})])]
#[case::deepseek("deepseek", "m", [json!({}), json!({}), json!({"reasoning_effort": "high"})])]
#[case::kimi_k3("kimi", "kimi-k3", [json!({}), json!({}), json!({"reasoning_effort": "max"})])]
#[case::kimi_k2("kimi", "kimi-k2.6", [json!({}), json!({"thinking": {"type": "disabled"}}), json!({"thinking": {"type": "enabled"}})])]
#[case::kimi_without_a_switch("kimi", "moonshot-v1-8k", [json!({}), json!({}), json!({})])]
#[case::doubao("doubao", "m", [json!({}), json!({"thinking": {"type": "disabled"}}), json!({"thinking": {"type": "enabled"}})])]
#[case::zhipu("zhipu", "glm-5.2", [json!({}), json!({"thinking": {"type": "disabled"}}),
    json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "high"})])]
#[case::zhipu_that_always_thinks("zhipu", "glm-5.3", [json!({"thinking": {"type": "enabled", "clear_thinking": false}}),
    json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "low"}),
    json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "high"})])]
#[case::hunyuan("hunyuan", "hy3-preview", [json!({}), json!({}), json!({"reasoning_effort": "high"})])]
#[tokio::test]
async fn each_vendor_is_told_of_thinking_in_its_own_way(
    #[case] runtime: &str,
    #[case] id: &str,
    #[case] expected: [Value; 3],
) {
    let server = ModelServer::start().await.unwrap();
    let models = tempfile::tempdir().unwrap();
    let endpoint = server.openai_endpoint();
    let text =
        format!("id: mine\nruntime: {runtime}\ndefaultEndpoint: {endpoint}\nmodels: [{{ id: {id} }}]\n");
    std::fs::write(models.path().join("mine.yaml"), text).unwrap();
    let registry = Registry::new(models.path().to_owned());
    let thinking = |enabled| Thinking { enabled, effort: Some("high".into()), budget_tokens: None };
    for (thinking, expected) in [None, Some(thinking(false)), Some(thinking(true))].into_iter().zip(expected)
    {
        let choice = ModelChoice { thinking, ..registry.default_choice("mine").unwrap() };
        let model = registry.build(&choice, &|_, _| None, &CallSettings::default()).unwrap();
        ask(model.as_ref(), "x").await.unwrap();
        let Value::Object(mut sent) = server.last_request().unwrap().body else { panic!("no object") };
        sent.retain(|key, _| key == "thinking" || key == "reasoning_effort");
        assert_eq!(Value::Object(sent), expected, "{:?}", choice.thinking);
    }
}
