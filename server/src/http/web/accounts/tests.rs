//! The accounts as the admin sees them.

use crate::access::AccountLevel;
use crate::http::testing::{Server, error, get, with_token};
use crate::store::accounts::{self, Account};
use rstest::rstest;
use serde_json::{Value, json};

const URI: &str = "/api/web/accounts";
const ADMITTED: u16 = 400;

impl Server {
    /// A folder that is no workspace yet.
    fn folder(&self, name: &str) -> String {
        let folder = self.at(name);
        std::fs::create_dir(&folder).unwrap();
        folder.to_str().unwrap().to_owned()
    }

    async fn stored(&self) -> Vec<Account> {
        accounts::list(&self.accounts).await.unwrap()
    }
}

#[tokio::test]
async fn a_new_account_shows_its_token_once_and_gets_a_workspace() {
    let server = Server::new();
    let folder = server.folder("ws");
    let body = json!({ "workspacePath": format!("{folder}/"), "label": "laptop", "accessLevel": "full", "language": "zh" });
    let (status, made) = server.admin("POST", URI, &body).await;
    assert_eq!(status, 200);
    let keys: Vec<_> = made.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["accountId", "token", "workspacePath"]);
    assert_eq!(made["workspacePath"], folder.as_str());
    assert!(server.at("ws/.halo/.gitignore").is_file());
    let token = made["token"].as_str().unwrap();
    assert_eq!(server.history_with(token).await.0, ADMITTED);

    server.wait_ms(5);
    let (_, second) = server.admin("POST", URI, &json!({ "workspacePath": folder, "label": null })).await;
    std::fs::remove_dir_all(&folder).unwrap();
    let (status, list) = server.admin("GET", URI, &Value::Null).await;
    assert_eq!(status, 200);
    let second_token = second["token"].as_str().unwrap();
    assert_eq!(
        list,
        json!({ "accounts": [
            {
                "accountId": made["accountId"], "tokenPrefix": &token[..6], "workspacePath": folder,
                "workspaceMissing": true, "label": "laptop", "enabled": 1, "accessLevel": "full",
                "language": "zh", "createdAt": 1_796_148_000_000_i64, "updatedAt": 1_796_148_000_000_i64,
            },
            {
                "accountId": second["accountId"], "tokenPrefix": &second_token[..6], "workspacePath": folder,
                "workspaceMissing": true, "label": "", "enabled": 1, "accessLevel": "readonly",
                "language": "en", "createdAt": 1_796_148_000_005_i64, "updatedAt": 1_796_148_000_005_i64,
            },
        ] })
    );
}

#[tokio::test]
async fn without_accounts_the_list_is_empty() {
    assert_eq!(Server::new().admin("GET", URI, &Value::Null).await, (200, json!({ "accounts": [] })));
}

const LEVELS: &str = "accessLevel must be one of: full, workspace, readonly, observer";

#[rstest]
#[case(json!({}), "workspacePath required")]
#[case(json!({ "workspacePath": "" }), "workspacePath required")]
#[case(json!({ "workspacePath": null }), "workspacePath required")]
#[case(json!({ "workspacePath": "relative/x" }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": "./x" }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": "." }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": ".." }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": "/no/such/folder" }), "workspace path not found")]
#[case(json!({ "workspacePath": "/tmp\u{0}" }), "workspace path not found")]
#[case(json!({ "workspacePath": "/dev/null" }), "workspace path not found")]
#[case(json!({ "workspacePath": 5 }), "workspacePath must be a string")]
#[case(json!({ "workspacePath": "WS", "accessLevel": "root" }), LEVELS)]
#[case(json!({ "workspacePath": "WS", "accessLevel": "FULL" }), LEVELS)]
#[case(json!({ "workspacePath": "WS", "accessLevel": "readonly " }), LEVELS)]
#[case(json!({ "workspacePath": "WS", "accessLevel": "" }), LEVELS)]
#[case(json!({ "workspacePath": "WS", "accessLevel": 1 }), "accessLevel must be a string")]
#[case(json!({ "workspacePath": "WS", "language": "de" }), "language must be one of: en, zh")]
#[case(json!({ "workspacePath": "WS", "language": "" }), "language must be one of: en, zh")]
#[case(json!({ "workspacePath": "WS", "label": [] }), "label must be a string")]
#[case(json!({ "workspacePath": "WS", "label": "ä".repeat(1001) }), "label must be at most 1000 characters")]
#[case(json!([]), "body must be a JSON object")]
#[tokio::test]
async fn a_refused_account_makes_nothing(#[case] mut body: Value, #[case] text: &str) {
    let server = Server::new();
    let folder = server.folder("ws");
    if body["workspacePath"] == "WS" {
        body["workspacePath"] = folder.into();
    }
    assert_eq!(server.admin("POST", URI, &body).await, (400, error(text)));
    assert_eq!(server.stored().await, []);
    assert!(!server.at("ws/.halo").exists());
}

#[rstest]
#[case(json!({ "workspacePath": "" }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": "./x" }), "workspacePath must be absolute")]
#[case(json!({ "workspacePath": "/no/such/folder" }), "workspace path not found")]
#[case(json!({ "accessLevel": "admin" }), LEVELS)]
#[case(json!({ "language": "EN" }), "language must be one of: en, zh")]
#[case(json!({ "enabled": "yes" }), "enabled must be true or false")]
#[case(json!({ "enabled": 2 }), "enabled must be true or false")]
#[case(json!({ "rotateToken": "yes" }), "rotateToken must be true or false")]
#[case(json!({ "workspacePath": "WS", "label": "new", "enabled": false, "rotateToken": true, "language": "x" }),
    "language must be one of: en, zh")]
#[tokio::test]
async fn a_refused_change_changes_nothing(#[case] mut body: Value, #[case] text: &str) {
    let server = Server::new();
    let folder = server.folder("ws");
    if body["workspacePath"] == "WS" {
        body["workspacePath"] = folder.into();
    }
    let made = server.account(AccountLevel::Full).await;
    server.wait_ms(5);
    let uri = format!("{URI}/{}", made.account.id);
    assert_eq!(server.admin("PATCH", &uri, &body).await, (400, error(text)));
    assert_eq!(server.stored().await, [made.account]);
    assert!(!server.at("ws/.halo").exists());
    assert_eq!(server.history_with(&made.token).await.0, ADMITTED);
}

#[tokio::test]
async fn a_change_touches_what_it_names() {
    let server = Server::new();
    let folder = server.folder("ws");
    let made = server.account(AccountLevel::Full).await;
    let uri = format!("{URI}/{}", made.account.id);
    let body = json!({ "label": "new", "workspacePath": folder, "enabled": 1, "accessLevel": null });
    assert_eq!(server.admin("PATCH", &uri, &body).await, (200, json!({ "ok": true })));
    let expected = Account {
        label: "new".into(),
        workspace_path: folder.into(),
        updated_at: 1_796_148_000_000,
        ..made.account
    };
    assert_eq!(server.stored().await, [expected]);
    assert!(server.at("ws/.halo").is_dir());
    assert_eq!(server.history_with(&made.token).await.0, ADMITTED);
}

#[tokio::test]
async fn a_disabled_account_is_refused_until_it_is_enabled_again() {
    let server = Server::new();
    let made = server.account(AccountLevel::ReadOnly).await;
    let uri = format!("{URI}/{}", made.account.id);
    for (enabled, status) in [(json!(false), 401), (json!(true), ADMITTED), (json!(0), 401)] {
        server.admin("PATCH", &uri, &json!({ "enabled": enabled })).await;
        assert_eq!(server.history_with(&made.token).await.0, status, "{enabled}");
    }
}

#[tokio::test]
async fn a_rotated_token_comes_with_the_rest_of_the_change() {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    let uri = format!("{URI}/{}", made.account.id);
    let (status, body) = server.admin("PATCH", &uri, &json!({ "rotateToken": true, "label": "new" })).await;
    assert_eq!((status, &body["ok"]), (200, &json!(true)));
    assert_eq!(server.history_with(&made.token).await.0, 401);
    assert_eq!(server.history_with(body["token"].as_str().unwrap()).await.0, ADMITTED);
    assert_eq!(server.stored().await[0].label, "new");
    let no = server.admin("PATCH", &uri, &json!({ "rotateToken": false })).await;
    assert_eq!(no, (200, json!({ "ok": true })));
}

#[tokio::test]
async fn an_unknown_account_is_not_found_before_the_body_is_judged_and_deleting_it_is_no_mistake() {
    let server = Server::new();
    for body in [json!({ "label": "x" }), json!({ "accessLevel": "root" }), json!([])] {
        for id in ["zzz", "%ff"] {
            let answer = server.admin("PATCH", &format!("{URI}/{id}"), &body).await;
            assert_eq!(answer, (404, error("not found")), "{id}");
        }
    }
    assert_eq!(
        server.admin("DELETE", &format!("{URI}/zzz"), &Value::Null).await,
        (200, json!({ "ok": true }))
    );
}

#[tokio::test]
async fn a_deleted_account_is_gone_at_once() {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    let uri = format!("{URI}/{}", made.account.id);
    assert_eq!(server.admin("DELETE", &uri, &Value::Null).await, (200, json!({ "ok": true })));
    let request = with_token(get("/api/web/history"), &made.token);
    assert_eq!(server.json(request).await, (401, error("invalid token")));
    assert_eq!(server.admin("GET", URI, &Value::Null).await.1, json!({ "accounts": [] }));
}
