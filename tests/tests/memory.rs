//! How much memory an idle server and an idle adapter hold. The limits are for release builds, which is how CI
//! runs this test; an unoptimized build is larger, so there the test only catches a build that has gone wild.

use halo_tests::acp::Adapter;
use halo_tests::binaries::binaries;
use halo_tests::processes::resident_kib;
use halo_tests::server::Server;
use std::time::Duration;

/// KiB of the server and of the adapter.
fn limits() -> (u64, u64) {
    if binaries().optimized { (40 * 1024, 12 * 1024) } else { (80 * 1024, 40 * 1024) }
}

#[tokio::test]
async fn an_idle_server_and_an_idle_adapter_are_small() {
    let server = Server::start().await;
    let token = server.place().token("full").await;
    let adapter = Adapter::start(server.place(), &server.address(), &token).await;
    let session = adapter.new_session().await;
    // What one turn has needed counts as well.
    adapter.prompt(&session, "read README.md\nrun echo hello").await;
    let mut held = (0, 0);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        held = (resident_kib(server.pid()), resident_kib(adapter.pid()));
    }
    println!("server {} KiB, halo-acp {} KiB", held.0, held.1);
    let limits = limits();
    assert!(held.0 < limits.0, "the server holds {} KiB, not below {}", held.0, limits.0);
    assert!(held.1 < limits.1, "halo-acp holds {} KiB, not below {}", held.1, limits.1);
}
