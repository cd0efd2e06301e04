//! What a provider's error means for us: HTTP status, structured codes and, last, the words of the body to an
//! [`ErrorKind`]. Structure goes before words: a known status other than 401, 402 and 403 is never the account.
//! What is done about an error is the agent floor's.

use super::{ErrorKind, ModelError};
use crate::clock::Clock;
use crate::text;
use http::HeaderMap;
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};

/// How many characters of a provider's error body a message shows.
const MAX_BODY_CHARS: usize = 2000;

/// The longest wait that we believe a provider (a day).
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

const OVERFLOW: &[&str] = &[
    "too many input tokens",
    "prompt_too_long",
    "prompt is too long",
    "contextwindowoverflow",
    "contextwindowexceeded",
    "context_length_exceeded",
    "maximum context length",
    "exceeds the context window",
    "exceed context limit",
    "exceeds the available context size",
    "input is too long",
    "request_too_large",
];
const ACCOUNT: &[&str] = &[
    "insufficient balance",
    "insufficient_quota",
    "suspended",
    "invalid key",
    "invalid api key",
    "invalid_api_key",
    "invalid x-api-key",
    "unauthorized",
    "authentication",
    "permission_error",
    "billing_error",
];
const THROTTLE: &[&str] = &["throttl", "rate limit", "rate_limit", "too many requests"];
const SERVER: &[&str] = &[
    "internalserverexception",
    "modeltimeoutexception",
    "modelstreamerrorexception",
    "serviceunavailableexception",
    "overloaded",
    "api_error",
    "server_error",
    "internal_error",
    "timeout_error",
    "service_unavailable",
];
const CORRUPTED: &[&str] = &[
    "without `tool_result`",
    "unexpected `tool_use_id`",
    "must be followed by tool messages",
    "did not have response messages",
    "must be a response to a preceding message with 'tool_calls'",
    "must be a response to a preceeding message with 'tool_calls'",
    "no tool output found for function call",
    "no tool call found for function call output",
];
const BAD_IMAGE: &[&str] = &[
    "multimodal data is corrupted",
    "could not process image",
    "invalid_image",
    "image_parse_error",
    "invalid_base64_image",
    "unsupported_image_media_type",
    "empty_image_file",
    "image_file_too_large",
];

/// An answer with a status other than 2xx. `body` is what came of it, as text.
pub(super) fn from_response(status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
    let parsed = serde_json::from_str::<Value>(body).ok();
    let codes = parsed.as_ref().map(codes).unwrap_or_default();
    ModelError {
        kind: classify(Some(status), &codes, body),
        status: Some(status),
        message: format!("API error {status}: {}", shown(body)),
        retry_after,
        fault: None,
    }
}

/// An error object within a stream that began well. Some providers put the status that they meant into it.
pub(super) fn from_stream(error: &Value) -> ModelError {
    let codes = codes(error);
    let status = codes.iter().find_map(|code| code.parse::<u16>().ok().filter(|n| (400..600).contains(n)));
    let body = error.to_string();
    let what = status.map_or_else(|| "API error in the stream".to_owned(), |n| format!("API error {n}"));
    ModelError {
        kind: classify(status, &codes, &body),
        status,
        message: format!("{what}: {}", shown(&body)),
        retry_after: None,
        fault: None,
    }
}

/// The kind of an error whose code and words are apart.
#[cfg(feature = "bedrock")]
pub(super) fn kind_of(status: Option<u16>, code: &str, message: &str) -> ErrorKind {
    classify(status, &[code.to_ascii_lowercase()], message)
}

/// An error of our own finding, without a status.
pub(super) fn plain(kind: ErrorKind, message: impl Into<String>) -> ModelError {
    ModelError { kind, status: None, message: message.into(), retry_after: None, fault: None }
}

/// How long the headers ask to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap, clock: &dyn Clock) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
    let millis =
        text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()).and_then(|ms| seconds(ms / 1e3));
    let wait = millis.or_else(|| {
        let value = text("retry-after")?;
        if let Ok(number) = value.parse::<f64>() {
            return seconds(number);
        }
        let due = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(due.saturating_sub(Duration::from_millis(clock.now_ms().unsigned_abs())))
    })?;
    Some(wait.min(MAX_RETRY_AFTER))
}

fn shown(body: &str) -> String {
    let body = body.trim();
    match body {
        "" => "(no text)".to_owned(),
        _ => text::head_chars(body, MAX_BODY_CHARS).to_owned(),
    }
}

/// The values of `type`, `code`, `status` and their like, at the places where providers put them.
fn codes(value: &Value) -> Vec<String> {
    let mut places = vec![value];
    for key in ["error", "response"] {
        places.extend(value.get(key));
    }
    if let Some(inner) = value.pointer("/response/error") {
        places.push(inner);
    }
    let mut found = Vec::new();
    for place in places {
        for key in ["code", "type", "status", "__type", "error_type"] {
            match place.get(key) {
                Some(Value::String(code)) => found.push(code.to_ascii_lowercase()),
                Some(Value::Number(code)) => found.push(code.to_string()),
                _ => {}
            }
        }
    }
    found
}

fn classify(status: Option<u16>, codes: &[String], body: &str) -> ErrorKind {
    let lower = body.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let coded = |words: &[&str]| codes.iter().any(|code| words.iter().any(|word| code.contains(word)));
    match status {
        Some(401..=403) => return ErrorKind::Account,
        Some(429) => return ErrorKind::Throttle,
        Some(413) => return ErrorKind::ContextOverflow,
        // Gateways wrap the refusals of the model behind them into a 500; to repeat those is of no use.
        Some(500..) if says(OVERFLOW) => return ErrorKind::ContextOverflow,
        Some(408 | 500..) => return ErrorKind::Server,
        _ => {}
    }
    if says(OVERFLOW) {
        return ErrorKind::ContextOverflow;
    }
    if status.is_none() {
        // A code decides before any word of the message does.
        for (words, kind) in
            [(ACCOUNT, ErrorKind::Account), (THROTTLE, ErrorKind::Throttle), (SERVER, ErrorKind::Server)]
        {
            if coded(words) {
                return kind;
            }
        }
    }
    if says(CORRUPTED) {
        ErrorKind::Corrupted
    } else if says(BAD_IMAGE) || codes.iter().any(|code| code == "1210") {
        ErrorKind::BadImage
    } else if status.is_none() && says(ACCOUNT) {
        ErrorKind::Account
    } else if says(THROTTLE) {
        ErrorKind::Throttle
    } else if coded(SERVER) || says(&SERVER[..4]) {
        ErrorKind::Server
    } else {
        ErrorKind::Fatal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{Account, BadImage, ContextOverflow, Corrupted, Fatal, Server, Throttle};
    use rstest::rstest;

    #[rstest]
    #[case(400, "prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow)]
    #[case(400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, ContextOverflow)]
    #[case(400, "Input is too long for requested model.", ContextOverflow)]
    #[case(500, "litellm.ContextWindowExceededError", ContextOverflow)]
    #[case(413, r#"{"error":{"type":"request_too_large"}}"#, ContextOverflow)]
    #[case(401, "", Account)]
    #[case(402, "Insufficient Balance", Account)]
    #[case(403, "rate limit", Account)]
    #[case(429, "authentication of this key is suspended", Throttle)]
    #[case(400, "ThrottlingException: slow down", Throttle)]
    #[case(500, "unauthorized", Server)]
    #[case(503, "", Server)]
    #[case(529, r#"{"error":{"type":"overloaded_error"}}"#, Server)]
    #[case(408, "", Server)]
    #[case(524, "<html>", Server)]
    #[case(400, "invalid api key, authentication failed", Fatal)]
    #[case(404, "model not found; unauthorized", Fatal)]
    #[case(
        400,
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: x",
        Corrupted
    )]
    #[case(
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding",
        Corrupted
    )]
    #[case(400, "Could not process image", BadImage)]
    #[case(400, r#"{"error":{"code":"1210","message":"parameter"}}"#, BadImage)]
    #[case(302, "", Fatal)]
    fn a_status_goes_before_the_words(#[case] status: u16, #[case] body: &str, #[case] kind: ErrorKind) {
        assert_eq!(from_response(status, body, None).kind, kind);
    }

    #[rstest]
    #[case(r#"{"type":"overloaded_error","message":"Overloaded"}"#, Server, None)]
    #[case(r#"{"type":"rate_limit_error","message":"x"}"#, Throttle, None)]
    #[case(r#"{"type":"authentication_error","message":"x"}"#, Account, None)]
    #[case(r#"{"type":"api_error","message":"the authentication service is down"}"#, Server, None)]
    #[case(r#"{"type":"invalid_request_error","message":"prompt is too long"}"#, ContextOverflow, None)]
    #[case(r#"{"type":"invalid_request_error","message":"no"}"#, Fatal, None)]
    #[case(r#"{"code":429,"message":"x"}"#, Throttle, Some(429))]
    #[case(r#"{"code":502,"message":"unauthorized upstream"}"#, Server, Some(502))]
    #[case(r#""Insufficient balance""#, Account, None)]
    #[case(r#"{"message":"odd"}"#, Fatal, None)]
    fn an_error_in_the_stream_is_classified(
        #[case] error: &str,
        #[case] kind: ErrorKind,
        #[case] status: Option<u16>,
    ) {
        let found = from_stream(&serde_json::from_str(error).unwrap());
        assert_eq!((found.kind, found.status), (kind, status));
    }

    #[test]
    fn a_long_body_is_cut() {
        let error = from_response(400, &"ä".repeat(5000), None);
        assert_eq!(error.message, format!("API error 400: {}", "ä".repeat(2000)));
    }

    struct At(i64);
    impl Clock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }
    }

    #[rstest]
    #[case("retry-after", "7", Some(7_000))]
    #[case("retry-after", "1.5", Some(1_500))]
    #[case("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Some(10_000))]
    #[case("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", Some(0))]
    #[case("retry-after-ms", "250", Some(250))]
    #[case("retry-after", "-3", None)]
    #[case("retry-after", "soon", None)]
    #[case("retry-after", "1e300", None)]
    #[case("retry-after", "99999999", Some(86_400_000))]
    fn a_wait_is_read_in_seconds_or_as_a_date(
        #[case] name: &'static str,
        #[case] value: &str,
        #[case] millis: Option<u64>,
    ) {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        assert_eq!(retry_after(&headers, &At(784_111_767_000)), millis.map(Duration::from_millis));
    }
}
