//! What sandboxed commands are for works: reading, building, committing.

use super::{Mode, Stack, path_without_bwrap};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use rstest::rstest;

#[tokio::test]
async fn a_workspace_session_works_as_in_a_shell() {
    let name = |place: &Place| {
        std::fs::write(
            place.user_home().join(".gitconfig"),
            "[user]\nname = Ada L\nemail = ada@example.com\n",
        )
        .unwrap();
    };
    let Some(stack) = Stack::start_with(Mode::Workspace, "", Launch::default(), name).await else { return };
    let result = stack
        .run("git init -q . 2>/dev/null; git add notes.txt && git commit -qm first && git log --format='%an <%ae>'")
        .await;
    assert_eq!(result, "Ada L <ada@example.com>");
    assert_eq!(stack.run("python3 -c 'print(6 * 7)'").await, "42");
    assert_eq!(stack.run("echo x > a.txt; mkdir d; mv a.txt d; cat d/a.txt; rm -r d").await, "x");
    let on_machine = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let look =
        format!("cat <(echo piped); echo t > /tmp/x; cat /tmp/x; ls -A {}", on_machine.path().display());
    let result = stack.run(&look).await;
    assert!(result.starts_with("piped\nt\n") && result.contains("No such file"), "{result}");
    assert_eq!(
        stack.run("test -e /tmp/x || echo new; echo m > .halo/memory/x.md; cat .halo/memory/x.md").await,
        "new\nm"
    );
    assert_eq!(stack.run("echo out; echo err >&2; exit 3").await, "out\nerr\n[exit code 3]");
    assert_eq!(stack.server.place().read(".halo/memory/x.md"), "m\n");
    let socket = "python3 -c 'import socket, os; s = socket.socket(socket.AF_UNIX); s.bind(\"own.sock\"); s.listen(); \
                  c = socket.socket(socket.AF_UNIX); c.connect(\"own.sock\"); print(\"own\"); os.remove(\"own.sock\")'";
    assert_eq!(stack.run(socket).await, "own");
}

#[rstest]
#[case(Mode::ReadOnly)]
#[case(Mode::Landlock)]
#[tokio::test]
async fn a_readonly_session_reads_and_runs_programs(#[case] mode: Mode) {
    let Some(stack) = Stack::start(mode).await else { return };
    assert_eq!(stack.run("cat notes.txt | head -1; grep -c marzipan README.md").await, "one\n1");
    assert_eq!(
        stack.run("python3 -c 'print(6 * 7)'; ls src; find . -name main.rs").await,
        "42\nmain.rs\n./src/main.rs"
    );
    assert_eq!(
        stack.run("cat <(echo piped); f=$(mktemp) && echo t > $f && cat $f; echo > /dev/null").await,
        "piped\nt"
    );
    assert_eq!(stack.run("echo hi; exit 3").await, "hi\n[exit code 3]");
    let offered = stack.model.last_request().unwrap().body["tools"].clone();
    let names: Vec<&str> =
        offered.as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert_eq!(
        names,
        ["file_read", "file_write", "file_edit", "file_list", "grep", "glob", "shell_exec", "continue_task"]
    );
}

#[rstest]
#[case("/tmp")]
#[case("/var/tmp")]
#[case("/dev/shm")]
#[tokio::test]
async fn a_workspace_in_a_folder_of_the_sandbox_s_own_is_there(#[case] folder: &str) {
    let place = Place::new_in(std::path::Path::new(folder));
    place.write(".halo/skills/x/run.sh", "echo ran\n");
    let server = Server::launch(place, Launch::default()).await;
    if server.client("full").await.get("/api/health").await.body["sandbox"] != "bwrap" {
        return;
    }
    for (access, expected) in [("workspace", "ran\none\n0\n"), ("readonly", "ran\none\n1\n")] {
        let client = server.client(access).await;
        let order =
            "run sh .halo/skills/x/run.sh; head -1 notes.txt; touch new.txt 2>/dev/null; echo $?; ls ..";
        let frames = client.turn(&client.mint().await, order).await;
        let result = frames.iter().find(|frame| frame.kind() == "tool_result").unwrap();
        let result = result.data["result"].as_str().unwrap();
        assert!(result.starts_with(expected), "{access}: {result}");
        assert!(result.contains("workspace") && !result.contains("home"), "{access}: {result}");
    }
}

#[tokio::test]
async fn doctor_names_the_sandbox_and_what_is_missing() {
    let place = Place::new();
    let said = place.run(["doctor"]).await.stdout;
    let line = said.lines().find(|line| line.contains("sandbox")).unwrap();
    assert!(line.contains("bwrap") || line.contains("bubblewrap"), "{line}");
    let path = path_without_bwrap(&place);
    let mut command = place.halo(["doctor"]);
    command.env("PATH", path);
    let said = halo_tests::place::Ended::of(command).await.stdout;
    assert!(said.contains("apt install bubblewrap"), "{said}");
}
