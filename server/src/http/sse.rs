//! Server-sent events: the answer's headers, and the few frames that a surface writes itself. Frames of a run,
//! keepalives and the terminal frame come ready-made from the session floor.

use crate::session::ids::{EventId, SessionId};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use std::convert::Infallible;

/// An event stream of the given pieces. It ends when the pieces end; a client that leaves drops it.
pub fn response(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    answer(Body::from_stream(pieces.map(Ok::<_, Infallible>)))
}

/// An event stream that is complete already.
pub fn ended(pieces: &[Bytes]) -> Response {
    answer(Body::from(pieces.concat()))
}

fn answer(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // no-transform: a proxy that compresses would hold frames back.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// The first frame of chat and subscribe: which session this is.
pub fn session(id: &SessionId) -> Bytes {
    frame(&json!({ "type": "session", "sessionId": id.as_str() }))
}

/// A refusal inside a stream; the last frame.
pub fn error(text: &str) -> Bytes {
    frame(&json!({ "type": "error", "error": text }))
}

/// What the server itself says.
pub fn stream(text: &str) -> Bytes {
    frame(&json!({ "type": "stream", "text": text }))
}

/// The client is in another session from now on.
pub fn switch(id: &SessionId) -> Bytes {
    frame(&json!({ "type": "switch", "sessionId": id.as_str() }))
}

/// The end of a stream that had nothing to say.
pub fn complete() -> Bytes {
    frame(&json!({ "type": "complete" }))
}

/// The message waits behind a run; `at` is the place to follow that run from.
pub fn queued(at: &EventId) -> Bytes {
    let mut bytes = format!("id: {at}\n").into_bytes();
    bytes.extend_from_slice(&frame(&json!({ "type": "queued" })));
    bytes.into()
}

fn frame(payload: &Value) -> Bytes {
    format!("data: {payload}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line_of_json_whatever_the_text_holds() {
        let bytes = error("two\nlines\r\n\u{2028}\"quoted\"");
        let text = std::str::from_utf8(&bytes).unwrap();
        let line = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        let back: Value = serde_json::from_str(line).unwrap();
        assert_eq!(back["error"], "two\nlines\r\n\u{2028}\"quoted\"");
    }

    #[test]
    fn queued_carries_the_place_to_resume_from() {
        let at = EventId { run: "abc".into(), seq: 7 };
        assert_eq!(queued(&at), "id: abc.7\ndata: {\"type\":\"queued\"}\n\n");
    }
}
