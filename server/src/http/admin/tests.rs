//! The admin's routes as a client sees them.

use crate::config::password;
use crate::http::testing::{PASSWORD, Server, cookie_of, error, get, text_of, with_body};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use axum::response::Response;
use rstest::rstest;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn post(uri: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let request =
        headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
    with_body(request, body)
}

fn set_cookie(response: &Response) -> Option<&str> {
    response.headers().get(header::SET_COOKIE).map(|value| value.to_str().unwrap())
}

/// A server that knows the password only by its hash.
fn hashed() -> Server {
    let stored: SecretString = password::hash(PASSWORD).unwrap().into();
    let server = Server::with(vec![("server.jwt_secret", "a-secret".into())], &[]);
    let text = format!("server:\n  # mine\n  password: {}\n  port: 1234\n", stored.expose_secret());
    std::fs::write(server.live.home().config_yaml(), text).unwrap();
    server.live.reload();
    server
}

#[tokio::test]
async fn the_right_password_is_answered_with_a_cookie_that_counts() {
    let server = hashed();
    let response = server.login(PASSWORD).await;
    assert_eq!(response.status(), 200);
    let cookie = cookie_of(&response);
    let expected = format!("{cookie}; Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(set_cookie(&response), Some(expected.as_str()));
    assert_eq!(text_of(response).await, r#"{"ok":true}"#);
    let check = with_body(get("/api/auth/check").header("cookie", &cookie), &Value::Null);
    assert_eq!(server.json(check).await, (200, json!({ "authenticated": true, "badge": null })));
    let check = with_body(get("/api/auth/check"), &Value::Null);
    assert_eq!(server.json(check).await, (401, json!({ "authenticated": false, "badge": null })));
}

#[rstest]
#[case("{\"password\": \"wrong\"}")]
#[case("{}")]
#[case("{bad")]
#[case("")]
#[tokio::test]
async fn anything_else_is_a_wrong_password(#[case] body: &'static str) {
    let server = hashed();
    let request = Request::post("/api/auth/login").header("content-type", "application/json");
    let response = server.send(request.body(body.into()).unwrap()).await;
    assert_eq!((response.status().as_u16(), set_cookie(&response)), (401, None));
    assert_eq!(text_of(response).await, r#"{"error":"Invalid password"}"#);
}

#[tokio::test]
async fn without_a_password_nobody_logs_in_and_the_environment_brings_one() {
    assert_eq!(Server::with(Vec::new(), &[]).login("").await.status(), 401);
    let server = Server::with(Vec::new(), &[("HALO_PASSWORD", "from outside")]);
    assert_eq!(server.login("from outside").await.status(), 200);
}

#[tokio::test]
async fn who_is_locked_out_hears_so_whatever_it_sends() {
    let server = Server::new();
    for _ in 0..5 {
        assert_eq!(server.login("wrong").await.status(), 401);
    }
    let form =
        Request::post("/api/auth/login").header("content-type", "text/plain").body("x".into()).unwrap();
    let long = post("/api/auth/login", &[], &json!({ "password": "x".repeat(64 * 1024) }));
    let number = post("/api/auth/login", &[], &json!({ "password": 5 }));
    let foreign =
        post("/api/auth/login", &[("origin", "https://evil.test")], &json!({ "password": PASSWORD }));
    for request in [form, long, number, foreign] {
        let answer = server.json(request).await;
        assert_eq!(answer, (429, error("Too many attempts, try again later")));
    }
}

#[tokio::test]
async fn a_login_is_json_and_short() {
    let server = Server::new();
    let form = Request::post("/api/auth/login").header("content-type", "application/x-www-form-urlencoded");
    let answer = server.json(form.body("password=x".into()).unwrap()).await;
    assert_eq!(answer, (415, error("Content-Type must be application/json")));
    let long = json!({ "password": "x".repeat(64 * 1024) });
    assert_eq!(server.json(post("/api/auth/login", &[], &long)).await, (413, error("body over 64 KiB")));
    let number = json!({ "password": 5 });
    let answer = server.json(post("/api/auth/login", &[], &number)).await;
    assert_eq!(answer, (400, error("password must be a string")));
}

#[tokio::test]
async fn five_wrong_passwords_lock_the_address_out_of_the_login_alone() {
    let server = Server::new();
    let cookie = server.cookie().await;
    for _ in 0..5 {
        assert_eq!(server.login("wrong").await.status(), 401);
    }
    for password in ["wrong", PASSWORD] {
        let response = server.login(password).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"900".parse().unwrap())
        );
        assert_eq!(text_of(response).await, r#"{"error":"Too many attempts, try again later"}"#);
    }
    assert_eq!(
        server.history_with("bad").await,
        (401, error("invalid token")),
        "tokens have their own count"
    );
    let home = with_body(get("/api/fs/home").header("cookie", &cookie), &Value::Null);
    assert_eq!(server.json(home).await.0, 200, "who is logged in stays so");
    let mut elsewhere = post("/api/auth/login", &[], &json!({ "password": PASSWORD }));
    elsewhere.extensions_mut().insert(ConnectInfo(SocketAddr::from((Ipv4Addr::new(198, 51, 100, 8), 4000))));
    assert_eq!(server.send(elsewhere).await.status(), 200);
    server.wait_ms(15 * 60 * 1000);
    assert_eq!(server.login(PASSWORD).await.status(), 200);
}

#[tokio::test]
async fn bad_tokens_do_not_lock_the_login_and_a_success_clears_its_count() {
    let server = Server::new();
    for _ in 0..6 {
        server.history_with("bad").await;
    }
    for _ in 0..2 {
        for _ in 0..4 {
            assert_eq!(server.login("wrong").await.status(), 401);
        }
        assert_eq!(server.login(PASSWORD).await.status(), 200);
    }
}

#[tokio::test]
async fn of_many_guesses_at_once_five_are_answered() {
    let server = hashed();
    let guesses = futures_util::future::join_all((0..20).map(|_| server.login("wrong"))).await;
    let statuses: Vec<u16> = guesses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 5, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 15, "{statuses:?}");
}

#[tokio::test]
async fn behind_tls_the_cookie_is_secure_where_the_proxy_is_trusted() {
    let server = Server::new();
    let secure = async |proto: &str| {
        let body = json!({ "password": PASSWORD });
        let response = server.send(post("/api/auth/login", &[("x-forwarded-proto", proto)], &body)).await;
        set_cookie(&response).unwrap().ends_with("; Secure")
    };
    assert!(!secure("https").await);
    server.settings.lock().unwrap().trust_proxy = true;
    assert!(secure("https").await && secure("HTTPS, http").await);
    assert!(!secure("http").await && !secure("").await);
}

#[tokio::test]
async fn a_cookie_older_than_a_day_is_renewed_by_a_check() {
    let server = Server::new();
    let first = server.cookie().await;
    let check = async |cookie: &str| {
        let request = with_body(get("/api/auth/check").header("cookie", cookie), &Value::Null);
        let response = server.send(request).await;
        (response.status().as_u16(), set_cookie(&response).map(str::to_owned))
    };
    assert_eq!(check(&first).await, (200, None));
    server.wait_ms(DAY + 1000);
    let (status, renewed) = check(&first).await;
    assert_eq!(status, 200);
    let second = renewed.unwrap().split(';').next().unwrap().to_owned();
    server.wait_ms(13 * DAY);
    assert_eq!(check(&first).await.0, 401);
    assert_eq!(check(&second).await.0, 200);
}

#[tokio::test]
async fn a_logout_takes_the_cookie_away_with_or_without_one() {
    let server = Server::new();
    let cookie = server.cookie().await;
    for headers in [vec![("cookie", cookie.as_str())], Vec::new()] {
        let response = server.send(post("/api/auth/logout", &headers, &Value::Null)).await;
        assert_eq!(set_cookie(&response), Some("halo_token=; Max-Age=0; Path=/"));
        assert_eq!(text_of(response).await, r#"{"ok":true}"#);
    }
}

#[tokio::test]
async fn the_badge_is_for_everyone() {
    let server = Server::with(Vec::new(), &[("HALO_BADGE", "  lab ")]);
    let check = with_body(get("/api/auth/check"), &Value::Null);
    assert_eq!(server.json(check).await, (401, json!({ "authenticated": false, "badge": "lab" })));
}

#[rstest]
#[case("POST", "/api/auth/change-password")]
#[case("GET", "/api/web/accounts")]
#[case("POST", "/api/web/accounts")]
#[case("PATCH", "/api/web/accounts/a1b2c3d4")]
#[case("DELETE", "/api/web/accounts/a1b2c3d4")]
#[case("GET", "/api/fs/home")]
#[case("GET", "/api/fs/exists")]
#[case("GET", "/api/fs/stat")]
#[case("GET", "/api/fs/browse")]
#[case("GET", "/api/fs/raw")]
#[case("POST", "/api/fs/workspace/resolve")]
#[case("GET", "/api/nope")]
#[tokio::test]
async fn nothing_but_the_cookie_opens_the_admins_routes(#[case] method: &str, #[case] uri: &str) {
    let server = Server::new();
    let cookie = server.cookie().await;
    let jwt = cookie.strip_prefix("halo_token=").unwrap();
    let token = server.token(crate::access::AccountLevel::Full).await;
    for (name, value) in [
        ("x-nothing", "x".to_owned()),
        ("cookie", "halo_token=a.b.c".to_owned()),
        ("cookie", format!("other={jwt}")),
        ("authorization", format!("Bearer {jwt}")),
        ("x-token", token),
    ] {
        let request = Request::builder().method(method).uri(uri).header(name, &value);
        // Reading this body would never end.
        let body =
            Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>());
        let answer = server.json(request.body(body).unwrap()).await;
        assert_eq!(answer, (401, error("Unauthorized")), "{name}: {value}");
    }
}

#[rstest]
#[case("POST", "/api/auth/login", 200)]
#[case("POST", "/api/auth/logout", 200)]
#[case("POST", "/api/auth/change-password", 401)]
#[case("POST", "/api/web/accounts", 400)]
#[case("PATCH", "/api/web/accounts/a1b2c3d4", 404)]
#[case("DELETE", "/api/web/accounts/a1b2c3d4", 200)]
#[case("POST", "/api/fs/workspace/resolve", 400)]
#[tokio::test]
async fn no_page_of_another_site_changes_anything(
    #[case] method: &str,
    #[case] uri: &str,
    #[case] otherwise: u16,
) {
    let server = Server::new();
    let cookie = server.cookie().await;
    let send = async |headers: &[(&str, &str)]| {
        let request =
            Request::builder().method(method).uri(uri).header("cookie", &cookie).header("host", "halo.test");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        server.json(with_body(request, &json!({ "password": PASSWORD }))).await
    };
    let refused = (403, error("cross-site request refused"));
    assert_eq!(send(&[("origin", "https://evil.test")]).await, refused);
    assert_eq!(send(&[("sec-fetch-site", "cross-site")]).await, refused);
    assert_eq!(send(&[("origin", "https://halo.test")]).await.0, otherwise);
    assert_eq!(send(&[]).await.0, otherwise);
}

#[tokio::test]
async fn a_listed_page_may_change_something_and_reading_needs_no_origin() {
    let server = Server::new();
    server.settings.lock().unwrap().cors_origins = vec!["https://good.test".to_owned()].into();
    let good = [("origin", "https://good.test"), ("sec-fetch-site", "cross-site")];
    let answer = server.json(post("/api/auth/login", &good, &json!({ "password": PASSWORD }))).await;
    assert_eq!(answer.0, 200);
    let request = get("/api/fs/home").header("cookie", server.cookie().await);
    let request = request.header("sec-fetch-site", "cross-site");
    assert_eq!(server.json(with_body(request, &Value::Null)).await.0, 200);
}

#[tokio::test]
async fn the_admin_learns_that_a_path_is_unknown() {
    let server = Server::new();
    assert_eq!(server.admin("GET", "/api/nope", &Value::Null).await, (404, error("not found")));
    assert_eq!(server.admin("POST", "/api/nope", &json!({})).await, (404, error("not found")));
}

#[rstest]
#[case("GET", "/api/auth/login", "POST")]
#[case("POST", "/api/auth/check", "GET,HEAD")]
#[case("PUT", "/api/web/accounts", "GET,HEAD,POST")]
#[case("GET", "/api/web/accounts/a1b2c3d4", "DELETE,PATCH")]
#[case("GET", "/api/fs/workspace/resolve", "POST")]
#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones(#[case] method: &str, #[case] uri: &str, #[case] allow: &str) {
    let server = Server::new();
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status(), 405);
    let mut methods: Vec<&str> = response.headers()["allow"].to_str().unwrap().split(',').collect();
    methods.sort_unstable();
    assert_eq!(methods.join(","), allow);
    assert_eq!(text_of(response).await, r#"{"error":"method not allowed"}"#);
}

fn change(old: &str, new: &str) -> Value {
    json!({ "oldPassword": old, "newPassword": new })
}

#[tokio::test]
async fn a_new_password_counts_at_once_and_cookies_stay_good() {
    let server = hashed();
    let cookie = server.cookie().await;
    let answer =
        server.admin("POST", "/api/auth/change-password", &change(PASSWORD, "battery staple 2")).await;
    assert_eq!(answer, (200, json!({ "ok": true })));
    assert_eq!(server.login(PASSWORD).await.status(), 401);
    assert_eq!(server.login("battery staple 2").await.status(), 200);
    let home = with_body(get("/api/fs/home").header("cookie", &cookie), &Value::Null);
    assert_eq!(server.json(home).await.0, 200);
    let text = std::fs::read_to_string(server.live.home().config_yaml()).unwrap();
    assert!(text.starts_with("server:\n  # mine\n  password: \"scrypt$N=16384,r=8,p=1$"), "{text}");
    assert!(text.ends_with("  port: 1234\n") && !text.contains("battery"), "{text}");
}

#[rstest]
#[case(change("wrong", "battery staple 2"), 401, "Incorrect current password")]
#[case(json!({ "newPassword": "battery staple 2" }), 401, "Incorrect current password")]
#[case(change(PASSWORD, "a1"), 400, "Password must be at least 8 characters")]
#[case(json!({ "oldPassword": PASSWORD }), 400, "Password must be at least 8 characters")]
#[case(change(PASSWORD, "12345678"), 400, "Password must contain at least one letter")]
#[case(change(PASSWORD, "abcdefgh"), 400, "Password must contain at least one digit")]
#[case(change(PASSWORD, PASSWORD), 400, "New password must differ from the current password")]
#[case(json!({ "oldPassword": 5 }), 400, "oldPassword must be a string")]
#[tokio::test]
async fn a_refused_change_leaves_the_password(#[case] body: Value, #[case] status: u16, #[case] text: &str) {
    let server = hashed();
    let before = std::fs::read(server.live.home().config_yaml()).unwrap();
    assert_eq!(server.admin("POST", "/api/auth/change-password", &body).await, (status, error(text)));
    assert_eq!(std::fs::read(server.live.home().config_yaml()).unwrap(), before);
}

#[tokio::test]
async fn a_body_that_is_no_json_has_no_old_password() {
    let server = Server::new();
    let request = Request::post("/api/auth/change-password").header("cookie", server.cookie().await);
    let request = request.header("content-type", "application/json").body("{bad".into()).unwrap();
    assert_eq!(server.json(request).await, (401, error("Incorrect current password")));
}

#[tokio::test]
async fn five_wrong_old_passwords_stop_the_guessing_and_leave_the_login_open() {
    let server = Server::new();
    for status in [401, 401, 401, 401, 401, 429] {
        let answer =
            server.admin("POST", "/api/auth/change-password", &change("wrong", "battery staple 2")).await;
        assert_eq!(answer.0, status);
    }
    assert_eq!(server.login(PASSWORD).await.status(), 200);
}

#[tokio::test]
async fn a_password_of_the_environment_is_changed_there() {
    let server = Server::with(Vec::new(), &[("HALO_PASSWORD", PASSWORD)]);
    for old in [PASSWORD, "wrong"] {
        let (status, body) =
            server.admin("POST", "/api/auth/change-password", &change(old, "battery staple 2")).await;
        assert_eq!(status, 400);
        assert!(body["error"].as_str().unwrap().contains("HALO_PASSWORD"), "{body}");
    }
    assert!(!server.live.home().config_yaml().exists());
}

#[tokio::test]
async fn a_file_that_cannot_be_edited_keeps_the_password_and_says_so() {
    let server = Server::new();
    std::fs::write(server.live.home().config_yaml(), "server:\n  password: [a]\n").unwrap();
    let (status, body) =
        server.admin("POST", "/api/auth/change-password", &change(PASSWORD, "battery staple 2")).await;
    assert_eq!(status, 500);
    let text = body["error"].as_str().unwrap();
    assert!(text.starts_with("the password is unchanged: ") && text.contains("config.yaml"), "{text}");
    assert!(!text.contains("scrypt"), "{text}");
    assert_eq!(server.login(PASSWORD).await.status(), 200);
}
