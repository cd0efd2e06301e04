//! What a strict provider refuses: a conversation in which a tool call has not exactly one result right after
//! it, or a result has no call.

use super::Protocol;
use serde_json::Value;
use std::collections::BTreeSet;

/// `Err` with words such as the providers use.
pub(super) fn check(protocol: Protocol, body: &Value) -> Result<(), String> {
    let list = if protocol == Protocol::Responses { "input" } else { "messages" };
    let Some(messages) = body[list].as_array() else {
        return Err(format!("{list}: Field required"));
    };
    match protocol {
        Protocol::OpenAi => chat(messages),
        Protocol::Anthropic | Protocol::Bedrock => conversation(messages),
        Protocol::Responses => items(messages),
    }
}

fn chat(messages: &[Value]) -> Result<(), String> {
    let mut waiting = BTreeSet::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !waiting.remove(id) {
                return Err(format!(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls' ({id})"
                ));
            }
            continue;
        }
        unanswered(&waiting)?;
        for call in message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let id = call["id"].as_str().unwrap_or_default();
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if id.is_empty() || !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object())
            {
                return Err(format!("invalid tool call {call}"));
            }
            if !waiting.insert(id) {
                return Err(format!("duplicate tool call id {id}"));
            }
        }
    }
    unanswered(&waiting)
}

fn unanswered(waiting: &BTreeSet<&str>) -> Result<(), String> {
    match waiting.first() {
        None => Ok(()),
        Some(id) => Err(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
        )),
    }
}

fn conversation(messages: &[Value]) -> Result<(), String> {
    let mut waiting: BTreeSet<&str> = BTreeSet::new();
    for (place, message) in messages.iter().enumerate() {
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        if blocks.is_empty() && !message["content"].is_string() {
            return Err(format!("messages.{place}: all messages must have non-empty content"));
        }
        let of = |kind: &str, key: &'static str| {
            let found: Vec<&str> = blocks
                .iter()
                .filter(|block| block["type"] == kind)
                .map(|block| block[key].as_str().unwrap_or_default())
                .collect();
            found
        };
        for id in of("tool_result", "tool_use_id") {
            if !waiting.remove(id) {
                return Err(format!(
                    "messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"
                ));
            }
        }
        if let Some(id) = waiting.first() {
            return Err(format!(
                "messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}"
            ));
        }
        for id in of("tool_use", "id") {
            if id.is_empty() || !waiting.insert(id) {
                return Err(format!("messages.{place}: `tool_use` ids must be unique: {id}"));
            }
        }
    }
    match waiting.first() {
        None => Ok(()),
        Some(id) => {
            Err(format!("`tool_use` ids were found without `tool_result` blocks immediately after: {id}"))
        }
    }
}

fn items(items: &[Value]) -> Result<(), String> {
    let mut waiting: BTreeSet<&str> = BTreeSet::new();
    let mut called: BTreeSet<&str> = BTreeSet::new();
    let mut thought = None;
    for item in items {
        let id = item["call_id"].as_str().unwrap_or_default();
        let kind = item["type"].as_str().unwrap_or("message");
        if let Some(thought) = thought.take()
            && (kind == "function_call_output" || (kind == "message" && item["role"] == "user"))
        {
            return Err(missing_item(thought));
        }
        match kind {
            "message" if waiting.is_empty() => {}
            "message" => return no_output(&waiting),
            "reasoning" if item["encrypted_content"].is_string() && item["summary"].is_array() => {
                thought = Some(item);
            }
            "function_call" => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let whole = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                if id.is_empty() || id.len() > 64 || !whole {
                    return Err(format!("invalid function call {item}"));
                }
                if !called.insert(id) || !waiting.insert(id) {
                    return Err(format!("duplicate function call id {id}"));
                }
            }
            "function_call_output" => {
                if !waiting.remove(id) {
                    return Err(format!("No tool call found for function call output with call_id {id}."));
                }
            }
            _ => return Err(format!("invalid item {item}")),
        }
    }
    thought.map_or_else(|| no_output(&waiting), |thought| Err(missing_item(thought)))
}

fn missing_item(reasoning: &Value) -> String {
    format!(
        "Item '{}' of type 'reasoning' was provided without its required following item.",
        reasoning["id"]
    )
}

fn no_output(waiting: &BTreeSet<&str>) -> Result<(), String> {
    match waiting.first() {
        None => Ok(()),
        Some(id) => Err(format!("No tool output found for function call {id}.")),
    }
}
