//! Ways out of the sandbox, tried one by one. After each the world outside is as it was, and no secret came in.

use super::{Mode, Stack};
use halo_tests::place::Place;
use halo_tests::server::Launch;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

/// Whatever hidden file is read, this would show.
const SECRET: &str = "quintessence";

/// What commands are to leave alone.
struct Outside {
    listener: UnixListener,
    sleeper: Child,
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.sleeper.kill().unwrap();
        self.sleeper.wait().unwrap();
    }
}

fn put(path: &std::path::Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn prepare(place: &Place) -> Outside {
    put(&place.user_home().join(".ssh/id"), SECRET);
    put(&place.user_home().join(".netrc"), SECRET);
    put(&place.user_home().join(".gitconfig"), &format!("[user]\nname = A\nemail = a@b\n# {SECRET}\n"));
    place.private("secrets/key", SECRET);
    place.private("global/runs.db.bak", SECRET);
    put(&place.root().join("private/x"), SECRET);
    put(&place.workspace().join("deep/down/private/x"), SECRET);
    put(&place.workspace().join("key.pem"), SECRET);
    put(&place.workspace().join(".halo/sessions/s1"), SECRET);
    put(&place.workspace().join(".halo/copy.db"), SECRET);
    put(&place.root().join("outside.txt"), "from outside");
    fs::hard_link(place.workspace().join("key.pem"), place.workspace().join("other-name")).unwrap();
    std::os::unix::fs::symlink(place.user_home().join(".ssh"), place.workspace().join("link")).unwrap();
    let listener = UnixListener::bind(place.root().join("outside.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let sleeper = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap();
    Outside { listener, sleeper }
}

/// Each is run with `$R` for the place's folder, `$P` for the server's and `$S` for the sleeper's process id.
const ATTEMPTS: [&str; 46] = [
    // Write outside.
    "echo x > $R/outside.txt",
    "echo x > $R/new.txt; echo x > $R/user/new.txt; echo x > /etc/halo-escape",
    "ln -s $R/outside.txt out; echo x >> out; rm -f out",
    "mv $R/outside.txt $R/moved.txt; rm -rf $R/outside.txt",
    "truncate -s 0 $R/outside.txt; chmod 777 $R/outside.txt; touch -d @0 $R/outside.txt; chown 1 $R/outside.txt",
    "echo x > /proc/self/root$R/outside.txt",
    "mkdir -p $R/home/global/agents/evil; echo x > $R/home/global/agents/evil/agent.yaml",
    "python3 -c 'import os; os.setxattr(\"'$R'/outside.txt\", \"user.x\", b\"1\")'",
    // Read what is hidden.
    "cat $R/user/.ssh/id; cat link/id; cat $R/user/.netrc; cat $R/user/.gitconfig",
    "cat $R/home/secrets/*; cat $R/home/secrets/settings.yaml; cat $R/home/global/*.db*",
    "cat /proc/self/root$R/user/.ssh/id; cat /proc/self/cwd/../user/.ssh/id; cat /proc/1/root$R/user/.ssh/id",
    "cat /proc/$P/root$R/user/.ssh/id; cat /proc/$P/cwd/.halo/copy.db; cat /proc/thread-self/root$R/private/x",
    "cat key.pem; cat other-name; cat deep/down/private/x; cat $R/private/x",
    "ln $R/user/.ssh/id stolen; ln key.pem stolen2; cat stolen stolen2; rm -f stolen stolen2",
    "cat .halo/sessions/s1 .halo/*.db .halo/halo.db*; strings .halo/halo.db | head -c 300",
    "cat $R/other/.halo/halo.db $R/other/.halo/copy.db",
    "cp -r $R/user copied; cat copied/.ssh/id; rm -rf copied; tar cf - $R/user $R/home 2>/dev/null | cat",
    "umount $R/user/.ssh; umount -l $R/user/.ssh; cat $R/user/.ssh/id",
    "umount key.pem; cat key.pem; umount -l .halo; cat .halo/sessions/s1",
    "mkdir m; mount --bind $R/user m; cat m/.ssh/id; rmdir m",
    "mount --bind / /mnt; cat /mnt$R/user/.ssh/id; chroot / cat $R/user/.ssh/id",
    "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mem; do head -c 10 $d; done; mknod dd b 254 0; mknod /tmp/dd b 254 0",
    // By a parent that is moved away; the second command looks.
    "mv .halo x; mv deep deep2; mv deep/down deep/d2; rm -rf .halo/sessions; rmdir .halo",
    "cat x/sessions/s1 x/copy.db deep2/down/private/x deep/d2/private/x; cat deep/down/private/x .halo/copy.db",
    "python3 -c 'import os; os.rename(\".halo\", \"y\")'; python3 -c 'import os; os.rename(\"key.pem\", \"k\")'",
    "cat y/copy.db k; rm -f key.pem; cat key.pem",
    // Decide about keys, or about the level of sessions.
    "echo x > .halo/agents/evil.yaml; mkdir .halo/agents/evil; rm -rf .halo/agents; ln -s /tmp .halo/agents2",
    "echo x > .halo/settings.yaml; ln -s /tmp/x .halo/settings.yaml; mkdir .halo/settings.yaml",
    "echo x > .halo/halo.db-journal; echo x > .halo/halo.db; echo x > .halo/runtime.lock; rm .halo/runtime.lock",
    // Processes outside.
    "kill -9 $S; kill -9 $P; kill -STOP $S; kill -9 -1",
    "python3 -c 'import os, signal; os.kill('$S', signal.SIGKILL)'; pkill -9 sleep; killall sleep",
    "python3 -c 'import resource; resource.prlimit('$S', resource.RLIMIT_CPU, (0, 0))'",
    "gdb -p $S -batch; strace -p $S -o /dev/null & sleep 0.1; kill %1; cat /proc/$S/cmdline; cat /proc/$S/environ",
    "cat /proc/$P/environ; cat /proc/*/environ; env; export -p; cat /proc/self/environ /proc/1/environ",
    // Sockets outside.
    "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"'$R'/outside.sock\")'",
    "cd $R; python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"./outside.sock\")'",
    "python3 -c 'import socket; s = socket.socket(40, socket.SOCK_STREAM)' && echo vsock-is-open",
    // Setuid bits, and rights inside of namespaces.
    "cp /bin/cat suid; chmod 4755 suid; chmod u+s suid; chmod g+s suid; install -m 6755 /bin/cat suid2",
    "python3 -c 'import os; os.close(os.open(\"suid3\", os.O_CREAT | os.O_WRONLY, 0o4755))'",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); l.syscall(452, -100, b\"suid\", 0o4755, 0)'",
    "su -c 'cat $R/user/.ssh/id' nobody; sudo -n cat $R/user/.ssh/id; passwd -d root; mount",
    "unshare -Ur true && echo userns-is-open; unshare -Urm sh -c 'umount $R/user/.ssh; cat $R/user/.ssh/id'",
    "unshare -Urm sh -c 'mount --bind $R/private /mnt; cat /mnt/x'; unshare -rm mount -t tmpfs x /mnt && echo mounted",
    "bwrap --bind / / cat $R/user/.ssh/id; nsenter -t 1 -a cat $R/user/.ssh/id; nsenter -t $P -a id && echo entered",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); print(l.syscall(435, 0, 0), l.syscall(425, 1, 0))'",
    "echo core > /proc/sys/kernel/core_pattern; echo b > /proc/sysrq-trigger; echo 1 > /sys/kernel/uevent_helper",
];

#[rstest]
#[case(Mode::Workspace)]
#[case(Mode::ReadOnly)]
#[case(Mode::Landlock)]
#[tokio::test]
async fn no_way_out_of_the_sandbox_is_known(#[case] mode: Mode) {
    let mut outside = None;
    let hide = "hidden_dirs: DIRS\n    hidden_files: FILES";
    let launch = Launch { env: vec![("SOME_TOKEN".into(), SECRET.into())], ..Launch::default() };
    let stack = Stack::start_with(mode, hide, launch, |place| {
        let settings = fs::read_to_string(place.home().join("secrets/settings.yaml")).unwrap();
        let at = |path: &str| place.root().join(path).display().to_string();
        let dirs = format!("{},{}", at("private"), at("workspace/deep/down/private"));
        let settings = settings.replace("DIRS", &dirs).replace("FILES", &at("workspace/key.pem"));
        place.private("secrets/settings.yaml", &settings);
        outside = Some(prepare(place));
    });
    let Some(stack) = stack.await else { return };
    let mut outside = outside.unwrap();
    let place = stack.server.place();
    // Another workspace of this server.
    fs::create_dir(place.root().join("other")).unwrap();
    let other = place.token_for("full", &place.root().join("other")).await;
    let other = stack.client.with_token(Some(&other));
    other.turn(&other.mint().await, &format!("SAY {SECRET}")).await;
    put(&place.root().join("other/.halo/copy.db"), SECRET);

    let variables =
        format!("R={}; P={}; S={};", place.root().display(), stack.server.pid(), outside.sleeper.id());
    let agents: Vec<_> = fs::read_dir(place.workspace().join(".halo/agents")).unwrap().collect();
    assert!(agents.is_empty());
    let before = fs::metadata(place.root().join("outside.txt")).unwrap();
    for attempt in ATTEMPTS {
        let result = stack.run(&format!("{variables} {attempt}")).await;
        let context = format!("{mode:?}: {attempt}\n{result}");
        for leak in
            [SECRET, "SQLite", "sk-of-the-script", "a-secret-for-tests", "is-open", "mounted", "entered"]
        {
            assert!(!result.contains(leak), "{leak}: {context}");
        }
        assert!(!result.contains("bwrap:") || attempt.contains("bwrap"), "{context}");
        let now = fs::metadata(place.root().join("outside.txt")).expect(&context);
        let state = |meta: &fs::Metadata| (meta.len(), meta.mode(), meta.mtime(), meta.uid(), meta.nlink());
        assert_eq!(state(&now), state(&before), "{context}");
        for made in ["new.txt", "user/new.txt", "moved.txt", "home/global/agents/evil"] {
            assert!(!place.root().join(made).exists(), "{made}: {context}");
        }
        assert!(!std::path::Path::new("/etc/halo-escape").exists());
        for (kept, text) in [
            ("user/.ssh/id", SECRET),
            ("workspace/key.pem", SECRET),
            ("workspace/deep/down/private/x", SECRET),
            ("workspace/.halo/sessions/s1", SECRET),
            ("workspace/.halo/copy.db", SECRET),
        ] {
            assert_eq!(fs::read_to_string(place.root().join(kept)).expect(&context), text, "{context}");
        }
        let halo = place.workspace().join(".halo");
        assert!(fs::read_dir(halo.join("agents")).unwrap().next().is_none(), "{context}");
        for absent in ["settings.yaml", "halo.db-journal", "agents2"] {
            assert!(halo.join(absent).symlink_metadata().is_err(), "{absent}: {context}");
        }
        for entry in fs::read_dir(place.workspace()).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o6000, 0, "{:?}: {context}", entry.file_name());
        }
        assert!(outside.sleeper.try_wait().unwrap().is_none(), "{context}");
        assert!(outside.listener.accept().is_err(), "{context}");
        if mode != Mode::Workspace {
            assert!(!place.workspace().join("suid").exists(), "{context}");
        }
    }
    assert_eq!(stack.client.get("/api/health").await.status, 200);
}

#[rstest]
#[case(Mode::ReadOnly)]
#[case(Mode::Landlock)]
#[tokio::test]
async fn readonly_writes_nothing_not_even_in_the_workspace(#[case] mode: Mode) {
    let Some(stack) = Stack::start(mode).await else { return };
    let place = stack.server.place();
    for command in [
        "echo x > new.txt",
        "echo x >> notes.txt",
        "rm notes.txt",
        "mv notes.txt n.txt",
        "chmod 777 notes.txt",
        "touch -d @0 notes.txt",
        "mkdir folder",
        "ln notes.txt hard",
        "truncate -s 0 notes.txt",
        "sed -i s/two/2/ notes.txt",
        "echo x > .halo/memory/x.md",
    ] {
        let result = stack.run(command).await;
        assert!(result.contains("[exit code"), "{command}: {result}");
        assert!(
            result.contains("[Sandbox] This session runs at \"readonly\" access:"),
            "{command}: {result}"
        );
    }
    let result = stack.tool("file_write", &serde_json::json!({"path": "new.txt", "content": "x"})).await;
    assert!(result.contains("readonly") || result.contains("full access"), "{result}");
    assert_eq!(place.read("notes.txt"), "one\ntwo\nthree\n");
    assert!(!place.workspace().join("new.txt").exists() && !place.workspace().join("folder").exists());
    assert!(fs::metadata(place.workspace().join("notes.txt")).unwrap().mtime() > 1000);
}
