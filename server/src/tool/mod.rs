//! The tools that an agent may use, one file each. A tool gets its arguments and a [`Context`], and answers
//! text; it knows nothing of sessions or models. Stop drops nothing silently: a tool watches
//! [`Context::cancel`] and kills what it started.

pub mod registry;

pub(crate) mod args;
pub(crate) mod blocking;
mod file_edit;
mod file_list;
mod file_read;
mod file_write;
mod glob;
mod grep;
mod processes;
mod rm_guard;
pub mod sandbox;
mod shell_exec;
mod shell_output;
mod shell_params;
mod shell_process;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view_image;
mod walk;
mod web_fetch;

pub use registry::Registry;

use crate::access::AccessLevel;
use crate::allow_list::AllowList;
use crate::model::ToolSpec;
use crate::placeholder::Params;
use crate::text::{cut_middle_with_note, cut_with_note};
use crate::workspace::paths::{Guard, Rules};
use futures_util::future::BoxFuture;
use sandbox::{NetworkUse, Sandbox};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Limits of the tools, from the settings.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a shell command may run.
    pub shell_timeout: Duration,
    /// How many bytes of a command's output are kept, head and tail.
    pub shell_output_bytes: usize,
    /// How many matches `grep` gives when not told otherwise.
    pub grep_default_matches: usize,
    /// How long `web_fetch` may take in all.
    pub web_fetch_timeout: Duration,
    /// How many bytes of a page `web_fetch` gives.
    pub web_fetch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shell_timeout: Duration::from_secs(120),
            shell_output_bytes: 5 * 1024 * 1024,
            grep_default_matches: 50,
            web_fetch_timeout: Duration::from_secs(10),
            web_fetch_bytes: 50 * 1024,
        }
    }
}

/// Where and with which rights a tool works.
#[derive(Clone, Debug)]
pub struct Context {
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// The home that `~/` means: the user's.
    pub user_home: PathBuf,
    /// halo's own home, whose secrets are hidden.
    pub halo_home: PathBuf,
    /// The session's level.
    pub access: AccessLevel,
    /// `general.sandbox.hidden_dirs`, absolute.
    pub hidden_dirs: Arc<[PathBuf]>,
    /// `general.sandbox.hidden_files`, absolute.
    pub hidden_files: Arc<[PathBuf]>,
    /// `general.sandbox.writable_dirs`, absolute.
    pub writable_dirs: Arc<[PathBuf]>,
    /// What shell commands run in below full access.
    pub sandbox: Arc<Sandbox>,
    /// `general.sandbox.network`.
    pub sandbox_network: NetworkUse,
    /// What may be called beside public addresses.
    pub url_allowlist: Arc<AllowList>,
    /// What commands may use of the settings, and what nobody is to read of what they print.
    pub params: Arc<Params>,
    /// The limits in force.
    pub limits: Limits,
    /// Cancelled by stop, interrupt and shutdown.
    pub cancel: CancellationToken,
}

impl Context {
    /// The path guard of this session. Touches the disk: for blocking threads.
    pub fn guard(&self) -> Guard {
        Guard::new(Rules {
            workspace: &self.workspace,
            user_home: &self.user_home,
            halo_home: &self.halo_home,
            access: self.access,
            hidden_dirs: &self.hidden_dirs,
            hidden_files: &self.hidden_files,
            writable_dirs: &self.writable_dirs,
        })
    }
}

/// What a long answer may lose on its way to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its end.
    End,
    /// Its middle: the end tells more.
    Middle,
    /// Nothing: it is of use as a whole.
    Never,
}

/// What a tool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For the model, and cut shorter for people. Never empty.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// What the model shall see besides the text.
    pub image: Option<Image>,
    /// What a long text may lose. The turn sets it as [`Tool::cut`] says.
    pub cut: Cut,
}

/// An image for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub mime_type: &'static str,
    /// Base64 of the bytes.
    pub data: String,
}

impl Output {
    /// A good answer.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, image: None, cut: Cut::End }
    }

    /// A failure: what happened, and what the model can do about it.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, image: None, cut: Cut::End }
    }

    /// The text as the model gets it: in at most `max` characters, with a note where some are left out.
    pub fn for_model(&self, max: usize) -> String {
        match self.cut {
            Cut::End => cut_with_note(self.text.clone(), max),
            Cut::Middle => cut_middle_with_note(&self.text, max),
            Cut::Never => self.text.clone(),
        }
    }
}

impl From<Result<String, String>> for Output {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(text) => Self::ok(text),
            Err(text) => Self::error(text),
        }
    }
}

/// One tool.
pub trait Tool: Send + Sync {
    /// Name, description and parameters as the model sees them.
    fn spec(&self) -> ToolSpec;

    /// What its long answers may lose.
    fn cut(&self) -> Cut {
        Cut::End
    }

    /// Whether it is of use only to a model that takes images.
    fn needs_sight(&self) -> bool {
        false
    }

    /// Runs it. Must return soon after `context.cancel` fires, with nothing left running.
    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output>;
}
