//! The real `halo` binary, as a person at a terminal sees it: exit codes, one clear line for each failure,
//! and that it works on a home of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod background;
mod model;
mod providers;
mod support;

use rstest::rstest;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{PATIENCE, Ran, Sandbox, Server};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The value behind a name in what a first start shows.
fn shown(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
    Some(line.trim_start().strip_prefix(name)?.trim().to_owned())
}

#[test]
fn a_first_start_needs_nothing_and_shows_what_it_made_only_once() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let port = server.port().to_owned();
    let url_line = server.line_with("  url ");
    assert!(url_line.contains(&format!("http://127.0.0.1:{port}")), "{url_line}");
    let password = shown(&server.line_with("admin password"), "admin password").unwrap();
    let token = shown(&server.line_with("  token "), "token").unwrap();
    let halo = Path::new(env!("CARGO_BIN_EXE_halo")).canonicalize().unwrap();
    let editor = server.line_with("halo acp");
    let expected = format!("{} acp --host 127.0.0.1 --port {port} --token {token}", halo.display());
    assert_eq!(editor.trim(), expected);
    let zed: serde_json::Value = serde_json::from_str(server.line_with("HALO_ACP_TOKEN").trim()).unwrap();
    assert_eq!(zed["halo"]["env"]["HALO_ACP_TOKEN"], token);
    assert_eq!(zed["halo"]["args"][0], "acp");
    let (status, _) = server.end();
    assert!(status.success());

    assert_eq!((password.len(), token.len()), (19, 32));
    let config = sandbox.read("config.yaml");
    assert!(config.contains("scrypt$N=16384,r=8,p=1$") && config.contains("jwt_secret:"), "{config}");
    assert!(!config.contains(&password), "{config}");
    let secrets = sandbox.home().join("secrets");
    assert_eq!((mode(&secrets), mode(&secrets.join("config.yaml"))), (0o700, 0o600));
    assert_eq!(mode(&secrets.join("settings.yaml")), 0o600);
    assert!(sandbox.read("settings.yaml").lines().all(|line| line.starts_with('#')));
    assert_eq!(sandbox.run(&["config", "check"]).stderr, "");
    let accounts: serde_json::Value =
        serde_json::from_str(sandbox.run(&["token", "list", "--json"]).good()).unwrap();
    assert_eq!(accounts.as_array().unwrap().len(), 1);
    assert_eq!(accounts[0]["accessLevel"], "full");
    assert_eq!(accounts[0]["tokenPrefix"], token[..6]);
    assert_eq!(accounts[0]["workspacePath"], sandbox.path("ws").canonicalize().unwrap().to_str().unwrap());

    let (_, second) = sandbox.serve(&[]).end();
    assert_eq!(second, "stopped\n", "a later start shows nothing but its end");
    assert_eq!(sandbox.read("config.yaml"), config);
}

#[test]
fn a_configuration_without_a_cookie_secret_gets_one_and_keeps_the_rest() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "# mine\nserver:\n  host: 127.0.0.1 # why\n");
    let (status, text) = sandbox.serve(&[]).end();
    assert!(status.success());
    assert!(!text.contains("First start") && text.contains("no admin password"), "{text}");
    let config = sandbox.read("config.yaml");
    assert!(
        config.starts_with("# mine\nserver:\n  jwt_secret: \"")
            && config.ends_with("\n  host: 127.0.0.1 # why\n")
    );
}

#[rstest]
#[case(&["--nonsense"])]
#[case(&["server", "--nonsense"])]
#[case(&["server", "--port", "65536"])]
#[case(&["server", "--log-level", "loud"])]
#[case(&["token", "create"])]
#[case(&["token", "create", "--workspace", "/", "--access", "root"])]
#[case(&["nonsense"])]
#[case(&[])]
fn bad_usage_exits_2_and_says_so_on_stderr(#[case] args: &[&str]) {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(!ran.stderr.is_empty());
    assert!(!sandbox.home().exists(), "bad usage leaves nothing behind");
}

#[test]
fn version_and_help_are_there() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["--version"]).good(), concat!("halo ", env!("CARGO_PKG_VERSION")));
    assert!(sandbox.run(&["help", "server"]).good().contains("--workspace"));
}

#[rstest]
#[case(
    "config.yaml",
    "server:\n  port: 95x\n",
    "config.yaml:2:9: `server.port`: expected a port number from 0 to 65535, found `95x`"
)]
#[case("config.yaml", "server:\n  port: [1\n", "config.yaml:2:")]
#[case(
    "settings.yaml",
    "general:\n  logging:\n    level: loud\n",
    "settings.yaml:3:12: `general.logging.level`: expected one of off, error, warn, info, debug, trace, found `loud`"
)]
fn a_broken_file_stops_the_server_with_file_line_and_column(
    #[case] name: &str,
    #[case] text: &str,
    #[case] error: &str,
) {
    let sandbox = Sandbox::new();
    sandbox.write(name, text);
    let ran = sandbox.run(&["server", "--port", "0"]);
    let expected = format!("{}/{error}", sandbox.home().join("secrets").display());
    assert!(ran.failed().starts_with(&expected), "{ran:?}");
    let checked = sandbox.run(&["config", "check"]);
    assert!(checked.failed().starts_with(&expected), "{checked:?}");
}

#[test]
fn config_check_reads_one_file_and_warns_with_the_nearest_key() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("my.yaml");
    std::fs::write(&file, "server:\n  prot: 1\n").unwrap();
    let ran = sandbox.run(&["config", "check", file.to_str().unwrap()]);
    assert!(ran.good().starts_with("ok: "));
    let warning =
        format!("warning: {}:2:3: unknown key `server.prot`; did you mean `server.port`?\n", file.display());
    assert_eq!(ran.stderr, warning);
    assert!(sandbox.run(&["config", "check", "/nowhere.yaml"]).failed().contains("no such file"));
}

#[test]
fn config_show_tells_values_and_origins_and_masks_secrets() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  jwt_secret: s3cret-jwt\n  port: 1234\n");
    sandbox.write("settings.yaml", "openai:\n  secrets:\n    api_key: <<KEY>>\n");
    let mut command = sandbox.command(&["config", "show"]);
    command.env("KEY", "sk-s3cret").env("HALO_PASSWORD", "s3cret-password").env("HALO_SHELL_TIMEOUT", "5");
    let ran = Ran::of(&command.output().unwrap());
    let text = ran.good();
    assert!(!format!("{ran:?}").contains("s3cret"), "{ran:?}");
    let file = sandbox.home().join("secrets/config.yaml");
    for line in [
        format!("server.port = 1234  ({}:3)", file.display()),
        format!("server.jwt_secret = (set)  ({}:2)", file.display()),
        "server.password = (set)  (HALO_PASSWORD)".to_owned(),
        "timeout.shell_exec = 5  (HALO_SHELL_TIMEOUT)".to_owned(),
        "general.agent.max_retries = 5  (default)".to_owned(),
        format!(
            "openai.secrets.api_key = (set)  ({})",
            sandbox.home().join("secrets/settings.yaml").display()
        ),
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in {text}");
    }
    assert!(sandbox.run(&["config", "show"]).code == Some(0));
}

#[test]
fn a_home_that_is_not_writable_is_named_with_the_mend() {
    let sandbox = Sandbox::new();
    let home = sandbox.path("locked");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o555)).unwrap();
    std::fs::set_permissions(sandbox.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["server", "--port", "0", "--home", home.to_str().unwrap()];
    let mut command = sandbox.command(&args);
    if rustix::process::geteuid().is_root() {
        // root may write anywhere, so somebody else must try, with a copy of the program that they can reach
        let copy = sandbox.path("halo");
        std::fs::copy(env!("CARGO_BIN_EXE_halo"), &copy).unwrap();
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy).args(args);
        command.current_dir(sandbox.path("ws")).stdin(Stdio::null());
    }
    let ran = Ran::of(&command.output().unwrap());
    let line = ran.failed();
    assert!(
        line.starts_with(&format!("{}/global: permission denied; make the folder writable", home.display())),
        "{line}"
    );
}

#[test]
fn a_second_server_on_the_same_home_names_the_process_of_the_first() {
    let sandbox = Sandbox::new();
    let first = sandbox.serve(&[]);
    let ran = sandbox.run(&["server", "--port", "0"]);
    assert!(ran.failed().contains(&format!("(process {})", first.child.id())), "{ran:?}");
    let status = sandbox.run(&["server", "status"]);
    assert_eq!(status.good(), format!("running as process {}, {}", first.child.id(), first.url));
}

#[test]
fn a_taken_port_is_named_with_who_has_it() {
    let (one, two) = (Sandbox::new(), Sandbox::new());
    let server = one.serve(&[]);
    let ran = two.run(&["server", "--port", server.port()]);
    let expected = format!(
        "port {} on 127.0.0.1 is taken by halo (process {}); choose another with --port",
        server.port(),
        server.child.id()
    );
    assert_eq!(ran.failed(), expected);
}

#[test]
fn others_are_served_only_with_a_password() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    let ran = sandbox.run(&["server", "--host", "0.0.0.0"]);
    assert!(ran.failed().contains("without an admin password"), "{ran:?}");
    let mut command = sandbox.command(&["server", "--host", "0.0.0.0"]);
    command.env("HALO_PASSWORD", "some password 1");
    assert!(Server::start(command).url.starts_with("http://0.0.0.0:"));
}

#[test]
fn token_create_prints_the_token_alone_and_works_beside_a_running_server() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let workspace = sandbox.path("ws");
    let workspace = workspace.to_str().unwrap();
    let ran = sandbox.run(&["token", "create", "--workspace", workspace, "--access", "observer"]);
    let token = ran.good();
    assert_eq!((token.len(), ran.stderr.as_str(), ran.stdout.lines().count()), (32, "", 1), "{ran:?}");

    let ran = sandbox.run(&["token", "create", "--workspace", ".", "--label", "mine", "--json"]);
    let made: serde_json::Value = serde_json::from_str(ran.good()).unwrap();
    let id = made["accountId"].as_str().unwrap();
    assert_eq!((made["accessLevel"].as_str(), made["label"].as_str()), (Some("readonly"), Some("mine")));

    let rotated = sandbox.run(&["token", "rotate", id]);
    assert_ne!(rotated.good(), made["token"].as_str().unwrap());
    let listed = sandbox.run(&["token", "list"]);
    assert!(listed.good().contains(id) && listed.stdout.contains(&token[..6]), "{listed:?}");
    assert!(!listed.stdout.contains(token), "a list shows no token");
    sandbox.run(&["token", "revoke", id]).good();
    assert!(!sandbox.run(&["token", "list"]).good().contains(id));
    let again = sandbox.run(&["token", "revoke", id]);
    assert_eq!(again.failed(), format!("no account `{id}`; `halo token list` shows them"));
}

#[test]
fn a_token_for_a_folder_that_is_missing_is_refused() {
    let ran = Sandbox::new().run(&["token", "create", "--workspace", "/nowhere/at all"]);
    assert_eq!(ran.failed(), "workspace /nowhere/at all: no such file or directory");
}

#[rstest]
#[case("short1", "Password must be at least 8 characters")]
#[case("12345678", "Password must contain at least one letter")]
#[case("abcdefgh", "Password must contain at least one digit")]
#[case("abcdefg1\nabcdefg2\n", "stdin holds more than one line; the password is one line")]
fn a_password_that_breaks_a_rule_is_refused(#[case] password: &str, #[case] error: &str) {
    let sandbox = Sandbox::new();
    assert_eq!(set_password(&sandbox, password).failed(), error);
    assert!(!sandbox.home().join("secrets/config.yaml").exists());
}

fn set_password(sandbox: &Sandbox, password: &str) -> Ran {
    let mut command = sandbox.command(&["password", "--stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
    Ran::of(&child.wait_with_output().unwrap())
}

#[test]
fn a_password_is_set_and_the_rest_of_the_file_stays() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "# mine\nserver:\n  port: 1 # why\n");
    set_password(&sandbox, "correct horse 1\n").good();
    let text = sandbox.read("config.yaml");
    assert!(text.starts_with("# mine\nserver:\n  password: \"scrypt$N=16384,r=8,p=1$"), "{text}");
    assert!(text.ends_with("\n  port: 1 # why\n"), "{text}");
}

#[test]
fn nothing_is_asked_when_stdin_is_no_terminal() {
    assert!(Sandbox::new().run(&["password"]).failed().contains("--stdin"));
}

#[test]
fn a_running_server_takes_changes_up_and_keeps_old_values_on_mistakes() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--log-level", "info"]);
    server.line_with("HALO_ACP_TOKEN");
    sandbox.write("settings.yaml", "general:\n  limits:\n    grep_default_matches: 60\n");
    server.line_with("general.limits.grep_default_matches is now 60");
    sandbox.write("settings.yaml", "general:\n  limits:\n    grep_default_matches: sixty\n");
    let line = server.line_with("stay in force");
    assert!(
        line.contains("settings.yaml:3:27: `general.limits.grep_default_matches`: expected a whole number"),
        "{line}"
    );
    sandbox.write("settings.yaml", "general:\n  agent:\n    max_retries: 9\n");
    server.line_with("general.agent.max_retries has changed");
    set_password(&sandbox, "correct horse 1").good();
    server.line_with("server.password is now (set)");
    server.signal("HUP");
    server.line_with("SIGHUP");
    let (status, _) = server.end();
    assert!(status.success());
}

#[test]
fn setup_prepares_a_home_once() {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&["setup", "-y"]);
    first.good();
    assert!(shown(&first.stderr, "admin password").is_some() && shown(&first.stderr, "token").is_some());
    let config = sandbox.read("config.yaml");
    let second = sandbox.run(&["setup", "-y"]);
    second.good();
    assert!(second.stderr.contains("set up already"), "{second:?}");
    assert_eq!(sandbox.read("config.yaml"), config);
    let (_, text) = sandbox.serve(&[]).end();
    assert_eq!(text, "stopped\n");
}

#[rstest]
#[case("tui")]
#[case("cli")]
#[case("agents")]
#[case("sessions")]
#[case("upgrade")]
#[case("agentcore")]
fn commands_that_are_not_here_say_what_to_use(#[case] command: &str) {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&[command, "-x", "--port", "1", "more"]);
    assert!(ran.failed().starts_with(&format!("`halo {command}` ")), "{ran:?}");
    assert!(!sandbox.home().exists());
}

#[test]
fn acp_becomes_halo_acp_with_the_same_arguments_and_exit_code() {
    let sandbox = Sandbox::new();
    let bin = sandbox.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_halo"), bin.join("halo")).unwrap();
    let halo = |path: &Path| {
        let mut command = Command::new(bin.join("halo"));
        let command = command.args(["acp", "--host", "a b", "--help", "-x"]).env_clear().env("PATH", path);
        Ran::of(&command.output().unwrap())
    };
    assert_eq!(
        halo(Path::new("/nowhere")).failed(),
        "cannot run halo-acp: it is neither beside halo nor on PATH; build it with `cargo build --release --bins`, \
         or put halo-acp beside halo or on PATH"
    );
    let script = |dir: &Path, text: &str| {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("halo-acp"), text).unwrap();
        std::fs::set_permissions(dir.join("halo-acp"), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    script(&sandbox.path("other"), "#!/bin/sh\nexit 3\n");
    assert_eq!(halo(&sandbox.path("other")).code, Some(3));
    script(&bin, "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 7\n");
    let ran = halo(&sandbox.path("other"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "--host|a b|--help|-x|"));
}

#[test]
fn doctor_names_what_is_broken_and_exits_1() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    let ran = sandbox.run(&["doctor"]);
    ran.good();
    assert!(!ran.stdout.contains("BROKEN"), "{ran:?}");
    sandbox.write("config.yaml", "server:\n  port: x\n");
    let ran = sandbox.run(&["doctor"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stdout.lines().any(|line| line.starts_with("BROKEN  config") && line.contains("config.yaml:2:9"))
    );
}

#[test]
fn the_server_answers_and_a_second_signal_is_not_needed() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let mut stream = std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"status\":\"ok\""), "{answer}");
    server.signal("TERM");
    let mut server = server;
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_database_of_the_node_program_stops_the_server_and_stays_as_it_is() {
    let sandbox = Sandbox::new();
    sandbox.write("channels/channels.db", "");
    let path = sandbox.home().join("secrets/channels/channels.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch("CREATE TABLE channel_accounts (account_id TEXT PRIMARY KEY, config TEXT)")
        .unwrap();
    drop(database);
    let before = std::fs::read(&path).unwrap();
    for args in [&["server", "--port", "0"][..], &["token", "list"]] {
        let ran = sandbox.run(args);
        assert_eq!(ran.failed(), format!("{}: made by the Node program: run halo import", path.display()));
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(!sandbox.home().join("secrets/config.yaml").exists());
}
