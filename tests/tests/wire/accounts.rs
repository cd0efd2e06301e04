//! The accounts, with the admin's cookie.

use super::table::{Row, row};
use super::world::World;
use reqwest::Method;
use serde_json::{Value, json};

const PATH: &str = "/api/web/accounts";
const LIST: &str = "section 2, accounts";

fn create(name: &'static str, body: &Value) -> Row {
    row(name).post(PATH, body).cookie()
}

/// An account as the list shows it.
fn account(name: &str, label: &str, level: &str) -> Value {
    json!({ "accountId": format!("<account:{name}>"), "tokenPrefix": "<prefix>", "workspacePath": "{ws}",
        "workspaceMissing": false, "label": label, "enabled": 1, "accessLevel": level, "language": "en",
        "createdAt": "<ms>", "updatedAt": "<ms>" })
}

#[tokio::test]
async fn accounts_are_made_listed_changed_and_deleted() {
    let w = &mut World::new().await;
    row("accounts_list_nocookie").get(PATH).refused(401, "Unauthorized").check(w).await;
    row("accounts_list_cookie_empty")
        .get(PATH)
        .cookie()
        .answers(200, json!({ "accounts": [] }))
        .check(w)
        .await;
    let made = |name: &str| {
        json!({ "accountId": format!("<account:{name}>"), "token": format!("<token:token of {name}>"),
            "workspacePath": "{ws}" })
    };
    create(
        "accounts_create_full",
        &json!({ "workspacePath": "{ws}", "label": "full", "accessLevel": "full" }),
    )
    .answers(200, made("F"))
    .check(w)
    .await;
    create("accounts_create_default", &json!({ "workspacePath": "{ws}" }))
        .answers(200, made("D"))
        .check(w)
        .await;
    let accounts = [account("F", "full", "full"), account("D", "", "readonly")];
    row("accounts_list_cookie")
        .get(PATH)
        .cookie()
        .answers(200, json!({ "accounts": accounts }))
        .differs(LIST)
        .check(w)
        .await;

    let ok = || json!({ "ok": true });
    let change = json!({ "label": "renamed", "enabled": false }).to_string();
    let patch = |name, path: &str| row(name).ask(Method::PATCH, path).body(&change).cookie();
    patch("accounts_patch", "/api/web/accounts/{D}").answers(200, ok()).check(w).await;
    patch("accounts_patch_404", "/api/web/accounts/zzz").refused(404, "not found").check(w).await;
    let delete = |name, path: &str| row(name).ask(Method::DELETE, path).cookie();
    delete("accounts_delete", "/api/web/accounts/{D}").answers(200, ok()).check(w).await;
    delete("accounts_delete_unknown", "/api/web/accounts/zzz").answers(200, ok()).check(w).await;
    let left = json!({ "accounts": [account("F", "full", "full")] });
    row("what is left").get(PATH).cookie().answers(200, left).check(w).await;
}

#[tokio::test]
async fn what_makes_no_account_is_refused_by_its_name() {
    let w = &mut World::new().await;
    create("accounts_create_nows", &json!({})).refused(400, "workspacePath required").check(w).await;
    create("accounts_create_rel", &json!({ "workspacePath": "rel" }))
        .refused(400, "workspacePath must be absolute")
        .check(w)
        .await;
    create("accounts_create_missing", &json!({ "workspacePath": "{root}/nope" }))
        .refused(400, "workspace path not found")
        .check(w)
        .await;
    create("accounts_create_badlevel", &json!({ "workspacePath": "{ws}", "accessLevel": "root" }))
        .refused(400, "accessLevel must be one of: full, workspace, readonly, observer")
        .check(w)
        .await;
    row("nothing was made").get(PATH).cookie().answers(200, json!({ "accounts": [] })).check(w).await;
}
