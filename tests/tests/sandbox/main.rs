//! Commands of sessions below full access, on the real server: what they cannot reach is in `escapes`, how they end in
//! `lifetime`, their network in `network`, and what works all the same in `work`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a helper of a test fails as the test does")]

mod escapes;
mod lifetime;
mod network;
mod work;

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::{ALL_TOOLS, Place};
use halo_tests::server::{Launch, Server};
use halo_tests::tool_or_skip;
use halo_tests::web::{Client, Frames};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;

/// What a session runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Workspace,
    ReadOnly,
    /// Readonly, on a server that finds no `bwrap`.
    Landlock,
}

impl Mode {
    fn access(self) -> &'static str {
        if self == Self::Workspace { "workspace" } else { "readonly" }
    }

    fn backend(self) -> &'static str {
        if self == Self::Landlock { "landlock" } else { "bwrap" }
    }
}

/// A server, a session of this kind, and a model that does as it is told.
struct Stack {
    server: Server,
    model: ModelServer,
    client: Client,
    session: String,
}

impl Stack {
    /// None when the machine has no such sandbox, which is said.
    async fn start(mode: Mode) -> Option<Self> {
        Self::start_with(mode, "", Launch::default(), |_| ()).await
    }

    /// With these lines below `general.sandbox`, and with what is put in place before the start.
    async fn start_with(
        mode: Mode,
        settings: &str,
        mut launch: Launch,
        prepare: impl FnOnce(&Place),
    ) -> Option<Self> {
        let model = ModelServer::start().await.unwrap();
        // Not below /tmp, where a sandbox has a folder of its own: there would be nothing to hide.
        let place = Place::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
        place.scripted(&model, Protocol::OpenAi);
        let choice = "model: { provider: scripted, id: some-model }";
        place.agent("default", &format!("{choice}\ntools: {ALL_TOOLS}\n"));
        if !settings.is_empty() {
            let secrets = std::fs::read_to_string(place.home().join("secrets/settings.yaml")).unwrap();
            place.private(
                "secrets/settings.yaml",
                &format!("{secrets}general:\n  sandbox:\n    {settings}\n"),
            );
        }
        if mode == Mode::Landlock {
            launch.env.push(("PATH".into(), path_without_bwrap(&place)));
        }
        prepare(&place);
        let server = Server::launch(place, launch).await;
        let client = server.client(mode.access()).await;
        let health = client.get("/api/health").await.body;
        let works = health["sandbox"] == mode.backend();
        if !tool_or_skip(mode.backend(), works, "apt install bubblewrap, or a kernel with Landlock's ABI 6") {
            return None;
        }
        let session = client.mint().await;
        Some(Self { server, model, client, session })
    }

    /// Begins the turn in which this command is run.
    async fn begin(&self, session: &str, command: &str) -> Frames {
        let order = format!("TOOL shell_exec {}", json!({"command": command}));
        self.client.chat(session, &order).await
    }

    /// What the model gets to see of this command.
    async fn run(&self, command: &str) -> String {
        self.tool("shell_exec", &json!({"command": command})).await
    }

    async fn tool(&self, name: &str, arguments: &Value) -> String {
        self.client.turn(&self.session, &format!("TOOL {name} {arguments}")).await;
        let request = self.model.last_request().unwrap().body;
        let messages = request["messages"].as_array().unwrap();
        let last = messages.iter().rev().find(|message| message["role"] == "tool");
        let content = &last.unwrap_or_else(|| panic!("{name} was not called: {request}"))["content"];
        content.as_str().unwrap().to_owned()
    }
}

/// A folder with a link to every program but `bwrap`.
fn path_without_bwrap(place: &Place) -> String {
    let folder = place.root().join("programs");
    std::fs::create_dir(&folder).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for dir in std::env::split_paths(&path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name() != "bwrap" {
                // The first of a name counts.
                let _ = symlink(entry.path(), folder.join(entry.file_name()));
            }
        }
    }
    folder.display().to_string()
}

/// The processes of this machine whose command line holds this.
fn running(part: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids =
        entries.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    pids.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(part).then(|| format!("{}: {line}", entry.file_name().to_string_lossy()))
    })
    .collect()
}
