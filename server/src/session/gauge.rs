//! How full a session's context is: the tokens that the provider counted, an estimate of what came since, and the
//! images. Kept as running sums, so that a look before every call does not walk a long history.

use super::actor::{Actor, Command};
use super::finish::CUT_MARKER;
use super::ids::SessionId;
use super::run::{self, Start};
use super::workspace::{Workspace, ask};
use super::{ContextInfo, SessionError};
use crate::access::AccessLevel;
use crate::agent::compact::{self, Limits, MAX_IMAGE_BYTES, MAX_IMAGES};
use crate::model::{Block, Message, Role, Usage};
use crate::store::StoreError;
use crate::store::sessions::{self, SessionRow, Write};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What an agent says about the room for its conversations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub limits: Limits,
    /// Tokens of the system prompt and the tools.
    pub overhead: u64,
}

/// The running sums.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Tokens of a call with the first `counted` messages; 0 while nothing was counted.
    tokens: u64,
    counted: usize,
    /// The images of the first `seen` messages, and their bytes.
    images: usize,
    image_bytes: usize,
    seen: usize,
}

impl Gauge {
    /// The sums of a history that was rewritten: an estimate, scaled, stands for what the provider counted.
    pub fn estimated(history: &[Arc<Message>], overhead: u64, scale: f64) -> Self {
        let counted = answered(history);
        let tokens = (estimate(&history[..counted], overhead) as f64 * scale) as u64;
        Self { tokens: tokens.max(1), counted, ..Self::default() }
    }

    /// Tokens of a call with the messages that are counted.
    pub fn tokens(&self) -> i64 {
        self.tokens as i64
    }
}

/// What a session's owner knows of its context.
pub(super) struct Look {
    pub row: SessionRow,
    /// Tokens after the last call, and an estimate of what came since.
    pub used: u64,
    /// Whether the system prompt and the tools are in that.
    pub counted: bool,
}

/// How many messages there are up to the last one that the model has finished, it included: of an answer that was cut
/// nobody has counted anything.
fn answered(history: &[Arc<Message>]) -> usize {
    let is_cut = |message: &Message| matches!(message.content.last(), Some(Block::Text { text }) if text.ends_with(CUT_MARKER));
    let finished = |message: &Arc<Message>| message.role == Role::Assistant && !is_cut(message);
    history.iter().rposition(finished).map_or(0, |last| last + 1)
}

impl Actor {
    fn gauge(&mut self) -> &mut Gauge {
        if self.gauge.is_none() {
            let tokens = self.row.as_ref().map_or(0, |row| row.context_tokens.max(0) as u64);
            let counted = if tokens == 0 { 0 } else { answered(&self.messages()) };
            self.gauge = Some(Gauge { tokens, counted, ..Gauge::default() });
        }
        self.gauge.get_or_insert_default()
    }

    /// Tokens that the next call would hold; `overhead` counts while no call was counted.
    pub fn used(&mut self, overhead: u64) -> u64 {
        let (tokens, counted) = {
            let gauge = self.gauge();
            (gauge.tokens, gauge.counted)
        };
        let base = if tokens == 0 { overhead } else { tokens };
        base + self
            .history
            .iter()
            .flatten()
            .skip(counted)
            .map(|(_, message)| compact::estimate(message))
            .sum::<u64>()
    }

    /// The model answered, and its answer is in the history: gives the write for the session's row.
    pub fn answered(&mut self, at: i64, usage: &Usage) -> Write {
        let (overhead, threshold) = self
            .run
            .as_ref()
            .and_then(|run| run.compaction.room)
            .map_or((0, u64::MAX), |room| (room.overhead, room.limits.threshold()));
        let counted = usage.input + usage.output + usage.cache_read + usage.cache_write;
        // A provider that counts nothing is helped out.
        let tokens = if counted == 0 { self.used(overhead) } else { counted };
        let length = self.history.as_ref().map_or(0, Vec::len);
        let gauge = self.gauge();
        (gauge.tokens, gauge.counted) = (tokens, length);
        if let Some(run) = &mut self.run {
            run.compaction.answered(tokens < threshold);
        }
        self.count(at, tokens as i64, usage.output)
    }

    /// The write that puts the count on disk; `output` tokens were written for it.
    pub fn count(&mut self, at: i64, context_tokens: i64, output: u64) -> Write {
        let output_tokens = output as i64;
        if let Some(row) = &mut self.row {
            row.context_tokens = context_tokens;
            row.total_output_tokens += output_tokens;
        }
        Write::Answered { at, context_tokens, output_tokens }
    }

    /// Keeps the images of the history within their bounds: over them, the oldest become text until both number and
    /// bytes are under half.
    pub async fn trim_images(&mut self) -> Result<(), StoreError> {
        let length = self.history.as_ref().map_or(0, Vec::len);
        let seen = self.gauge().seen;
        let (images, bytes) = self
            .history
            .iter()
            .flatten()
            .skip(seen)
            .map(|(_, message)| compact::images(message))
            .fold((0, 0), |sum, images| (sum.0 + images.0, sum.1 + images.1));
        let gauge = self.gauge();
        gauge.images += images;
        gauge.image_bytes += bytes;
        gauge.seen = length;
        let (mut images, mut bytes) = (gauge.images, gauge.image_bytes);
        if images <= MAX_IMAGES && bytes <= MAX_IMAGE_BYTES {
            return Ok(());
        }
        let before = images;
        let mut writes = Vec::new();
        for (seq, message) in self.history.iter_mut().flatten() {
            let over = |images: usize, bytes: usize| images * 2 >= MAX_IMAGES || bytes * 2 >= MAX_IMAGE_BYTES;
            if !over(images, bytes) {
                break;
            }
            if compact::images(message).0 == 0 {
                continue;
            }
            compact::remove_images(Arc::make_mut(message), |size| {
                let remove = over(images, bytes);
                if remove {
                    images -= 1;
                    bytes -= size;
                }
                remove
            });
            let message = serde_json::to_string(message).unwrap_or_default();
            writes.push(Write::Message { seq: *seq, message });
        }
        let gauge = self.gauge();
        (gauge.images, gauge.image_bytes) = (images, bytes);
        writes.extend(self.settle().writes);
        writes.push(self.notification(&format!(
            "Removed {} older image(s) from context to keep the request under the size limit",
            before - images
        )));
        self.commit_or_keep(writes).await
    }

    /// How full the context is; `None` when the session has no row.
    pub async fn look(&mut self) -> Result<Option<Look>, SessionError> {
        let Some(row) = self.row.clone() else { return Ok(None) };
        self.load_history().await.map_err(|error| self.internal(&error))?;
        let used = self.used(0);
        let counted = self.gauge().tokens > 0;
        Ok(Some(Look { row, used, counted }))
    }
}

/// Tokens of a call with these messages.
pub(super) fn estimate(messages: &[Arc<Message>], overhead: u64) -> u64 {
    overhead + messages.iter().map(|message| compact::estimate(message)).sum::<u64>()
}

/// How full the model's context is, for people.
pub(super) async fn context(
    workspace: &Workspace,
    id: &SessionId,
) -> Result<Option<ContextInfo>, SessionError> {
    let look = if workspace.is_owned() {
        ask(workspace, id, |reply| Command::Look { reply }).await??
    } else {
        let key = id.to_string();
        let read = workspace.shared().db.read(move |conn| sessions::get(conn, &key));
        let row = read.await.map_err(|error| super::internal(&format!("session {id}"), &error))?;
        row.map(|row| Look { used: row.context_tokens.max(0) as u64, counted: row.context_tokens > 0, row })
    };
    let Some(Look { row, used, counted }) = look else { return Ok(None) };
    let access = AccessLevel::from_stored(&row.access_level);
    let start = Start {
        workspace: workspace.clone(),
        session: id.clone(),
        agent_id: row.agent_id,
        working_dir: row.working_dir,
        prompt_context: row.prompt_context,
        access,
        cancel: CancellationToken::new(),
    };
    let agent = run::build(&start, access).await.map_err(SessionError::AgentBroken)?;
    Ok(Some(ContextInfo {
        used: if counted { used } else { used + agent.overhead() },
        window: agent.compaction.window,
        threshold: agent.compaction.threshold(),
        model: agent.model.id().to_owned(),
        tools: agent.specs.iter().map(|spec| spec.name.clone()).collect(),
        agent: agent.name,
    }))
}
