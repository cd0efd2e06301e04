//! An answer byte by byte, for what no well-behaved provider would send.

use super::{Open, body_of};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::sync::watch;

/// One step of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes, as a chunk of their own.
    Bytes(Bytes),
    /// A pause.
    Wait(Duration),
    /// Nothing until the test calls [`super::ModelServer::release`].
    Hold,
    /// The connection is cut, without the end of the body.
    Cut,
}

/// An answer: status, headers, and the body in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    steps: Vec<Step>,
}

impl Reply {
    /// Status 200 and an event stream of exactly these chunks.
    pub fn chunks<B: AsRef<[u8]>>(chunks: impl IntoIterator<Item = B>) -> Self {
        let bytes = |chunk: B| Step::Bytes(Bytes::copy_from_slice(chunk.as_ref()));
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream".to_owned())],
            steps: chunks.into_iter().map(bytes).collect(),
        }
    }

    /// An event stream: each of the texts as the data of one event, in a chunk of its own.
    pub fn events<T: AsRef<str>>(events: impl IntoIterator<Item = T>) -> Self {
        Self::chunks(events.into_iter().map(|data| format!("data: {}\n\n", data.as_ref())))
    }

    /// An answer that is no stream.
    pub fn status(status: u16, body: &str) -> Self {
        Self { status, ..Self::chunks([body]) }.header("content-type", "application/json")
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds a step.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(super) fn into_response(self, mut released: watch::Receiver<u64>, open: Open) -> Response {
        let steps = self.steps;
        let body = body_of(async_stream::stream! {
            let _open = open;
            for step in steps {
                match step {
                    Step::Bytes(bytes) => {
                        yield Ok(bytes);
                        // To be pending once makes the server write what it has, so chunks stay chunks.
                        tokio::task::yield_now().await;
                    }
                    Step::Wait(pause) => tokio::time::sleep(pause).await,
                    Step::Hold => {
                        let _ = released.changed().await;
                    }
                    Step::Cut => {
                        yield Err(io::Error::other("cut by the test"));
                        return;
                    }
                }
            }
        });
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::IM_A_TEAPOT);
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}
