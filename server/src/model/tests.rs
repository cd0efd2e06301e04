//! What holds for the folds of every provider, tried without a network: the cuts of the network do not matter,
//! and junk is an error, never a panic.

use super::transport::Reader;
use super::{Completion, Event, ModelError, anthropic, openai, responses};
use bytes::Bytes;
use proptest::prelude::*;
use std::fmt::Write;

const CHAT: &str = concat!(
    ": comment ä\n\n",
    "data:{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm 🦀\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"größer\"}}]}\r\r",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"p\\\":\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"é\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n",
    "data: [DONE]\n\n",
);

const MESSAGES: &str = concat!(
    "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\r\n\r\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
    "data:{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm 🦀\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s1\"}}\r\r",
    "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"p\\\":\\\"é\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"}\"}}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":7}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const RESPONSES: &str = concat!(
    "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"output\":[]}}\r\n\r\n",
    "data:{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[]}}\n\n",
    "data: {\"type\":\"response.reasoning_summary_text.delta\",\"item_id\":\"rs\",\"output_index\":0,\"summary_index\":0,\"delta\":\"hm 🦀\"}\r\r",
    "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg\",\"output_index\":1,\"content_index\":0,\"delta\":\"größer\"}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc\",\"output_index\":2,\"delta\":\"{\\\"p\\\":\"}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc\",\"output_index\":2,\"delta\":\"\\\"é\\\"}\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\\\"p\\\":\\\"é\\\"}\"}}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm 🦀\"}],\"encrypted_content\":\"s\"},",
    "{\"type\":\"message\",\"id\":\"msg\",\"content\":[{\"type\":\"output_text\",\"text\":\"größer\"}]},",
    "{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\\\"p\\\":\\\"é\\\"}\"}],\"usage\":{\"input_tokens\":9,\"output_tokens\":4}},\"end\":0}\n\n",
);

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Chat,
    Messages,
    Responses,
}

const KINDS: [Kind; 3] = [Kind::Chat, Kind::Messages, Kind::Responses];

/// The text and thinking that a watcher saw, and the end.
type Outcome = Result<(String, Completion), ModelError>;

fn fold(kind: Kind, chunks: &[&[u8]]) -> Outcome {
    match kind {
        Kind::Chat => read(Reader::new(openai::ChatFold::new(false)), chunks),
        Kind::Messages => read(Reader::new(anthropic::MessagesFold::new(false)), chunks),
        Kind::Responses => read(Reader::new(responses::ResponsesFold::new("p".into(), false)), chunks),
    }
}

fn read<F: super::transport::Fold>(mut reader: Reader<F>, chunks: &[&[u8]]) -> Outcome {
    let mut events = Vec::new();
    for chunk in chunks {
        reader.push(Bytes::copy_from_slice(chunk), &mut events)?;
        if reader.closed() {
            break;
        }
    }
    reader.end(&mut events)?;
    let Some(Event::Done(completion)) = events.pop() else { panic!("no end: {events:?}") };
    let seen = events.iter().map(|event| match event {
        Event::Text(text) | Event::Thinking(text) => text.as_str(),
        _ => "",
    });
    Ok((seen.collect(), completion))
}

fn sample(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Chat => CHAT.as_bytes(),
        Kind::Messages => MESSAGES.as_bytes(),
        Kind::Responses => RESPONSES.as_bytes(),
    }
}

#[test]
fn a_stream_that_is_cut_at_any_byte_gives_the_same_completion() {
    for kind in KINDS {
        let bytes = sample(kind);
        let whole = fold(kind, &[bytes]).unwrap();
        assert_eq!(whole.1.content.last().unwrap(), &call(kind));
        for cut in 0..=bytes.len() {
            assert_eq!(fold(kind, &[&bytes[..cut], &bytes[cut..]]), Ok(whole.clone()), "at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(fold(kind, &single), Ok(whole));
    }
}

#[test]
fn a_stream_that_ends_early_never_gives_a_tool_call() {
    for kind in KINDS {
        let bytes = sample(kind);
        // Up to the closing event (Messages, Responses) or the finish reason (Chat) every prefix is a failure.
        let closing: &[u8] = match kind {
            Kind::Chat => b"\"tool_calls\"}]}",
            Kind::Messages => b"\"message_stop\"}",
            Kind::Responses => b"\"end\":0}",
        };
        let end = bytes.windows(closing.len()).position(|window| window == closing).unwrap() + closing.len();
        for cut in 0..end - 1 {
            assert!(fold(kind, &[&bytes[..cut]]).is_err(), "{kind:?} cut at {cut}");
        }
    }
}

fn call(kind: Kind) -> super::Block {
    let id = match kind {
        Kind::Chat => "a",
        Kind::Messages => "t",
        Kind::Responses => "c",
    };
    let input = serde_json::Map::from_iter([("p".to_owned(), "é".into())]);
    super::Block::ToolUse { id: id.into(), name: "f".into(), input }
}

proptest! {
    #[test]
    fn junk_is_an_error_and_never_a_panic(kind in prop::sample::select(&KINDS[..]), chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        prop_assert!(fold(kind, &chunks).is_err());
    }

    #[test]
    fn a_damaged_stream_never_panics(kind in prop::sample::select(&KINDS[..]), at in any::<prop::sample::Index>(), byte: u8, gone in 0usize..30) {
        let mut bytes = sample(kind).to_vec();
        let at = at.index(bytes.len());
        bytes.splice(at..(at + gone).min(bytes.len()), [byte]);
        let _ = fold(kind, &[&bytes]);
    }

    #[test]
    fn every_id_of_a_completion_is_unique(calls in prop::collection::vec(("[ab]?", "[fg]?", 0u64..3, "(\\{\\}|\\{\"x\":1\\}|\\{)?"), 1..8)) {
        let mut body = String::new();
        for (id, name, index, arguments) in calls {
            let call = serde_json::json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
            let chunk = serde_json::json!({"choices": [{"delta": {"tool_calls": [call]}}]});
            writeln!(body, "data: {chunk}\n").unwrap();
        }
        body.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
        let (_, completion) = fold(Kind::Chat, &[body.as_bytes()]).unwrap();
        let ids: Vec<_> = completion.content.iter().filter_map(|block| match block {
            super::Block::ToolUse { id, name, .. } => { assert!(!name.is_empty()); Some(id) }
            _ => None,
        }).collect();
        let unique: std::collections::HashSet<_> = ids.iter().collect();
        prop_assert_eq!(unique.len(), ids.len());
        prop_assert!(!ids.iter().any(|id| id.is_empty()));
    }
}
