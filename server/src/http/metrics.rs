//! `GET /api/metrics`: gauges as Prometheus text, for `full` and `observer` tokens. Asking makes nothing and opens
//! nothing. Refusals are comment lines, so that a scraper shows them as they are.

use super::AppState;
use super::error::ApiError;
use crate::access::AccountLevel;
use crate::session::Census;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::fmt::{Display, Write};

/// The exposition format, version 0.0.4.
const TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The gauges of this moment.
pub async fn metrics(State(state): State<AppState>, parts: Parts) -> Result<Response, Refusal> {
    let caller = state.gate.admit(&parts).await?;
    if !matches!(caller.level, AccountLevel::Full | AccountLevel::Observer) {
        return Err(ApiError::GlobalTokenRequired.into());
    }
    let text = exposition(state.uptime(), &state.engine.census().await);
    Ok(([(CONTENT_TYPE, TYPE)], text).into_response())
}

/// A refusal as a comment.
#[derive(Debug)]
pub struct Refusal(ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = match &self.0 {
            ApiError::LockedOut { .. } => "# too many failed attempts\n".to_owned(),
            other => format!("# {other}\n"),
        };
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        parts.headers.insert(header::CONTENT_LENGTH, text.len().into());
        Response::from_parts(parts, text.into())
    }
}

fn exposition(uptime: f64, census: &Census) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, samples: &[(&str, &dyn Display)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    gauge("halo_uptime_seconds", "Seconds since the server started.", &[("", &uptime)]);
    gauge("halo_workspaces", "Workspaces that the server has open.", &[("", &census.workspaces)]);
    gauge(
        "halo_sessions",
        "Sessions by status, archived ones left out.",
        &[
            ("{status=\"running\"}", &census.running),
            ("{status=\"idle\"}", &census.idle),
            ("{status=\"stopped\"}", &census.stopped),
        ],
    );
    let total = census.running + census.idle + census.stopped;
    gauge("halo_sessions_total", "Sessions, archived ones left out.", &[("", &total)]);
    gauge(
        "halo_context_tokens",
        "Tokens in the contexts of these sessions after their last model calls.",
        &[("", &census.context_tokens)],
    );
    gauge("halo_output_tokens", "Tokens that these sessions had written.", &[("", &census.output_tokens)]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::text_of;

    #[test]
    fn the_gauges_are_prometheus_text() {
        let census = Census {
            workspaces: 2,
            running: 1,
            idle: 3,
            stopped: 1,
            context_tokens: 1200,
            output_tokens: 340,
        };
        insta::assert_snapshot!(exposition(61.5, &census));
    }

    #[tokio::test]
    async fn a_refusal_is_a_comment_with_its_status() {
        for (error, status, text) in [
            (ApiError::LockedOut { retry_after: 900 }, 429, "# too many failed attempts\n"),
            (ApiError::TokenRequired, 401, "# token required\n"),
            (ApiError::InvalidToken, 401, "# invalid token\n"),
            (ApiError::GlobalTokenRequired, 403, "# global-scope token (full or observer) required\n"),
        ] {
            let response = Refusal(error.clone()).into_response();
            assert_eq!(response.status(), status, "{error}");
            assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
            assert_eq!(response.headers().contains_key("retry-after"), status == 429);
            assert_eq!(text_of(response).await, text);
        }
    }
}
