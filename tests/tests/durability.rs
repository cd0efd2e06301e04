//! A kill does not test the disk. The system calls do: the write-ahead log is synced before the first byte that
//! acknowledges a message leaves.

use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::tool_or_skip;
use halo_tests::web::Client;
use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// What the message says, so that it can be found in the calls.
const MARKER: &str = "marker-of-the-message-0815";

fn strace_works() -> bool {
    Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn the_log_is_synced_before_the_user_frame_goes_out() {
    if !tool_or_skip("strace", strace_works(), "install the package `strace`, and allow ptrace") {
        return;
    }
    let place = Place::new();
    let trace = place.root().join("trace");
    let mut wrapper: Vec<_> = ["strace", "-f", "-y", "-s", "20000", "-e"].map(Into::into).into();
    wrapper.push("trace=fdatasync,fsync,pwrite64,write,writev,sendto,sendmsg".into());
    wrapper.extend(["-o".into(), trace.clone().into_os_string()]);
    let token = place.token("full").await;
    let mut server = Server::launch(place, Launch { wrapper, ..Launch::default() }).await;
    let client = Client::new(server.url(), Some(&token));
    let session = client.mint().await;
    let frames = client.turn(&session, &format!("say {MARKER}")).await;
    assert_eq!(frames.last().unwrap().kind(), "complete");
    // strace ends with the server that it follows, and has written all then.
    let pid = fs::read_to_string(server.place().home().join("global/server.lock")).unwrap();
    let pid: i32 = pid.lines().next().unwrap().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    server.wait().await;

    let calls = calls(&fs::read_to_string(trace).unwrap());
    let sent = calls.iter().position(Call::sends_the_user_frame).expect("the user frame was sent");
    let written =
        calls[..sent].iter().rposition(Call::writes_the_message).expect("the message was logged before");
    let synced = calls[written..sent].iter().any(Call::syncs_the_log);
    assert!(synced, "not synced between these calls:\n{}", shown(&calls[written..=sent]));
}

/// A call at the moment of its return, except what goes out: that counts from its begin.
struct Call(String);

impl Call {
    fn sends_the_user_frame(&self) -> bool {
        is_user_frame(&self.0)
    }

    fn writes_the_message(&self) -> bool {
        self.is("pwrite64", "write") && self.of_the_log() && self.0.contains(MARKER)
    }

    fn syncs_the_log(&self) -> bool {
        self.is("fdatasync", "fsync") && self.of_the_log() && self.0.trim_end().ends_with("= 0")
    }

    fn is(&self, one: &str, other: &str) -> bool {
        [one, other].iter().any(|name| self.0.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
    }

    fn of_the_log(&self) -> bool {
        self.0.contains(".halo/halo.db-wal>")
    }
}

/// The calls of the trace in order. A call that another interrupts stands where it ends.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(char::is_whitespace) else { continue };
        let call = call.trim_start();
        if let Some(begin) = call.strip_suffix(" <unfinished ...>") {
            if is_user_frame(begin) {
                calls.push(Call(begin.to_owned()));
            }
            unfinished.insert(thread, begin);
        } else if call.starts_with("<... ") {
            let end = call.split_once(" resumed>").map_or("", |(_, end)| end);
            if let Some(begin) = unfinished.remove(thread).filter(|begin| !is_user_frame(begin)) {
                calls.push(Call(format!("{begin}{end}")));
            }
        } else {
            calls.push(Call(call.to_owned()));
        }
    }
    calls.retain(|call| is_user_frame(&call.0) || call.of_the_log());
    calls
}

/// Whether the call sends the frame to a socket.
fn is_user_frame(call: &str) -> bool {
    let to_socket = call.contains("TCP") || call.contains("socket:");
    to_socket && call.contains(r#"\"type\":\"user\""#) && call.contains(MARKER)
}

fn shown(calls: &[Call]) -> String {
    let heads: Vec<String> = calls.iter().map(|call| call.0.chars().take(120).collect()).collect();
    heads.join("\n")
}
