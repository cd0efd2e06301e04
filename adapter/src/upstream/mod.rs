//! The halo server as the adapter sees it: the calls of the web channel, and a stream of typed events. Promises
//! that every wait and every buffer has an end, that the token is in no error, and that a stream tells bytes,
//! keepalives and frames apart. What to do when a stream ends is the caller's business.

pub mod error;
pub mod frames;
pub mod history;
pub mod http;
pub mod sse;

use std::future::Future;
use std::pin::Pin;

use futures_util::Stream;
use serde::Serialize;

pub use error::Error;
pub use frames::Frame;
pub use history::History;
pub use http::Server;

/// An image of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Base64.
    pub data: String,
    /// Such as `image/png`.
    pub mime_type: String,
}

/// What is sent to the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The text.
    pub text: String,
    /// The images, in order.
    pub images: Vec<Image>,
}

/// One thing that a stream brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server took the request. `date` is its clock, in milliseconds since 1970, where it says it.
    Opened {
        /// The server's time.
        date: Option<i64>,
    },
    /// Bytes came that completed nothing yet: the link lives.
    Bytes,
    /// A comment line: the link lives, and this server says so from time to time.
    Keepalive,
    /// A frame, with its place in the stream where the server numbers them.
    Frame {
        /// The `id:` of the frame.
        id: Option<String>,
        /// The frame.
        frame: Frame,
    },
}

/// A chat or subscribe stream. Nothing is sent before the first poll; dropping it closes the connection.
pub type Events = Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>;

/// What a turn needs of the server. The real one is [`Server`]; tests script their own.
pub trait Upstream: Send + Sync + 'static {
    /// Sends a message and streams the reply.
    fn chat(&self, session: &str, message: &Message) -> Events;
    /// Joins the run of a session, after the frame `after` if it is known.
    fn subscribe(&self, session: &str, after: Option<&str>) -> Events;
    /// The log, from `since` (milliseconds since 1970) on.
    fn history(
        &self,
        session: &str,
        since: Option<i64>,
    ) -> impl Future<Output = Result<History, Error>> + Send;
    /// Asks the server to stop a session's run. Returns at once; a failure is only logged.
    fn stop(&self, session: &str);
}
