//! An answer by its content, written in whichever protocol the call speaks; and the orders that a user message
//! can give.

use super::reply::{Reply, Step};
use super::{Protocol, bedrock};
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// What the model says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    thinking: Vec<String>,
    text: Vec<String>,
    calls: Vec<(String, Value)>,
    pause: Duration,
    hold_after: Option<usize>,
    usage: Option<(usize, usize)>,
}

impl Script {
    /// Text, delta by delta.
    pub fn text<T: Into<String>>(deltas: impl IntoIterator<Item = T>) -> Self {
        Self { text: deltas.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// One tool call.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// One more tool call, in the same answer.
    #[must_use]
    pub fn and_call(mut self, name: &str, arguments: Value) -> Self {
        self.calls.push((name.to_owned(), arguments));
        self
    }

    /// Thinking before all else.
    #[must_use]
    pub fn thinking(mut self, delta: &str) -> Self {
        self.thinking.push(delta.to_owned());
        self
    }

    /// A pause after each delta of the text.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Holds after so many deltas of the text, until [`super::ModelServer::release`].
    #[must_use]
    pub fn hold_after(self, deltas: usize) -> Self {
        Self { hold_after: Some(deltas), ..self }
    }

    /// What the call is said to have cost: tokens read and written.
    #[must_use]
    pub fn usage(self, read: usize, written: usize) -> Self {
        Self { usage: Some((read, written)), ..self }
    }

    fn cost(&self) -> (usize, usize) {
        self.usage.unwrap_or((10, self.text.len() + self.thinking.len() + self.calls.len()))
    }

    /// What the order of a user message stands for:
    ///
    /// | order | answer |
    /// |---|---|
    /// | `N:<n> D:<ms>` | the words `w1` to `wn`, a pause of so many milliseconds after each |
    /// | `N:<n> D:<ms> MEDIA` | the same with a `MEDIA:` line after each tenth word, see [`media_line`] |
    /// | `TOOL <name> <json>` | this tool call; several such lines, several calls |
    /// | `FAIL:<code>`, `FAIL:<code> x<n>` | this status, always or the first n times, then `ok` |
    /// | `HOLD` | `held `, and `free` after a release |
    /// | `SAY <text>` | the text, word by word |
    /// | `LINES` | three lines in two deltas, the first of which ends a line |
    /// | `THINK` | the reasoning `because`, then `answer` |
    /// | `MEDIA <path>` | a line, a `MEDIA:` line of the path, and `after` |
    /// | results of tools | `result: ` and the last result's first line |
    /// | anything else | `ok` |
    pub fn ordered(order: &str) -> Self {
        if let Some(result) = order.strip_prefix(RESULT) {
            return Self::text(["result: ".to_owned(), result.to_owned()]);
        }
        let lines: Vec<&str> = order.lines().collect();
        let tools = lines.iter().rev().map_while(|line| tool_line(line)).collect::<Vec<_>>();
        if !tools.is_empty() {
            let calls = tools.into_iter().rev();
            return calls.fold(Self::default(), |script, (name, arguments)| script.and_call(name, arguments));
        }
        let last = lines.last().copied().unwrap_or_default();
        if last == "HOLD" {
            return Self::text(["held ", "free"]).hold_after(1);
        }
        if let Some(text) = last.strip_prefix("SAY ") {
            return Self::text(text.split_inclusive(' '));
        }
        if last == "LINES" {
            return Self::text(["first\nsecond\n", "third"]);
        }
        if last == "THINK" {
            return Self::text(["answer"]).thinking("because");
        }
        if let Some(path) = last.strip_prefix("MEDIA ") {
            return Self::text([format!("see\nMEDIA: {path}\n"), "after".to_owned()]);
        }
        if let Some((count, pause)) = last.strip_prefix("N:").and_then(|rest| rest.split_once(" D:"))
            && let (rest, media) = pause.strip_suffix(" MEDIA").map_or((pause, false), |rest| (rest, true))
            && let (Ok(count), Ok(pause)) = (count.parse::<u32>(), rest.trim().parse())
        {
            let words = (1..=count).flat_map(|n| {
                if !media || n % 10 > 0 {
                    return vec![format!("w{n} ")];
                }
                // In three deltas, so that the line is undecided for a while.
                let line = media_line(n);
                vec![format!("w{n}\n{}", &line[..3]), line[3..7].to_owned(), line[7..].to_owned()]
            });
            return Self::text(words).pause(Duration::from_millis(pause));
        }
        Self::text(["ok"])
    }

    /// The whole body for a call of this protocol, without pauses.
    pub fn bytes(&self, protocol: Protocol) -> Vec<u8> {
        self.frames(protocol).into_iter().flat_map(|(frame, _)| frame).collect()
    }

    /// Frames of this protocol, and whether each is a delta of the text.
    fn frames(&self, protocol: Protocol) -> Vec<(Bytes, bool)> {
        let frames = match protocol {
            Protocol::OpenAi => self.chat(),
            Protocol::Responses => self.responses(),
            Protocol::Anthropic => {
                self.messages().iter().map(|(event, is_text)| (sse(event), *is_text)).collect()
            }
            Protocol::Bedrock => {
                let frame = |(event, is_text): &(Value, bool)| (bedrock::event(event), *is_text);
                return self.messages().iter().map(frame).collect();
            }
        };
        frames.into_iter().map(|(frame, is_text)| (Bytes::from(frame), is_text)).collect()
    }

    /// The answer to a call of this protocol.
    pub fn reply(&self, protocol: Protocol) -> Reply {
        let mut reply = Reply::chunks([""; 0]);
        if protocol == Protocol::Bedrock {
            reply = reply.header("content-type", "application/vnd.amazon.eventstream");
        }
        let mut texts = 0;
        if self.hold_after == Some(0) {
            reply = reply.then(Step::Hold);
        }
        for (frame, is_text) in self.frames(protocol) {
            reply = reply.then(Step::Bytes(frame));
            if !is_text {
                continue;
            }
            texts += 1;
            if !self.pause.is_zero() {
                reply = reply.then(Step::Wait(self.pause));
            }
            if self.hold_after == Some(texts) {
                reply = reply.then(Step::Hold);
            }
        }
        reply
    }

    /// Frames of Chat Completions, and whether each is a delta of the text.
    fn chat(&self) -> Vec<(String, bool)> {
        let chunk = |delta: Value, finish: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            let body = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]});
            format!("data: {body}\n\n")
        };
        let mut frames = vec![(chunk(json!({"role": "assistant", "content": null}), Value::Null), false)];
        for piece in &self.thinking {
            frames.push((chunk(json!({"reasoning_content": piece}), Value::Null), false));
        }
        for piece in &self.text {
            frames.push((chunk(json!({"content": piece}), Value::Null), true));
        }
        for (index, (name, arguments)) in self.calls.iter().enumerate() {
            let arguments = arguments.to_string();
            let start = json!({"index": index, "id": call_id(index), "type": "function",
                "function": {"name": name, "arguments": ""}});
            frames.push((chunk(json!({"tool_calls": [start]}), Value::Null), false));
            let rest = json!({"index": index, "function": {"arguments": arguments}});
            frames.push((chunk(json!({"tool_calls": [rest]}), Value::Null), false));
        }
        let finish = if self.calls.is_empty() { "stop" } else { "tool_calls" };
        frames.push((chunk(json!({}), json!(finish)), false));
        let (read, written) = self.cost();
        let usage = json!({"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": written,
            "total_tokens": read + written}});
        frames.push((format!("data: {usage}\n\ndata: [DONE]\n\n"), false));
        frames
    }

    /// Events of Messages, and whether each is a delta of the text.
    fn messages(&self) -> Vec<(Value, bool)> {
        let mut frames = Vec::new();
        let (read, written) = self.cost();
        let usage = json!({"input_tokens": read, "output_tokens": 1});
        let start =
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage});
        frames.push((json!({"type": "message_start", "message": start}), false));
        frames.push((json!({"type": "ping"}), false));
        let mut index = 0;
        let mut block = |frames: &mut Vec<(Value, bool)>, start: Value, deltas: Vec<Value>, is_text: bool| {
            let begin = json!({"type": "content_block_start", "index": index, "content_block": start});
            frames.push((begin, false));
            for delta in deltas {
                let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
                frames.push((delta, is_text));
            }
            frames.push((json!({"type": "content_block_stop", "index": index}), false));
            index += 1;
        };
        if !self.thinking.is_empty() {
            let pieces =
                self.thinking.iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            let seal = json!({"type": "signature_delta", "signature": "c2VhbA=="});
            let start = json!({"type": "thinking", "thinking": "", "signature": ""});
            block(&mut frames, start, pieces.chain([seal]).collect(), false);
        }
        if !self.text.is_empty() {
            let pieces = self.text.iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            block(&mut frames, json!({"type": "text", "text": ""}), pieces.collect(), true);
        }
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let start = json!({"type": "tool_use", "id": call_id(number), "name": name, "input": {}});
            let piece = json!({"type": "input_json_delta", "partial_json": arguments.to_string()});
            block(&mut frames, start, vec![piece], false);
        }
        let stop = if self.calls.is_empty() { "end_turn" } else { "tool_use" };
        let end = json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": written}});
        frames.push((end, false));
        frames.push((json!({"type": "message_stop"}), false));
        frames
    }

    /// Frames of Responses, and whether each is a delta of the text.
    fn responses(&self) -> Vec<(String, bool)> {
        let mut frames = Vec::new();
        let mut output = Vec::new();
        let mut send = |mut body: Value, is_text: bool| {
            body["sequence_number"] = json!(frames.len());
            let kind = body["type"].as_str().unwrap_or_default();
            frames.push((format!("event: {kind}\ndata: {body}\n\n"), is_text));
        };
        let response = |status: &str, output: &[Value], usage: Value| {
            json!({"type": format!("response.{status}"), "response": {"id": "resp_1", "object": "response",
                "status": if status == "created" { "in_progress" } else { status }, "error": null,
                "incomplete_details": null, "output": output, "usage": usage}})
        };
        send(response("created", &[], Value::Null), false);
        if !self.thinking.is_empty() {
            let item = |text: Option<String>, sealed: &str| {
                let summary: Vec<Value> =
                    text.into_iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
                json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": sealed})
            };
            let event = |kind: &str, key: &str, value: Value| {
                json!({"type": format!("response.{kind}"), "item_id": "rs_1", "output_index": 0,
                    "summary_index": 0, key: value})
            };
            send(
                json!({"type": "response.output_item.added", "output_index": 0, "item": item(None, "")}),
                false,
            );
            for piece in &self.thinking {
                send(event("reasoning_summary_text.delta", "delta", json!(piece)), false);
            }
            let all = self.thinking.concat();
            send(event("reasoning_summary_text.done", "text", json!(all)), false);
            let whole = item(Some(all), "c2VhbA==");
            send(json!({"type": "response.output_item.done", "output_index": 0, "item": whole}), false);
            output.push(whole);
        }
        // A model with nothing to say still says it in a message.
        if !self.text.is_empty() || self.calls.is_empty() {
            let index = output.len();
            let item = |status: &str, content: &[Value]| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content});
            let begun = item("in_progress", &[]);
            send(json!({"type": "response.output_item.added", "output_index": index, "item": begun}), false);
            for piece in &self.text {
                let delta = json!({"type": "response.output_text.delta", "item_id": "msg_1",
                    "output_index": index, "content_index": 0, "delta": piece});
                send(delta, true);
            }
            let part = json!({"type": "output_text", "text": self.text.concat(), "annotations": []});
            let whole =
                item("completed", if self.text.is_empty() { &[] } else { std::slice::from_ref(&part) });
            send(json!({"type": "response.output_item.done", "output_index": index, "item": whole}), false);
            output.push(whole);
        }
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let (index, call) = (output.len(), call_id(number));
            let id = format!("fc_{number}");
            let item = |arguments: &str| json!({"type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments});
            let arguments = arguments.to_string();
            let begun = item("");
            send(json!({"type": "response.output_item.added", "output_index": index, "item": begun}), false);
            let delta = json!({"type": "response.function_call_arguments.delta", "item_id": id,
                "output_index": index, "delta": arguments});
            send(delta, false);
            let whole = item(&arguments);
            send(json!({"type": "response.output_item.done", "output_index": index, "item": whole}), false);
            output.push(whole);
        }
        let (read, written) = self.cost();
        let usage = json!({"input_tokens": read, "output_tokens": written, "total_tokens": read + written,
            "input_tokens_details": {"cached_tokens": 0}});
        send(response("completed", &output, usage), false);
        frames
    }
}

/// An event of Messages as SSE.
fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// The line that `N:<n> D:<ms> MEDIA` says after its n-th word.
pub fn media_line(n: u32) -> String {
    format!("MEDIA: /of/w{n}.png\n")
}

/// Unique in the whole conversation, as those of a real provider are.
fn call_id(index: usize) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("call_{}_{index}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Begins the order that stands for results of tools; no message of a person can hold it.
const RESULT: &str = "\u{0}result ";

/// What the last user message orders.
pub(super) fn last_order(protocol: Protocol, body: &Value) -> String {
    let list = if protocol == Protocol::Responses { "input" } else { "messages" };
    let Some(last) = body[list].as_array().and_then(|messages| messages.last()) else {
        return String::new();
    };
    let content = &last["content"];
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let result = match protocol {
        Protocol::OpenAi => Some(content).filter(|_| last["role"] == "tool"),
        Protocol::Anthropic | Protocol::Bedrock => {
            let results = blocks.iter().rev().find(|block| block["type"] == "tool_result");
            results.filter(|_| texts.is_empty()).map(|block| &block["content"])
        }
        Protocol::Responses => Some(&last["output"]).filter(|_| last["type"] == "function_call_output"),
    };
    if let Some(result) = result {
        let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
        return format!("{RESULT}{}", text.lines().next().unwrap_or_default());
    }
    let said = content.as_str().map_or_else(|| texts.join("\n"), str::to_owned);
    said.lines().map(without_stamp).collect::<Vec<_>>().join("\n")
}

/// The refusal that an order asks for, unless it was given as often as it says.
pub(super) fn failure(order: &str, times: u32) -> Option<Reply> {
    let rest = order.lines().last()?.strip_prefix("FAIL:")?;
    let (code, limit) = match rest.split_once(" x") {
        Some((code, limit)) => (code, limit.trim().parse().ok()?),
        None => (rest, u32::MAX),
    };
    let code: u16 = code.trim().parse().ok()?;
    let body = json!({"error": {"type": "ordered", "message": "refused as ordered"}});
    (times < limit).then(|| Reply::status(code, &body.to_string()))
}

fn tool_line(line: &str) -> Option<(&str, Value)> {
    let (name, arguments) = line.strip_prefix("TOOL ")?.split_once(' ')?;
    Some((name, serde_json::from_str(arguments).ok()?))
}

/// A line without the `[<time>] ` that the server puts before what a person said.
fn without_stamp(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
        Some((stamp, rest)) if stamp.contains('T') && stamp.starts_with(|c: char| c.is_ascii_digit()) => rest,
        _ => line,
    }
}
