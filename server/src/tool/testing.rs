//! What the tests of the tools share: a workspace in a folder of its own, and a way to call a tool in it.

use super::sandbox::{NetworkUse, Sandbox};
use super::{Context, Limits, Output, Tool};
use crate::access::AccessLevel;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A workspace, a home and a halo home, gone with the value.
pub struct Place {
    /// `ws/`, `home/` and `halo/` are in here.
    pub root: PathBuf,
    /// The context of a full session.
    pub context: Context,
    _dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["ws", "home", "halo"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let context = Context {
            workspace: root.join("ws"),
            user_home: root.join("home"),
            halo_home: root.join("halo"),
            access: AccessLevel::Full,
            hidden_dirs: [].into(),
            hidden_files: [].into(),
            writable_dirs: [].into(),
            sandbox: Sandbox::new(root.join("home"), root.join("halo"), None),
            sandbox_network: NetworkUse::On,
            url_allowlist: Arc::default(),
            params: Arc::default(),
            limits: Limits::default(),
            cancel: CancellationToken::new(),
        };
        Self { root, context, _dir: dir }
    }

    pub fn with_access(access: AccessLevel) -> Self {
        let mut place = Self::new();
        place.context.access = access;
        place
    }

    /// A path in the workspace.
    pub fn at(&self, path: &str) -> PathBuf {
        self.context.workspace.join(path)
    }

    /// Writes a file in the workspace, with its folders.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        put(&self.at(path), content)
    }

    pub fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }

    pub fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
    }

    pub fn fifo(&self, path: &str) {
        use rustix::fs::{CWD, FileType, Mode};
        rustix::fs::mknodat(CWD, self.at(path), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    }

    /// The names in a folder of the workspace.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.at(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub async fn call(&self, tool: &dyn Tool, input: Value) -> Output {
        let Value::Object(input) = input else { panic!("arguments are an object") };
        let output = tool.run(input, &self.context).await;
        assert!(!output.text.is_empty(), "an answer is never empty");
        output
    }

    pub async fn ok(&self, tool: &dyn Tool, input: Value) -> String {
        let output = self.call(tool, input).await;
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    pub async fn err(&self, tool: &dyn Tool, input: Value) -> String {
        let output = self.call(tool, input).await;
        assert!(output.is_error, "{}", output.text);
        output.text
    }
}

/// Writes a file with its folders.
pub fn put(path: &Path, content: impl AsRef<[u8]>) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    path.to_owned()
}

/// No arguments.
pub fn nothing() -> Value {
    Value::Object(Map::new())
}
