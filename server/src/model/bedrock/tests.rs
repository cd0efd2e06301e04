use super::*;
use crate::model::registry::CacheTtl;
use crate::model::{Block, Message, Role, ToolSpec};
use serde_json::{Value, json};

fn message(role: Role, content: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { role, content })
}

#[test]
fn a_conversation_goes_out_as_one_body_without_model_and_stream() {
    let messages = crate::model::anthropic::AnthropicMessages {
        endpoint: crate::model::transport::Endpoint {
            provider: "ours".into(),
            url: "https://bedrock-runtime.us-east-1.amazonaws.com".parse().unwrap(),
            headers: http::HeaderMap::new(),
            key: None,
            signer: None,
            idle_timeout: Duration::from_secs(1),
            clock: Arc::new(crate::clock::SystemClock),
        },
        id: "global.anthropic.claude-sonnet-4-6".into(),
        max_tokens: 8192,
        thinking: anthropic::Thinking::Budget(4096),
        effort: None,
        strict_turns: false,
        own_seals: false,
        caching: Some(CacheTtl::OneHour),
        takes_images: true,
    };
    let text = |text: &str| Block::Text { text: text.into() };
    let Value::Object(input) = json!({"path": "a"}) else { panic!() };
    let request = Request {
        system: "Be brief.".into(),
        messages: vec![
            message(
                Role::User,
                vec![text("look"), Block::Image { mime_type: "image/png".into(), data: "aQ==".into() }],
            ),
            message(
                Role::Assistant,
                vec![
                    Block::Thinking { text: "hm".into(), signature: Some("c2VhbA==".into()) },
                    Block::ToolUse { id: "t1".into(), name: "file_read".into(), input },
                ],
            ),
            message(
                Role::User,
                vec![Block::ToolResult {
                    tool_use_id: "t1".into(),
                    content: "no such file".into(),
                    is_error: true,
                }],
            ),
        ],
        tools: Arc::new([ToolSpec {
            name: "file_read".into(),
            description: "Reads a file.".into(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        }]),
    };
    let body: Value = serde_json::from_slice(&anthropic::bedrock_body(&messages, &request).unwrap()).unwrap();
    insta::assert_json_snapshot!(body);
}

#[test]
fn clients_are_shared_by_address_region_and_limit_and_no_key_tells_them_apart() {
    let begin = CLIENTS.lock().unwrap().len();
    for region in ["xx-test-1", "xx-test-1", "xx-test-2"] {
        client("http://127.0.0.1:1", region, Duration::from_secs(7));
    }
    assert_eq!(CLIENTS.lock().unwrap().len(), begin + 2);
}
