//! A machine for one test: a home for halo, a home for the user, and a workspace with real files, below one
//! temporary folder. Also the command line of `halo` in that place, and the files that choose the model.

use crate::binaries::binaries;
use crate::model_server::{ModelServer, Protocol};
use crate::processes;
use crate::within;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;
use tokio::process::Command;

/// Every tool of this agents.
pub const ALL_TOOLS: &str = "[file_read, file_write, file_edit, file_list, grep, glob, shell_exec]";

/// The text of the workspace's `README.md`.
pub const README: &str = "# A sample\n\nFor the tests of halo.\nThe secret word is marzipan.\n";

/// The folders. Everything below them goes when this is dropped, processes that work there included.
pub struct Place {
    root: TempDir,
}

impl Place {
    /// Folders with a workspace and no home: the next start is the first.
    pub fn fresh() -> Self {
        Self::fresh_in(&std::env::temp_dir())
    }

    fn fresh_in(folder: &Path) -> Self {
        let root = tempfile::Builder::new().prefix("halo-test-").tempdir_in(folder);
        let root = root.expect("a temporary folder");
        let place = Self { root };
        fs::create_dir_all(place.workspace().join("src")).expect("the workspace");
        fs::create_dir(place.user_home()).expect("the user's home");
        place.write("README.md", README);
        place.write("notes.txt", "one\ntwo\nthree\n");
        place.write("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
        place
    }

    /// The same with a home that was used before, so that a start makes no secrets, and with an agent whose
    /// answers come without pauses.
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// The same below this folder, such as a disk of the test's own.
    pub fn new_in(folder: &Path) -> Self {
        let place = Self::fresh_in(folder);
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(place.home().join("secrets")).expect("the home");
        place.private("secrets/config.yaml", "server:\n  jwt_secret: a-secret-for-tests-only-0123456789\n");
        place.demo("demo-instant");
        place
    }

    /// Where all of it is.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// halo's home.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The user's home.
    pub fn user_home(&self) -> PathBuf {
        self.root().join("user")
    }

    /// The folder that agents work in.
    pub fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// Writes a file of the workspace.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        fs::write(path, text).expect("a file of the workspace");
    }

    /// Reads a file of the workspace.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.workspace().join(path)).expect(path)
    }

    /// Writes a file of halo's home, mode 0600.
    pub fn private(&self, path: &str, text: &str) {
        let path = self.home().join(path);
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true).mode(0o700).create(path.parent().expect("a parent")).expect("its folder");
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        std::io::Write::write_all(&mut file.expect("a file of the home"), text.as_bytes())
            .expect("writing it");
    }

    /// Lets the default agent use the demo model of this id: `demo` (15 ms a word) or `demo-instant`.
    pub fn demo(&self, id: &str) {
        self.agent("default", &format!("model: {{ provider: demo, id: {id} }}\ntools: {ALL_TOOLS}\n"));
    }

    /// Lets the default agent use a scripted model, with a key from the settings.
    pub fn scripted(&self, model: &ModelServer, protocol: Protocol) {
        let (runtime, endpoint) = match protocol {
            Protocol::OpenAi => ("openai-chat", model.openai_endpoint()),
            Protocol::Anthropic => ("anthropic-messages", model.anthropic_endpoint()),
            Protocol::Responses => ("openai-responses", model.openai_endpoint()),
            Protocol::Bedrock => return self.scripted_bedrock(model),
        };
        self.private(
            "global/models/scripted.yaml",
            &format!(
                "id: scripted\nruntime: {runtime}\ndefaultEndpoint: {endpoint}\ndefaultModelId: some-model\n\
                 secrets: [{{ key: api_key, description: Key, secret: true }}]\n\
                 models: [{{ id: some-model, contextWindow: 100000, capabilities: {{ image: true }} }}]\n"
            ),
        );
        self.private("secrets/settings.yaml", "scripted:\n  secrets:\n    api_key: sk-of-the-script\n");
        let choice = format!("model: {{ provider: scripted, id: some-model, endpoint: \"{endpoint}\" }}");
        self.agent("default", &format!("{choice}\ntools: {ALL_TOOLS}\n"));
    }

    /// The same with the provider of Bedrock and no key: the credential chain has to find some.
    fn scripted_bedrock(&self, model: &ModelServer) {
        let endpoint = model.bedrock_endpoint();
        let (provider, id) = ("aws-bedrock-claude-invoke", "global.anthropic.claude-sonnet-4-6");
        let choice = format!("model: {{ provider: {provider}, id: {id}, endpoint: \"{endpoint}\" }}");
        self.agent("default", &format!("{choice}\ntools: {ALL_TOOLS}\n"));
    }

    /// Writes a profile of the home. Its text needs no name.
    pub fn agent(&self, id: &str, yaml: &str) {
        self.private(&format!("global/agents/{id}/agent.yaml"), &format!("name: {id}\npriority: 99\n{yaml}"));
    }

    /// `halo` with these arguments, in the workspace, with nothing of this process's environment but PATH.
    pub fn halo<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&binaries().halo);
        command.args(args);
        self.settle(&mut command);
        command
    }

    /// Puts a command into this place: folder, environment, no terminal, killed when dropped.
    pub fn settle(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.user_home())
            .env("HALO_HOME", self.home())
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
    }

    /// Runs `halo` to its end.
    pub async fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        Ended::of(self.halo(args)).await
    }

    /// A new token of this level for the workspace, made by `halo token create`.
    pub async fn token(&self, access: &str) -> String {
        self.token_for(access, &self.workspace()).await
    }

    /// The same for another folder.
    pub async fn token_for(&self, access: &str, workspace: &Path) -> String {
        let mut command = self.halo(["token", "create", "--access", access, "--workspace"]);
        command.arg(workspace);
        let ended = Ended::of(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let token = ended.stdout.trim_end();
        assert!(token.len() >= 32 && !token.contains(char::is_whitespace), "the token alone: {ended:?}");
        token.to_owned()
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        processes::kill_all_in(self.root());
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it told people.
    pub stderr: String,
}

impl Ended {
    /// Runs the command to its end.
    pub async fn of(mut command: Command) -> Self {
        let output: Output = within("a command ends", command.output()).await.expect("it can be run");
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
