//! Updates on their way to the editor. The protocol crate queues without a limit; here a sender waits while
//! more than [`MAX_WAITING`] lines are not yet written, so an editor that does not read holds up its turn and
//! not our memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{SessionId, SessionNotification, SessionUpdate};
use tokio::sync::Notify;
use tracing::debug;

use crate::turn::Updates;

/// How many lines may wait for the editor.
const MAX_WAITING: usize = 256;

/// Counts the lines that wait. Responses are written without being counted in, so the count may fall short by
/// a few of them; it never exceeds what waits.
#[derive(Debug, Default)]
pub struct Gauge {
    waiting: AtomicUsize,
    written: Notify,
}

impl Gauge {
    /// A line was written.
    pub fn written(&self) {
        let _ =
            self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| waiting.checked_sub(1));
        self.written.notify_waiters();
    }

    /// Counts a line in once there is room for it.
    async fn enter(&self) {
        loop {
            let written = self.written.notified();
            if self.waiting.load(Ordering::Relaxed) < MAX_WAITING {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                return;
            }
            written.await;
        }
    }
}

/// The way to the editor for the updates of one session.
#[derive(Clone)]
pub struct Outlet {
    editor: ConnectionTo<Client>,
    session: SessionId,
    gauge: Arc<Gauge>,
}

impl Outlet {
    /// An outlet for the session that the editor knows as `session`.
    pub fn new(editor: ConnectionTo<Client>, session: SessionId, gauge: Arc<Gauge>) -> Self {
        Self { editor, session, gauge }
    }
}

impl Updates for Outlet {
    async fn send(&mut self, update: SessionUpdate) {
        self.gauge.enter().await;
        if let Err(error) =
            self.editor.send_notification(SessionNotification::new(self.session.clone(), update))
        {
            debug!("an update found no connection: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn a_sender_waits_for_a_slow_editor_and_goes_on_when_a_line_is_written() {
        let gauge = Gauge::default();
        for _ in 0..MAX_WAITING {
            gauge.enter().now_or_never().expect("room");
        }
        let mut blocked = Box::pin(gauge.enter());
        assert!((&mut blocked).now_or_never().is_none());
        gauge.written();
        blocked.now_or_never().expect("room again");
    }

    #[test]
    fn lines_that_were_not_counted_in_do_no_harm() {
        let gauge = Gauge::default();
        gauge.written();
        assert_eq!(gauge.waiting.load(Ordering::Relaxed), 0);
    }
}
