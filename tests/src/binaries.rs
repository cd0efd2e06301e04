//! The real programs: builds `halo` and `halo-acp` once a test process, in the profile and the target folder of
//! the test that runs, so that `cargo test -p halo-tests` alone tests what the sources say. `HALO_TESTS_PROFILE=release`
//! builds them optimized although the test is not: they are built once, and not for the test's own sake, too.

use serde_json::Value;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where the two programs are.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The server and its command line.
    pub halo: PathBuf,
    /// The adapter for editors.
    pub halo_acp: PathBuf,
    /// Whether they are optimized as people run them.
    pub optimized: bool,
}

/// The programs; the first call builds them, which may take minutes, and panics when that fails.
pub fn binaries() -> &'static Binaries {
    static BUILT: OnceLock<Binaries> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> Binaries {
    let exe = env::current_exe().expect("this test has a path");
    // <target>/<profile>/deps/<test>, or <target>/<profile>/<program>
    let folder = exe.parent().expect("a program stands in a folder");
    let profile_dir = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    let profile_dir = profile_dir.expect("a test stands in <target>/<profile>/deps");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--locked", "-p", "halo-server", "-p", "halo-acp", "--message-format=json"]);
    let own = profile_dir.file_name().and_then(|name| name.to_str()).filter(|name| *name != "debug");
    let profile = env::var("HALO_TESTS_PROFILE").ok().or(own.map(str::to_owned));
    if let Some(profile) = &profile {
        command.args(["--profile", profile]);
    }
    if env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(profile_dir.parent().expect("a profile stands in the target folder"));
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"));
    let output = command.stdin(Stdio::null()).output().expect("cargo can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = || text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    if !output.status.success() {
        let errors: Vec<String> =
            messages().filter_map(|m| m["message"]["rendered"].as_str().map(str::to_owned)).collect();
        panic!("cargo build: {}{}", errors.concat(), String::from_utf8_lossy(&output.stderr));
    }
    let find = |name: &str| {
        let found = messages()
            .filter(|message| message["target"]["name"] == name)
            .find_map(|message| message["executable"].as_str().map(PathBuf::from));
        found.unwrap_or_else(|| panic!("cargo built no {name}"))
    };
    Binaries { halo: find("halo"), halo_acp: find("halo-acp"), optimized: profile.is_some() }
}
