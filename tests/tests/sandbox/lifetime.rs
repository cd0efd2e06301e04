//! Sandboxed commands end, with all they have started: by themselves, by stop, by timeout, and with the server.

use super::{Mode, Stack, running};
use halo_tests::server::Launch;
use halo_tests::within;
use rstest::rstest;
use std::time::{Duration, Instant};

/// A number of seconds that no other command of this machine sleeps.
fn unique() -> String {
    format!("9{:05}.{:06}", std::process::id() % 100_000, rand::random::<u32>() % 1_000_000)
}

async fn gone(part: &str) {
    let look = async {
        while !running(part).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(&format!("{:?} ends", running(part)), look).await;
}

async fn begun(part: &str, count: usize) {
    let look = async {
        while running(part).iter().filter(|line| line.contains(": sleep")).count() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the commands run", look).await;
}

#[rstest]
#[case(Mode::Workspace)]
#[case(Mode::ReadOnly)]
#[tokio::test]
async fn it_returns_when_the_shell_ends_and_takes_the_background_with_it(#[case] mode: Mode) {
    let Some(stack) = Stack::start(mode).await else { return };
    stack.run("true").await;
    for how in ["sleep N & echo ok", "setsid sleep N & echo ok", "nohup sleep N >/dev/null 2>&1 & echo ok"] {
        let time = unique();
        let began = Instant::now();
        let result = stack.run(&how.replace('N', &time)).await;
        // The command itself takes no time; a busy machine needs some for the rest.
        assert!(began.elapsed() < Duration::from_secs(5), "{how}: {:?}", began.elapsed());
        assert!(result.contains("ok"), "{how}: {result}");
        assert_eq!(running(&time), Vec::<String>::new(), "{how}");
    }
}

/// Children in sessions of their own, orphans, and some that lost their environment.
fn family(time: &str) -> String {
    format!(
        "sleep {time} & setsid sleep {time} & (setsid sleep {time} &) ; \
         (setsid env -i sleep {time} </dev/null >/dev/null 2>&1 &); trap '' TERM; wait; while :; do :; done"
    )
}

#[rstest]
#[case(Mode::Workspace)]
#[case(Mode::ReadOnly)]
#[tokio::test]
async fn a_stop_leaves_nothing_running(#[case] mode: Mode) {
    let Some(stack) = Stack::start(mode).await else { return };
    let time = unique();
    let stream = stack.begin(&stack.session, &family(&time)).await;
    begun(&time, 4).await;
    let began = Instant::now();
    assert!(stack.client.stop(&stack.session).await);
    stream.rest().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    gone(&time).await;
}

#[rstest]
#[case(Mode::Workspace)]
#[case(Mode::ReadOnly)]
#[tokio::test]
async fn a_timeout_leaves_nothing_running(#[case] mode: Mode) {
    let launch = Launch { env: vec![("HALO_SHELL_TIMEOUT".into(), "3000".into())], ..Launch::default() };
    let Some(stack) = Stack::start_with(mode, "", launch, |_| ()).await else { return };
    let time = unique();
    let result = stack.run(&family(&time)).await;
    assert!(result.contains("[timed out after 3 s"), "{result}");
    gone(&time).await;
}

#[tokio::test]
async fn a_killed_server_leaves_nothing_running() {
    let Some(mut stack) = Stack::start(Mode::Workspace).await else { return };
    let time = unique();
    let stream = stack.begin(&stack.session, &family(&time)).await;
    begun(&time, 4).await;
    let networks = running("slirp4netns").len();
    stack.server.kill9().await;
    drop(stream);
    gone(&time).await;
    let look = async {
        while networks > 0 && running("slirp4netns").len() >= networks {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the network of the command ends", look).await;
}

#[tokio::test]
async fn ten_commands_run_side_by_side_in_one_workspace() {
    let Some(stack) = Stack::start(Mode::Workspace).await else { return };
    let mut streams = Vec::new();
    for number in 0..10 {
        let session = stack.client.mint().await;
        // Each waits for all ten: they really run at the same time.
        let command = format!(
            "touch begun.{number}; until [ \"$(ls begun.* | wc -l)\" = 10 ]; do sleep 0.02; done; \
             sleep 0.1; echo done > ended.{number}"
        );
        streams.push(stack.begin(&session, &command).await);
    }
    for stream in streams {
        within("a command ends", stream.rest()).await;
    }
    for number in 0..10 {
        assert_eq!(stack.server.place().read(&format!("ended.{number}")), "done\n");
    }
}

#[tokio::test]
async fn endless_output_is_cut_and_ended_by_the_timeout() {
    let launch = Launch { env: vec![("HALO_SHELL_TIMEOUT".into(), "1500".into())], ..Launch::default() };
    let Some(stack) = Stack::start_with(Mode::Workspace, "", launch, |_| ()).await else { return };
    let order = r#"TOOL shell_exec {"command": "echo first; yes"}"#;
    let frames = stack.client.turn(&stack.session, order).await;
    assert_eq!(frames.last().unwrap().kind(), "complete");
    let row = stack.client.history(&stack.session).await.to_string();
    assert!(row.contains("first\\ny\\n"), "{row}");
    assert!(running("yes").iter().all(|line| !line.ends_with(": yes ")), "{:?}", running("yes"));
}
