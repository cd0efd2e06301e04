use super::super::testing::Place;
use super::*;
use rstest::rstest;
use rustix::process::Pid;
use std::time::Instant;

async fn run(place: &Place, command: &str) -> Output {
    place.call(&ShellExec::default(), json!({"command": command})).await
}

/// Whether a process runs; a dead one that nobody has collected does not.
fn is_running(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X']))
}

/// Waits until a file has `count` process ids, and gives them.
async fn pids(place: &Place, file: &str, count: usize) -> Vec<i32> {
    let path = place.at(file);
    for _ in 0..500 {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() == count {
            return text.lines().map(|line| line.trim().parse().unwrap()).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{file} was not written");
}

async fn assert_gone(pids: &[i32]) {
    for _ in 0..100 {
        if !pids.iter().any(|pid| is_running(*pid)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("still running: {pids:?}");
}

#[rstest]
#[case("echo hello", "hello")]
#[case("echo out; echo err >&2; echo out", "out\nerr\nout")]
#[case("pwd -P | xargs basename", "ws")]
#[case("true", "(no output)")]
#[case("exit 3", "[exit code 3]")]
#[case("echo x; false", "x\n[exit code 1]")]
#[case("nonexistent-command-1 2>/dev/null", "[exit code 127]")]
#[case("kill -9 $$", "[killed by signal 9 (SIGKILL)]")]
#[case("kill $$", "[killed by signal 15 (SIGTERM)]")]
#[case("cat", "(no output)")]
#[case("read -r x; echo $?", "1")]
#[case("printf 'a\\377b'", "a\u{fffd}b")]
#[case("[[ -n $BASH_VERSION ]] && echo bash", "bash")]
#[case("echo $TERM $PAGER", "dumb cat")]
#[case("tty", "not a tty\n[exit code 1]")]
#[tokio::test]
async fn the_answer_is_what_the_command_prints_and_how_it_ended(
    #[case] command: &str,
    #[case] expected: &str,
) {
    assert_eq!(run(&Place::new(), command).await, Output::ok(expected));
}

#[tokio::test]
async fn it_returns_when_the_shell_ends_and_leaves_the_background_running() {
    let place = Place::new();
    let start = Instant::now();
    let output = run(&place, "sleep 300 & echo $! > pid; echo ok").await;
    assert_eq!(output, Output::ok("ok"));
    assert!(start.elapsed() < Duration::from_secs(5));
    let pids = pids(&place, "pid", 1).await;
    assert!(is_running(pids[0]));
    rustix::process::kill_process(Pid::from_raw(pids[0]).unwrap(), rustix::process::Signal::KILL).unwrap();
    assert_gone(&pids).await;
}

#[tokio::test]
async fn a_background_child_that_never_stops_writing_does_not_hold_the_answer() {
    let place = Place::new();
    let start = Instant::now();
    // It dies of the closed pipe.
    let output = run(&place, "yes & echo $! > pid").await;
    assert!(!output.is_error);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_gone(&pids(&place, "pid", 1).await).await;
}

#[tokio::test]
async fn endless_output_is_bounded_and_ended_by_the_timeout() {
    let mut place = Place::new();
    place.context.limits.shell_timeout = Duration::from_millis(300);
    place.context.limits.shell_output_bytes = 1000;
    let output = run(&place, "echo $$ > pid; echo first; yes").await;
    assert!(output.is_error);
    assert!(output.text.starts_with("first\ny\n"), "{}", output.text);
    assert!(output.text.contains("bytes left out here]"));
    assert!(output.text.len() < 1500);
    assert!(output.text.contains("[timed out after 0.3 s"));
    assert_gone(&pids(&place, "pid", 1).await).await;
}

#[tokio::test]
async fn a_timeout_ends_everything_that_was_started() {
    let mut place = Place::new();
    place.context.limits.shell_timeout = Duration::from_millis(600);
    let command = "echo $$ >> pids; sleep 300 & echo $! >> pids; \
                   setsid sh -c 'echo $$ >> pids; exec sleep 300' & \
                   (setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 1; done' &) ; wait; sleep 300";
    let start = Instant::now();
    let output = run(&place, command).await;
    assert!(start.elapsed() < Duration::from_millis(600 + 1500), "{:?}", start.elapsed());
    assert!(output.is_error && output.text.contains("timed out"), "{}", output.text);
    assert_gone(&pids(&place, "pids", 4).await).await;
}

#[rstest]
#[case::plain("echo $$ >> pids; sleep 300", 1)]
#[case::deaf("trap '' TERM; echo $$ >> pids; while :; do sleep 1; done", 1)]
#[case::escaped("setsid sh -c 'echo $$ >> pids; exec sleep 300' & echo $$ >> pids; wait; sleep 300", 2)]
#[case::orphaned("(setsid sh -c 'echo $$ >> pids; exec sleep 300' &); echo $$ >> pids; sleep 300", 2)]
#[case::pipeline("echo $$ >> pids; sleep 300 | sh -c 'echo $$ >> pids; exec sleep 300'", 2)]
#[case::shouting("echo $$ >> pids; yes", 1)]
#[tokio::test]
async fn a_stop_ends_everything_within_a_second_and_a_half(
    #[case] command: &'static str,
    #[case] count: usize,
) {
    let place = std::sync::Arc::new(Place::new());
    let own = std::sync::Arc::clone(&place);
    let task = tokio::spawn(async move { run(&own, command).await });
    let pids = pids(&place, "pids", count).await;
    let start = Instant::now();
    place.context.cancel.cancel();
    let output = task.await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    assert!(output.is_error);
    assert!(output.text.ends_with("[stopped: the command and all it started were ended]"));
    assert_gone(&pids).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_running() {
    let place = std::sync::Arc::new(Place::new());
    let own = std::sync::Arc::clone(&place);
    let task = tokio::spawn(async move { run(&own, "echo $$ >> pids; sleep 300").await });
    let pids = pids(&place, "pids", 1).await;
    task.abort();
    assert_gone(&pids).await;
}

#[tokio::test]
async fn a_session_that_is_already_stopped_starts_nothing() {
    let place = Place::new();
    place.context.cancel.cancel();
    assert!(run(&place, "touch x").await.is_error);
    assert!(place.names("").is_empty());
}

#[tokio::test]
async fn two_commands_do_not_end_each_other() {
    let place = std::sync::Arc::new(Place::new());
    let own = std::sync::Arc::clone(&place);
    let other = tokio::spawn(async move {
        run(&own, "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ok").await
    });
    pids(&place, "pids", 1).await;
    let mut second = Place::new();
    second.context.limits.shell_timeout = Duration::from_millis(100);
    assert!(run(&second, "sleep 300").await.is_error);
    place.put("go", "");
    assert_eq!(other.await.unwrap(), Output::ok("ok"));
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let place = Place::new();
    assert!(run(&place, "rm -rf .").await.text.starts_with("[Sandbox] rm blocked: \".\" resolves to "));
    assert!(run(&place, "a\0b").await.text.contains("NUL"));
    assert!(run(&place, "  ").await.text.contains("is empty"));
    let long = format!("echo {}", "x".repeat(4 << 20));
    assert!(run(&place, &long).await.text.contains("too long"));
    std::fs::remove_dir(place.at("")).unwrap();
    assert!(run(&place, "true").await.text.contains("the workspace folder is gone"));
}

#[rstest]
#[case("echo x; exit 1", false)]
#[case("echo 'cat: x: Permission denied'; exit 1", true)]
#[case("echo 'cat: x: Permission denied'", false)]
#[case("echo 'EROFS: read-only file system, open'; exit 2", true)]
#[tokio::test]
async fn what_the_sandbox_may_have_refused_is_said_below_full_access(
    #[case] command: &str,
    #[case] hint: bool,
) {
    for access in [AccessLevel::Full, AccessLevel::Workspace, AccessLevel::ReadOnly] {
        let place = Place::with_access(access);
        if access < AccessLevel::Full && !place.context.sandbox.holds() {
            continue;
        }
        let start = format!("[Sandbox] This session runs at \"{access}\" access:");
        let text = run(&place, command).await.text;
        let line = text.lines().last().unwrap_or_default();
        assert_eq!(line.starts_with(&start), hint && access < AccessLevel::Full, "{text}");
        assert!(!line.starts_with(&start) || line.contains("full access"), "{text}");
    }
}
