//! What another life of the server left: the row in flight goes into the log as interrupted, an interrupted run
//! goes on with a word about the restart, a queue without a run is run. Three crashes in a row on one run end it
//! (sessions contract, section 6).

use super::actor::Actor;
use super::compact::CRASHED;
use super::frames::Frame;
use super::inflight::Checkpoint;
use super::receive::user_message;
use super::rows::{self, ContentBlock, INTERRUPTED_BY_RESTART, Standing};
use super::state::Left;
use crate::access::AccessLevel;
use crate::clock::iso;
use crate::store::sessions::{self, Write};
use crate::store::{StoreError, tree};

/// Crashes in a row after which a run is given up.
const MAX_CRASHES: i64 = 3;

impl Actor {
    /// Takes up what is left; `crashes` is the ledger's count where a run was in flight.
    pub async fn recover(&mut self, crashes: Option<i64>) {
        let mark = self.mark();
        if let Err(error) = self.try_recover(crashes).await {
            tracing::error!(session = %self.id, %error, "an interrupted session could not be taken up again; it is tried later");
            self.back_to(mark);
            self.left = Some(Left { crashes });
            return;
        }
        // As with its run: only a root goes on by itself.
        self.collect_and(!self.id.is_child()).await;
    }

    async fn try_recover(&mut self, crashes: Option<i64>) -> Result<(), StoreError> {
        let Some(row) = self.row.clone() else { return Ok(()) };
        if self.run.is_some() {
            return Ok(());
        }
        self.load_history().await?;
        let mut writes = self.interrupted_row(&row.agent_name).await?;
        writes.push(Write::Inflight(None));
        if self.id.is_child() || row.archived_at.is_some() {
            // Only roots go on by themselves; whoever started this one takes it up again if it is still wanted.
            writes.extend(self.drain(None).into_iter().flat_map(|drained| drained.writes));
            writes.push(Write::RunEnded);
            return self.commit(writes).await;
        }
        let crashes = crashes.map(|before| before + 1);
        if crashes.is_some_and(|crashes| crashes >= MAX_CRASHES) {
            let place = self.place();
            let text = format!(
                "[error] The server crashed {MAX_CRASHES} times in a row during this run, so it is not taken up again. \
                 Send a message to go on."
            );
            writes.push(Self::log_write(place, rows::notification(place, &row.agent_name, &text)));
            writes.extend(self.drain(None).into_iter().flat_map(|drained| drained.writes));
            writes.push(Write::RunEnded);
            return self.commit(writes).await;
        }
        if crashes.is_none() && self.queue.is_empty() {
            return self.commit(writes).await;
        }
        let mut access = AccessLevel::from_stored(&row.access_level);
        let mut nudge = None;
        if crashes.is_some() {
            let place = self.place();
            let id = self.id.as_str().to_owned();
            let children = self.shared.db.read(move |conn| tree::children(conn, &id, 1)).await?;
            let text = nudge_text(place.at, !children.is_empty());
            writes.push(Self::log_write(place, rows::user(place, &text)));
            writes.push(self.push_message(user_message(place.at, &text, &[])).1);
            nudge = Some(text);
        }
        if let Some(drained) = self.drain(None) {
            writes.extend(drained.writes);
            access = access.min(drained.access);
        }
        let at = self.now();
        let crashes = crashes.unwrap_or(0);
        writes.push(Write::RunStarted { at, crashes });
        self.commit(writes).await?;
        let log = self.start_run(access, false);
        if let Some(text) = nudge {
            log.push(&Frame::User { text: &text });
        }
        Ok(())
    }

    /// The row that was in flight, its open calls closed, as a write of the log.
    async fn interrupted_row(&mut self, agent: &str) -> Result<Vec<Write>, StoreError> {
        let id = self.id.as_str().to_owned();
        let Some(text) = self.shared.db.read(move |conn| sessions::inflight(conn, &id)).await? else {
            return Ok(Vec::new());
        };
        let Checkpoint { mut blocks, compacting, .. } = match serde_json::from_str(&text) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                tracing::error!(session = %self.id, %error, "the row in flight cannot be read and is dropped");
                return Ok(Vec::new());
            }
        };
        for block in &mut blocks {
            if let ContentBlock::ToolCall { tool_call, .. } = block {
                tool_call.output.get_or_insert_with(|| INTERRUPTED_BY_RESTART.to_owned());
            }
        }
        let mut writes = Vec::new();
        if !blocks.is_empty() {
            let place = self.place();
            writes
                .push(Self::log_write(place, rows::assistant(place, agent, &blocks, Standing::Interrupted)));
        }
        if compacting {
            let place = self.place();
            writes.push(Self::log_write(place, rows::notification(place, agent, CRASHED)));
        }
        Ok(writes)
    }
}

fn nudge_text(at: i64, children: bool) -> String {
    let children = if children {
        " Your sub-agents were stopped; query_session takes one up again with all that it knows."
    } else {
        ""
    };
    format!(
        "[System] The server restarted at {} while you were mid-turn. Everything up to your last finished tool call \
         is still here. A call that was running then may or may not have taken effect: check before you repeat it. \
         Go on with the task from where you were; do not start over and do not wait for an answer to this note.{children}",
        iso(at)
    )
}
