//! halo's home folder: where each file is, and that only its owner can read what is secret. Makes the
//! folders; reads and writes none of the files.

use super::environment::Environment;
use rustix::fs::{Access, access};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The home folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

/// The home cannot be used; the text names the path and the mend.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Neither `HALO_HOME` nor `HOME` says where it is.
    #[error("no home folder: set HALO_HOME, or pass --home DIR")]
    Unknown,
    /// A folder of the home cannot be made or written to.
    #[error(
        "{path}: {reason}; make the folder writable for this user, or choose another with --home or HALO_HOME"
    )]
    Unusable {
        /// The folder.
        path: String,
        /// What the operating system said.
        reason: String,
    },
}

impl Home {
    /// The folder that counts: `--home`, else `HALO_HOME`, else `~/.halo`; made absolute.
    pub fn locate(flag: Option<&Path>, environment: &Environment) -> Result<Self, HomeError> {
        let path = match (flag, environment.get("HALO_HOME"), environment.get("HOME")) {
            (Some(flag), ..) => flag.to_owned(),
            (None, Some(home), _) => PathBuf::from(home),
            (None, None, Some(user_home)) => Path::new(user_home).join(".halo"),
            (None, None, None) => return Err(HomeError::Unknown),
        };
        std::path::absolute(&path).map(Self).map_err(|error| unusable(&path, &error))
    }

    /// Makes what is missing of the home and tightens what is open to others. Answers one warning for each
    /// mode that it had to tighten.
    pub fn prepare(&self) -> Result<Vec<String>, HomeError> {
        let mut warnings = Vec::new();
        make_private_dir(&self.0)?;
        for dir in [self.global(), self.secrets(), self.channels_dir()] {
            make_private_dir(&dir)?;
            access(&dir, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|error| unusable(&dir, &error.into()))?;
        }
        let private = [self.secrets(), self.channels_dir()].map(|dir| (dir, 0o700)).into_iter();
        let files = [self.config_yaml(), self.settings_yaml(), self.remotes_yaml(), self.channels_db()];
        for (path, mode) in private.chain(files.map(|file| (file, 0o600))) {
            warnings.extend(tighten(&path, mode)?);
        }
        Ok(warnings)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `global/`: agents, models, databases, logs.
    pub fn global(&self) -> PathBuf {
        self.0.join("global")
    }

    /// `secrets/`: keys, passwords, tokens.
    pub fn secrets(&self) -> PathBuf {
        self.0.join("secrets")
    }

    /// `secrets/channels/`.
    pub fn channels_dir(&self) -> PathBuf {
        self.secrets().join("channels")
    }

    /// `secrets/config.yaml`: what the server itself needs.
    pub fn config_yaml(&self) -> PathBuf {
        self.secrets().join("config.yaml")
    }

    /// `secrets/settings.yaml`: how it behaves, keys of providers.
    pub fn settings_yaml(&self) -> PathBuf {
        self.secrets().join("settings.yaml")
    }

    /// `secrets/a2a-remotes.yaml`: other servers.
    pub fn remotes_yaml(&self) -> PathBuf {
        self.secrets().join("a2a-remotes.yaml")
    }

    /// `secrets/channels/channels.db`: accounts.
    pub fn channels_db(&self) -> PathBuf {
        self.channels_dir().join("channels.db")
    }

    /// `global/runs.db`: the workspaces ever used, runs in flight.
    pub fn runs_db(&self) -> PathBuf {
        self.global().join("runs.db")
    }

    /// `global/aliases.yaml`: short forms of chat commands.
    pub fn aliases_yaml(&self) -> PathBuf {
        self.global().join("aliases.yaml")
    }

    /// `global/skills/`: one folder a skill.
    pub fn skills_dir(&self) -> PathBuf {
        self.global().join("skills")
    }

    /// `global/models/`: one yaml a provider.
    pub fn models_dir(&self) -> PathBuf {
        self.global().join("models")
    }

    /// `global/agents/`: one folder an agent.
    pub fn agents_dir(&self) -> PathBuf {
        self.global().join("agents")
    }

    /// `global/logs/`.
    pub fn logs_dir(&self) -> PathBuf {
        self.global().join("logs")
    }

    /// `global/logs/server.log`.
    pub fn server_log(&self) -> PathBuf {
        self.logs_dir().join("server.log")
    }

    /// `global/server.lock`: held by the server that runs on this home.
    pub fn server_lock(&self) -> PathBuf {
        self.global().join("server.lock")
    }
}

fn unusable(path: &Path, error: &io::Error) -> HomeError {
    HomeError::Unusable { path: path.display().to_string(), reason: super::problem::os_reason(error) }
}

fn make_private_dir(path: &Path) -> Result<(), HomeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| unusable(path, &error))
}

/// Takes the rights of group and others away; nothing to do for a file that is missing.
fn tighten(path: &Path, mode: u32) -> Result<Option<String>, HomeError> {
    let found = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    };
    if found.trailing_zeros() >= 6 {
        // no bit for group and others
        return Ok(None);
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| unusable(path, &error))?;
    Ok(Some(format!("{} was open to others (mode {found:o}); it is now {mode:o}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_flag_counts_before_the_variable_and_the_variable_before_the_default() {
        let environment = Environment::from_iter([("HALO_HOME", "/a/b"), ("HOME", "/u")]);
        let at = |flag: Option<&str>, env: &Environment| {
            Home::locate(flag.map(Path::new), env).map(|home| home.path().to_owned()).ok()
        };
        assert_eq!(at(Some("/x"), &environment), Some("/x".into()));
        assert_eq!(at(None, &environment), Some("/a/b".into()));
        assert_eq!(at(None, &Environment::from_iter([("HOME", "/u")])), Some("/u/.halo".into()));
        assert_eq!(at(None, &Environment::default()), None);
    }

    #[test]
    fn a_fresh_home_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home(dir.path().join("deep/halo"));
        assert_eq!(home.prepare().unwrap(), Vec::<String>::new());
        for path in [home.path().to_owned(), home.global(), home.secrets(), home.channels_dir()] {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
        }
    }

    #[test]
    fn secrets_that_others_can_read_are_tightened_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home(dir.path().join("halo"));
        home.prepare().unwrap();
        std::fs::write(home.config_yaml(), "").unwrap();
        std::fs::set_permissions(home.config_yaml(), Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(home.secrets(), Permissions::from_mode(0o755)).unwrap();
        let warnings = home.prepare().unwrap();
        assert_eq!(warnings.len(), 2);
        assert!(
            warnings[1].ends_with("config.yaml was open to others (mode 644); it is now 600"),
            "{warnings:?}"
        );
        assert_eq!((mode(&home.secrets()), mode(&home.config_yaml())), (0o700, 0o600));
        assert!(home.prepare().unwrap().is_empty());
    }

    #[test]
    fn a_home_that_is_a_file_is_refused_with_its_path_and_the_mend() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Home(file.path().to_owned()).prepare().unwrap_err().to_string();
        assert!(error.starts_with(&file.path().display().to_string()), "{error}");
        assert!(error.contains("--home") && !error.contains('\n'), "{error}");
    }
}
