//! The frames of a run: one append-only log of ready SSE bytes, any number of cursors. A frame is written once,
//! however many people watch; a slow reader slows nobody and holds nothing. Bounds: 8 MiB a run beside its largest
//! frame (a message may be larger than that by itself, and its own sender must see it), and a budget over all runs,
//! past which the oldest frames go first (web contract, section 2, exact resume).

use super::Feed;
use super::ids::{EventId, new_run};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// What one run's held frames may take.
pub const RUN_BYTES: usize = 8 * 1024 * 1024;
/// How far from the frames that go next a reader begins whose own place is gone.
const SLACK_BYTES: usize = RUN_BYTES / 8;
/// What all held frames together may take.
pub const TOTAL_BYTES: usize = 256 * 1024 * 1024;
/// How much is written to a subscriber at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// How often an open stream shows that it lives.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes that a held frame takes beside its own.
const FRAME_OVERHEAD: usize = 64;

/// A frame of a run, as its JSON on the wire.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Frame<'a> {
    /// Echo of a message, as logged.
    User {
        /// The message.
        text: &'a str,
    },
    /// Reasoning.
    Thinking {
        /// More of it.
        text: &'a str,
    },
    /// Assistant text.
    Stream {
        /// More of it.
        text: &'a str,
    },
    /// A tool is asked for.
    #[serde(rename_all = "camelCase")]
    ToolCall {
        /// The tool.
        tool_name: &'a str,
        /// The provider's id of the call.
        tool_use_id: &'a str,
        /// The arguments.
        tool_input: &'a serde_json::Map<String, serde_json::Value>,
    },
    /// A tool has answered.
    #[serde(rename_all = "camelCase")]
    ToolResult {
        /// The tool.
        tool_name: &'a str,
        /// The id of the call.
        tool_use_id: &'a str,
        /// At most 500 characters.
        result: &'a str,
    },
    /// A file that the answer hands over.
    #[serde(rename_all = "camelCase")]
    File {
        /// As written in the answer.
        path: &'a str,
        /// The last segment of the path.
        name: &'a str,
        /// By extension.
        mime_type: &'a str,
    },
    /// The run failed; the last frame.
    Error {
        /// What happened and what to do.
        error: &'a str,
    },
    /// The run is over; the last frame.
    Complete,
}

/// The budget over all runs.
#[derive(Debug, Default)]
pub struct Budget {
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    held: usize,
    oldest_first: VecDeque<Weak<FrameLog>>,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, log: &Arc<FrameLog>) {
        let mut state = self.lock();
        state.oldest_first.retain(|log| log.strong_count() > 0);
        state.oldest_first.push_back(Arc::downgrade(log));
    }

    fn charge(&self, added: usize, removed: usize) {
        let victims: Vec<Arc<FrameLog>> = {
            let mut state = self.lock();
            state.held = (state.held + added).saturating_sub(removed);
            if state.held <= TOTAL_BYTES {
                return;
            }
            state.oldest_first.iter().filter_map(Weak::upgrade).collect()
        };
        for victim in victims {
            let freed = victim.drop_frames();
            let mut state = self.lock();
            state.held = state.held.saturating_sub(freed);
            if state.held <= TOTAL_BYTES {
                return;
            }
        }
    }
}

/// The frames of one run.
#[derive(Debug)]
pub struct FrameLog {
    run: String,
    budget: Arc<Budget>,
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    /// Sequence number of the first held frame.
    first: u64,
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Bytes of the largest frame so far.
    largest: usize,
    ended: bool,
}

enum Read {
    Chunk(Bytes, u64),
    Nothing,
    Ended,
    Lagged,
}

impl FrameLog {
    /// An empty log of a new run.
    pub fn new(budget: &Arc<Budget>) -> Arc<Self> {
        let log = Arc::new(Self {
            run: new_run(),
            budget: budget.clone(),
            inner: Mutex::new(Inner {
                first: 1,
                frames: VecDeque::new(),
                bytes: 0,
                largest: 0,
                ended: false,
            }),
            changed: watch::channel(()).0,
        });
        budget.register(&log);
        log
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run's name.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The place after the newest frame.
    pub fn last(&self) -> EventId {
        let inner = self.lock();
        EventId { run: self.run.clone(), seq: inner.first + inner.frames.len() as u64 - 1 }
    }

    /// Whether the terminal frame is in.
    pub fn ended(&self) -> bool {
        self.lock().ended
    }

    /// Where a reader begins that wants as much as there is: 0 while the frames reach back to the run's start. Past
    /// that the oldest frames held are left out, so that the next ones that go do not take the reader's place along.
    pub fn start(&self) -> u64 {
        let inner = self.lock();
        if inner.first == 1 {
            return 0;
        }
        let mut slack = 0;
        let spared = inner.frames.iter().take_while(|frame| {
            slack += frame.len() + FRAME_OVERHEAD;
            slack <= SLACK_BYTES
        });
        inner.first - 1 + spared.count().max(1).min(inner.frames.len() - 1) as u64
    }

    /// Whether the frame after place `seq` is still held or yet to come.
    pub fn holds(&self, seq: u64) -> bool {
        let inner = self.lock();
        // The number is the client's: it may be the largest there is.
        seq.saturating_add(1) >= inner.first && seq < inner.first + inner.frames.len() as u64
    }

    /// Adds a frame; `complete` and `error` end the log. Nothing is added after the end.
    pub fn push(&self, frame: &Frame<'_>) {
        let terminal = matches!(frame, Frame::Complete | Frame::Error { .. });
        let Ok(json) = serde_json::to_string(frame) else { return };
        let (added, removed) = {
            let mut inner = self.lock();
            if inner.ended {
                return;
            }
            let seq = inner.first + inner.frames.len() as u64;
            let text = format!("id: {}.{seq}\ndata: {json}\n\n", self.run);
            // Of exactly its length: what formatting has reserved in addition would be held, and not counted.
            let bytes = Bytes::from(text.into_bytes().into_boxed_slice());
            let added = bytes.len() + FRAME_OVERHEAD;
            inner.frames.push_back(bytes);
            inner.bytes += added;
            inner.largest = inner.largest.max(added);
            inner.ended = terminal;
            let mut removed = 0;
            while inner.bytes > RUN_BYTES + inner.largest {
                removed += inner.drop_first();
            }
            (added, removed)
        };
        self.budget.charge(added, removed);
        self.changed.send_replace(());
    }

    /// Drops all held frames but the newest; gives the bytes freed.
    fn drop_frames(&self) -> usize {
        let mut inner = self.lock();
        let mut freed = 0;
        while inner.frames.len() > 1 {
            freed += inner.drop_first();
        }
        freed
    }

    fn read(&self, after: u64) -> Read {
        let inner = self.lock();
        if after + 1 < inner.first {
            return Read::Lagged;
        }
        let skip = (after + 1 - inner.first) as usize;
        if skip >= inner.frames.len() {
            return if inner.ended { Read::Ended } else { Read::Nothing };
        }
        let first = &inner.frames[skip];
        if skip + 1 == inner.frames.len() {
            return Read::Chunk(first.clone(), after + 1);
        }
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES.max(first.len()));
        let mut at = after;
        for frame in inner.frames.range(skip..) {
            if !chunk.is_empty() && chunk.len() + frame.len() > CHUNK_BYTES {
                break;
            }
            chunk.extend_from_slice(frame);
            at += 1;
        }
        Read::Chunk(chunk.freeze(), at)
    }

    /// Follows the log from the place `after` to its terminal frame. A reader whose place is dropped, and every
    /// reader once `closing` fires, is let go: it can resume by id.
    pub fn follow(self: &Arc<Self>, after: u64, closing: CancellationToken) -> Feed {
        let log = self.clone();
        let mut changed = log.changed.subscribe();
        let stream = async_stream::stream! {
            let mut at = after;
            let mut keepalive = tokio::time::interval(KEEPALIVE);
            // What a busy stream left out is not made up for.
            keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
            keepalive.tick().await;
            loop {
                changed.borrow_and_update();
                match log.read(at) {
                    Read::Chunk(bytes, next) => {
                        at = next;
                        yield bytes;
                    }
                    Read::Ended | Read::Lagged => return,
                    Read::Nothing => tokio::select! {
                        _ = changed.changed() => {}
                        _ = keepalive.tick() => yield Bytes::from_static(b": keepalive\n\n"),
                        () = closing.cancelled() => {
                            yield Bytes::from_static(b": the server is shutting down\n\n");
                            return;
                        }
                    },
                }
            }
        };
        Feed(stream.boxed())
    }
}

impl Inner {
    fn drop_first(&mut self) -> usize {
        let Some(frame) = self.frames.pop_front() else { return 0 };
        self.first += 1;
        let freed = frame.len() + FRAME_OVERHEAD;
        self.bytes -= freed;
        freed
    }
}

impl Drop for FrameLog {
    fn drop(&mut self) {
        let held = self.lock().bytes;
        let mut state = self.budget.lock();
        state.held = state.held.saturating_sub(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Arc<FrameLog> {
        FrameLog::new(&Arc::new(Budget::default()))
    }

    async fn text(feed: Feed) -> String {
        let chunks: Vec<Bytes> = feed.0.collect().await;
        chunks.iter().map(|chunk| String::from_utf8_lossy(chunk)).collect()
    }

    #[tokio::test]
    async fn a_reader_gets_each_frame_after_its_place_once_to_the_terminal_frame() {
        let log = log();
        for word in ["a", "b", "c"] {
            log.push(&Frame::Stream { text: word });
        }
        let early = log.follow(0, CancellationToken::new());
        let late = log.follow(2, CancellationToken::new());
        log.push(&Frame::Complete);
        let all = text(early).await;
        for (seq, word) in ["a", "b", "c"].iter().enumerate() {
            let frame = format!(
                "id: {}.{}\ndata: {{\"type\":\"stream\",\"text\":\"{word}\"}}\n\n",
                log.run(),
                seq + 1
            );
            assert_eq!(all.matches(&frame).count(), 1);
        }
        assert!(all.ends_with("data: {\"type\":\"complete\"}\n\n"));
        let rest = text(late).await;
        assert!(!rest.contains("\"b\"") && rest.contains("\"c\"") && rest.contains("complete"));
    }

    #[tokio::test]
    async fn nothing_comes_after_the_terminal_frame() {
        let log = log();
        log.push(&Frame::Complete);
        log.push(&Frame::Stream { text: "late" });
        assert!(!text(log.follow(0, CancellationToken::new())).await.contains("late"));
    }

    #[tokio::test]
    async fn a_run_over_its_bound_loses_its_oldest_frames_and_says_so() {
        let log = log();
        let big = "x".repeat(1024 * 1024);
        for _ in 0..10 {
            log.push(&Frame::Stream { text: &big });
        }
        assert!(log.start() > 0 && !log.holds(0) && log.holds(9) && !log.holds(u64::MAX));
        let late = log.follow(log.start(), CancellationToken::new());
        log.push(&Frame::Complete);
        assert_eq!(
            text(log.follow(0, CancellationToken::new())).await,
            "",
            "a reader whose place is gone is let go"
        );
        assert!(
            text(late).await.contains("complete"),
            "one that comes late begins where frames stay for a while"
        );
    }

    #[tokio::test]
    async fn a_reader_that_begins_late_keeps_its_place_while_more_comes() {
        let log = log();
        let word = "x".repeat(1000);
        let enough = RUN_BYTES / 1000 + 100;
        for _ in 0..enough {
            log.push(&Frame::Stream { text: &word });
        }
        let late = log.follow(log.start(), CancellationToken::new());
        for _ in 0..SLACK_BYTES / 1200 {
            log.push(&Frame::Stream { text: &word });
        }
        log.push(&Frame::Complete);
        let seen = text(late).await;
        assert!(seen.contains("complete") && seen.len() > RUN_BYTES / 2);
    }

    #[tokio::test]
    async fn a_message_larger_than_the_bound_is_still_seen_by_its_sender() {
        let log = log();
        let feed = log.follow(0, CancellationToken::new());
        log.push(&Frame::User { text: &"x".repeat(3 * RUN_BYTES) });
        log.push(&Frame::Stream { text: "answer" });
        log.push(&Frame::Complete);
        let seen = text(feed).await;
        assert!(seen.len() > 3 * RUN_BYTES && seen.contains("answer") && seen.contains("complete"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_shows_a_keepalive_every_15_seconds() {
        let log = log();
        let started = tokio::time::Instant::now();
        let mut feed = log.follow(0, CancellationToken::new()).0;
        assert_eq!(feed.next().await.as_deref(), Some(&b": keepalive\n\n"[..]));
        assert_eq!(started.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_was_away_gets_one_keepalive_not_all_it_missed() {
        let log = log();
        log.push(&Frame::Stream { text: "a" });
        let mut feed = log.follow(0, CancellationToken::new()).0;
        feed.next().await;
        tokio::time::advance(10 * KEEPALIVE).await;
        feed.next().await;
        let back = tokio::time::Instant::now();
        feed.next().await;
        assert_eq!(back.elapsed(), KEEPALIVE);
    }

    #[tokio::test]
    async fn closing_lets_every_reader_go() {
        let closing = CancellationToken::new();
        let feed = log().follow(0, closing.clone());
        closing.cancel();
        assert!(text(feed).await.starts_with(": the server"));
    }
}
