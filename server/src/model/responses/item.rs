//! Items of an output while they are put together: what the wire says of one, which one a piece belongs to, and
//! how a whole item completes its pieces. When an item counts is the fold's business.

use crate::model::Event;
use crate::model::calls::Fragments;
use serde_json::Value;
use std::mem;

/// One item of the output, as far as it is known.
pub(super) struct Item {
    /// Its place in the output, as the provider says.
    pub index: Option<u64>,
    /// Empty where the provider gave none.
    pub id: String,
    /// Whether the item was reported as done.
    pub done: bool,
    /// The paragraph of the reasoning to which its last piece belonged.
    pub paragraph: Option<u64>,
    /// What it holds.
    pub part: Part,
}

/// What an item holds.
pub(super) enum Part {
    /// What the model says, or why it does not.
    Message { text: String, refusal: String },
    /// Reasoning, with the provider's seal.
    Reasoning { text: String, sealed: String },
    /// A tool call.
    Call(Fragments),
    /// A kind of item that we did not ask for.
    Other,
}

impl Part {
    pub(super) const fn message() -> Self {
        Self::Message { text: String::new(), refusal: String::new() }
    }

    pub(super) const fn reasoning() -> Self {
        Self::Reasoning { text: String::new(), sealed: String::new() }
    }

    pub(super) fn call() -> Self {
        Self::Call(Fragments::default())
    }

    /// An item of the wire.
    pub(super) fn read(item: &Value) -> Self {
        let field = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                let content = item.get("content");
                Self::Message { text: texts(content, "text", ""), refusal: texts(content, "refusal", "") }
            }
            Some("reasoning") => {
                let summary = texts(item.get("summary"), "text", "\n\n");
                let text =
                    if summary.is_empty() { texts(item.get("content"), "text", "\n\n") } else { summary };
                Self::Reasoning { text, sealed: field("encrypted_content") }
            }
            Some("function_call") => Self::Call(Fragments {
                id: field("call_id"),
                name: field("name"),
                arguments: arguments(item.get("arguments")),
            }),
            _ => Self::Other,
        }
    }

    /// Whether both may be the same item: of one kind, and for calls nothing that tells them apart.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        match (self, other) {
            (Self::Call(a), Self::Call(b)) => agree(&a.id, &b.id) && agree(&a.name, &b.name),
            _ => mem::discriminant(self) == mem::discriminant(other),
        }
    }

    /// Takes over what the whole item says; a watcher gets what was missing.
    pub(super) fn complete(&mut self, whole: Self, out: &mut Vec<Event>) {
        match (self, whole) {
            (Self::Message { text, refusal }, Self::Message { text: all, refusal: reason }) => {
                extend(text, all, Event::Text, out);
                replace(refusal, reason);
            }
            (Self::Reasoning { text, sealed }, Self::Reasoning { text: all, sealed: seal }) => {
                extend(text, all, Event::Thinking, out);
                replace(sealed, seal);
            }
            (Self::Call(known), Self::Call(whole)) => {
                replace(&mut known.id, whole.id);
                replace(&mut known.name, whole.name);
                replace(&mut known.arguments, whole.arguments);
            }
            _ => {}
        }
    }
}

pub(super) fn replace(known: &mut String, whole: String) {
    if !whole.is_empty() {
        *known = whole;
    }
}

fn extend(known: &mut String, whole: String, event: fn(String) -> Event, out: &mut Vec<Event>) {
    if let Some(rest) = whole.strip_prefix(known.as_str()).filter(|rest| !rest.is_empty()) {
        out.push(event(rest.to_owned()));
    }
    replace(known, whole);
}

/// The texts of a list of parts, or the text itself where there are no parts.
fn texts(parts: Option<&Value>, key: &str, between: &str) -> String {
    match parts {
        Some(Value::String(text)) if key == "text" => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get(key).and_then(Value::as_str));
            texts.collect::<Vec<_>>().join(between)
        }
        _ => String::new(),
    }
}

/// Arguments are JSON text; some servers send the object itself.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Id and index together name an item, then the id alone, then the index alone: some servers give every event
/// another id, others give every item the same index.
pub(super) fn locate(
    items: &[Item],
    index: Option<u64>,
    id: &str,
    may_be: impl Fn(&Item) -> bool,
) -> Option<usize> {
    let last = |test: &dyn Fn(&Item) -> bool| items.iter().rposition(|item| may_be(item) && test(item));
    let same_id = |item: &Item| !id.is_empty() && item.id == id;
    let same_index = |item: &Item| index.is_some() && item.index == index;
    last(&|item| same_id(item) && same_index(item)).or_else(|| last(&same_id)).or_else(|| last(&same_index))
}

pub(super) fn id_of(item: &Value) -> &str {
    item.get("id").and_then(Value::as_str).unwrap_or_default()
}
