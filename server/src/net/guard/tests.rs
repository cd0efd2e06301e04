use super::*;
use rstest::rstest;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers what it is told, one answer after another, and counts.
struct Script {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Script {
    fn new(answers: &[&[&str]]) -> Self {
        let answers = answers
            .iter()
            .rev()
            .map(|answer| answer.iter().map(|ip| ip.parse().unwrap()).collect())
            .collect();
        Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) }
    }
}

impl Lookup for Script {
    fn lookup<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.lock().unwrap().pop();
        async move { answer.ok_or_else(|| io::Error::other("no such name")) }.boxed()
    }
}

async fn get(url: &str, list: &[&str], lookup: &dyn Lookup) -> Result<Response, GuardError> {
    let allowed = AllowList::new(list);
    let guard = Guard { allowed: &allowed, lookup };
    guard.send(Method::GET, &url.parse().unwrap(), HeaderMap::new()).await
}

/// A server on 127.0.0.1 that answers every request with its own head.
async fn echo() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.write_all(&head).await.unwrap();
        }
    };
    (port, tokio::spawn(serve))
}

#[tokio::test]
async fn a_name_that_is_rebound_is_met_at_the_judged_address_or_not_at_all() {
    let (port, server) = echo().await;
    let url = format!("http://rebound.test:{port}/");
    // The first answer is allowed. Whoever asked again, to connect, would get another.
    let lookup = Script::new(&[&["127.0.0.1"], &["127.0.0.2"], &["10.0.0.1"]]);
    let answer = get(&url, &["127.0.0.1"], &lookup).await.unwrap();
    assert_eq!(answer.remote_addr().map(|address| address.ip()), Some("127.0.0.1".parse().unwrap()));
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 1, "a name is asked for once a request");
    let head = answer.text().await.unwrap();
    assert!(head.contains(&format!("host: rebound.test:{port}\r\n")), "{head}");
    let error = get(&url, &["127.0.0.1"], &lookup).await.unwrap_err();
    assert!(matches!(error, GuardError::Refused(Refusal::NotPublic { .. })), "{error}");
    server.abort();
}

#[tokio::test]
async fn one_bad_address_refuses_the_good_ones_beside_it() {
    for bad in ["10.0.0.1", "::1", "169.254.169.254"] {
        let lookup = Script::new(&[&["127.0.0.1", bad]]);
        let error = get("https://both.test/", &["127.0.0.1"], &lookup).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("both.test is at {bad}, which is")), "{error}");
    }
}

#[rstest]
#[case("127.0.0.1")]
#[case("127.1")]
#[case("127.0.0.1.")]
#[case("0x7f.1")]
#[case("0x7f000001")]
#[case("2130706433")]
#[case("017700000001")]
#[case("127.0.0.1")]
#[case("[::1]")]
#[case("[::ffff:127.0.0.1]")]
#[case("[::ffff:7f00:1]")]
#[case("[64:ff9b::127.0.0.1]")]
#[case("[2002:7f00:1::]")]
#[case("169.254.169.254")]
#[case("0xa9fea9fe")]
#[case("[::ffff:169.254.169.254]")]
#[case("[fe80::1]")]
#[case("0.0.0.0")]
#[case("0")]
#[case("[::]")]
#[case("224.0.0.1")]
#[case("255.255.255.255")]
#[case("100.100.100.200")]
#[case("192.168.1.1")]
#[tokio::test]
async fn an_address_in_any_spelling_is_judged_without_asking_anyone(#[case] host: &str) {
    let lookup = Script::new(&[]);
    for scheme in ["http", "https"] {
        let error = get(&format!("{scheme}://{host}/"), &[], &lookup).await.unwrap_err();
        let refused = matches!(error, GuardError::Refused(Refusal::NotPublic { .. } | Refusal::Never { .. }));
        assert!(refused, "{scheme}://{host}: {error}");
    }
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn this_machine_by_its_name_is_refused_by_its_address() {
    for host in ["localhost", "LOCALHOST"] {
        let error = get(&format!("https://{host}/"), &[], &SystemLookup).await.unwrap_err();
        assert!(matches!(error, GuardError::Refused(Refusal::NotPublic { .. })), "{host}: {error}");
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_told_as_such() {
    let error = get("https://gone.test/", &[], &Script::new(&[])).await.unwrap_err();
    assert_eq!(error.to_string(), "gone.test was not found: no such name");
    let error = get("https://empty.test/", &[], &Script::new(&[&[]])).await.unwrap_err();
    assert_eq!(error.to_string(), "empty.test was not found: the name has no address");
}

#[tokio::test]
async fn a_closed_port_is_told_with_its_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/secret");
    let error = get(&url, &["127.0.0.0/8"], &Script::new(&[])).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: ")), "{error}");
    assert!(!error.contains("secret"), "{error}");
}
