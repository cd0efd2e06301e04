//! The examples in the documentation work: the files that it shows are put where it says, and used.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halo_server::agent::profile::Profiles;
use halo_server::config::aliases::{self, Aliases};
use halo_server::config::{Environment, Home};
use halo_server::model::registry::{CallSettings, ModelChoice, Registry};
use std::fs;
use std::path::{Path, PathBuf};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)).unwrap()
}

/// The YAML examples of a page that begin with the path of their file below `~/.halo`.
fn files(page: &str) -> Vec<(String, String)> {
    page.split("```yaml\n")
        .skip(1)
        .filter_map(|rest| {
            let text = rest.split("```").next()?;
            let path = text.lines().next()?.strip_prefix("# ~/.halo/")?;
            Some((path.to_owned(), text.to_owned()))
        })
        .collect()
}

/// A home with the examples of a page.
fn home(page: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    for (path, text) in files(page) {
        let path = home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (folder, home)
}

#[test]
fn the_agent_that_the_docs_show_is_an_agent() {
    let (folder, home) = home(&page("docs/agents.md"));
    let profile = Profiles::new(home.join("global/agents")).resolve(folder.path(), "reviewer").unwrap();
    assert_eq!(profile.name, "Reviewer");
    assert_eq!(profile.tools, ["file_read", "file_list", "grep", "glob"]);
    assert_eq!(profile.model.unwrap().provider, "anthropic");
}

#[test]
fn the_provider_that_the_docs_show_can_be_called() {
    let (_folder, home) = home(&page("docs/agents.md"));
    let registry = Registry::new(home.join("global/models"));
    let key = |provider: &str, key: &str| {
        (provider == "gateway" && key == "api_key").then(|| "k".to_owned().into())
    };
    let choice = ModelChoice { provider: "gateway".into(), ..ModelChoice::default() };
    let model = registry.build(&choice, &key, &CallSettings::default()).unwrap();
    assert_eq!((model.id(), model.takes_images()), ("my-model", false));
}

#[test]
fn the_aliases_that_the_docs_show_are_aliases() {
    let (_folder, home) = home(&page("docs/configuration.md"));
    let home = Home::locate(Some(&home), &Environment::default()).unwrap();
    assert!(aliases::check(&home).is_empty());
    let table = Aliases::of(&home).current();
    assert_eq!((table.top("go"), table.verb("ls")), (Some("agent switch poet"), Some("list")));
}

#[test]
fn every_provider_that_the_docs_name_is_in_the_binary() {
    let docs = page("docs/agents.md");
    for provider in Registry::new("/nonexistent".into()).providers() {
        assert!(docs.contains(&format!("| `{}` |", provider.id)), "{} is not in the docs", provider.id);
        if let Some(key) = provider.secret {
            assert!(docs.contains(&format!("`{}.secrets.{key}`", provider.id)), "the key of {}", provider.id);
        }
    }
}

#[test]
fn every_page_that_is_linked_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in
        ["README.md", "docs/architecture.md", "docs/agents.md", "docs/api.md", "docs/configuration.md"]
    {
        let folder = root.join(name).parent().unwrap().to_owned();
        for link in
            page(name).split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned))
        {
            let path = link.split('#').next().unwrap();
            if !link.contains("://") && !path.is_empty() {
                assert!(folder.join(path).exists(), "{name} links to {link}");
            }
        }
    }
}
