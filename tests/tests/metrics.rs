//! `/api/metrics` on the real server.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Answer, Client};
use reqwest::Method;
use rstest::rstest;
use std::net::IpAddr;

async fn scrape(client: &Client) -> Answer {
    client.get("/api/metrics").await
}

/// The value of one sample, without its fraction.
fn sample(answer: &Answer, name: &str) -> i64 {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = answer.body.as_str().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    value.split('.').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_gauges_follow_the_sessions_and_asking_makes_nothing() {
    let place = Place::new();
    place.demo("demo");
    let server = Server::launch(place, Launch::default()).await;
    let observer = server.client("observer").await;
    let empty = scrape(&observer).await;
    let kind = empty.headers["content-type"].to_str().unwrap();
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!((sample(&empty, "halo_workspaces"), sample(&empty, "halo_sessions_total")), (0, 0));
    assert!(!server.workspace().join(".halo").exists());

    let client = server.client("full").await;
    let (talked, running) = (client.mint().await, client.mint().await);
    client.turn(&talked, "hello").await;
    client.chat(&running, "run sleep 60").await.until("tool_call").await;
    let busy = scrape(&observer).await;
    assert_eq!(sample(&busy, "halo_workspaces"), 1);
    assert_eq!(sample(&busy, "halo_sessions_total"), 2);
    assert_eq!(sample(&busy, r#"halo_sessions{status="running"}"#), 1);
    assert_eq!(sample(&busy, r#"halo_sessions{status="idle"}"#), 1);
    assert!(sample(&busy, "halo_output_tokens") > 0);
    assert!(sample(&busy, "halo_context_tokens") > 0);

    assert!(client.stop(&running).await);
    let after = scrape(&client).await;
    assert_eq!(sample(&after, r#"halo_sessions{status="running"}"#), 0);
    assert_eq!(sample(&after, r#"halo_sessions{status="stopped"}"#), 1);
    assert!(sample(&after, "halo_uptime_seconds") >= sample(&busy, "halo_uptime_seconds"));
}

#[rstest]
#[case("readonly")]
#[case("workspace")]
#[tokio::test]
async fn a_token_for_one_workspace_is_refused_in_a_comment(#[case] access: &str) {
    let server = Server::start().await;
    let refused = scrape(&server.client(access).await).await;
    let text = "# global-scope token (full or observer) required\n";
    assert_eq!((refused.status, refused.body.as_str()), (403, Some(text)));
}

#[tokio::test]
async fn bad_tokens_count_here_as_elsewhere() {
    let server = Server::start().await;
    let address: IpAddr = "127.0.0.44".parse().unwrap();
    let good = server.client("full").await.from_address(address);
    let none = scrape(&good.with_token(None)).await;
    assert_eq!((none.status, none.body.as_str()), (401, Some("# token required\n")));
    for _ in 0..5 {
        let bad = scrape(&good.with_token(Some("bad"))).await;
        assert_eq!((bad.status, bad.body.as_str()), (401, Some("# invalid token\n")));
    }
    let locked = scrape(&good).await;
    assert_eq!((locked.status, locked.body.as_str()), (429, Some("# too many failed attempts\n")));
    assert_eq!(locked.headers["retry-after"], "900");
    assert_eq!(good.get("/api/web/sessions").await.status, 429);
}

#[tokio::test]
async fn a_scraper_may_send_its_token_as_a_bearer() {
    let server = Server::start().await;
    let client = server.client("observer").await;
    let request = client.with_token(None).request(Method::GET, "/api/metrics").bearer_auth(client.token());
    assert_eq!(halo_tests::web::answer(request).await.status, 200);
}
