//! Agents: who they are on disk ([`profile`]), what they are told ([`prompt`]), and how they work through a turn
//! ([`turn`]). Knows models and tools; knows nothing of sessions, logs or clients.

pub mod compact;
mod files;
mod loops;
pub mod names;
pub mod profile;
pub mod prompt;
pub mod remove;
pub mod repair;
pub mod retry;
pub mod skill;
mod summarise;
pub mod turn;
pub mod user;
mod yaml;

use crate::model::{Model, ToolSpec};
use crate::tool::{Context, Tool};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// An agent that is ready to work, built for one run.
pub struct Agent {
    /// Its display name.
    pub name: String,
    /// The model it calls.
    pub model: Arc<dyn Model>,
    /// The system prompt.
    pub system: Arc<str>,
    /// Its tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The same tools as the model sees them.
    pub specs: Arc<[ToolSpec]>,
    /// Where and with which rights the tools work; the cancel token is put in for each call.
    pub context: Context,
    /// Tries of a model call in a row (`general.agent.max_retries`).
    pub max_tries: u32,
    /// Characters of a tool's answer that the model gets (`general.limits.tool_result_render_chars`).
    pub render_chars: usize,
    /// Bytes of a tool's answer that the log keeps (`general.limits.tool_result_ui_chars`).
    pub display_bytes: usize,
    /// When its conversations are compacted.
    pub compaction: compact::Limits,
}

impl Agent {
    /// Tokens of what goes with every call, roughly.
    pub fn overhead(&self) -> u64 {
        compact::overhead(&self.system, &self.specs)
    }

    fn tool_context(&self, cancel: CancellationToken) -> Context {
        Context { cancel, ..self.context.clone() }
    }
}
