//! Bad tokens, and the addresses that they lock out.

use super::table::{Row, row};
use super::world::World;
use serde_json::json;

const LOCKED: &str = "too many failed attempts, try again later";

fn history(name: &'static str, address: &str) -> Row {
    row(name).get("/api/web/history").from(address)
}

fn bad(name: &'static str, address: &str) -> Row {
    history(name, address).header("x-token", "an-unknown-token-of-32-characters")
}

fn locked(row: Row) -> Row {
    row.refused(429, LOCKED).shows("retry-after", "<text>")
}

#[tokio::test]
async fn the_fifth_bad_token_locks_its_address_out_and_no_other() {
    let w = &mut World::new().await;
    let (here, there) = ("127.0.0.21", "127.0.0.22");
    for name in
        ["lock_bad_token_1", "lock_bad_token_2", "lock_bad_token_3", "lock_bad_token_4", "lock_bad_token_5"]
    {
        bad(name, here).refused(401, "invalid token").check(w).await;
    }
    locked(bad("lock_bad_token_6", here)).check(w).await;
    locked(bad("lock_bad_token_7", here)).check(w).await;
    locked(history("lock_good_token_while_locked", here).token("full")).check(w).await;
    locked(history("lock_no_token_while_locked", here)).check(w).await;
    locked(row("lock_chat_while_locked").chat(&json!({ "message": "x" })).from(here)).check(w).await;
    locked(history("lock_xff", here).token("full").header("x-forwarded-for", "9.9.9.9")).check(w).await;
    let nothing = json!({ "sessionId": null, "messages": [], "running": false });
    history("lock_other_ip_ok", there).token("full").answers(200, nothing).check(w).await;
}

#[tokio::test]
async fn a_good_token_clears_the_count() {
    let w = &mut World::new().await;
    let here = "127.0.0.23";
    for name in ["lock_mixed_bad_a1", "lock_mixed_bad_a2", "lock_mixed_bad_a3", "lock_mixed_bad_a4"] {
        bad(name, here).refused(401, "invalid token").check(w).await;
    }
    let nothing = json!({ "sessionId": null, "messages": [], "running": false });
    history("lock_mixed_good", here).token("full").answers(200, nothing).check(w).await;
    for name in [
        "lock_mixed_bad_b1",
        "lock_mixed_bad_b2",
        "lock_mixed_bad_b3",
        "lock_mixed_bad_b4",
        "lock_mixed_bad_b5",
    ] {
        bad(name, here).refused(401, "invalid token").check(w).await;
    }
    locked(bad("lock_mixed_bad_b6", here)).check(w).await;
}
