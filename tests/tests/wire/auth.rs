//! The admin's cookie: how it comes, what opens with it, and who is locked out.

use super::table::{Row, row};
use super::world::{PASSWORD, World};
use serde_json::{Value, json};

const WRONG: &str = "Invalid password";

fn login(name: &'static str, password: &str) -> Row {
    row(name).post("/api/auth/login", &json!({ "password": password }))
}

/// A login that gives the cookie.
fn let_in(row: Row) -> Row {
    row.answers(200, json!({ "ok": true }))
        .shows("set-cookie", "<begins:halo_token=ey>")
        .shows("set-cookie", "<ends:; Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax>")
}

fn locked(row: Row) -> Row {
    row.refused(429, "Too many attempts, try again later").shows("retry-after", "<text>")
}

#[tokio::test]
async fn a_cookie_comes_by_the_password_and_goes_with_a_logout() {
    let w = &mut World::new().await;
    login("auth_login_bad", "wrong").refused(401, WRONG).check(w).await;
    row("auth_login_empty").post("/api/auth/login", &json!({})).refused(401, WRONG).check(w).await;
    row("auth_login_notjson")
        .post("/api/auth/login", &Value::Null)
        .body("{bad")
        .refused(401, WRONG)
        .check(w)
        .await;
    let_in(login("auth_login_ok", PASSWORD)).check(w).await;
    row("auth_login_get")
        .get("/api/auth/login")
        .refused(405, "method not allowed")
        .shows("allow", "POST")
        .differs("section 2, endpoints (methods)")
        .check(w)
        .await;
    let state = |authenticated: bool| json!({ "authenticated": authenticated, "badge": null });
    let check = "/api/auth/check";
    row("auth_check_nocookie").get(check).answers(401, state(false)).check(w).await;
    row("auth_check_cookie").get(check).cookie().answers(200, state(true)).check(w).await;
    row("auth_logout")
        .ask(reqwest::Method::POST, "/api/auth/logout")
        .cookie()
        .answers(200, json!({ "ok": true }))
        .shows("set-cookie", "<begins:halo_token=;>")
        .shows("set-cookie", "<has:Max-Age=0; Path=/>")
        .check(w)
        .await;
}

#[tokio::test]
async fn with_the_cookie_an_unknown_path_is_said_to_be_unknown() {
    let w = &mut World::new().await;
    let place = "section 2, endpoints (methods)";
    row("api_unknown_cookie")
        .get("/api/nope")
        .cookie()
        .refused(404, "not found")
        .differs(place)
        .check(w)
        .await;
    row("api_unknown_cookie_post")
        .post("/api/nope", &json!({}))
        .cookie()
        .refused(404, "not found")
        .differs(place)
        .check(w)
        .await;
}

#[tokio::test]
async fn bad_passwords_lock_an_address_out_of_the_login_alone() {
    let w = &mut World::new().await;
    let here = "127.0.0.24";
    for name in
        ["lock_login_bad_1", "lock_login_bad_2", "lock_login_bad_3", "lock_login_bad_4", "lock_login_bad_5"]
    {
        login(name, "wrong").from(here).refused(401, WRONG).check(w).await;
    }
    locked(login("lock_login_bad_6", "wrong").from(here)).check(w).await;
    locked(login("lock_login_bad_7", "wrong").from(here)).check(w).await;
    locked(login("lock_login_good_while_locked", PASSWORD).from(here)).check(w).await;
    row("lock_token_while_login_locked")
        .get("/api/web/history")
        .token("full")
        .from(here)
        .answers(200, json!({ "sessionId": null, "messages": [], "running": false }))
        .check(w)
        .await;
}

#[tokio::test]
async fn bad_tokens_lock_nobody_out_of_the_login() {
    let w = &mut World::new().await;
    let here = "127.0.0.25";
    for _ in 0..5 {
        row("a bad token")
            .get("/api/web/history")
            .header("x-token", "an-unknown-token-of-32-characters")
            .from(here)
            .refused(401, "invalid token")
            .check(w)
            .await;
    }
    let_in(login("lock_login_while_token_locked", PASSWORD).from(here)).check(w).await;
}
