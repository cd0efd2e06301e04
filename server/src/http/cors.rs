//! CORS (web contract, section 5). No list: any origin may call, without credentials, so that a header token
//! works from any page and the admin cookie from none. A list: only those origins, with credentials.

use super::SettingsSource;
use axum::http::{HeaderName, Method, header};
use std::time::Duration;
use tower_http::cors::{AllowCredentials, AllowOrigin, CorsLayer};

const METHODS: [Method; 6] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

const ALLOWED_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::AUTHORIZATION,
    HeaderName::from_static("x-token"),
    HeaderName::from_static("x-workspace"),
    HeaderName::from_static("x-session-id"),
    HeaderName::from_static("x-agent-id"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("a2a-version"),
];

/// How long a browser may keep the answer of a preflight.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The layer; it reads the settings at every request, and answers every `OPTIONS` itself.
pub fn layer(settings: SettingsSource) -> CorsLayer {
    let for_credentials = settings.clone();
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, _| {
            let allowed = settings().cors_origins;
            allowed.is_empty() || is_listed(&allowed, origin.as_bytes())
        }))
        .allow_credentials(AllowCredentials::predicate(move |origin, _| {
            is_listed(&for_credentials().cors_origins, origin.as_bytes())
        }))
        .allow_methods(METHODS)
        .allow_headers(ALLOWED_HEADERS)
        .expose_headers([header::CONTENT_LENGTH, header::RETRY_AFTER])
        .max_age(MAX_AGE)
        .vary([header::ORIGIN])
}

fn is_listed(list: &[String], origin: &[u8]) -> bool {
    list.iter().any(|listed| listed.as_bytes() == origin)
}
