//! `shell_exec` of a full session on the real server: it answers when its shell ends, whatever stays behind, and no
//! output makes the server large or deaf.

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::processes::{peak_kib, resident_kib, running_in};
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame};
use halo_tests::within;
use rstest::rstest;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// How much the server may grow by a command, in KiB.
const GROWTH: u64 = 16 * 1024;

struct Stack {
    server: Server,
    client: Client,
    _model: ModelServer,
}

/// What a command came to.
#[derive(Debug)]
struct Ended {
    output: String,
    took: Duration,
}

async fn stack(timeout: Duration) -> Stack {
    let model = ModelServer::start().await.expect("a model server");
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let millis = timeout.as_millis().to_string();
    let env = vec![("HALO_SHELL_TIMEOUT".to_owned(), millis)];
    let server = Server::launch(place, Launch { env, ..Launch::default() }).await;
    let client = server.client("full").await;
    Stack { server, client, _model: model }
}

fn order(command: &str) -> String {
    format!("TOOL shell_exec {}", json!({"command": command}))
}

impl Stack {
    async fn run(&self, command: &str) -> Ended {
        let session = self.client.mint().await;
        let frames = self.client.turn(&session, &order(command)).await;
        assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
        self.result(&session).await
    }

    async fn result(&self, session: &str) -> Ended {
        let history = self.client.history(session).await;
        let rows = history["messages"].as_array().expect("messages");
        let row = rows.iter().rfind(|row| row["type"] == "tool_result").expect("a result");
        let output = row["toolOutput"].as_str().expect("an output").to_owned();
        Ended { output, took: Duration::from_millis(row["durationMs"].as_u64().expect("a duration")) }
    }

    /// Runs a command, and gives how much the server has grown at most, after one that it has warmed up with.
    async fn growth(&self, command: &str) -> (Ended, u64) {
        self.run("echo warm").await;
        let before = resident_kib(self.server.pid());
        // From now on the kernel counts the peak anew.
        fs::write(format!("/proc/{}/clear_refs", self.server.pid()), "5").expect("the peak is reset");
        let ended = self.run(command).await;
        (ended, peak_kib(self.server.pid()).saturating_sub(before))
    }
}

#[rstest]
#[case::background("sleep 300 & echo ok", "ok", 0)]
#[case::session_of_its_own("setsid sleep 300 & echo ok", "ok", 0)]
#[case::deaf_to_hangups("nohup sleep 300 & echo ok", "ok", 0)]
#[case::deaf_and_elsewhere("nohup sleep 300 >log 2>&1 & echo ok", "ok", 0)]
#[case::orphan("(setsid sleep 300 &); echo ok", "ok", 0)]
#[case::closed_pipes("exec >&- 2>&-; sleep 1", "(no output)", 1)]
#[case::closed_pipes_and_background("echo ok; exec >&- 2>&-; sleep 300 & sleep 1", "ok", 1)]
#[case::background_that_writes("(while sleep 0.02; do echo x; done) & echo ok", "ok", 0)]
#[case::background_that_shouts("yes & sleep 1", "y", 1)]
#[tokio::test]
async fn it_answers_within_a_second_of_the_shells_end(
    #[case] command: &str,
    #[case] begins: &str,
    #[case] seconds: u64,
) {
    let stack = stack(Duration::from_secs(60)).await;
    let mut shortest = Duration::MAX;
    // A busy machine may be late, but not always.
    for _ in 0..5 {
        let ended = stack.run(command).await;
        assert!(ended.output.starts_with(begins), "{:?}", ended.output.get(..200));
        shortest = shortest.min(ended.took);
        if shortest < Duration::from_secs(seconds + 1) {
            return;
        }
    }
    panic!("{shortest:?}");
}

#[rstest]
#[case::yes("yes", "y\ny\n", "\ny\n")]
#[case::zeros("cat /dev/zero", "\0\0", "\0\0")]
#[case::one_endless_line("yes | tr -d '\\n'", "yy", "yy")]
#[tokio::test]
async fn endless_output_is_kept_at_both_ends_until_the_timeout(
    #[case] command: &str,
    #[case] head: &str,
    #[case] tail: &str,
) {
    let stack = stack(Duration::from_secs(2)).await;
    let (ended, growth) = stack.growth(command).await;
    assert!(ended.took < Duration::from_secs(4), "{:?}", ended.took);
    let (before, after) = parts(&ended.output);
    assert!(before.starts_with(head), "{:?}", before.get(..100));
    let (after, note) = after.split_once("[timed out after 2 s").expect("a note about the timeout");
    assert!(after.ends_with(&format!("{}\n", tail.trim_end())), "{:?}", after.get(after.len() - 100..));
    assert!(note.starts_with(": the command and all it started were stopped"), "{note}");
    assert!(running_in(&stack.server.workspace(), command).is_empty(), "nothing runs on");
    println!("{command}: {growth} KiB");
    assert!(growth < GROWTH, "the server grew by {growth} KiB");
}

#[tokio::test]
async fn a_million_lines_of_errors_are_kept_at_both_ends() {
    let stack = stack(Duration::from_secs(60)).await;
    let (ended, growth) = stack.growth("seq 1000000 >&2; exit 3").await;
    let (head, tail) = parts(&ended.output);
    assert!(head.starts_with("1\n2\n3\n"), "{:?}", head.get(..100));
    assert!(tail.ends_with("\n999999\n1000000\n[exit code 3]"), "{:?}", tail.get(tail.len() - 100..));
    assert!(growth < GROWTH, "the server grew by {growth} KiB");
}

/// What stands before and after the note about what is left out.
fn parts(output: &str) -> (&str, &str) {
    let (before, rest) = output.split_once("\n[Content truncated: ").expect("a note");
    (before, rest.split_once("]\n").expect("the note ends").1)
}

#[rstest]
#[case("yes")]
#[case("cat /dev/zero")]
#[case("while :; do echo error >&2; done")]
#[tokio::test]
async fn stop_works_while_output_pours(#[case] command: &str) {
    let stack = stack(Duration::from_secs(60)).await;
    let session = stack.client.mint().await;
    let mut stream = stack.client.chat(&session, &order(command)).await;
    stream.until("tool_call").await;
    let workspace = stack.server.workspace();
    let runs = async {
        while running_in(&workspace, command).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the command runs", runs).await;
    let began = Instant::now();
    assert!(stack.client.stop(&session).await);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let frames = stream.rest().await;
    assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
    assert_eq!(stack.client.history(&session).await["running"], Value::Bool(false));
    assert!(running_in(&workspace, command).is_empty(), "nothing runs on");
}
