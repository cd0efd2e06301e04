//! What the tests of this floor share.

use super::{AppState, HttpSettings, router};
use crate::access::{AccessLevel, AccountLevel};
use crate::agent::Agent;
use crate::agent::profile::{DisabledItem, Visible};
use crate::clock::{Clock, SystemClock};
use crate::config::{Environment, Home, Live, Overrides};
use crate::session::{AgentRequest, AgentSource, Engine, Member, Parts, Unavailable};
use crate::store::Database;
use crate::store::accounts::{self, Created, Language, NewAccount};
use crate::store::schema::Schema;
use crate::workspace::hidden::HiddenPlaces;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, request};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tower::ServiceExt;

/// The admin's password.
pub const PASSWORD: &str = "correct horse 1";

/// A clock that the test moves.
#[derive(Default)]
pub struct HandClock(pub AtomicI64);

impl Clock for HandClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The whole router, without a socket.
pub struct Server {
    pub router: Router,
    pub accounts: Database,
    pub clock: Arc<HandClock>,
    pub settings: Arc<Mutex<HttpSettings>>,
    pub live: Live,
    /// Holds the person's home as `user` and halo's as `home`.
    pub folder: TempDir,
}

impl Server {
    /// A server whose admin has [`PASSWORD`].
    pub fn new() -> Self {
        let made = vec![("server.password", PASSWORD.into()), ("server.jwt_secret", "a-secret".into())];
        Self::with(made, &[])
    }

    /// A server with these secrets and this environment.
    pub fn with(made: Vec<(&'static str, secrecy::SecretString)>, environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let home = Home::locate(Some(&folder.path().join("home")), &Environment::default()).unwrap();
        home.prepare().unwrap();
        std::fs::create_dir(folder.path().join("user")).unwrap();
        let environment = environment.iter().copied().collect();
        let live = Live::load(&home, environment, Overrides::default(), made).unwrap().0;
        let accounts = Database::open(&home.channels_db(), Schema::Channels).unwrap();
        let clock = Arc::new(HandClock(AtomicI64::new(1_796_148_000_000)));
        let hidden = HiddenPlaces {
            user_home: folder.path().join("user"),
            halo_home: home.path().to_owned(),
            ..HiddenPlaces::default()
        };
        let settings = Arc::new(Mutex::new(HttpSettings { hidden, ..HttpSettings::default() }));
        let source = settings.clone();
        let state = AppState::new(
            engine(),
            accounts.clone(),
            live.clone(),
            Arc::new(move || source.lock().unwrap().clone()),
            clock.clone(),
        );
        Self { router: router(state), accounts, clock, settings, live, folder }
    }

    /// A path below the server's folder.
    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Lets time go by.
    pub fn wait_ms(&self, ms: i64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// A new account of this level.
    pub async fn account(&self, level: AccountLevel) -> Created {
        let new = NewAccount {
            workspace_path: self.folder.path().to_owned(),
            label: String::new(),
            level,
            language: Language::En,
        };
        accounts::create(&self.accounts, new, 0).await.unwrap()
    }

    /// A new token of this level.
    pub async fn token(&self, level: AccountLevel) -> String {
        self.account(level).await.token
    }

    /// The answer as it is.
    pub async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Status, and the body as JSON.
    pub async fn json(&self, request: Request<Body>) -> (u16, Value) {
        let response = self.send(request).await;
        let status = response.status().as_u16();
        let text = text_of(response).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}")))
    }

    /// A request that is refused right after the token: its session id has a wrong shape.
    pub async fn history_with(&self, token: &str) -> (u16, Value) {
        self.json(with_token(get("/api/web/history?sessionId=a/b"), token)).await
    }

    /// Tries to log in.
    pub async fn login(&self, password: &str) -> Response {
        let body = json!({ "password": password }).to_string();
        let request = Request::post("/api/auth/login").header("content-type", "application/json");
        self.send(request.body(body.into()).unwrap()).await
    }

    /// The admin's cookie, as a browser sends it.
    pub async fn cookie(&self) -> String {
        cookie_of(&self.login(PASSWORD).await)
    }

    /// What the admin is answered; with a body where it is not null.
    pub async fn admin(&self, method: &str, uri: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(uri).header("cookie", self.cookie().await);
        self.json(with_body(request, body)).await
    }
}

/// The cookie that an answer sets, as a browser sends it.
pub fn cookie_of(response: &Response) -> String {
    response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

/// The request with this JSON; null is no body.
pub fn with_body(request: request::Builder, body: &Value) -> Request<Body> {
    if body.is_null() {
        return request.body(Body::empty()).unwrap();
    }
    request.header("content-type", "application/json").body(body.to_string().into()).unwrap()
}

/// A GET to be filled in.
pub fn get(uri: &str) -> request::Builder {
    Request::get(uri)
}

/// The request with a token and no body.
pub fn with_token(request: request::Builder, token: &str) -> Request<Body> {
    request.header("x-token", token).body(Body::empty()).unwrap()
}

/// A POST of JSON with a token.
pub fn post_json(uri: &str, token: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(uri)
        .header("x-token", token)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

/// The body of a refusal.
pub fn error(text: &str) -> Value {
    json!({ "error": text })
}

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

struct NoAgents;

impl AgentSource for NoAgents {
    fn choose(&self, _: &Path, _: Option<&str>, _: &[DisabledItem]) -> Result<(String, String), Unavailable> {
        Err(Unavailable::No)
    }

    fn visible(&self, _: &Path, _: &[DisabledItem]) -> Visible {
        Visible::default()
    }

    fn team(&self, _: &Path, _: &str, _: AccessLevel, _: &[DisabledItem]) -> Result<Vec<Member>, String> {
        Ok(Vec::new())
    }

    fn build(&self, _: AgentRequest<'_>) -> Result<Agent, String> {
        Err("no agent here".into())
    }

    fn instructions(&self, _: &Path, _: &str, _: AccessLevel) -> Result<(String, String), String> {
        Err("no folder here".into())
    }
}

/// An engine without agents: no test of this floor starts a run.
pub fn engine() -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let runs = Database::open(&folder.path().join("runs.db"), Schema::Runs).unwrap();
    Engine::new(Parts { runs, agents: Arc::new(NoAgents), clock: Arc::new(SystemClock) })
}
