//! A prompt's life, from the chat request to the stop reason: stream, follow a busy session, re-attach after a
//! drop, settle against the log, cancel. Promises that the editor is shown every piece of the reply once, or is
//! told that something may be missing; and that a turn always ends. Leaves to others how frames look
//! ([`crate::translate`]), what was missed ([`crate::settle`]) and whose turn it is ([`crate::agent`]).

#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::time::Duration;

use agent_client_protocol::v1::schema::{SessionUpdate, StopReason};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::settle::{self, FULL_REPLY, Verdict};
use crate::translate::{self, OpenCalls};
use crate::upstream::history::{Block, Row};
use crate::upstream::{Error, Event, Events, Frame, History, Message, Upstream};

/// The waits before the five attempts to re-attach.
const DELAYS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];
/// How long a cancelled turn may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How long a server that sends keepalives may be silent.
const SILENCE: Duration = Duration::from_secs(40);
/// How often the log is asked whether a run goes on, where a joined stream says nothing.
const POLL: Duration = Duration::from_secs(5);
/// How far before the turn's start the log is read, in milliseconds.
const BEFORE_START_MS: i64 = 5 * 60 * 1000;
/// How often the log is tried, and the wait between.
const SETTLE_TRIES: usize = 3;
const SETTLE_WAIT: Duration = Duration::from_secs(1);
/// How much of the streamed text is kept for the comparison, in bytes. Beyond it, a gap means the whole reply.
const MAX_KEPT: usize = 16 << 20;

/// Where the updates of a turn go.
pub trait Updates: Send {
    /// Hands one update to the editor; waits when the editor is slow.
    fn send(&mut self, update: SessionUpdate) -> impl Future<Output = ()> + Send;
}

/// One prompt on its way.
pub struct Turn<U, O> {
    upstream: U,
    out: O,
    cancel: CancellationToken,
    message: Message,
    /// The session that runs the turn: the prompt's own, until a `session` frame names another.
    session: String,
    /// The server's time when it took the message, else ours. Milliseconds since 1970.
    started: i64,
    /// The place of the last frame, where the server numbers them.
    last_id: Option<String>,
    calls: OpenCalls,
    /// The text that was forwarded, and whether it grew too long to be kept.
    streamed: String,
    overflow: bool,
    /// Where in `streamed` this prompt's reply begins, if that is known.
    own: Option<usize>,
    /// The message waited in the queue of a busy session.
    busy: bool,
    /// Frames may have been lost.
    gap: bool,
    /// Frames are no longer forwarded, the log decides.
    muted: bool,
    keepalive_seen: bool,
    /// Set once the stop was sent: when to give up waiting for the end.
    grace: Option<Instant>,
}

/// How a stream, or the whole turn, came to its end.
enum End {
    Complete,
    Failed(String),
    Queued,
    /// Without a last frame; the reason, where there is one.
    Dropped(Option<Error>),
    /// The attempts to re-attach are used up.
    Lost,
    /// The server did not take the message, or what it sends cannot be read further.
    Refused(String),
    Cancelled,
}

impl<U: Upstream + Clone, O: Updates> Turn<U, O> {
    /// A turn that has not begun. `now` is our time in milliseconds since 1970.
    pub fn new(
        upstream: U,
        out: O,
        cancel: CancellationToken,
        session: String,
        message: Message,
        now: i64,
    ) -> Self {
        Self {
            upstream,
            out,
            cancel,
            message,
            session,
            started: now,
            last_id: None,
            calls: OpenCalls::default(),
            streamed: String::new(),
            overflow: false,
            own: Some(0),
            busy: false,
            gap: false,
            muted: false,
            keepalive_seen: false,
            grace: None,
        }
    }

    /// Runs the turn to its end. Whatever goes wrong is told to the editor as text.
    pub async fn run(mut self) -> StopReason {
        // A cancel that came along with the prompt: nothing was sent, so there is nothing to stop.
        if !self.cancel.is_cancelled() {
            let end = self.follow_through().await;
            self.finish(end).await;
        }
        if self.cancel.is_cancelled() { StopReason::Cancelled } else { StopReason::EndTurn }
    }

    async fn follow_through(&mut self) -> End {
        let chat = self.upstream.chat(&self.session, &self.message);
        let (end, frames) = self.read(chat, false).await;
        match end {
            End::Dropped(why) if frames == 0 => End::Refused(match why {
                Some(error) => error.to_string(),
                None => "the server closed the stream before its first frame".to_owned(),
            }),
            End::Dropped(why) => {
                debug!(?why, "the stream was dropped");
                self.rejoin(DELAYS.len()).await
            }
            End::Queued => {
                self.busy = true;
                self.own = None;
                self.rejoin(DELAYS.len() + 1).await
            }
            end => end,
        }
    }

    /// Joins the run in flight through subscribe, up to its end. One attempt more than there are waits means
    /// that the first goes out at once.
    async fn rejoin(&mut self, attempts: usize) -> End {
        let mut left = attempts;
        while left > 0 {
            if let Some(delay) = DELAYS.len().checked_sub(left).and_then(|tried| DELAYS.get(tried)) {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => {
                        self.stop();
                        return End::Cancelled;
                    }
                    () = tokio::time::sleep(*delay) => {}
                }
            }
            left -= 1;
            // Without a place to resume from, what was sent in between is not sent again.
            self.gap |= self.last_id.is_none() && !self.busy;
            let stream = self.upstream.subscribe(&self.session, self.last_id.as_deref());
            let (end, frames) = self.read(stream, true).await;
            let End::Dropped(why) = end else { return end };
            debug!(?why, frames, left, "a joined stream was dropped");
            self.gap |= self.last_id.is_none();
            if frames > 0 {
                left = DELAYS.len();
            }
        }
        warn!("gave up on the stream after {} attempts", DELAYS.len());
        End::Lost
    }

    /// Reads a stream to its end and forwards what it brings; also says how many frames came.
    async fn read(&mut self, mut events: Events, joined: bool) -> (End, usize) {
        let mut frames = 0;
        let mut heard = Instant::now();
        let mut asked = heard;
        let mut asking: Option<BoxFuture<'static, Result<History, Error>>> = None;
        loop {
            let dead = self.keepalive_seen.then(|| heard + SILENCE);
            let ask = (joined && self.last_id.is_none() && asking.is_none()).then(|| asked + POLL);
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if self.grace.is_none() => self.stop(),
                () = until(self.grace) => return (End::Cancelled, frames),
                event = events.next() => {
                    let (id, frame) = match event {
                        None => return (self.dropped(None), frames),
                        Some(Err(error @ Error::TooLong(_))) => return (End::Refused(error.to_string()), frames),
                        Some(Err(error)) => return (self.dropped(Some(error)), frames),
                        Some(Ok(event)) => {
                            heard = Instant::now();
                            match event {
                                Event::Opened { date } => {
                                    self.started = date.filter(|_| !joined).unwrap_or(self.started);
                                    continue;
                                }
                                Event::Keepalive => {
                                    self.keepalive_seen = true;
                                    continue;
                                }
                                Event::Bytes => continue,
                                Event::Frame { id, frame } => (id, frame),
                            }
                        }
                    };
                    frames += 1;
                    asked = heard;
                    self.place(id, &frame, joined);
                    if let Some(end) = self.take(frame, joined).await {
                        return (end, frames);
                    }
                }
                log = answer(&mut asking) => {
                    asking = None;
                    asked = Instant::now();
                    if log.is_ok_and(|log| log.running == Some(false)) {
                        self.gap = true;
                        return (End::Complete, frames);
                    }
                }
                () = until(ask) => {
                    let (upstream, session, since) = (self.upstream.clone(), self.session.clone(), self.started);
                    asking = Some(Box::pin(async move { upstream.history(&session, Some(since)).await }));
                }
                () = until(dead) => {
                    warn!("no sign of the server for {} s, the link counts as dead", SILENCE.as_secs());
                    return (self.dropped(None), frames);
                }
            }
        }
    }

    /// Notes a frame's place. An unnumbered frame after numbered ones means another server, or another run,
    /// than the one whose frames were held.
    fn place(&mut self, id: Option<String>, frame: &Frame, joined: bool) {
        match (id, frame) {
            (Some(id), _) => self.last_id = Some(id),
            (None, Frame::Queued) => self.last_id = None,
            (None, Frame::Session { .. } | Frame::Resync | Frame::Other) => {}
            (None, _) if joined && self.last_id.take().is_some() => self.gap = true,
            (None, _) => {}
        }
    }

    /// Forwards one frame. `Some` when it was the last.
    async fn take(&mut self, frame: Frame, joined: bool) -> Option<End> {
        match frame {
            Frame::Complete => return Some(End::Complete),
            Frame::Error { error } => return Some(End::Failed(error)),
            Frame::Queued if !joined => return Some(End::Queued),
            Frame::Session { session_id } => {
                self.session = session_id;
                // The first stop may have come before the run it was meant for.
                if self.grace.is_some() {
                    self.upstream.stop(&self.session);
                }
            }
            Frame::Resync => {
                self.muted = true;
                self.gap = true;
            }
            _ if self.muted => {}
            Frame::User { text } => {
                if self.busy && settle::is_prompt(&text, &self.message.text) {
                    self.own = Some(self.streamed.len());
                }
            }
            Frame::Stream { text } => {
                self.overflow |= self.streamed.len() + text.len() > MAX_KEPT;
                if !self.overflow {
                    self.streamed.push_str(&text);
                }
                self.say(translate::message(text)).await;
            }
            Frame::Thinking { text } => self.say(translate::thought(text)).await,
            Frame::ToolCall(call) => {
                let update = self.calls.call(&call);
                self.say(update).await;
            }
            Frame::ToolResult(result) => {
                for update in self.calls.result(&result) {
                    self.say(update).await;
                }
            }
            Frame::File { path, name } => {
                let name = [name, path].into_iter().flatten().find(|name| !name.is_empty());
                self.say(translate::file(name.as_deref().unwrap_or("unnamed"))).await;
            }
            Frame::Queued | Frame::Other => {}
        }
        None
    }

    async fn finish(&mut self, end: End) {
        match end {
            End::Complete => self.settle().await,
            End::Failed(error) => {
                self.settle().await;
                self.say(translate::message(format!("[error] {error}"))).await;
            }
            End::Refused(why) => self.adapter_error(&why).await,
            End::Lost => self.adapter_error("connection lost").await,
            End::Queued | End::Dropped(_) | End::Cancelled => {}
        }
    }

    /// Sends what the log has and the stream had not, where the stream may have a gap. Ends at once on cancel.
    async fn settle(&mut self) {
        if !(self.gap || self.busy) || self.cancel.is_cancelled() {
            return;
        }
        let cancel = self.cancel.clone();
        let found = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            found = self.logged() => found,
        };
        let rows = match found {
            Ok(Some(rows)) => rows,
            Ok(None) => {
                warn!("the log does not hold this prompt, so the reply could not be checked");
                return;
            }
            Err(error) => {
                warn!("history after reconnect failed: {error}");
                if self.gap {
                    self.adapter_error(&format!("the reply may be incomplete: {error}")).await;
                }
                return;
            }
        };
        let outputs = rows.iter().filter_map(Row::blocks).flatten().filter_map(|block| match block {
            Block::ToolCall { tool_call } => {
                tool_call.tool_use_id.as_deref().zip(tool_call.output.as_deref())
            }
            _ => None,
        });
        for update in self.calls.settle(outputs) {
            self.say(update).await;
        }
        let reply = settle::reply(&rows);
        let verdict = match settle::compare(&self.streamed, self.own, &reply) {
            Verdict::Rest(_) if self.overflow => Verdict::Full(reply),
            verdict => verdict,
        };
        match verdict {
            Verdict::Complete => {}
            Verdict::Rest(rest) => self.say(translate::message(rest)).await,
            Verdict::Full(reply) => self.say(translate::message(format!("{FULL_REPLY}{reply}"))).await,
        }
    }

    /// The rows logged after this prompt; `None` when the log does not hold it.
    async fn logged(&self) -> Result<Option<Vec<Row>>, Error> {
        let mut since = Some(self.started - BEFORE_START_MS);
        let mut tries = 1;
        loop {
            match self.upstream.history(&self.session, since).await {
                Ok(log) => {
                    let rows =
                        settle::rows_after_prompt(&log.messages, &self.message.text).map(<[Row]>::to_vec);
                    // Clocks may differ by more than the margin.
                    if rows.is_none() && self.gap && since.take().is_some() {
                        continue;
                    }
                    return Ok(rows);
                }
                Err(error) if tries == SETTLE_TRIES => return Err(error),
                Err(error) => debug!("the log could not be read, once more: {error}"),
            }
            tries += 1;
            tokio::time::sleep(SETTLE_WAIT).await;
        }
    }

    /// Sends the stop and starts the grace period.
    fn stop(&mut self) {
        self.upstream.stop(&self.session);
        self.grace = Some(Instant::now() + GRACE);
    }

    /// The end of a stream without a last frame: of a cancelled turn, nobody waits for more.
    fn dropped(&self, why: Option<Error>) -> End {
        if self.grace.is_some() { End::Cancelled } else { End::Dropped(why) }
    }

    async fn adapter_error(&mut self, what: &str) {
        self.say(translate::message(format!("[adapter error] {what}"))).await;
    }

    async fn say(&mut self, update: SessionUpdate) {
        self.out.send(update).await;
    }
}

/// Waits for a moment; for ever where there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Waits for an answer; for ever where nothing was asked.
async fn answer<T>(asking: &mut Option<BoxFuture<'static, T>>) -> T {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
