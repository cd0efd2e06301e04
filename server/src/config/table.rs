//! The one table of all settings. Defaults, checks, `config show`, suggestions for unknown keys,
//! `config.example.yaml` and the tables of `docs/configuration.md` come from here.

use super::value::Kind;

/// Where a setting may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `secrets/config.yaml`: what the server itself needs.
    Config,
    /// `secrets/settings.yaml`: how it behaves.
    Settings,
    /// An environment variable alone; the key is its name.
    Environment,
}

impl Source {
    /// The file below the home.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Config => "secrets/config.yaml",
            Self::Settings => "secrets/settings.yaml",
            Self::Environment => "the environment",
        }
    }
}

/// When a change of a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// At once.
    Live,
    /// With the next start of the server.
    Restart,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The path of its key, with dots.
    pub key: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its default as text; empty for none.
    pub default: &'static str,
    /// The environment variable that beats the file.
    pub env: Option<&'static str>,
    /// The flag of `halo server` that beats both.
    pub flag: Option<&'static str>,
    /// Where it may stand.
    pub source: Source,
    /// When a change counts.
    pub reload: Reload,
    /// One line of why one would set it.
    pub why: &'static str,
}

const fn config(key: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Setting {
    Setting {
        key,
        kind,
        default,
        env: None,
        flag: None,
        source: Source::Config,
        reload: Reload::Restart,
        why,
    }
}

const fn general(key: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Setting {
    Setting { key, kind, default, env: None, flag: None, source: Source::Settings, reload: Reload::Live, why }
}

const fn environment(key: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Setting {
    Setting {
        key,
        kind,
        default,
        env: Some(key),
        flag: None,
        source: Source::Environment,
        reload: Reload::Restart,
        why,
    }
}

impl Setting {
    const fn env(mut self, name: &'static str) -> Self {
        self.env = Some(name);
        self
    }

    const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }

    const fn live(mut self) -> Self {
        self.reload = Reload::Live;
        self
    }

    const fn restart(mut self) -> Self {
        self.reload = Reload::Restart;
        self
    }
}

const fn number(min: u64, max: u64) -> Kind {
    Kind::Number { min, max }
}

const MIB: u64 = 1024 * 1024;

/// Every setting that is honoured, in the order of the documentation.
pub static SETTINGS: &[Setting] = &[
    config("server.host", Kind::Host, "127.0.0.1", "The address to listen on; others than loopback need a password.")
        .env("HALO_HOST")
        .flag("--host"),
    config("server.port", Kind::Port, "9527", "The port to listen on; 0 picks a free one.")
        .env("HALO_PORT")
        .flag("--port"),
    config("server.password", Kind::Secret, "", "The hash of the admin password; `halo password` writes it. HALO_PASSWORD is the password itself.")
        .env("HALO_PASSWORD")
        .live(),
    config("server.jwt_secret", Kind::Secret, "", "Signs the admin's cookie; made at the first start.")
        .env("HALO_JWT_SECRET"),
    config("server.cors_origins", Kind::Origins, "", "Web pages that may call the server with the admin's cookie. None: any page may call, without the cookie.")
        .env("HALO_CORS_ORIGINS"),
    config("timeout.shell_exec", Kind::Millis, "120000", "How long one shell command of an agent may run.")
        .env("HALO_SHELL_TIMEOUT")
        .live(),
    config("timeout.web_fetch", Kind::Millis, "10000", "How long one web_fetch of an agent may take in all.")
        .env("HALO_WEB_FETCH_TIMEOUT")
        .live(),
    config("timeout.model_request", Kind::Millis, "600000", "How long a model may send nothing before the call counts as failed.")
        .env("HALO_MODEL_TIMEOUT")
        .live(),
    config("logging.max_file_size", number(1024, 1024 * MIB), "10485760", "Bytes of the log file before it is moved aside.")
        .env("HALO_LOG_MAX_SIZE"),
    config("logging.max_files", number(1, 100), "5", "How many log files are kept, the current one included.")
        .env("HALO_LOG_MAX_FILES"),
    general("general.logging.level", Kind::Level, "warn", "How much is logged.")
        .env("HALO_LOG_LEVEL")
        .flag("--log-level")
        .restart(),
    general("general.server.trust_proxy", Kind::Bool, "false", "Take the client's address from X-Forwarded-For; only behind a proxy that sets it."),
    general("general.agent.max_retries", number(0, 100), "5", "How often a model call is tried before its error ends the turn.").restart(),
    general("general.session.max_queue_size", number(1, 10_000), "256", "How many messages of other agents may wait for a session; those of people always may."),
    general("general.session.max_nesting_depth", number(1, 16), "16", "How deep sub-agents may start sub-agents, the root counted."),
    general("general.compact.compress_at", Kind::Fraction, "0.9", "The part of a model's context window at which a conversation is compacted."),
    general("general.compact.keep_messages", number(1, 1000), "5", "How many messages a compaction keeps as they are."),
    general("general.compact.max_summary_input", number(1000, 1_000_000), "15000", "How many characters a summary made without the model takes in all."),
    general("general.compact.max_message_slice", number(10, 100_000), "800", "How many characters of each message such a summary takes."),
    general("general.limits.auto_report_chars", number(100, 1_000_000), "8192", "How much of a sub-agent's report its parent gets."),
    general("general.limits.shell_output_bytes", number(1024, 256 * MIB), "5242880", "How much output of a shell command is kept, head and tail."),
    general("general.limits.grep_default_matches", number(1, 10_000), "50", "How many matches grep gives when the agent names no number."),
    general("general.limits.web_fetch_bytes", number(1024, 16 * MIB), "51200", "How much of a page web_fetch reads."),
    general("general.limits.tool_result_render_chars", number(100, 10_000_000), "8000", "How much of a tool's answer the model sees."),
    general("general.limits.tool_result_ui_chars", number(100, 10_000_000), "65536", "How much of a tool's answer the log keeps for people."),
    general("general.sandbox.hidden_dirs", Kind::Paths, "", "Folders that only full sessions see, beside the built-in ones."),
    general("general.sandbox.hidden_files", Kind::Paths, "", "Files that only full sessions see, beside the built-in ones."),
    general("general.sandbox.writable_dirs", Kind::Paths, "", "Folders that workspace sessions may write to, beside the workspace."),
    general("general.sandbox.network", Kind::Choice(&["on", "off", "host"]), "on", "The network of sandboxed commands: their own (on; the machine's where slirp4netns is missing), none (off), or the machine's (host)."),
    general("general.a2a.url_allowlist", Kind::AllowList, "100.64.0.0/10,*.ts.net", "What may be called beside public addresses: addresses and ranges, and hosts that plain http may go to."),
    environment("HALO_DEFAULT_PROVIDER", Kind::Text, "", "The model provider of agents that name none."),
    environment("HALO_MAX_CONTEXT_TOKENS", number(1, 100_000_000), "272000", "The context window of models whose provider file names none."),
    environment("HALO_BADGE", Kind::Text, "", "A word by which people tell this server from others; anyone may read it."),
];

/// A key that files of the Node program may hold and that does nothing here.
#[derive(Debug)]
pub struct Unused {
    /// The path of the key; with `.*` at the end for all below it.
    pub key: &'static str,
    /// Where it may stand.
    pub source: Source,
}

const fn unused(key: &'static str, source: Source) -> Unused {
    Unused { key, source }
}

/// Known keys without effect: no warning, but `config check` names them.
pub static UNUSED: &[Unused] = &[
    unused("timeout.session_grace", Source::Config),
    unused("timeout.terminal_grace", Source::Config),
    unused("general.agent.default_provider", Source::Settings),
    unused("general.limits.terminal_scrollback_bytes", Source::Settings),
    unused("general.limits.ws_event_buffer", Source::Settings),
    unused("general.a2a.public_url", Source::Settings),
    unused("general.observability.*", Source::Settings),
    unused("general.evolution.*", Source::Settings),
    unused("general.goal_mode_enabled", Source::Settings),
    unused("general.language", Source::Settings),
    unused("general.theme", Source::Settings),
];

/// The setting with this key, and its place in [`SETTINGS`].
pub fn find(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}

/// Whether the key is known and without effect.
pub fn is_unused(key: &str) -> bool {
    UNUSED.iter().any(|unused| match unused.key.strip_suffix(".*") {
        Some(section) => {
            key == section || key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
        }
        None => unused.key == key,
    })
}

/// Whether the path is a section that holds known keys.
pub fn is_section(path: &str) -> bool {
    let within = |key: &str| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    SETTINGS.iter().any(|setting| within(setting.key)) || UNUSED.iter().any(|unused| within(unused.key))
}

/// The known key that is most like an unknown one, if any is like it.
pub fn nearest(key: &str) -> Option<&'static str> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let score = |known: &str| {
        let known_last = known.rsplit('.').next().unwrap_or(known);
        strsim::jaro_winkler(key, known).max(if known_last == last { 0.95 } else { 0.0 })
    };
    SETTINGS
        .iter()
        .filter(|setting| setting.source != Source::Environment)
        .map(|setting| (score(setting.key), setting.key))
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::collections::HashSet;

    #[test]
    fn every_default_is_a_value_of_its_type_and_no_key_is_there_twice() {
        let mut seen = HashSet::new();
        for setting in SETTINGS {
            assert!(seen.insert(setting.key), "{} is there twice", setting.key);
            setting.kind.parse(setting.default).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
            assert!(!is_unused(setting.key), "{} is both used and unused", setting.key);
            assert!(setting.why.ends_with('.'), "{}", setting.key);
        }
    }

    #[rstest]
    #[case("server.prot", Some("server.port"))]
    #[case("server.pasword", Some("server.password"))]
    #[case("general.logging.levle", Some("general.logging.level"))]
    #[case("general.trust_proxy", Some("general.server.trust_proxy"))]
    #[case("xyzzy", None)]
    fn an_unknown_key_is_met_with_the_nearest_known_one(#[case] key: &str, #[case] known: Option<&str>) {
        assert_eq!(nearest(key), known);
    }
}
