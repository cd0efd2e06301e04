//! The invariants of `docs/architecture.md` that a compiler does not see: which floor may know which, where SQL may
//! stand, and that no file grows beyond what one promise needs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// The floors of the server from the top; one may know only those that come after it.
const FLOORS: [&str; 12] = [
    "cli",
    "import",
    "app",
    "http",
    "session",
    "agent",
    "tool",
    "workspace",
    "model",
    "net",
    "store",
    "config",
];

/// Lines of a source file. Tables of tests may be longer.
const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The source files of a package's `src/`, as (path from there, text without its tests). Files of tests are left out.
fn code_of(package: &str) -> Vec<(String, String)> {
    let src = root().join(package).join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    found
        .into_iter()
        .filter(|path| !matches!(path.file_stem().and_then(|stem| stem.to_str()), Some("tests" | "testing")))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            (path.strip_prefix(&src).unwrap().display().to_string(), code)
        })
        .collect()
}

fn floor_of(path: &str) -> Option<usize> {
    let name = path.split('/').next()?.trim_end_matches(".rs");
    FLOORS.iter().position(|floor| *floor == name)
}

#[test]
fn a_floor_knows_only_those_below_it() {
    let mut upward = Vec::new();
    for (path, code) in code_of("server") {
        let Some(own) = floor_of(&path) else { continue };
        for (rank, floor) in FLOORS.iter().enumerate().take(own) {
            if code.contains(&format!("crate::{floor}::")) && rank < own {
                upward.push(format!("{path} knows {floor}"));
            }
        }
    }
    assert!(upward.is_empty(), "arrows that point up: {upward:#?}");
}

#[test]
fn only_the_store_contains_sql() {
    let words = ["SELECT ", "INSERT INTO", "DELETE FROM", "CREATE TABLE", "PRAGMA "];
    let found: Vec<String> = code_of("server")
        .into_iter()
        .filter(|(path, code)| !path.starts_with("store/") && words.iter().any(|word| code.contains(word)))
        .map(|(path, _)| path)
        .collect();
    assert!(found.is_empty(), "SQL outside of store/: {found:#?}");
}

#[test]
fn only_the_adapter_knows_acp_and_it_does_not_know_the_server() {
    let manifest = |package: &str| fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
    assert!(!manifest("server").contains("agent-client-protocol"));
    assert!(!manifest("adapter").contains("halo-server"));
}

#[test]
fn only_a_providers_folder_knows_its_json() {
    let words = ["\"tool_calls\"", "\"input_json_delta\"", "\"finish_reason\"", "\"content_block_delta\""];
    let found: Vec<String> = code_of("server")
        .into_iter()
        .filter(|(path, code)| !path.starts_with("model/") && words.iter().any(|word| code.contains(word)))
        .map(|(path, _)| path)
        .collect();
    assert!(found.is_empty(), "a provider's JSON outside of model/: {found:#?}");
}

#[test]
fn no_source_file_grows_beyond_500_lines() {
    let mut found = Vec::new();
    for folder in ["server", "adapter", "tests"] {
        let mut files = Vec::new();
        sources(&root().join(folder), &mut files);
        found.extend(files.into_iter().filter_map(|path| {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines}", path.display()))
        }));
    }
    assert!(found.is_empty(), "files with more than one promise? {found:#?}");
}
