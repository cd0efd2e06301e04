//! The configuration as the rest of the program uses it: typed, flat, after precedence.

use super::environment::Environment;
use super::password::AdminPassword;
use super::resolve::{Origin, Resolved};
use super::sections::{Sections, Workspaces};
use super::table::{self, SETTINGS, Setting};
use super::value::Value;
use crate::allow_list::AllowList;
use crate::placeholder::Params;
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// All settings in force. Made anew when a file changes; take it from [`super::Live::current`] for each use.
#[derive(Debug)]
pub struct Effective {
    /// `server.host`.
    pub host: String,
    /// `server.port`; 0 for a free one.
    pub port: u16,
    /// `server.password`, or `HALO_PASSWORD`.
    pub password: AdminPassword,
    /// `server.jwt_secret`; none only before the first start made one.
    pub jwt_secret: Option<SecretString>,
    /// `server.cors_origins`.
    pub cors_origins: Arc<[String]>,
    /// `timeout.shell_exec`.
    pub shell_timeout: Duration,
    /// `timeout.web_fetch`.
    pub web_fetch_timeout: Duration,
    /// `timeout.model_request`: the longest silence of a model.
    pub model_idle_timeout: Duration,
    /// `logging.max_file_size`, in bytes.
    pub log_max_bytes: u64,
    /// `logging.max_files`, the current one included.
    pub log_max_files: usize,
    /// `general.logging.level`: one of [`super::value::LEVELS`].
    pub log_level: String,
    /// `general.server.trust_proxy`.
    pub trust_proxy: bool,
    /// `general.agent.max_retries`.
    pub max_retries: u32,
    /// `general.session.max_queue_size`.
    pub max_queue_size: usize,
    /// `general.session.max_nesting_depth`.
    pub max_nesting_depth: usize,
    /// `general.limits.auto_report_chars`.
    pub auto_report_chars: usize,
    /// `general.compact.compress_at`: above 0, at most 1.
    pub compress_at: f64,
    /// `general.compact.keep_messages`.
    pub keep_messages: usize,
    /// `general.compact.max_summary_input`, in characters.
    pub max_summary_input: usize,
    /// `general.compact.max_message_slice`, in characters.
    pub max_message_slice: usize,
    /// `HALO_MAX_CONTEXT_TOKENS`.
    pub max_context_tokens: u64,
    /// `general.limits.shell_output_bytes`.
    pub shell_output_bytes: usize,
    /// `general.limits.grep_default_matches`.
    pub grep_default_matches: usize,
    /// `general.limits.web_fetch_bytes`.
    pub web_fetch_bytes: usize,
    /// `general.limits.tool_result_render_chars`.
    pub tool_result_render_chars: usize,
    /// `general.limits.tool_result_ui_chars`.
    pub tool_result_ui_chars: usize,
    /// `general.sandbox.hidden_dirs`, absolute.
    pub hidden_dirs: Arc<[PathBuf]>,
    /// `general.sandbox.hidden_files`, absolute.
    pub hidden_files: Arc<[PathBuf]>,
    /// `general.sandbox.writable_dirs`, absolute.
    pub writable_dirs: Arc<[PathBuf]>,
    /// `general.sandbox.network`: `on`, `off` or `host`.
    pub sandbox_network: String,
    /// `general.a2a.url_allowlist`.
    pub url_allowlist: Arc<AllowList>,
    /// `HALO_DEFAULT_PROVIDER`.
    pub default_provider: Option<String>,
    /// `HALO_BADGE`, without blanks around it.
    pub badge: Option<String>,
    resolved: Vec<Resolved>,
    sections: Arc<Sections>,
    workspaces: Arc<Workspaces>,
    environment: Environment,
}

impl Effective {
    /// Builds it from resolved values.
    pub(super) fn new(
        resolved: Vec<Resolved>,
        sections: Arc<Sections>,
        workspaces: Arc<Workspaces>,
        environment: Environment,
    ) -> Self {
        let values = Values { resolved: &resolved, user_home: environment.get("HOME").map(PathBuf::from) };
        Self {
            host: values.text("server.host").unwrap_or_default(),
            port: values.number("server.port") as u16,
            password: values.password(),
            jwt_secret: values.secret("server.jwt_secret"),
            cors_origins: values.list("server.cors_origins").into(),
            shell_timeout: Duration::from_millis(values.number("timeout.shell_exec")),
            web_fetch_timeout: Duration::from_millis(values.number("timeout.web_fetch")),
            model_idle_timeout: Duration::from_millis(values.number("timeout.model_request")),
            log_max_bytes: values.number("logging.max_file_size"),
            log_max_files: values.number("logging.max_files") as usize,
            log_level: values.text("general.logging.level").unwrap_or_default(),
            trust_proxy: matches!(values.get("general.server.trust_proxy"), Value::Bool(true)),
            max_retries: values.number("general.agent.max_retries") as u32,
            max_queue_size: values.number("general.session.max_queue_size") as usize,
            max_nesting_depth: values.number("general.session.max_nesting_depth") as usize,
            auto_report_chars: values.number("general.limits.auto_report_chars") as usize,
            compress_at: values.fraction("general.compact.compress_at"),
            keep_messages: values.number("general.compact.keep_messages") as usize,
            max_summary_input: values.number("general.compact.max_summary_input") as usize,
            max_message_slice: values.number("general.compact.max_message_slice") as usize,
            max_context_tokens: values.number("HALO_MAX_CONTEXT_TOKENS"),
            shell_output_bytes: values.number("general.limits.shell_output_bytes") as usize,
            grep_default_matches: values.number("general.limits.grep_default_matches") as usize,
            web_fetch_bytes: values.number("general.limits.web_fetch_bytes") as usize,
            tool_result_render_chars: values.number("general.limits.tool_result_render_chars") as usize,
            tool_result_ui_chars: values.number("general.limits.tool_result_ui_chars") as usize,
            hidden_dirs: values.paths("general.sandbox.hidden_dirs"),
            hidden_files: values.paths("general.sandbox.hidden_files"),
            writable_dirs: values.paths("general.sandbox.writable_dirs"),
            sandbox_network: values.text("general.sandbox.network").unwrap_or_default(),
            url_allowlist: Arc::new(AllowList::new(values.list("general.a2a.url_allowlist"))),
            default_provider: values.text("HALO_DEFAULT_PROVIDER"),
            badge: values
                .text("HALO_BADGE")
                .map(|badge| badge.trim().to_owned())
                .filter(|badge| !badge.is_empty()),
            resolved,
            sections,
            workspaces,
            environment,
        }
    }

    /// A secret of a provider, skill or remote: the workspace's, else the global one. `<<NAME>>` is resolved;
    /// a variable that is not set stays literal.
    pub fn secret(&self, id: &str, key: &str, workspace: Option<&Path>) -> Option<SecretString> {
        self.of_workspace(workspace)
            .and_then(|sections| sections.secret(id, key))
            .or_else(|| self.sections.secret(id, key))
    }

    /// A parameter of a provider or skill: the workspace's, else the global one.
    pub fn param(&self, id: &str, key: &str, workspace: Option<&Path>) -> Option<String> {
        self.of_workspace(workspace)
            .and_then(|sections| sections.param(id, key))
            .or_else(|| self.sections.param(id, key))
    }

    /// Every parameter as a workspace's texts and commands may use it: the workspace's before the global one. Masked
    /// are secrets, what came out of the environment, and the params of which `is_secret` says so by id and key.
    pub fn params(&self, workspace: &Path, is_secret: impl Fn(&str, &str) -> bool) -> Params {
        let own = self.workspaces.sections(workspace, &self.environment);
        let mut values = BTreeMap::new();
        let mut masked: Vec<String> = Vec::new();
        for sections in [&*self.sections, &*own] {
            masked.extend(sections.masked().map(str::to_owned));
            for (id, key, value) in sections.param_values() {
                if is_secret(id, key) {
                    masked.push(value.to_owned());
                }
                values.insert((id.to_owned(), key.to_owned()), value.to_owned());
            }
        }
        Params::new(values, masked)
    }

    /// The params and secrets of the global file.
    pub fn sections(&self) -> &Sections {
        &self.sections
    }

    /// Every setting with its value and where that comes from, in the order of the table.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Setting, &Resolved)> {
        SETTINGS.iter().zip(&self.resolved)
    }

    /// Whether the first start has made this secret a moment ago.
    pub fn is_of_first_start(&self, key: &str) -> bool {
        table::find(key).is_some_and(|(index, _)| self.resolved[index].origin == Origin::FirstStart)
    }

    pub(super) fn workspaces(&self) -> Arc<Workspaces> {
        self.workspaces.clone()
    }

    pub(super) fn resolved(&self) -> &[Resolved] {
        &self.resolved
    }

    fn of_workspace(&self, workspace: Option<&Path>) -> Option<Arc<Sections>> {
        workspace.map(|path| self.workspaces.sections(path, &self.environment))
    }
}

struct Values<'a> {
    resolved: &'a [Resolved],
    user_home: Option<PathBuf>,
}

impl Values<'_> {
    fn slot(&self, key: &str) -> Option<&Resolved> {
        table::find(key).and_then(|(index, _)| self.resolved.get(index))
    }

    fn get(&self, key: &str) -> &Value {
        self.slot(key).map_or(&Value::Unset, |resolved| &resolved.value)
    }

    fn number(&self, key: &str) -> u64 {
        match self.get(key) {
            Value::Number(number) => *number,
            _ => 0,
        }
    }

    fn fraction(&self, key: &str) -> f64 {
        match self.get(key) {
            Value::Fraction(part) => *part,
            _ => 1.0,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.get(key) {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn secret(&self, key: &str) -> Option<SecretString> {
        match self.get(key) {
            Value::Secret(secret) => Some(secret.clone()),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Value::List(items) => items.clone(),
            _ => Vec::new(),
        }
    }

    fn paths(&self, key: &str) -> Arc<[PathBuf]> {
        let absolute = |item: String| match (item.strip_prefix("~/"), &self.user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(item),
        };
        self.list(key).into_iter().map(absolute).filter(|path| path.is_absolute()).collect()
    }

    fn password(&self) -> AdminPassword {
        match (self.secret("server.password"), self.slot("server.password").map(|slot| &slot.origin)) {
            (None, _) => AdminPassword::None,
            (Some(hash), Some(Origin::File(..))) => AdminPassword::Hashed(hash),
            (Some(plain), Some(Origin::Environment(_))) => AdminPassword::Environment(plain),
            (Some(plain), _) => AdminPassword::FirstStart(plain),
        }
    }
}
