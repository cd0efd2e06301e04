//! Bedrock's side of the wire: event stream frames with Messages events or exceptions in them, and what a request says of
//! who signed it.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// A frame with one event of the Messages protocol.
pub fn event(event: &Value) -> Bytes {
    let payload = json!({"bytes": STANDARD.encode(event.to_string()), "p": "abcdefgh"});
    frame("event", ":event-type", "chunk", &payload)
}

/// A frame that ends the stream with an exception, such as `throttlingException`.
pub fn exception(name: &str, message: &str) -> Bytes {
    frame("exception", ":exception-type", name, &json!({"message": message}))
}

fn frame(kind: &str, name: &'static str, value: &str, payload: &Value) -> Bytes {
    let text =
        |name: &'static str, value: &str| Header::new(name, HeaderValue::String(value.to_owned().into()));
    let message = Message::new(Bytes::from(payload.to_string()))
        .add_header(text(":message-type", kind))
        .add_header(text(name, value))
        .add_header(text(":content-type", "application/json"));
    let mut bytes = Vec::new();
    write_message_to(&message, &mut bytes).expect("a frame of this size");
    bytes.into()
}

/// Who signed a request, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The access key's id.
    pub key: String,
    /// The region.
    pub region: String,
    /// The service.
    pub service: String,
    /// The session's token, where there was one.
    pub token: Option<String>,
}

/// What the signature of a request says; none: it is not signed.
pub fn signed(headers: &HeaderMap) -> Option<Signed> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let rest = text("authorization")?.strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
    let (scope, rest) = rest.split_once(',')?;
    rest.contains("SignedHeaders=").then_some(())?;
    let signature = rest.split_once("Signature=")?.1;
    (signature.len() == 64 && text("x-amz-date")?.len() == 16).then_some(())?;
    let parts: Vec<&str> = scope.split('/').collect();
    let [key, _day, region, service, "aws4_request"] = parts[..] else { return None };
    Some(Signed {
        key: key.to_owned(),
        region: region.to_owned(),
        service: service.to_owned(),
        token: text("x-amz-security-token").map(str::to_owned),
    })
}
