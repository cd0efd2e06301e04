//! The models of the server against the scripted model server: each oddity that providers are known for.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]
#![allow(clippy::needless_pass_by_value, reason = "json! values read better when handed over")]

mod bedrock;
mod calls;
mod chat;
mod messages;
mod responses;

use futures_util::StreamExt;
use halo_server::model::registry::{CallSettings, ModelChoice, Registry};
use halo_server::model::{Block, Completion, Event, Message, Model, ModelError, Request, Role, ToolSpec};
use halo_tests::model_server::{ModelServer, Protocol};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The key that every test uses; no answer of ours may hold it.
const KEY: &str = "sk-very-secret-key";

/// A provider of the runtime `openai-responses`.
const RESPONSES: &str = "
id: responses
runtime: openai-responses
defaultModelId: some-model
secrets: [{ key: api_key, secret: true }]
models:
  - { id: some-model, capabilities: { image: true } }
  - id: thinker
    maxOutputTokens: 32000
    capabilities: { image: true, thinking: { mode: adaptive }, verbosity: { default: low } }
";

/// A provider of the runtime `bedrock-invoke` with a region of its own.
const BEDROCK: &str = "
id: bedrock
runtime: bedrock-invoke
sigv4: { region: us-west-2 }
defaultModelId: some-model
secrets: [{ key: access_key_id, secret: true }, { key: secret_access_key, secret: true }]
models: [{ id: some-model, capabilities: { image: true } }]
";

/// A model of the protocol at the server, as the registry builds it.
fn model(server: &ModelServer, protocol: Protocol) -> Arc<dyn Model> {
    build(server, protocol, ModelChoice::default(), Duration::from_secs(60))
}

fn build(
    server: &ModelServer,
    protocol: Protocol,
    choice: ModelChoice,
    idle_timeout: Duration,
) -> Arc<dyn Model> {
    let (provider, endpoint) = match protocol {
        Protocol::OpenAi => ("openai", server.openai_endpoint()),
        Protocol::Anthropic => ("anthropic", server.anthropic_endpoint()),
        Protocol::Responses => ("responses", server.openai_endpoint()),
        Protocol::Bedrock => ("bedrock", server.bedrock_endpoint()),
    };
    // No provider inside the binary speaks Responses, and the one of Bedrock takes its region from the address.
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("bedrock.yaml"), BEDROCK).unwrap();
    std::fs::write(files.path().join("responses.yaml"), RESPONSES).unwrap();
    let id = if choice.id.is_empty() { "some-model".to_owned() } else { choice.id.clone() };
    let choice = ModelChoice { provider: provider.into(), id, endpoint: Some(endpoint), ..choice };
    let settings = CallSettings { idle_timeout, ..CallSettings::default() };
    Registry::new(files.path().to_owned()).build(&choice, &|_, _| Some(KEY.into()), &settings).unwrap()
}

fn user(text: &str) -> Message {
    Message { role: Role::User, content: vec![text_block(text)] }
}

fn text_block(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn tool_use(id: &str, name: &str, input: Value) -> Block {
    let Value::Object(input) = input else { panic!("no object: {input}") };
    Block::ToolUse { id: id.into(), name: name.into(), input }
}

fn result_block(id: &str, content: &str) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error: false }
}

fn request(messages: Vec<Message>) -> Request {
    let tool = ToolSpec {
        name: "file_read".into(),
        description: "Reads a file.".into(),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    Request {
        system: "Be brief.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::new([tool]),
    }
}

/// What a call gave: all events before the end, and the end.
async fn run(model: &dyn Model, request: Request) -> (Vec<Event>, Result<Completion, ModelError>) {
    let mut stream = model.call(request);
    let mut events = Vec::new();
    loop {
        let end = match stream.next().await.expect("the stream ended without an end") {
            Ok(Event::Done(completion)) => Ok(completion),
            Ok(event) => {
                events.push(event);
                continue;
            }
            Err(error) => Err(error),
        };
        assert!(stream.next().await.is_none(), "something follows the end");
        return (events, end);
    }
}

async fn ask(model: &dyn Model, text: &str) -> Result<Completion, ModelError> {
    run(model, request(vec![user(text)])).await.1
}

/// The texts that a watcher saw.
fn texts(events: &[Event]) -> Vec<&str> {
    let mut found = Vec::new();
    for event in events {
        if let Event::Text(text) = event {
            found.push(text.as_str());
        }
    }
    found
}

/// The tool calls of a completion: id, name, input.
fn tool_calls(completion: &Completion) -> Vec<(&str, &str, Value)> {
    let mut found = Vec::new();
    for block in &completion.content {
        if let Block::ToolUse { id, name, input } = block {
            found.push((id.as_str(), name.as_str(), Value::from(input.clone())));
        }
    }
    found
}
