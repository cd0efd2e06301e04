//! The configuration of a running server. A change of a file is taken up within half a second, or at once on
//! SIGHUP; a broken edit keeps the old values and says so; a key that needs a restart says so and keeps its
//! value until then.

use super::effective::Effective;
use super::environment::Environment;
use super::home::Home;
use super::problem::{Problem, Severity, Unusable};
use super::resolve::{Origin, Overrides, Resolved, resolve};
use super::sections::Workspaces;
use super::settings::Files;
use super::table::{Reload, SETTINGS, find};
use super::value::Value;
use arc_swap::ArcSwap;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use secrecy::SecretString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How long a file must be quiet before it is read, and how long a busy one is waited for.
const DEBOUNCE: Duration = Duration::from_millis(200);
const MAX_DEBOUNCE: u32 = 10;

/// The current configuration; clones share it.
#[derive(Clone)]
pub struct Live(Arc<Inner>);

struct Inner {
    home: Home,
    environment: Environment,
    overrides: Overrides,
    current: ArcSwap<Effective>,
    /// What the files said when they were read last.
    seen: Mutex<Seen>,
    changes: watch::Sender<u64>,
}

struct Seen {
    fingerprints: (u64, u64),
    resolved: Vec<Resolved>,
}

/// Secrets that the first start has made and not yet written, by key.
pub type Made = Vec<(&'static str, SecretString)>;

impl Live {
    /// Reads the files of the home. Answers the configuration and the findings that do not keep it from
    /// being used. `made` fills in for keys that nothing else sets.
    pub fn load(
        home: &Home,
        environment: Environment,
        overrides: Overrides,
        made: Made,
    ) -> Result<(Self, Vec<Problem>), Unusable> {
        let files = Files::read(home, &environment);
        files.check()?;
        let mut resolved = resolve(&files, &environment, &overrides)?;
        for (key, secret) in made {
            if let Some((index, _)) = find(key)
                && resolved[index].origin == Origin::Default
            {
                resolved[index] = Resolved { value: Value::Secret(secret), origin: Origin::FirstStart };
            }
        }
        let problems = files.problems().cloned().collect();
        let seen = Seen { fingerprints: fingerprints(&files), resolved: resolved.clone() };
        let sections = Arc::new(files.settings.sections);
        let current =
            Effective::new(resolved, sections, Arc::new(Workspaces::default()), environment.clone());
        let inner = Inner {
            home: home.clone(),
            environment,
            overrides,
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new(seen),
            changes: watch::Sender::new(0),
        };
        Ok((Self(Arc::new(inner)), problems))
    }

    /// The configuration in force now. Cheap; do not keep it across waits.
    pub fn current(&self) -> Arc<Effective> {
        self.0.current.load_full()
    }

    /// The home whose files these are.
    pub fn home(&self) -> &Home {
        &self.0.home
    }

    /// Wakes after each change that was taken up.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Reads the files again and logs what that means. Blocks for the reading.
    pub fn reload(&self) {
        let inner = &*self.0;
        let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let files = Files::read(&inner.home, &inner.environment);
        if fingerprints(&files) == seen.fingerprints {
            return;
        }
        seen.fingerprints = fingerprints(&files);
        for problem in files.problems().filter(|problem| problem.severity == Severity::Warning) {
            tracing::warn!("{problem}");
        }
        let read = files.check().and_then(|()| resolve(&files, &inner.environment, &inner.overrides));
        let resolved = match read {
            Ok(resolved) => resolved,
            Err(unusable) => {
                tracing::error!("{unusable}; the values from before stay in force");
                return;
            }
        };
        let old = inner.current.load_full();
        let mut in_force = resolved.clone();
        for (index, setting) in SETTINGS.iter().enumerate() {
            let (new, running) = (&resolved[index], &old.resolved()[index]);
            if setting.reload == Reload::Restart && new.value != running.value {
                in_force[index] = running.clone();
                if new.value != seen.resolved[index].value {
                    let (key, origin) = (setting.key, &new.origin);
                    tracing::warn!("{key} has changed ({origin}); the new value counts after a restart");
                }
            } else if new.value != running.value {
                tracing::info!("{} is now {} ({})", setting.key, new.value, new.origin);
            }
        }
        seen.resolved = resolved;
        let sections = Arc::new(files.settings.sections);
        if !sections.same_as(old.sections()) {
            tracing::info!("params and secrets were read again");
        }
        let new = Effective::new(in_force, sections, old.workspaces(), inner.environment.clone());
        inner.current.store(Arc::new(new));
        inner.changes.send_modify(|count| *count += 1);
    }

    /// Follows the files until `cancel` fires. Without watches (the system's limit is reached) that is
    /// logged, and only SIGHUP makes the server read them again.
    pub fn watch(&self, cancel: CancellationToken) {
        let (wake, mut woken) = mpsc::channel(1);
        // What changed between the first look and the watch is seen by looking once more.
        let _ = wake.try_send(());
        let watcher = match watcher(&self.0.home.secrets(), wake) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(
                    "changes of the configuration are not followed ({error}); send SIGHUP after a change"
                );
                return;
            }
        };
        let live = self.clone();
        tokio::spawn(async move {
            let _watcher = watcher;
            let follow = async {
                while woken.recv().await.is_some() {
                    let mut waits = 0;
                    while waits < MAX_DEBOUNCE && tokio::time::timeout(DEBOUNCE, woken.recv()).await.is_ok() {
                        waits += 1;
                    }
                    let live = live.clone();
                    if tokio::task::spawn_blocking(move || live.reload()).await.is_err() {
                        tracing::error!("reading the configuration again has failed");
                    }
                }
            };
            cancel.run_until_cancelled(follow).await;
        });
    }
}

fn fingerprints(files: &Files) -> (u64, u64) {
    (files.config.fingerprint, files.settings.fingerprint)
}

/// Watches the folder, since editors replace files rather than write to them.
fn watcher(dir: &Path, wake: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let concerns_us = event.is_ok_and(|event| {
            let is_read =
                matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
            let is_ours =
                |path: &std::path::PathBuf| path.ends_with("config.yaml") || path.ends_with("settings.yaml");
            !is_read && (event.need_rescan() || event.paths.iter().any(is_ours))
        });
        if concerns_us {
            // A full channel holds a wake-up already.
            let _ = wake.try_send(());
        }
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::password::AdminPassword;
    use secrecy::ExposeSecret;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        (dir, home)
    }

    fn load(home: &Home) -> Live {
        let environment = Environment::from_iter([("HOME", "/u")]);
        Live::load(home, environment, Overrides::default(), Vec::new()).unwrap().0
    }

    #[test]
    fn without_files_the_defaults_count() {
        let (_dir, home) = home();
        let config = load(&home).current();
        assert_eq!((config.host.as_str(), config.port), ("127.0.0.1", 9527));
        assert_eq!(config.shell_timeout, Duration::from_secs(120));
        assert_eq!(config.model_idle_timeout, Duration::from_secs(600));
        assert_eq!(
            (config.log_max_bytes, config.log_max_files, config.log_level.as_str()),
            (10_485_760, 5, "warn")
        );
        assert_eq!((config.max_retries, config.trust_proxy), (5, false));
        assert_eq!((config.compress_at, config.keep_messages, config.max_context_tokens), (0.9, 5, 272_000));
        assert_eq!((config.max_summary_input, config.max_message_slice), (15_000, 800));
        assert_eq!((config.shell_output_bytes, config.grep_default_matches), (5_242_880, 50));
        assert_eq!((config.tool_result_render_chars, config.tool_result_ui_chars), (8000, 65536));
        assert!(
            !config.password.is_set() && config.jwt_secret.is_none() && config.default_provider.is_none()
        );
        assert!(config.hidden_dirs.is_empty() && config.cors_origins.is_empty());
    }

    #[test]
    fn paths_of_settings_begin_at_the_users_home() {
        let (_dir, home) = home();
        std::fs::write(home.settings_yaml(), "general:\n  sandbox:\n    writable_dirs: ~/x,/y\n").unwrap();
        assert_eq!(*load(&home).current().writable_dirs, [Path::new("/u/x").to_owned(), "/y".into()]);
    }

    #[test]
    fn a_change_counts_at_once_and_a_broken_edit_keeps_the_old_values() {
        let (_dir, home) = home();
        let live = load(&home);
        let write = |text: &str| {
            std::fs::write(home.settings_yaml(), text).unwrap();
            live.reload();
            live.current().grep_default_matches
        };
        assert_eq!(write("general:\n  limits:\n    grep_default_matches: 7\n"), 7);
        assert_eq!(write("general:\n  limits:\n    grep_default_matches: seven\n"), 7);
        assert_eq!(write("general: [\n"), 7);
        assert_eq!(write("general:\n  limits:\n    grep_default_matches: 8\n"), 8);
        assert_eq!(write(""), 50);
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_no_file_and_nobody_waits_for_its_writer() {
        let (dir, home) = home();
        let live = load(&home);
        let workspace = dir.path().join("ws");
        std::fs::create_dir_all(workspace.join(".halo")).unwrap();
        for pipe in [home.settings_yaml(), workspace.join(".halo/settings.yaml")] {
            let _ = std::fs::remove_file(&pipe);
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        }
        let (done, waiting) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            live.reload();
            let secret = live.current().secret("p", "a", Some(&workspace));
            done.send((live.current().grep_default_matches, secret.is_some())).unwrap();
        });
        assert_eq!(waiting.recv_timeout(Duration::from_secs(20)), Ok((50, false)));
    }

    #[test]
    fn a_key_that_needs_a_restart_keeps_its_value() {
        let (_dir, home) = home();
        let live = load(&home);
        std::fs::write(home.config_yaml(), "server:\n  port: 1\ntimeout:\n  shell_exec: 5\n").unwrap();
        live.reload();
        assert_eq!((live.current().port, live.current().shell_timeout), (9527, Duration::from_millis(5)));
    }

    #[test]
    fn secrets_of_the_first_start_count_until_the_file_has_them() {
        let (_dir, home) = home();
        let made: Made = vec![("server.password", "plain-1".into()), ("server.jwt_secret", "jwt".into())];
        let live = Live::load(&home, Environment::default(), Overrides::default(), made).unwrap().0;
        assert!(live.current().password.matches("plain-1"));
        let hash = crate::config::password::hash("plain-1").unwrap();
        std::fs::write(home.config_yaml(), format!("server:\n  password: {hash}\n  jwt_secret: jwt\n"))
            .unwrap();
        live.reload();
        let config = live.current();
        assert!(matches!(config.password, AdminPassword::Hashed(_)) && config.password.matches("plain-1"));
        assert_eq!(config.jwt_secret.as_ref().unwrap().expose_secret(), "jwt");
    }

    #[test]
    fn a_workspace_has_its_own_secrets_before_the_global_ones() {
        let (dir, home) = home();
        std::fs::write(
            home.settings_yaml(),
            "p:\n  secrets: {a: global, b: global}\n  params: {c: global}\n",
        )
        .unwrap();
        let workspace = dir.path().join("ws");
        let live = load(&home);
        let secret = |key: &str| {
            let secret = live.current().secret("p", key, Some(&workspace));
            secret.map(|secret| secret.expose_secret().to_owned()).unwrap_or_default()
        };
        assert_eq!(secret("a"), "global");
        std::fs::create_dir_all(workspace.join(".halo")).unwrap();
        let own = workspace.join(".halo/settings.yaml");
        std::fs::write(&own, "p:\n  secrets: {a: own}\n  params: {c: own}\n").unwrap();
        assert_eq!((secret("a"), secret("b")), ("own".into(), "global".into()));
        assert_eq!(live.current().param("p", "c", Some(&workspace)).as_deref(), Some("own"));
        assert_eq!(live.current().param("p", "c", None).as_deref(), Some("global"));
        std::fs::write(&own, "p: [broken\n").unwrap();
        assert_eq!(secret("a"), "own");
        std::fs::remove_file(&own).unwrap();
        assert_eq!(secret("a"), "global");
    }

    #[test]
    fn params_are_merged_and_what_must_not_be_read_is_masked() {
        let (dir, home) = home();
        let workspace = dir.path().join("ws");
        std::fs::create_dir_all(workspace.join(".halo")).unwrap();
        let global =
            "p:\n  secrets: {k: kept-secret}\n  params: {a: one, b: 'x <<TOKEN>>', pin: 'pin-9999'}\n";
        std::fs::write(home.settings_yaml(), global).unwrap();
        std::fs::write(workspace.join(".halo/settings.yaml"), "p:\n  params: {a: two}\n").unwrap();
        let environment = Environment::from_iter([("TOKEN", "from-outside")]);
        let live = Live::load(&home, environment, Overrides::default(), Vec::new()).unwrap().0;
        let params = live.current().params(&workspace, |id, key| (id, key) == ("p", "pin"));
        let get = |name| params.get(name).map(str::to_owned);
        assert_eq!(get("p.params.a").as_deref(), Some("two"));
        assert_eq!(get("p.params.b").as_deref(), Some("x from-outside"));
        assert_eq!((get("p.secrets.k"), get("p.params.k")), (None, None));
        let shown = params.masks().hide("two x from-outside pin-9999 kept-secret".into());
        assert_eq!(shown, "two x **** **** ****");
    }

    #[tokio::test]
    async fn a_file_that_an_editor_replaces_is_taken_up() {
        let (_dir, home) = home();
        let live = load(&home);
        let cancel = CancellationToken::new();
        let mut changes = live.changes();
        live.watch(cancel.clone());
        let temporary = home.secrets().join("settings.yaml~");
        std::fs::write(&temporary, "general:\n  limits:\n    grep_default_matches: 9\n").unwrap();
        std::fs::rename(&temporary, home.settings_yaml()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), changes.changed()).await.unwrap().unwrap();
        assert_eq!(live.current().grep_default_matches, 9);
        cancel.cancel();
    }
}
