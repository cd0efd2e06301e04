//! The world that the rows are asked in: a server with a scripted model, two workspaces with known files, a folder
//! beside them, and a token of each level.

use super::pattern::Names;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::Client;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// An image of 1×1 pixels, in base64.
pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// The admin password.
pub const PASSWORD: &str = "a-passw0rd-for-tests";

/// A server, and what the names in rows stand for: `ws`, `ws2`, `beside` and `root` are folders, `user` is the user's
/// home, `token <level>` are tokens, and `cookie` is the admin's. Tokens and cookie are made when they are first named.
pub struct World {
    /// Without a token.
    pub client: Client,
    /// See above.
    pub names: Names,
    /// The model.
    pub model: ModelServer,
    /// The server.
    pub server: Server,
}

impl World {
    /// A new one, in which nobody has said anything.
    pub async fn new() -> Self {
        let model = ModelServer::start().await.unwrap();
        let place = Place::new();
        place.scripted(&model, Protocol::OpenAi);
        let key = "scripted:\n  secrets:\n    api_key: sk-of-the-script\n";
        // An error of the model must end the turn at once, not after minutes.
        place.private("secrets/settings.yaml", &format!("{key}general:\n  agent:\n    max_retries: 1\n"));
        let root = place.root().canonicalize().unwrap();
        let mut names = Names::new();
        for (name, path) in
            [("root", ""), ("ws", "ws"), ("ws2", "ws2"), ("beside", "ws-secret"), ("user", "user")]
        {
            let path = root.join(path);
            fs::create_dir_all(&path).unwrap();
            names.insert(name.to_owned(), path.to_str().unwrap().trim_end_matches('/').to_owned());
        }
        fill(&root.join("ws"));
        fs::write(root.join("ws-secret/s.txt"), "from beside\n").unwrap();
        let env = vec![("HALO_PASSWORD".to_owned(), PASSWORD.to_owned())];
        let server = Server::launch(place, Launch { env, ..Launch::default() }).await;
        Self { client: Client::new(server.url(), None), names, model, server }
    }

    /// Makes the tokens and the cookie that the text names and that nobody has named before.
    pub async fn make_named(&mut self, text: &str) {
        if text.contains("{cookie}") && !self.names.contains_key("cookie") {
            let login = self.client.post("/api/auth/login", &json!({ "password": PASSWORD })).await;
            assert_eq!(login.status, 200, "{login:?}");
            let cookie = login.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
            self.names.insert("cookie".to_owned(), cookie.to_owned());
        }
        for level in ["full", "readonly", "workspace", "observer"] {
            let name = format!("token {level}");
            if text.contains(&format!("{{{name}}}")) && !self.names.contains_key(&name) {
                let folder = Path::new(self.name("ws")).to_owned();
                let token = self.server.place().token_for(level, &folder).await;
                self.names.insert(name, token);
            }
        }
    }

    /// A client with the token of this level.
    pub async fn client(&mut self, level: &str) -> Client {
        let name = format!("token {level}");
        self.make_named(&format!("{{{name}}}")).await;
        self.client.with_token(Some(self.name(&name)))
    }

    /// What a name stands for.
    pub fn name(&self, name: &str) -> &str {
        &self.names[name]
    }
}

/// The first workspace.
fn fill(ws: &Path) {
    fs::create_dir(ws.join("sub")).unwrap();
    fs::create_dir(ws.join(".hidden")).unwrap();
    let big: Vec<u8> = (0..102_400_u32).map(|n| n as u8).collect();
    let files: [(&str, &[u8]); 7] = [
        ("hello.txt", b"hello file\n"),
        ("readme.md", b"# md\n"),
        ("p.png", &[0; 70]),
        ("big.bin", &big),
        ("sub/deep.json", b"[17]\n"),
        (".env", b"A=1\n"),
        (".hidden/x.txt", b"secret\n"),
    ];
    for (name, content) in files {
        fs::write(ws.join(name), content).unwrap();
    }
    symlink("/etc", ws.join("escape")).unwrap();
}
