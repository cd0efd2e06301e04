//! Following a session, and looking at it. Each answer is made in one go by the session's owner, so that what a
//! client reads and what it then follows fit together without hole or repeat.

use super::actor::Actor;
use super::frames::FrameLog;
use super::ids::EventId;
use super::rows::{self, Place, Standing};
use super::{Feed, From, Snapshot};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::sync::Arc;

impl Actor {
    /// The rest of what `from` asks for; `None` when the session is idle and there is nothing to send.
    pub fn subscribe(&self, from: &From) -> Option<Feed> {
        match from {
            From::Now => {
                let run = self.run.as_ref()?;
                Some(self.follow(&run.log, run.log.last().seq))
            }
            From::After(Some(id)) => match self.held(id) {
                Some(log) if log.ended() && log.last() == *id => {
                    // That run is over and seen to its end: what comes next is the run in flight, if any.
                    self.run.as_ref().map(|run| self.follow(&run.log, 0))
                }
                Some(log) => Some(self.follow(log, id.seq)),
                None => Some(self.resync()),
            },
            From::After(None) | From::Replay => Some(self.resync()),
        }
    }

    /// The run that still holds the frame after `id`.
    fn held(&self, id: &EventId) -> Option<&Arc<FrameLog>> {
        let current = self.run.as_ref().map(|run| &run.log);
        let last = self.last.as_ref().map(|(log, _)| log);
        current.into_iter().chain(last).find(|log| log.run() == id.run && log.holds(id.seq))
    }

    fn follow(&self, log: &Arc<FrameLog>, after: u64) -> Feed {
        log.follow(after, self.shared.closing.clone())
    }

    /// The place is not held: says so, then gives the run in flight as far back as it is held.
    fn resync(&self) -> Feed {
        let Some(run) = &self.run else {
            let both = "data: {\"type\":\"resync\"}\n\ndata: {\"type\":\"complete\"}\n\n";
            return Feed(stream::once(async { Bytes::from_static(both.as_bytes()) }).boxed());
        };
        let start = run.log.start();
        let frame = if start == 0 {
            "data: {\"type\":\"resync\"}\n\n"
        } else {
            "data: {\"type\":\"resync\",\"truncated\":true}\n\n"
        };
        let first = stream::once(async { Bytes::from_static(frame.as_bytes()) });
        Feed(first.chain(self.follow(&run.log, start).0).boxed())
    }

    /// A look for `/history`.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let row = self.row.as_ref()?;
        let running = self.run.as_ref();
        let log = running.map(|run| &run.log).or(self.last.as_ref().map(|(log, _)| log));
        let streaming = running.and_then(|run| {
            let shown = run.inflight.shown();
            let place = Place { seq: self.next.log, at: self.last_at.max(row.updated_at) };
            (!shown.is_empty()).then(|| rows::assistant(place, &run.agent_name, &shown, Standing::Streaming))
        });
        Some(Snapshot {
            running: running.is_some(),
            event_id: log.map(|log| log.last()),
            streaming,
            top: self.next.log - 1,
        })
    }
}
