//! A row of the table: one exchange by its name, what is asked, and what must come back.

use super::pattern::{Names, compare, fill, fill_json};
use super::world::World;
use halo_tests::web::{Frame, Frames};
use halo_tests::within;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Where the documentation says what this server does otherwise than the old one.
const DOCUMENTED: &str = include_str!("../../../docs/api.md");

/// One exchange.
pub struct Row {
    name: &'static str,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
    from: Option<IpAddr>,
    status: u16,
    answer: Answer,
    shows: Vec<(&'static str, Option<String>)>,
}

/// What must come back.
enum Answer {
    /// JSON that fits the pattern.
    Json(Value),
    /// Frames, with neighbours of one kind of text as one.
    Frames(Vec<Value>),
    /// A text that holds this part.
    Text(String),
    /// So many bytes.
    Bytes(usize),
}

/// A row of this name; what it asks and expects is added.
pub fn row(name: &'static str) -> Row {
    Row {
        name,
        method: Method::GET,
        path: String::new(),
        headers: Vec::new(),
        body: None,
        from: None,
        status: 200,
        answer: Answer::Bytes(0),
        shows: Vec::new(),
    }
}

impl Row {
    /// Asks with this method.
    pub fn ask(self, method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), ..self }
    }

    /// Asks with GET.
    pub fn get(self, path: &str) -> Self {
        self.ask(Method::GET, path)
    }

    /// Asks with POST and a body of JSON.
    pub fn post(self, path: &str, body: &Value) -> Self {
        self.ask(Method::POST, path).body(&body.to_string())
    }

    /// A message, with a `full` token.
    pub fn chat(self, body: &Value) -> Self {
        self.post("/api/web/chat", body).token("full")
    }

    /// A body that says it is JSON.
    pub fn body(self, body: &str) -> Self {
        Self { body: Some(body.to_owned()), ..self }.header("content-type", "application/json")
    }

    /// The token of this level; replaces an earlier one.
    pub fn token(mut self, level: &str) -> Self {
        self.headers.retain(|(name, _)| *name != "x-token");
        self.header("x-token", &format!("{{token {level}}}"))
    }

    /// The admin's cookie.
    pub fn cookie(self) -> Self {
        self.header("cookie", "{cookie}")
    }

    /// A header of the request.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The address of this machine that it comes from.
    pub fn from(self, address: &str) -> Self {
        Self { from: Some(address.parse().unwrap()), ..self }
    }

    /// Expects JSON.
    pub fn answers(self, status: u16, pattern: Value) -> Self {
        Self { status, answer: Answer::Json(pattern), ..self }
    }

    /// Expects a refusal.
    pub fn refused(self, status: u16, error: &str) -> Self {
        self.answers(status, json!({ "error": error }))
    }

    /// Expects these frames.
    pub fn streams(self, frames: impl IntoIterator<Item = Value>) -> Self {
        Self { answer: Answer::Frames(frames.into_iter().collect()), ..self }
    }

    /// Expects a text that is no JSON and holds this part.
    pub fn says(self, status: u16, part: &str) -> Self {
        Self { status, answer: Answer::Text(part.to_owned()), ..self }
    }

    /// Expects so many bytes.
    pub fn sends(self, status: u16, bytes: usize) -> Self {
        Self { status, answer: Answer::Bytes(bytes), ..self }
    }

    /// Expects this header of the answer, a pattern.
    pub fn shows(mut self, name: &'static str, value: &str) -> Self {
        self.shows.push((name, Some(value.to_owned())));
        self
    }

    /// Expects that the answer lacks this header.
    pub fn hides(mut self, name: &'static str) -> Self {
        self.shows.push((name, None));
        self
    }

    /// The old program answered otherwise; the documentation says so at this place of the contract.
    pub fn differs(self, place: &str) -> Self {
        let line = format!("- web contract, {place}: ");
        assert!(DOCUMENTED.contains(&line), "{}: docs/api.md has no line {line:?}", self.name);
        self
    }

    /// Asks and checks; panics with the row's name.
    pub async fn check(self, world: &mut World) {
        drop(self.open(world).await.end(world).await);
    }

    /// Asks; the answer has begun when this returns.
    pub async fn open(self, world: &mut World) -> Open {
        for text in self.headers.iter().map(|(_, value)| value).chain([&self.path]) {
            world.make_named(text).await;
        }
        let path = fill(&self.path, &world.names);
        let client = world.client.from_address_or_same(self.from);
        let mut request = client.request(self.method.clone(), &path);
        for (name, value) in &self.headers {
            request = request.header(*name, fill(value, &world.names));
        }
        if let Some(body) = &self.body {
            let json = serde_json::from_str::<Value>(body).map(|body| fill_json(&body, &world.names));
            request = request.body(json.map_or_else(|_| body.clone(), |body| body.to_string()));
        }
        let response = within(self.name, request.send()).await;
        let response = response.unwrap_or_else(|error| panic!("{}: no answer: {error}", self.name));
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Open { status, headers, frames: Frames::of(response), seen: Vec::new(), row: self }
    }
}

/// An answer that has begun.
pub struct Open {
    status: u16,
    headers: HeaderMap,
    frames: Frames,
    seen: Vec<Frame>,
    row: Row,
}

impl Open {
    /// Reads on until a frame of this type has come.
    pub async fn until(mut self, kind: &str) -> Self {
        assert_eq!(self.status, 200, "{}", self.row.name);
        self.seen.extend(self.frames.until(kind).await);
        self
    }

    /// Leaves in the middle; what came so far must be what the row says.
    pub fn leave(self, world: &mut World) {
        let Answer::Frames(pattern) = &self.row.answer else { panic!("{}: no stream", self.row.name) };
        check_frames(self.row.name, pattern, &self.seen, &mut world.names);
    }

    /// Reads to the end and checks all of it; gives the frames, where it is a stream.
    pub async fn end(mut self, world: &mut World) -> Vec<Frame> {
        let (name, names) = (self.row.name, &mut world.names);
        self.check_head(names);
        match &self.row.answer {
            Answer::Frames(pattern) => {
                let rest = self.frames.rest().await;
                self.seen.extend(rest);
                check_frames(name, pattern, &self.seen, names);
            }
            Answer::Json(pattern) => {
                let bytes = self.frames.bytes().await;
                let got: Value = serde_json::from_slice(&bytes)
                    .unwrap_or_else(|error| panic!("{name}: {error}: {}", String::from_utf8_lossy(&bytes)));
                let fits = compare(pattern, &got, names);
                fits.unwrap_or_else(|error| panic!("{name}: {error}\n{got:#}"));
            }
            Answer::Text(part) => {
                let bytes = self.frames.bytes().await;
                let text = String::from_utf8_lossy(&bytes);
                assert!(text.contains(part.as_str()), "{name}: {text}");
            }
            Answer::Bytes(length) => assert_eq!(self.frames.bytes().await.len(), *length, "{name}"),
        }
        self.seen
    }

    fn check_head(&self, names: &mut Names) {
        let (name, row) = (self.row.name, &self.row);
        assert_eq!(self.status, row.status, "{name}: {:?}", self.headers);
        let mut shows = vec![("x-content-type-options", Some("nosniff".to_owned()))];
        match &row.answer {
            Answer::Json(_) => shows.push(("content-type", Some("application/json".to_owned()))),
            Answer::Frames(_) => shows.extend([
                ("content-type", Some("text/event-stream".to_owned())),
                ("cache-control", Some("no-cache, no-transform".to_owned())),
                ("x-accel-buffering", Some("no".to_owned())),
                ("content-encoding", None),
            ]),
            Answer::Text(_) | Answer::Bytes(_) => {}
        }
        for (header, value) in shows.iter().chain(&row.shows) {
            let got = self.headers.get(*header).map(|value| String::from_utf8_lossy(value.as_bytes()));
            let fits = match (value, &got) {
                (Some(value), Some(got)) => {
                    compare(&json!(value), &json!(got), names).map_err(|error| format!("{header}: {error}"))
                }
                (None, None) => Ok(()),
                (value, got) => Err(format!("{header}: {got:?} instead of {value:?}")),
            };
            fits.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Compares the frames; those of a run must also carry its ids, one after the other.
fn check_frames(name: &str, pattern: &[Value], frames: &[Frame], names: &mut Names) {
    let got = Value::Array(joined(frames));
    let fits = compare(&json!(pattern), &got, names);
    fits.unwrap_or_else(|error| panic!("{name}: {error}\n{got:#}"));
    let of_a_run = |frame: &&Frame| !matches!(frame.kind(), "session" | "resync");
    let ids: Vec<_> = frames.iter().filter(of_a_run).map(|frame| frame.id.as_deref()).collect();
    if ids.iter().all(Option::is_none) {
        assert!(!frames.iter().any(|frame| frame.kind() == "user"), "{name}: a run without ids: {got:#}");
        return;
    }
    let place = |id: Option<&str>| {
        let (run, seq) = id.and_then(|id| id.split_once('.')).unwrap_or_else(|| panic!("{name}: {ids:?}"));
        (run.to_owned(), seq.parse::<u64>().unwrap())
    };
    let places: Vec<_> = ids.iter().copied().map(place).collect();
    let next = |pair: &[(String, u64)]| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1;
    assert!(places.windows(2).all(next), "{name}: {ids:?}");
}

/// What the frames say, with neighbouring pieces of text as one.
fn joined(frames: &[Frame]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for frame in frames {
        let more = frame.data["text"].as_str().filter(|_| matches!(frame.kind(), "stream" | "thinking"));
        match (all.last_mut(), more) {
            (Some(last), Some(more)) if last["type"] == frame.kind() => {
                last["text"] = format!("{}{more}", last["text"].as_str().unwrap_or_default()).into();
            }
            _ => all.push(frame.data.clone()),
        }
    }
    all
}

/// The frame that names the session.
pub fn session(id: &str) -> Value {
    json!({ "type": "session", "sessionId": id })
}

/// The echo of a message.
pub fn user(text: &str) -> Value {
    json!({ "type": "user", "text": text })
}

/// The answer's text.
pub fn stream(text: &str) -> Value {
    json!({ "type": "stream", "text": text })
}

/// A slash command's last frame but `complete`: from now on the client is in this session.
pub fn switch(id: &str) -> Value {
    json!({ "type": "switch", "sessionId": id })
}

/// The last frame of a run that ended well.
pub fn complete() -> Value {
    json!({ "type": "complete" })
}

/// The frame of a failure.
pub fn error(text: &str) -> Value {
    json!({ "type": "error", "error": text })
}

/// A whole turn.
pub fn turn(id: &str, said: &str, answered: &str) -> [Value; 4] {
    [session(id), user(said), stream(answered), complete()]
}
