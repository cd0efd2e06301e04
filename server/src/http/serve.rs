//! Serving a router on a listener: one HTTP/1 connection a task, driven by hyper directly (half the memory of an
//! idle stream compared with `axum::serve`). Promises that a failing `accept` never ends the server, that a
//! client that trickles its head is cut off, and that a shutdown ends within its grace.

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Bytes of a request's head, and of what waits to be written to a connection.
const MAX_BUFFER: usize = 64 * 1024;

/// The waits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a request's head may take, and how long a connection may be idle between requests.
    pub head: Duration,
    /// How long requests in flight may go on after a shutdown began.
    pub grace: Duration,
    /// The pause after an `accept` that failed for want of a resource.
    pub accept_pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            accept_pause: Duration::from_millis(200),
        }
    }
}

/// Serves until `shutdown` fires; then takes no more connections, lets requests in flight finish within the
/// grace, and drops the rest.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    serve_with(listener, router, shutdown, Timing::default()).await;
}

/// [`serve`] with other waits.
pub async fn serve_with(listener: TcpListener, router: Router, shutdown: CancellationToken, timing: Timing) {
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection(stream, peer, router.clone(), shutdown.clone(), timing.head);
                let abort = abort.clone();
                connections.spawn(async move { abort.run_until_cancelled(connection).await });
            }
            Err(error) if is_about_one_connection(&error) => {
                tracing::debug!("a connection was gone before it was accepted: {error}");
            }
            Err(error) => {
                // Out of descriptors or memory: what is open goes on, and frees them in time.
                tracing::warn!("cannot accept connections, trying again: {error}");
                tokio::time::sleep(timing.accept_pause).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(timing.grace, connections.wait()).await.is_err() {
        tracing::info!("{} connections did not end in time and are cut", connections.len());
        abort.cancel();
        connections.wait().await;
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    shutdown: CancellationToken,
    head: Duration,
) {
    // Frames are small and must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {error}");
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended early: {error}");
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    const QUICK: Timing = Timing {
        head: Duration::from_millis(200),
        grace: Duration::from_millis(300),
        accept_pause: Duration::from_millis(10),
    };

    async fn start(router: Router, timing: Timing) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve_with(listener, router, shutdown.clone(), timing));
        (address, shutdown, serving)
    }

    async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        // A connection that is cut may end in a reset.
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn handlers_learn_the_address_of_the_peer() {
        let router = Router::new()
            .route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.ip().to_string()));
        let (address, shutdown, serving) = start(router, Timing::default()).await;
        let stream = send(address, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(rest(stream).await.ends_with("127.0.0.1"));
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_trickles_its_head_is_cut_off() {
        let (address, shutdown, serving) = start(Router::new(), QUICK).await;
        let stream = send(address, b"GET / HTTP/1.1\r\nHost:").await;
        let text = tokio::time::timeout(Duration::from_secs(10), rest(stream)).await.unwrap();
        assert!(!text.contains("200"), "{text}");
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_beyond_the_limit_is_refused() {
        let (address, shutdown, serving) = start(Router::new(), Timing::default()).await;
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nx-token: {}\r\n\r\n", "a".repeat(2 * MAX_BUFFER));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(head.as_bytes()).await;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 431");
        drop(stream);
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_in_flight_finishes_after_a_shutdown_began() {
        let (entered, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (inside, on) = (entered.clone(), go.clone());
        let router = Router::new().route(
            "/",
            post(async move || {
                inside.notify_one();
                on.notified().await;
                "done"
            }),
        );
        let (address, shutdown, serving) = start(router, Timing::default()).await;
        let stream = send(address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        entered.notified().await;
        shutdown.cancel();
        go.notify_one();
        assert!(rest(stream).await.ends_with("done"));
        serving.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "nothing listens any more");
    }

    #[tokio::test]
    async fn a_request_that_never_ends_is_cut_after_the_grace() {
        let entered = Arc::new(Notify::new());
        let inside = entered.clone();
        let router = Router::new().route(
            "/",
            get(async move || {
                inside.notify_one();
                std::future::pending::<()>().await;
            }),
        );
        let (address, shutdown, serving) = start(router, QUICK).await;
        let stream = send(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        entered.notified().await;
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
        assert_eq!(rest(stream).await, "");
    }
}
