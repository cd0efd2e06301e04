//! `halo model`: the list of providers, and the one tiny call that tells which part of a provider is wrong.

use super::support::{PATIENCE, Ran, Sandbox};
use rstest::rstest;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Never shown.
const KEY: &str = "sk-very-secret-key";

/// A server that gives one answer, and tells what it was asked.
struct Stub {
    address: String,
    asked: JoinHandle<String>,
}

impl Stub {
    /// `serve` has the connection, and gives what was asked.
    fn new(serve: impl FnOnce(&mut TcpStream) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            serve(&mut stream)
        });
        Self { address, asked }
    }

    fn answering(status: &'static str, body: &'static str) -> Self {
        Self::new(move |stream| {
            let asked = request(stream);
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            asked
        })
    }
}

/// Head and body, as far as they come.
fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_none_or(|length| body.len() >= length.parse().unwrap()) {
                return text;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return text,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

fn sandbox(endpoint: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    sandbox.write("settings.yaml", &format!("mine:\n  secrets:\n    api_key: {KEY}\n"));
    let file = sandbox.home().join("global/models/mine.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "id: mine\nruntime: openai-chat\ndefaultEndpoint: {endpoint}\nsecrets: [{{ key: api_key, secret: true }}]\n\
         models: [{{ id: m }}, {{ id: n }}]\n"
    );
    std::fs::write(file, text).unwrap();
    sandbox
}

fn tried(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let ran = sandbox.run(&[&["model", "test", "mine"], args].concat());
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{ran:?}");
    ran
}

const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n\
    data: [DONE]\n\n";

#[test]
fn a_provider_that_answers_is_told_with_the_time_to_its_first_token() {
    let stub = Stub::answering("200 OK", STREAM);
    let ran = tried(&sandbox(&format!("http://{}/v1", stub.address)), &["--model", "n"]);
    let said = ran.good();
    assert!(
        said.starts_with("ok: mine (n) answers: first token after ") && said.contains("9 tokens in, 1 out"),
        "{said}"
    );
    let asked = stub.asked.join().unwrap();
    assert!(asked.starts_with("POST /v1/chat/completions ") && asked.contains(r#""model":"n""#), "{asked}");
    assert!(asked.contains(&format!("Bearer {KEY}")) && asked.contains(r#""max_tokens":1024"#), "{asked}");
}

#[rstest]
#[case::key(
    "401 Unauthorized",
    r#"{"error":{"message":"no: sk-very-secret-key"}}"#,
    "key: ",
    "`mine.secrets.api_key` in "
)]
#[case::permission(
    "403 Forbidden",
    r#"{"error":{"message":"not here"}}"#,
    "permission: ",
    "`mine.secrets.api_key` in "
)]
#[case::balance("402 Payment Required", "{}", "balance: ", "top it up")]
#[case::model(
    "404 Not Found",
    r#"{"error":{"message":"The model `m` does not exist"}}"#,
    "model name: ",
    "(the model is `m`)"
)]
#[case::path(
    "404 Not Found",
    r#"{"detail":"Not Found"}"#,
    "endpoint path: ",
    "(the endpoint is http://127.0.0.1:"
)]
#[case::throttled("429 Too Many Requests", "{}", "throttled: ", "wait")]
#[case::provider("503 Service Unavailable", "{}", "provider: ", "try again later")]
#[case::web_page("200 OK", "<html></html>", "endpoint path: ", "mine.yaml)")]
#[case::half(
    "200 OK",
    "data: {\"choices\":[{\"delta\":{\"content\":\"o\"}}]}\n\n",
    "empty answer: ",
    "`runtime:`"
)]
#[case::other(
    "400 Bad Request",
    r#"{"error":{"message":"max_tokens is wrong"}}"#,
    "refused: ",
    "max_tokens is wrong"
)]
fn a_refusal_is_told_by_its_part_with_the_mend(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] part: &str,
    #[case] mend: &str,
) {
    let stub = Stub::answering(status, body);
    let ran = tried(&sandbox(&format!("http://{}/v1", stub.address)), &[]);
    assert!(ran.failed().starts_with(part) && ran.failed().contains(mend), "{ran:?}");
    stub.asked.join().unwrap();
}

#[test]
fn a_connection_that_fails_is_told_by_where_it_does() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = tried(&sandbox(&format!("http://{closed}/v1")), &[]);
    assert!(
        ran.failed().starts_with("connection refused: ") && ran.failed().contains("start the server"),
        "{ran:?}"
    );

    // A server without TLS sees no request in what comes, and says so.
    let plain = Stub::new(|stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
        request(stream)
    });
    let ran = tried(&sandbox(&format!("https://{}/v1", plain.address)), &[]);
    assert!(ran.failed().starts_with("TLS: ") && ran.failed().contains("http or https"), "{ran:?}");

    let (done, wait) = std::sync::mpsc::channel::<()>();
    let silent = Stub::new(move |_| {
        let _ = wait.recv_timeout(PATIENCE);
        String::new()
    });
    let ran = tried(&sandbox(&format!("http://{}/v1", silent.address)), &["--timeout", "1"]);
    drop(done);
    assert!(ran.failed().starts_with("timeout: ") && ran.failed().contains("--timeout"), "{ran:?}");

    let cut = Stub::new(|stream| {
        let asked = request(stream);
        let half = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"o\"}}]}\n\n";
        stream.write_all(half.as_bytes()).unwrap();
        asked
    });
    let ran = tried(&sandbox(&format!("http://{}/v1", cut.address)), &[]);
    assert!(ran.failed().starts_with("connection cut: "), "{ran:?}");
}

#[test]
fn what_cannot_be_called_is_told_without_a_call() {
    let sandbox = sandbox("http://127.0.0.1:1/v1");
    assert!(sandbox.run(&["model", "test", "nobody"]).failed().starts_with("unknown provider `nobody`"));
    assert!(sandbox.run(&["model", "test", "openai"]).failed().contains("set `openai.secrets.api_key`"));
    sandbox.write("settings.yaml", "mine:\n  secrets:\n    api_key: <<NO_SUCH_KEY>>\n");
    let ran = sandbox.run(&["model", "test", "mine"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("error: key: `mine.secrets.api_key` is <<NO_SUCH_KEY>> and the"), "{ran:?}");
    sandbox.run(&["model", "test", "demo"]).good();
}

#[test]
fn the_list_tells_of_every_provider_and_of_the_one_that_answers() {
    let sandbox = sandbox("http://127.0.0.1:1/v1");
    let broken = sandbox.home().join("global/models/other.yaml");
    std::fs::write(&broken, "id: other\nruntime: telepathy\nmodels: []\n").unwrap();
    let ran = sandbox.run(&["model", "list"]);
    let said = &ran.stdout;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!said.contains(KEY), "{said}");
    let row = |id: &str| {
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(id)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("mine"), "mine openai-chat set http://127.0.0.1:1/v1 m, n");
    assert_eq!(
        row("openai"),
        "openai openai-chat missing https://api.openai.com/v1 gpt-4o, gpt-4.1, gpt-5, gpt-5-mini"
    );
    assert!(
        row("vllm").starts_with("vllm openai-chat optional ")
            && row("demo").starts_with("demo demo needs none - ")
    );
    assert!(said.ends_with("\nAgents without a model of their own are answered by mine (m).\n"), "{said}");
    let place =
        format!("error: {}:2:1: `runtime`: unknown runtime `telepathy`; known are ", broken.display());
    assert!(ran.stderr.starts_with(&place), "{}", ran.stderr);

    let rows: serde_json::Value =
        serde_json::from_str(&sandbox.run(&["model", "list", "--json"]).stdout).unwrap();
    let mine = rows.as_array().unwrap().iter().find(|row| row["id"] == "mine").unwrap();
    assert_eq!(
        (&mine["key"], &mine["answers"], &mine["defaultModel"]),
        (&"set".into(), &true.into(), &"m".into())
    );
}
