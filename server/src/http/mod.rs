//! HTTP: the surfaces over the session floor. A handler extracts, calls one function of the floor below and maps
//! the answer; what a request may do is decided in [`auth`] and [`web`] before the engine hears of it.
//!
//! This module promises the common frame around every answer: JSON errors, CORS, compression, `nosniff`, and a
//! log line that never holds a query string, because tokens travel in it.

pub mod admin;
pub mod auth;
pub mod content;
pub mod cors;
pub mod error;
pub mod fs;
pub mod health;
pub mod metrics;
pub mod serve;
pub mod sse;
pub mod streams;
pub mod web;

#[cfg(test)]
mod testing;

use crate::clock::Clock;
use crate::config::Live;
use crate::session::Engine;
use crate::store::Database;
use crate::tool::sandbox::Sandbox;
use crate::workspace::hidden::HiddenPlaces;
use admin::Admin;
use auth::lockout::Lockout;
use auth::token::Gate;
use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use error::ApiError;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;
use streams::Streams;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::{CompressionLevel, compression};
use web::commands::HomeFiles;
use web::pointers::Pointers;

/// Bodies below this many bytes are sent as they are.
const COMPRESS_FROM: u16 = 1024;

/// The level for gzip and brotli alike: brotli's own default takes seconds for a long history.
const COMPRESSION_LEVEL: CompressionLevel = CompressionLevel::Precise(4);

/// What this floor needs of the settings.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// `general.server.trust_proxy`: believe the last entry of `X-Forwarded-For`.
    pub trust_proxy: bool,
    /// `server.cors_origins`: exact origins; empty means any, without credentials.
    pub cors_origins: Arc<[String]>,
    /// What is hidden besides the files of the workspace itself.
    pub hidden: HiddenPlaces,
}

/// Gives the settings in force; asked at every request, so that a change needs no restart.
pub type SettingsSource = Arc<dyn Fn() -> HttpSettings + Send + Sync>;

/// What the handlers share.
#[derive(Clone)]
pub struct AppState {
    engine: Engine,
    gate: Arc<Gate>,
    admin: Arc<Admin>,
    accounts: Database,
    streams: Streams,
    settings: SettingsSource,
    clock: Arc<dyn Clock>,
    pointers: Arc<Pointers>,
    files: Arc<HomeFiles>,
    sandbox: Option<Arc<Sandbox>>,
    started_at_ms: i64,
}

impl AppState {
    /// The state of a server that starts now. `accounts` is the database of the channel accounts; of `live` the
    /// admin's password and secret are read, and the password is changed.
    pub fn new(
        engine: Engine,
        accounts: Database,
        live: Live,
        settings: SettingsSource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let lockout = Arc::new(Lockout::default());
        let gate = Arc::new(Gate::new(accounts.clone(), lockout.clone(), settings.clone(), clock.clone()));
        let admin = Arc::new(Admin::new(live, lockout, settings.clone(), clock.clone()));
        let streams = Streams::new(accounts.clone());
        let (pointers, files) = (Arc::default(), Arc::default());
        let started_at_ms = clock.now_ms();
        Self {
            engine,
            gate,
            admin,
            accounts,
            streams,
            settings,
            clock,
            pointers,
            files,
            sandbox: None,
            started_at_ms,
        }
    }

    /// The same with what commands read of the home; without, there are no aliases and no global skills.
    #[must_use]
    pub fn with_files(self, files: HomeFiles) -> Self {
        Self { files: Arc::new(files), ..self }
    }

    /// The same with what shell commands run in; without, `GET /api/health` names none.
    #[must_use]
    pub fn with_sandbox(self, sandbox: Arc<Sandbox>) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }

    /// Seconds since the server started.
    fn uptime(&self) -> f64 {
        self.clock.now_ms().saturating_sub(self.started_at_ms).max(0) as f64 / 1000.0
    }
}

impl FromRef<AppState> for Arc<Gate> {
    fn from_ref(state: &AppState) -> Self {
        state.gate.clone()
    }
}

impl FromRef<AppState> for Arc<Admin> {
    fn from_ref(state: &AppState) -> Self {
        state.admin.clone()
    }
}

/// Every route of the server, with the common frame around it.
pub fn router(state: AppState) -> Router {
    let settings = state.settings.clone();
    Router::new()
        .route("/", get(welcome))
        .route("/api/health", get(health::health))
        .route("/api/metrics", get(metrics::metrics))
        .merge(web::routes())
        .merge(admin::routes())
        .merge(fs::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(state)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(compression())
        .layer(cors::layer(settings))
        .layer(middleware::from_fn(frame))
}

/// What a person with a browser sees until there is a page.
async fn welcome() -> &'static str {
    "halo is running. There is no page yet: use an editor through halo-acp, or the HTTP interface.\n\
     Every message needs a token; `halo token create` makes one.\n"
}

/// Below `/api` an unknown path tells only the admin that it is unknown.
async fn unknown_path(State(admin): State<Arc<Admin>>, headers: HeaderMap, uri: Uri) -> ApiError {
    let path = uri.path();
    let is_api = path == "/api" || path.starts_with("/api/");
    if is_api && admin.session(&headers).is_none() { ApiError::Unauthorized } else { ApiError::NotFound }
}

fn compression() -> CompressionLayer<impl compression::Predicate> {
    let predicate = SizeAbove::new(COMPRESS_FROM)
        .and(NotForContentType::SSE)
        .and(NotForContentType::IMAGES)
        .and(NotForContentType::const_new("audio/"))
        .and(NotForContentType::const_new("video/"))
        .and(NotForContentType::const_new("application/pdf"))
        .and(NotForContentType::const_new("application/zip"))
        .and(NotForContentType::const_new("application/gzip"))
        .and(NotForContentType::const_new("application/vnd.openxmlformats"))
        .and(NotForContentType::const_new("application/octet-stream"));
    CompressionLayer::new().quality(COMPRESSION_LEVEL).compress_when(predicate)
}

#[allow(clippy::needless_pass_by_value, reason = "the layer hands it over")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    ApiError::internal(format_args!("a handler panicked: {text}")).into_response()
}

/// The outermost layer: `nosniff`, the status of a preflight, the entity tags of compressed bodies, one log line.
async fn frame(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if method == Method::OPTIONS {
        // The CORS layer answers every OPTIONS, with 200.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        weaken_tag(response.headers_mut());
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    tracing::debug!(%method, path, status = response.status().as_u16(), after = ?started.elapsed(), "answered");
    response
}

/// A strong entity tag stands for bytes, and these are others now: no part of them can be asked for.
fn weaken_tag(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) else { return };
    if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        headers.insert(header::ETAG, weak);
    }
}

#[cfg(test)]
mod tests;
