//! What stands on the wire: every line of the adapter is one JSON-RPC message of ACP v1, whole and known. The
//! official types read it, and what they write back is the same, so no field was misspelt, of a wrong type, or
//! silently skipped.

use agent_client_protocol::v1::schema::{
    AuthenticateResponse, Error, InitializeResponse, ListSessionsResponse, LoadSessionResponse,
    NewSessionResponse, PromptResponse, SessionNotification,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;

/// One conversation, line by line.
#[derive(Default)]
pub struct Wire {
    lines: Vec<String>,
    /// The method of each request that has no answer yet, by its id.
    asked: HashMap<String, String>,
    wrong: Vec<String>,
}

impl Wire {
    /// The client wrote this line.
    pub fn sent(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            self.asked.insert(id.to_string(), method.to_owned());
        }
    }

    /// The adapter wrote this line.
    pub fn received(&mut self, line: &str) {
        self.lines.push(line.to_owned());
        if let Err(reason) = self.check(line) {
            self.wrong.push(format!("{reason}: {line}"));
        }
    }

    /// Every line of the adapter.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Panics when a line was not valid.
    pub fn assert_valid(&self) {
        assert!(self.wrong.is_empty(), "lines that are no valid ACP v1:\n{}", self.wrong.join("\n"));
    }

    fn check(&mut self, line: &str) -> Result<(), String> {
        let message: Value = serde_json::from_str(line).map_err(|error| format!("no JSON ({error})"))?;
        let fields = message.as_object().ok_or("no object")?;
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Err("no JSON-RPC 2.0".to_owned());
        }
        let of = |name: &str| fields.get(name);
        match (of("id"), of("method"), of("params"), of("result"), of("error"), fields.len()) {
            (None, Some(method), Some(params), None, None, 3) if method == "session/update" => {
                same::<SessionNotification>(params)
            }
            (Some(id), None, None, Some(result), None, 3) => self.result(id, result),
            (Some(id), None, None, None, Some(error), 3) => {
                // Whoever sent what cannot be read has no id to be answered with.
                if !id.is_null() && self.asked.remove(&id.to_string()).is_none() {
                    return Err("answers nothing that was asked".to_owned());
                }
                same::<Error>(error)
            }
            _ => Err("neither an update nor an answer".to_owned()),
        }
    }

    fn result(&mut self, id: &Value, result: &Value) -> Result<(), String> {
        let method = self.asked.remove(&id.to_string()).ok_or("answers nothing that was asked")?;
        match method.as_str() {
            "initialize" => same::<InitializeResponse>(result),
            "authenticate" => same::<AuthenticateResponse>(result),
            "session/new" => same::<NewSessionResponse>(result),
            "session/load" => same::<LoadSessionResponse>(result),
            "session/list" => same::<ListSessionsResponse>(result),
            "session/prompt" => same::<PromptResponse>(result),
            "session/cancel" if result.is_null() => Ok(()),
            _ => Err(format!("a result of {method}")),
        }
    }
}

/// `Err` unless the type reads the value and writes the same.
fn same<T: DeserializeOwned + Serialize>(value: &Value) -> Result<(), String> {
    let read: T = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(&read).map_err(|error| error.to_string())?;
    if written == *value { Ok(()) } else { Err(format!("read as {written}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(line: &str) -> bool {
        let mut wire = Wire::default();
        wire.sent(r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}"#);
        wire.received(line);
        wire.wrong.is_empty()
    }

    #[test]
    fn what_the_protocol_knows_is_valid() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}"#,
        ] {
            assert!(verdict(line), "{line}");
        }
    }

    #[test]
    fn what_it_does_not_know_is_found() {
        for line in [
            "hello",
            "[]",
            r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"done"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn","extra":1}}"#,
            r#"{"id":1,"result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"finished"}}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{}}"#,
        ] {
            assert!(!verdict(line), "{line}");
        }
    }
}
