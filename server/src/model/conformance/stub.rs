//! A server on this machine that takes one call and answers with given bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server; it ends after its one call.
pub(super) struct Stub {
    /// Its base address.
    pub endpoint: String,
    asked: JoinHandle<Asked>,
}

/// What it was asked.
pub(super) struct Asked {
    /// The first line and the headers, names in small letters.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

impl Stub {
    /// Answers with a stream. A broken one is said to be longer than it is.
    pub(super) async fn sending(stream: &[u8], broken: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let length = stream.len() + usize::from(broken);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        let answer = [head.as_bytes(), stream].concat();
        let asked = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let asked = read(&mut connection).await;
            // A caller that has heard enough may be gone.
            let _ = connection.write_all(&answer).await;
            asked
        });
        Self { endpoint, asked }
    }

    /// What it was asked, once it was.
    pub(super) async fn asked(self) -> Asked {
        self.asked.await.unwrap()
    }
}

async fn read(connection: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head: Vec<String> = head.lines().map(str::to_owned).collect();
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return Asked { head, body: body.to_owned() };
            }
        }
        assert!(connection.read_buf(&mut bytes).await.unwrap() > 0, "the call was cut");
    }
}
