//! What goes out for one rich conversation, a snapshot for each provider and for what differs within one.

use super::stub::Stub;
use crate::model::registry::{CallSettings, Registry, Thinking};
use crate::model::{Block, Message, Request, Role, ToolSpec};
use futures_util::StreamExt;
use rstest::rstest;
use serde_json::{Map, Value, json};
use std::fs;
use std::sync::Arc;

/// A key; only its header may hold it.
const KEY: &str = "sk-conformance";

/// A provider of the Responses protocol; none inside the binary speaks it without more.
const RESPONSES: &str = "
id: mine
runtime: openai-responses
defaultEndpoint: http://127.0.0.1:1/v1
secrets: [{ key: api_key, secret: true }]
models:
  - id: thinker
    maxOutputTokens: 32000
    capabilities:
      image: true
      thinking: { mode: adaptive, default: medium }
      verbosity: { default: low }
";

/// The shortest conversation.
pub(super) fn hello() -> Request {
    let message = Message { role: Role::User, content: vec![text("hello")] };
    Request { system: "".into(), messages: vec![Arc::new(message)], tools: Arc::new([]) }
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn image(data: &str) -> Block {
    Block::Image { mime_type: "image/png".into(), data: data.into() }
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.into(), signature: signature.map(str::to_owned) }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    let Value::Object(input) = input else { return text("no object") };
    Block::ToolUse { id: id.into(), name: name.into(), input }
}

fn result(id: &str, content: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error }
}

/// All that a conversation can hold: images of the user and of a tool, thinking of three origins, parallel calls, a
/// result that is an error, a turn that goes on after it.
fn rich(with_images: bool) -> Request {
    let tool = |name: &str, argument: &str| {
        let mut properties = Map::new();
        properties.insert(argument.to_owned(), json!({"type": "string"}));
        let parameters = json!({"type": "object", "properties": properties, "required": [argument]});
        ToolSpec { name: name.into(), description: format!("Tool {name}."), parameters }
    };
    let sealed = r#"openai-responses:{"provider":"mine","id":"rs_1","encrypted_content":"c2VhbA=="}"#;
    let turns = vec![
        (Role::User, vec![text("[2026-12-02T08:00:00Z] What is on it?"), image("VVNFUg==")]),
        (
            Role::Assistant,
            vec![
                thinking("Look.", Some("c2lnbmVk")),
                text("I look."),
                call("call_1", "view_image", json!({"path": "a \"b\".png"})),
                call("call_2", "file_read", json!({})),
            ],
        ),
        (
            Role::User,
            vec![
                result("call_1", "a.png", false),
                image("VE9PTA=="),
                result("call_2", "path is missing", true),
            ],
        ),
        (
            Role::Assistant,
            vec![
                thinking("Sealed.", Some(sealed)),
                Block::RedactedThinking { data: "b3BhcXVl".into() },
                text("A cat."),
            ],
        ),
        (Role::User, vec![text("[2026-12-02T08:01:00Z] Grüße, 世界")]),
        (
            Role::Assistant,
            vec![thinking("Unsigned.", None), call("call_3", "file_read", json!({"path": "b"}))],
        ),
        (Role::User, vec![result("call_3", "line", false), text("[2026-12-02T08:02:00Z] and quickly")]),
    ];
    let messages = turns.into_iter().map(|(role, mut content)| {
        content.retain(|block| with_images || !matches!(block, Block::Image { .. }));
        Arc::new(Message { role, content })
    });
    Request {
        system: "Be brief.".into(),
        messages: messages.collect(),
        tools: Arc::new([tool("view_image", "path"), tool("file_read", "path")]),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what a profile may leave out")]
fn high() -> Option<Thinking> {
    Some(Thinking { enabled: true, effort: Some("high".into()), budget_tokens: None })
}

#[allow(clippy::unnecessary_wraps, reason = "what a profile may leave out")]
fn off() -> Option<Thinking> {
    Some(Thinking::default())
}

#[rstest]
#[case::anthropic("anthropic", "", high())]
#[case::anthropic_by_number("anthropic", "claude-haiku-4-5", high())]
#[case::anthropic_untold("anthropic", "", None)]
#[case::openai("openai", "gpt-5", high())]
#[case::openrouter("openrouter", "", None)]
#[case::deepseek("deepseek", "", high())]
#[case::doubao("doubao", "", high())]
#[case::hunyuan("hunyuan", "", high())]
#[case::kimi_k3("kimi", "", high())]
#[case::kimi_k2("kimi", "kimi-k2.6", off())]
#[case::mimo("mimo-token-plan-china", "", high())]
#[case::minimax_m3("minimax", "", high())]
#[case::minimax_m2("minimax", "MiniMax-M2.7", off())]
#[case::qwen("qwen", "", high())]
#[case::qwen_off("qwen", "qwen3.6-plus", off())]
#[case::zhipu("zhipu", "", None)]
#[case::zhipu_flash("zhipu", "glm-5.3-flash", high())]
#[case::zhipu_off("zhipu", "glm-5.2", off())]
#[case::litellm("litellm", "", None)]
#[case::ollama("ollama", "", None)]
#[case::vllm("vllm", "", None)]
#[case::responses("mine", "", high())]
#[tokio::test]
async fn a_rich_conversation_goes_out_as_the_provider_wants_it(
    #[case] provider: &str,
    #[case] model: &str,
    #[case] thinking: Option<Thinking>,
) {
    let stub = Stub::sending(b"", false).await;
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("mine.yaml"), RESPONSES).unwrap();
    let registry = Registry::new(files.path().to_owned());
    let mut choice = registry.default_choice(provider).unwrap();
    if !model.is_empty() {
        model.clone_into(&mut choice.id);
    }
    choice.thinking = thinking;
    // The path of the provider's own address, at the stub.
    let own = registry.providers().into_iter().find(|info| info.id == provider).unwrap().endpoint;
    let path = own.parse::<reqwest::Url>().unwrap().path().trim_end_matches('/').to_owned();
    choice.endpoint = Some(format!("{}{path}", stub.endpoint));
    let built = registry.build(&choice, &|_, _| Some(KEY.into()), &CallSettings::default()).unwrap();
    let mut events = built.call(rich(built.takes_images()));
    while events.next().await.is_some_and(|event| event.is_ok()) {}
    let asked = stub.asked().await;
    assert!(!asked.body.contains(KEY));
    let mut head: Vec<&str> = asked
        .head
        .iter()
        .map(String::as_str)
        .filter(|line| !["host:", "content-length:", "user-agent:"].iter().any(|name| line.starts_with(name)))
        .collect();
    head.sort_unstable();
    let sent = json!({
        "head": head,
        "usage rows say": built.thinking_effort(),
        "body": serde_json::from_str::<Value>(&asked.body).unwrap(),
    });
    let name = if model.is_empty() { provider.to_owned() } else { format!("{provider}__{model}") };
    let told = match &choice.thinking {
        None => "",
        Some(thinking) if thinking.enabled => "__high",
        Some(_) => "__off",
    };
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_json_snapshot!(format!("body__{name}{told}").replace('.', "_"), sent);
    });
}
