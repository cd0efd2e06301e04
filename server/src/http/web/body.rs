//! Bodies: read within bounds, and taken apart field by field, so that a refusal can name the field. A POST
//! without a body is an object without fields.

use crate::http::error::ApiError;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// The longest body: bytes.
pub const MAX_BODY: usize = 24 * 1024 * 1024;
/// How long nothing may come of a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// What is read and thrown away of a body that is too long, so that a client that sends first and reads later
/// gets to see the answer: bytes, and time in all.
const MAX_DRAIN: usize = 64 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A body of at most [`MAX_BODY`] bytes that is JSON by its own account, or nothing. Taken after the
/// [`Caller`](crate::http::auth::token::Caller), so that a stranger's body is never read.
pub struct JsonBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read_json(request, MAX_BODY).await.map(Self)
    }
}

/// The body of the request as [`JsonBody`] takes it, of at most `max` bytes.
pub async fn read_json(request: Request, max: usize) -> Result<Bytes, ApiError> {
    let json = is_json(request.headers());
    let announced = announced_length(request.headers());
    if announced.is_some_and(|length| length > max as u64) && request.headers().contains_key(header::EXPECT) {
        // This client waits for leave to send: it gets the answer, and no leave.
        return Err(ApiError::BodyTooLarge);
    }
    read(request.into_body(), json, announced, max).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let kind = value.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn read(mut body: Body, json: bool, announced: Option<u64>, max: usize) -> Result<Bytes, ApiError> {
    if !json && announced.is_some_and(|length| length > 0) {
        return Err(ApiError::UnsupportedMediaType);
    }
    if announced.is_some_and(|length| length > max as u64) {
        return refuse_too_large(body);
    }
    let mut whole = BytesMut::new();
    loop {
        let next = tokio::time::timeout(BODY_PAUSE, body.frame()).await.map_err(|_| ApiError::BodyTimeout)?;
        let Some(frame) = next else { return Ok(whole.freeze()) };
        let Ok(data) = frame.map_err(|_| ApiError::BodyUnreadable)?.into_data() else { continue };
        if !json && !data.is_empty() {
            return Err(ApiError::UnsupportedMediaType);
        }
        if whole.len() + data.len() > max {
            return refuse_too_large(body);
        }
        whole.extend_from_slice(&data);
    }
}

/// Refuses; what still comes is thrown away beside the answer, for a while.
fn refuse_too_large<T>(mut body: Body) -> Result<T, ApiError> {
    tokio::spawn(tokio::time::timeout(DRAIN_TIME, async move {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > MAX_DRAIN {
                break;
            }
        }
    }));
    Err(ApiError::BodyTooLarge)
}

/// The known fields of a JSON object, each still as JSON text. Unknown fields are ignored; of a repeated one the
/// last counts.
pub struct Fields<'a> {
    names: &'static [&'static str],
    values: Vec<Option<&'a RawValue>>,
    /// What field names in errors start with.
    path: String,
}

impl<'a> Fields<'a> {
    /// Takes a whole body apart; `None` when it is no JSON object. No bytes at all are an empty object.
    pub fn of_body(body: &'a [u8], names: &'static [&'static str]) -> Option<Self> {
        if body.is_empty() {
            return Some(Self { names, values: vec![None; names.len()], path: String::new() });
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let values = Known(names).deserialize(&mut json).ok()?;
        json.end().ok()?;
        Some(Self { names, values, path: String::new() })
    }

    /// Takes an object inside a body apart. `path` is what the object is called in errors.
    pub fn of_value(
        value: &'a RawValue,
        names: &'static [&'static str],
        path: String,
    ) -> Result<Self, ApiError> {
        let mut json = serde_json::Deserializer::from_str(value.get());
        match Known(names).deserialize(&mut json) {
            Ok(values) => Ok(Self { names, values, path: format!("{path}.") }),
            Err(_) => Err(ApiError::WrongType { field: path, expected: "an object" }),
        }
    }

    /// The field's value; `None` when it is missing or null. `expected` is what the error says of another type.
    pub fn get<T: Deserialize<'a>>(&self, name: &str, expected: &'static str) -> Result<Option<T>, ApiError> {
        let value = self.names.iter().position(|known| *known == name).and_then(|at| self.values[at]);
        let Some(value) = value else { return Ok(None) };
        serde_json::from_str(value.get())
            .map_err(|_| ApiError::WrongType { field: format!("{}{name}", self.path), expected })
    }

    /// A text field.
    pub fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        self.get(name, "a string")
    }
}

struct Known(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = Vec<Option<&'de RawValue>>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Known {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.len()];
        while let Some(key) = map.next_key::<String>()? {
            match self.0.iter().position(|name| *name == key) {
                Some(at) => values[at] = Some(map.next_value::<&RawValue>()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use rstest::rstest;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NAMES: &[&str] = &["message", "sessionId"];

    #[rstest]
    #[case("{bad")]
    #[case("[]")]
    #[case("\"text\"")]
    #[case("null")]
    #[case("{} {}")]
    #[case("{\"message\": \"cut")]
    fn what_is_no_json_object_is_told_apart(#[case] body: &str) {
        assert!(Fields::of_body(body.as_bytes(), NAMES).is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_no_json() {
        assert!(Fields::of_body(b"{\"message\": \"\xff\"}", NAMES).is_none());
    }

    #[test]
    fn a_wrong_type_names_the_field_and_what_belongs_there() {
        let fields = Fields::of_body(br#"{"message": 5, "sessionId": null}"#, NAMES).unwrap();
        assert_eq!(fields.text("message").unwrap_err().to_string(), "message must be a string");
        assert_eq!(fields.text("sessionId"), Ok(None));
    }

    #[test]
    fn of_a_repeated_field_the_last_counts_and_unknown_ones_are_ignored() {
        let body = br#"{"message": 1, "x": {"message": [2]}, "message": "m"}"#;
        assert_eq!(Fields::of_body(body, NAMES).unwrap().text("message"), Ok(Some("m".into())));
    }

    #[test]
    fn deep_nesting_is_refused_or_ignored_but_never_overflows() {
        let deep = format!("{{\"x\": {}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let _ = Fields::of_body(deep.as_bytes(), NAMES);
    }

    #[rstest]
    #[case("application/json", true)]
    #[case("Application/JSON; charset=utf-8", true)]
    #[case("text/plain", false)]
    #[case("application/x-www-form-urlencoded", false)]
    #[case("multipart/form-data; boundary=application/json", false)]
    fn only_json_is_json(#[case] value: &str, #[case] expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
        assert_eq!(is_json(&headers), expected);
    }

    #[tokio::test]
    async fn a_body_that_lies_about_its_length_is_cut_at_the_limit() {
        const PIECE: usize = 1024 * 1024;
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = sent.clone();
        let piece = Bytes::from(vec![b' '; PIECE]);
        let endless = stream::repeat_with(move || {
            counter.fetch_add(PIECE, Ordering::SeqCst);
            Ok::<_, Infallible>(piece.clone())
        });
        let refused = read(Body::from_stream(endless), true, None, MAX_BODY).await;
        assert_eq!(refused, Err(ApiError::BodyTooLarge));
        assert!(sent.load(Ordering::SeqCst) <= MAX_BODY + 2 * PIECE);
    }

    #[tokio::test]
    async fn a_body_of_exactly_the_limit_is_taken() {
        let body = Body::from(vec![b' '; MAX_BODY]);
        assert_eq!(read(body, true, Some(MAX_BODY as u64), MAX_BODY).await.unwrap().len(), MAX_BODY);
    }

    #[tokio::test]
    async fn no_body_needs_no_type_but_a_chunked_one_does() {
        assert_eq!(read(Body::empty(), false, None, MAX_BODY).await, Ok(Bytes::new()));
        let chunked = Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{}"))]));
        assert_eq!(read(chunked, false, None, MAX_BODY).await, Err(ApiError::UnsupportedMediaType));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_given_up() {
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert_eq!(read(silent, true, Some(10), MAX_BODY).await, Err(ApiError::BodyTimeout));
    }
}
