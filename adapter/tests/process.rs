//! The process: its command line, its lines, its end.

mod support;

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;
use support::editor::{Editor, TOKEN, command};
use support::halo::Halo;

async fn output(args: &[&str]) -> (i32, String, String) {
    let mut command = command();
    command.args(args).stdin(std::process::Stdio::null());
    let output = command.output().await.expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

const GOOD: [&str; 6] = ["--host", "h", "--port", "1", "--token", "t"];

#[rstest]
#[case::no_host(&["--port", "1", "--token", "t"], &["--host"])]
#[case::no_port(&["--host", "h", "--token", "t"], &["--port"])]
#[case::no_token(&["--host", "h", "--port", "1"], &["--token", "HALO_ACP_TOKEN"])]
#[case::port_zero(&["--host", "h", "--port", "0", "--token", "t"], &["--port", "1..=65535"])]
#[case::port_too_high(&["--host", "h", "--port", "65536", "--token", "t"], &["--port", "1..=65535"])]
#[case::port_word(&["--host", "h", "--port=http", "--token", "t"], &["--port", "'http'"])]
#[case::host_with_scheme(&["--host", "http://h", "--port", "1", "--token", "t"], &["--host", "without scheme"])]
#[case::no_value(&["--host", "--port", "1", "--token", "t"], &["--host"])]
#[case::scheme(&["--scheme", "ftp"], &["--scheme", "http, https"])]
#[case::level(&["--log-level", "loud"], &["--log-level", "error, warn, info, debug, trace"])]
#[case::workspace(&["--workspace", "rel"], &["--workspace", "absolute"])]
#[case::header(&["--header", "no colon"], &["--header", "Name: value"])]
#[case::header_name(&["--header", "b\u{e4}d: x"], &["--header", "no header name"])]
#[case::unknown(&["--teleport"], &["--teleport"])]
#[tokio::test]
async fn a_wrong_command_line_is_one_line_that_names_the_flag(#[case] args: &[&str], #[case] parts: &[&str]) {
    let all: Vec<&str> = if args[0] == "--host" || args[0] == "--port" {
        args.to_vec()
    } else {
        GOOD.iter().chain(args).copied().collect()
    };
    let (code, stdout, stderr) = output(&all).await;
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[tokio::test]
async fn help_and_version_go_to_stdout_and_help_keeps_the_token_to_itself() {
    let mut command = command();
    command.arg("--help").env("HALO_ACP_TOKEN", TOKEN);
    let help = command.output().await.expect("runs");
    let text = String::from_utf8(help.stdout).expect("text");
    assert!(help.status.success() && help.stderr.is_empty());
    for flag in
        ["--host", "--port", "--token", "--workspace", "--scheme", "--agent-id", "--header", "--log-level"]
    {
        assert!(text.contains(flag), "{flag}");
    }
    assert!(!text.contains(TOKEN));
    let (code, stdout, _) = output(&["--version"]).await;
    assert_eq!((code, stdout), (0, format!("halo-acp {}\n", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn lines_may_come_in_pieces_together_or_with_other_ends() {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    let (first, line) = editor.request("authenticate", json!({"methodId": "a"}));
    let (head, tail) = line.as_bytes().split_at(20);
    editor.raw(head).await;
    editor.raw(tail).await;
    assert_eq!(editor.line().await["id"], first);
    let (second, line_2) = editor.request("authenticate", json!({"methodId": "b"}));
    let (third, line_3) = editor.request("authenticate", json!({"methodId": "c"}));
    editor.raw(format!("\r\n\n  \n{}\r\n\r\n{line_3}", line_2.trim_end()).as_bytes()).await;
    assert_eq!(editor.line().await["id"], second);
    assert_eq!(editor.line().await["id"], third);
}

#[rstest]
#[case::no_json(b"not json at all\n".as_slice(), -32700)]
#[case::bytes(b"\xff\xfe{\n".as_slice(), -32700)]
#[case::batch(b"[]\n".as_slice(), -32600)]
#[case::no_message(b"{\"jsonrpc\":\"2.0\"}\n".as_slice(), -32600)]
#[tokio::test]
async fn a_line_that_is_no_message_is_told_and_the_next_one_works(#[case] line: &[u8], #[case] code: i64) {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    editor.raw(line).await;
    let answer = editor.line().await;
    assert_eq!((&answer["id"], answer["error"]["code"].as_i64()), (&json!(null), Some(code)));
    assert_eq!(editor.call("authenticate", json!({"methodId": "x"})).await["result"], json!({}));
}

#[tokio::test]
async fn a_line_over_64_mib_is_refused_and_the_next_one_works() {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..65 {
        editor.raw(&piece).await;
    }
    editor.raw(b"\n").await;
    assert_eq!(editor.line().await["error"]["code"], -32700);
    assert_eq!(editor.call("authenticate", json!({"methodId": "x"})).await["result"], json!({}));
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_process_within_a_second_and_leaves_the_turn_to_the_server() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    let feed = halo.chat();
    feed.session().text("working");
    editor.prompt("hi").await;
    editor.line().await;
    let start = Instant::now();
    let (rest, _, status) = editor.end().await;
    assert!(status.success() && rest.is_empty() && start.elapsed() < Duration::from_secs(1));
    feed.closed().await;
    assert!(halo.seen("POST stop").is_empty());
}

#[tokio::test]
async fn requests_that_were_piped_in_are_answered_before_the_end() {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    editor.send("initialize", json!({"protocolVersion": 1})).await;
    editor.send("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
    let (rest, _, status) = editor.end().await;
    assert!(status.success());
    assert_eq!(rest.len(), 2, "{rest:?}");
}

#[tokio::test]
async fn a_cancel_just_before_the_end_is_waited_for_but_not_for_long() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    feed.session().text("working");
    halo.on("POST stop", support::halo::Answer::Hang);
    let mut editor = Editor::with_session(&halo).await;
    editor.prompt("hi").await;
    editor.line().await;
    editor.cancel().await;
    let start = Instant::now();
    let (_, _, status) = editor.end().await;
    assert!(status.success());
    let waited = start.elapsed();
    assert!(waited > Duration::from_millis(300) && waited < Duration::from_secs(1), "{waited:?}");
    halo.wait_for("POST stop", 1).await;
}

#[tokio::test]
async fn a_request_that_hangs_does_not_hold_up_the_end() {
    let halo = Halo::start().await;
    halo.on("POST sessions", support::halo::Answer::Hang);
    let mut editor = Editor::start(&halo, &[]);
    editor.send("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
    halo.wait_for("POST sessions", 1).await;
    let start = Instant::now();
    let (_, _, status) = editor.end().await;
    assert!(status.success() && start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_closed_stdout_ends_the_process_quietly() {
    let halo = Halo::start().await;
    let editor = Editor::start(&halo, &[]);
    let (stderr, status) = editor.hang_up("authenticate").await;
    assert!(status.success(), "{stderr}");
    assert!(!stderr.contains("ERROR"), "{stderr}");
}
