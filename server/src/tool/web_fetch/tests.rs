use super::*;
use crate::allow_list::AllowList;
use crate::tool::testing::Place;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use rstest::rstest;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server on this machine and a place whose allow list holds it, as `127.0.0.1` and as every `*.test` name.
struct Web {
    place: Place,
    port: u16,
    tool: WebFetch,
    server: JoinHandle<()>,
}

struct Here;

impl Lookup for Here {
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let address = if host == "inside.test" { [10, 0, 0, 1] } else { [127, 0, 0, 1] };
        async move { Ok(vec![address.into()]) }.boxed()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Web {
    async fn new(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let mut place = Place::new();
        place.context.url_allowlist = Arc::new(AllowList::new(["127.0.0.1"]));
        place.context.limits.web_fetch_timeout = Duration::from_secs(60);
        Self { place, port, tool: WebFetch { lookup: Arc::new(Here) }, server }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    async fn ok(&self, input: Value) -> String {
        self.place.ok(&self.tool, input).await
    }

    async fn err(&self, input: Value) -> String {
        self.place.err(&self.tool, input).await
    }
}

fn page(content_type: &'static str, body: impl Into<Body>) -> axum::response::Response {
    ([(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

/// Answers method, path and headers of the request.
async fn echo(request: Request) -> String {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        let _ = writeln!(text, "{name}={}", value.to_str().unwrap());
    }
    text
}

fn to(status: u16, location: String) -> axum::response::Response {
    (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, location)]).into_response()
}

#[tokio::test]
async fn status_type_and_body_are_given() {
    let router = Router::new()
        .route("/", get(|| async { page("text/html; charset=utf-8", "<p>Grüße</p>") }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }));
    let web = Web::new(router).await;
    let text = web.ok(json!({"url": web.url("/")})).await;
    assert_eq!(text, "HTTP 200 OK\nContent-Type: text/html; charset=utf-8\n\n<p>Grüße</p>");
    let text = web.ok(json!({"url": web.url("/none")})).await;
    assert_eq!(text, "HTTP 404 Not Found\nContent-Type: (none given)\n\n(no body)");
    let text = web.ok(json!({"url": web.url("/empty")})).await;
    assert_eq!(text, "HTTP 204 No Content\nContent-Type: (none given)\n\n(no body)");
    let text = web.ok(json!({"url": web.url("/"), "method": "head"})).await;
    assert_eq!(text, "HTTP 200 OK\nContent-Type: text/html; charset=utf-8");
}

#[rstest]
#[case("text/plain", b"caf\xc3\xa9", "café")]
#[case("text/plain; charset=ISO-8859-1", b"caf\xe9", "café")]
#[case("text/html;charset=\"gbk\"", b"\xc4\xe3\xba\xc3", "你好")]
#[case("text/plain; charset=utf-16le", b"h\0i\0", "hi")]
#[case("text/plain", b"\xff\xfeh\0i\0", "hi")]
#[case("text/plain", b"\xef\xbb\xbfhi", "hi")]
#[case("text/plain; charset=martian", b"hi", "hi")]
#[case(
    "text/plain",
    b"a\xffb",
    "a\u{fffd}b\n[Some bytes are no text in this encoding; each is shown as \u{fffd}]"
)]
#[case("application/json", b"{}", "{}")]
#[case("image/svg+xml", b"<svg/>", "<svg/>")]
#[case("application/x-of-tomorrow", b"words", "words")]
#[case("application/octet-stream", b"words", "words")]
#[case(
    "application/octet-stream",
    b"\xff\xd8\xff",
    "[the body is binary, 3 bytes; web_fetch shows only text]"
)]
#[case("text/plain", b"a\0b", "[the body is binary, 3 bytes; web_fetch shows only text]")]
#[case("image/png", b"words", "[the body is binary, 5 bytes; web_fetch shows only text]")]
#[case("application/pdf", b"%PDF-1", "[the body is binary, 6 bytes; web_fetch shows only text]")]
#[tokio::test]
async fn bytes_are_shown_as_text_only_where_they_are_text(
    #[case] content_type: &'static str,
    #[case] bytes: &'static [u8],
    #[case] shown: &str,
) {
    let router = Router::new().route("/", get(move || async move { page(content_type, bytes) }));
    let web = Web::new(router).await;
    let text = web.ok(json!({"url": web.url("/")})).await;
    assert_eq!(text, format!("HTTP 200 OK\nContent-Type: {content_type}\n\n{shown}"));
}

#[tokio::test]
async fn a_compressed_body_is_named_and_not_shown() {
    let packed = || async { ([(header::CONTENT_ENCODING, "gzip")], &b"\x1f\x8b\x08\0"[..]) };
    let web = Web::new(Router::new().route("/", get(packed))).await;
    let text = web.ok(json!({"url": web.url("/")})).await;
    assert!(text.ends_with(
        "[the body is compressed, although that was not asked for, 4 bytes; web_fetch shows only text]"
    ));
}

#[rstest]
#[case("é", 1024, "é", "[Content truncated: the first 1024 bytes of 8000 are shown]")]
#[case("漢", 1025, "漢", "[Content truncated: the first 1025 bytes of 12000 are shown]")]
#[tokio::test]
async fn a_long_body_is_cut_on_a_character_with_a_note(
    #[case] character: &'static str,
    #[case] limit: usize,
    #[case] repeated: &str,
    #[case] note: &str,
) {
    let router = Router::new().route("/", get(move || async move { character.repeat(4000) }));
    let mut web = Web::new(router).await;
    web.place.context.limits.web_fetch_bytes = limit;
    let text = web.ok(json!({"url": web.url("/")})).await;
    let body = text.split_once("\n\n").unwrap().1;
    assert_eq!(body, format!("{}\n{note}", repeated.repeat(limit / character.len())));
}

#[tokio::test]
async fn a_body_that_just_fits_has_no_note() {
    let mut web = Web::new(Router::new().route("/", get(|| async { "x".repeat(1024) }))).await;
    web.place.context.limits.web_fetch_bytes = 1024;
    assert!(web.ok(json!({"url": web.url("/")})).await.ends_with(&format!("\n\n{}", "x".repeat(1024))));
}

#[tokio::test]
async fn an_endless_body_is_left_where_it_is_cut() {
    let sent = Arc::new(AtomicU64::new(0));
    let gone = CancellationToken::new();
    let (counter, dropped) = (sent.clone(), gone.clone());
    let router = Router::new().route(
        "/",
        get(move || async move {
            let body = async_stream::stream! {
                let block = Bytes::from(vec![b'x'; 64 * 1024]);
                let _dropped = dropped.drop_guard();
                loop {
                    counter.fetch_add(64 * 1024, Ordering::SeqCst);
                    yield Ok::<_, Infallible>(block.clone());
                }
            };
            Body::from_stream(body)
        }),
    );
    let web = Web::new(router).await;
    let text = web.ok(json!({"url": web.url("/")})).await;
    assert!(text.ends_with("x\n[Content truncated: the first 51200 bytes are shown]"), "{}", text.len());
    gone.cancelled().await; // the server sees that nobody reads any more
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_what_came_is_shown() {
    let half = || async {
        Body::from_stream(async_stream::stream! {
            yield Ok::<_, Infallible>("half");
            std::future::pending::<()>().await;
        })
    };
    let silent = || std::future::pending::<&'static str>();
    let mut web = Web::new(Router::new().route("/half", get(half)).route("/silent", get(silent))).await;
    web.place.context.limits.web_fetch_timeout = Duration::from_secs(2);
    let text = web.err(json!({"url": web.url("/silent")})).await;
    assert_eq!(text, "timed out after 2 s; no answer came");
    let text = web.err(json!({"url": web.url("/half")})).await;
    assert!(text.ends_with("\n\nhalf\n[timed out after 2 s; this is what came until then]"), "{text}");
}

#[tokio::test]
async fn stop_cuts_it_at_once() {
    let (here, mut asked) = mpsc::channel::<()>(1);
    let silent = move || async move {
        here.send(()).await.unwrap();
        std::future::pending::<&'static str>().await
    };
    let web = Web::new(Router::new().route("/", get(silent))).await;
    let stop = async {
        asked.recv().await;
        web.place.context.cancel.cancel();
    };
    let (text, ()) = tokio::join!(web.err(json!({"url": web.url("/")})), stop);
    assert_eq!(text, "stopped");
}

#[tokio::test]
async fn headers_go_to_the_host_of_the_url_and_no_further() {
    let router = Router::new()
        .route("/same", get(|| async { to(302, "/echo".into()) }))
        .route(
            "/other",
            get(|request: Request| async move {
                let host = request.headers()[header::HOST].to_str().unwrap().replace("a.test", "b.test");
                to(307, format!("http://{host}/echo"))
            }),
        )
        .route("/echo", any(echo));
    let web = Web::new(router).await;
    let base = format!("http://a.test:{}", web.port);
    let headers = json!({"Authorization": "Bearer secret", "X-Mine": "1"});
    for path in ["/echo", "/same"] {
        let text = web.ok(json!({"url": format!("{base}{path}"), "headers": headers})).await;
        assert!(text.contains("\nauthorization=Bearer secret\nx-mine=1\n"), "{text}");
    }
    let text = web.ok(json!({"url": format!("{base}/other"), "headers": headers})).await;
    assert!(text.contains(&format!("\nURL: http://b.test:{}/echo\n", web.port)), "{text}");
    assert!(!text.contains("secret") && !text.contains("x-mine") && !text.contains("referer"), "{text}");
}

#[rstest]
#[case("POST", 302, "GET")]
#[case("POST", 303, "GET")]
#[case("POST", 307, "POST")]
#[case("POST", 308, "POST")]
#[case("PUT", 301, "PUT")]
#[case("DELETE", 303, "GET")]
#[case("GET", 308, "GET")]
#[tokio::test]
async fn a_redirect_keeps_or_changes_the_method_by_its_status(
    #[case] method: &str,
    #[case] status: u16,
    #[case] then: &str,
) {
    let router = Router::new()
        .route("/", any(move || async move { to(status, "echo".into()) }))
        .route("/echo", any(echo));
    let web = Web::new(router).await;
    let text = web.ok(json!({"url": web.url("/"), "method": method})).await;
    assert!(text.contains(&format!("\n\n{then} /echo\n")), "{text}");
}

#[tokio::test]
async fn five_redirects_are_followed_and_not_a_sixth() {
    let step = |Path(left): Path<usize>| async move {
        match left {
            0 => "here".into_response(),
            left => to(302, format!("/{}", left - 1)),
        }
    };
    let web = Web::new(Router::new().route("/{left}", get(step))).await;
    assert!(web.ok(json!({"url": web.url("/5")})).await.ends_with("\n\nhere"));
    let text = web.err(json!({"url": web.url("/6")})).await;
    assert_eq!(text, "more than 5 redirects, the last one to 127.0.0.1");
}

#[rstest]
#[case("http://127.0.0.2/", "127.0.0.2 is at 127.0.0.2, which is a loopback address")]
#[case(
    "http://169.254.169.254/latest/",
    "169.254.169.254 is at 169.254.169.254, which is a link-local address"
)]
#[case("http://[::1]/", "[::1] is at ::1, which is a loopback address")]
#[case("https://inside.test/", "inside.test is at 10.0.0.1, which is a private address")]
#[case("http://8.8.8.8/", "plain http to 8.8.8.8 is not allowed")]
#[case("file:///etc/passwd", "file: is not fetched")]
#[case("http://u:p@127.0.0.1/", "a url with a user name or password")]
#[tokio::test]
async fn every_redirect_is_judged_anew(#[case] location: &'static str, #[case] why: &str) {
    let web = Web::new(Router::new().route("/", get(move || async move { to(302, location.into()) }))).await;
    let text = web.err(json!({"url": web.url("/")})).await;
    assert!(text.starts_with(&format!("refused to follow a redirect: {why}")), "{text}");
}

#[rstest]
#[case(json!({}), "web_fetch needs \"url\" (a text)")]
#[case(json!({"url": "example.com"}), "web_fetch: no whole url (relative URL without a base): give it with https://")]
#[case(json!({"url": "https://a.test/", "method": "TRACE"}), "web_fetch: \"method\" must be one of GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE")]
#[case(json!({"url": "https://a.test/", "headers": "x: y"}), "web_fetch: \"headers\" must be an object")]
#[case(json!({"url": "https://a.test/", "headers": {"Host": "b"}}), "web_fetch: the header \"Host\" cannot be set; leave it out")]
#[case(json!({"url": "https://a.test/", "headers": {"a b": "c"}}), "web_fetch: \"a b\" is no name of a header")]
#[case(json!({"url": "https://a.test/", "headers": {"x": "a\r\nHost: b"}}), "web_fetch: the header \"x\" holds characters that no header can")]
#[case(json!({"url": "https://a.test/", "headers": {"x": 1}}), "web_fetch: the header \"x\" must be a text")]
#[case(json!({"url": "https://inside.test/"}), "inside.test is at 10.0.0.1, which is a private address: it is not fetched unless general.a2a.url_allowlist (settings.yaml) holds the address")]
#[tokio::test]
async fn a_call_that_cannot_be_made_says_why(#[case] input: Value, #[case] why: &str) {
    let web = Web::new(Router::new()).await;
    assert_eq!(web.err(input).await, why);
}
