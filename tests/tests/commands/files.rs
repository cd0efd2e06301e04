//! Aliases, skills and the docs: files that commands read, and that tell of them.

use super::*;

#[tokio::test]
async fn aliases_are_a_file_of_the_home_that_is_read_again_when_it_changes() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    let path = server.place().home().join("global/aliases.yaml");
    assert!(std::fs::read_to_string(&path).unwrap().contains("/ss: /session switch"));
    moves(&client, "/sn").await;
    assert!(reply(&client, "/go").await.starts_with("Unknown command: /go"));

    server.place().private("global/aliases.yaml", "top: { /go: /session new }\nverb: { l: list }\n");
    moves(&client, "/go").await;
    assert!(reply(&client, "/session l").await.contains("1. [me]"));
    assert!(reply(&client, "/sn").await.starts_with("Unknown command: /sn"));

    server.place().private("global/aliases.yaml", "top: { /go: [broken\n");
    moves(&client, "/go").await;
    moves(&client, "/go").await;
    let stderr = server.stderr_with("aliases.yaml").await;
    assert_eq!(stderr.matches("the aliases from before stay in force").count(), 1, "{stderr}");
    let check = server.place().halo(["config", "check"]).output().await.unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&check.stderr).contains("aliases.yaml:1:"), "{check:?}");

    std::fs::remove_file(&path).unwrap();
    assert!(reply(&client, "/go").await.starts_with("Unknown command: /go"));
}

#[tokio::test]
async fn aliases_that_their_owner_took_away_do_not_come_back() {
    let mut server = Server::start().await;
    let path = server.place().home().join("global/aliases.yaml");
    // The first start is over once something of the server was used.
    reply(&server.client("readonly").await, "/help").await;
    std::fs::remove_file(&path).unwrap();
    server.stop().await;
    server.restart().await;
    reply(&server.client("readonly").await, "/help").await;
    assert!(!path.exists());
}

#[tokio::test]
async fn skills_are_listed_described_and_switched_off_in_one_workspace() {
    let server = Server::start().await;
    let place = server.place();
    place.private(
        "global/skills/pdf/SKILL.md",
        "---\nname: pdf\ndescription: Reads PDF files\nrequiresAccess: workspace\n---\nThe text.\n",
    );
    place.write(".halo/skills/own/SKILL.md", "---\nname: own\ndescription: Of this folder\n---\n");
    let (readonly, writer) = (server.client("readonly").await, server.client("workspace").await);
    let list = reply(&readonly, "/skill list").await;
    assert!(list.contains(". [workspace] own — Of this folder") && !list.contains("pdf"), "{list}");
    let list = reply(&writer, "/skill list").await;
    assert!(list.contains(". [global] pdf — Reads PDF files"), "{list}");
    for _ in 0..2 {
        assert!(reply(&writer, "/skill disable pdf").await.contains("off in this workspace"));
    }
    assert!(reply(&writer, "/skill list").await.contains("[global] pdf (off)"));
    let db = Connection::open(halo_db(&server)).unwrap();
    let stored: String = db
        .query_row("SELECT item_type || ' ' || item_id || ' ' || scope FROM disabled_items", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(stored, "skill pdf global");
    let number = |list: &str, id: &str| {
        let line = list.lines().find(|line| line.contains(&format!("] {id}"))).unwrap().to_owned();
        line.trim_start().split('.').next().unwrap().to_owned()
    };
    let number = number(&reply(&writer, "/skill list").await, "pdf");
    let desc = reply(&writer, &format!("/skill desc {number}")).await;
    assert!(desc.contains("Reads PDF files") && desc.contains("off") && desc.contains("workspace"), "{desc}");
    assert!(reply(&writer, &format!("/skill enable {number}")).await.contains("on in this workspace"));
    assert!(!reply(&writer, "/skill list").await.contains("(off)"));
    assert!(reply(&readonly, "/skill desc pdf").await.contains("no skill pdf"));
}

#[tokio::test]
async fn the_docs_name_every_command_and_every_alias() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let docs = std::fs::read_to_string(root.join("docs/api.md")).unwrap();
    let server = Server::start().await;
    let client = server.client("full").await;
    for object in ["/agent", "/session", "/skill", "/workspace"] {
        let lines = reply(&client, object).await;
        let commands: Vec<&str> =
            lines.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next()).collect();
        assert!(!commands.is_empty(), "{lines}");
        for command in commands {
            assert!(docs.contains(&format!("| `{command}`")), "{command} is not in the docs");
        }
    }
    let seed = std::fs::read_to_string(server.place().home().join("global/aliases.yaml")).unwrap();
    for alias in seed.lines().filter_map(|line| line.strip_prefix("  ")?.split(':').next()) {
        assert!(docs.contains(&format!("`{alias}`")), "{alias} is not in the docs");
    }
}
