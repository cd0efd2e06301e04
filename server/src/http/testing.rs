//! What the tests of this floor share.

use crate::session::Engine;
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;

/// The whole body as text.
pub async fn text_of(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The `data:` of every frame of an event stream.
pub fn frames(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// An engine that no test of this floor gets as far as asking.
pub fn engine() -> Engine {
    Engine
}
