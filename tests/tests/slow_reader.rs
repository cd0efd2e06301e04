//! Subscribers that stop reading their sockets while a fast answer goes by: nobody else notices, the server does not
//! keep the answer for each of them, and they get all of it once they read again.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use bytes::Bytes;
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::processes::resident_kib;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, Frames, first, kinds_of, text_of};
use halo_tests::within;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// Pieces of the answer.
const DELTAS: usize = 20_000;
/// Bytes of a piece: a slow reader's share of the stream is then larger than what the kernel buffers for it, and all
/// of it still fits into the 8 MiB of frames that the server holds for a run.
const DELTA_BYTES: usize = 180;
/// Subscribers that stop reading.
const SLOW: usize = 16;
/// How long they do not read.
const SILENCE: Duration = Duration::from_secs(10);
/// What the server may hold more at any time than after the same answer without slow readers, in KiB: 8 MiB of
/// frames of this run (those of the runs before are still held), half a MiB of write buffer for each connection, and
/// 24 MiB for copies of the text in flight and for what the allocator does not give back. A copy of the stream for
/// each slow reader would be 72 MiB beside that.
const MORE_KIB: u64 = (8 + 8 + 24) * 1024;

/// A connection that asks in HTTP/1.0, so that the body comes without framing, and has almost no buffer.
struct Slow {
    socket: TcpStream,
    /// What was read before it stopped.
    seen: Vec<u8>,
}

impl Slow {
    /// Subscribes after a place, reads a little, and no more.
    async fn subscribe(server: &Server, client: &Client, session: &str, after: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let (host, port) = server.address();
        let mut socket = socket.connect(format!("{host}:{port}").parse().unwrap()).await.unwrap();
        let head = format!(
            "GET /api/web/subscribe?sessionId={session}&after={after} HTTP/1.0\r\nx-token: {}\r\n\r\n",
            client.token()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.windows(2).any(|pair| pair == b"w1") {
            let read = within("the first word", socket.read_buf(&mut seen)).await.unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
        }
        Self { socket, seen }
    }

    /// Reads what is there by now and what is to come.
    fn go_on(mut self) -> Frames {
        let end = self.seen.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&self.seen[..end]).into_owned();
        assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{head}");
        let body = self.seen.split_off(end + 4);
        Frames::over(async_stream::stream! {
            yield Ok(Bytes::from(body));
            loop {
                let mut piece = Vec::with_capacity(16 * 1024);
                match self.socket.read_buf(&mut piece).await {
                    Ok(0) => return,
                    Ok(_) => yield Ok(Bytes::from(piece)),
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        })
    }
}

/// An answer of so many pieces of this size, each with its number in front.
fn pieces(count: usize, size: usize) -> Vec<String> {
    (1..=count).map(|n| format!("{:x<1$} ", format!("w{n}"), size - 1)).collect()
}

async fn start() -> (ModelServer, Server, Client) {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    // One heap for all threads: with one for each, what a run leaves in them hides what is measured.
    let env = vec![("MALLOC_ARENA_MAX".to_owned(), "1".to_owned())];
    let server = Server::launch(place, Launch { env, ..Launch::default() }).await;
    let client = server.client("full").await;
    (model, server, client)
}

/// Says something to a session, and holds after the first piece; gives the stream and its first place.
async fn begin(model: &ModelServer, client: &Client, session: &str, pieces: Vec<String>) -> (Frames, String) {
    model.push(Script::text(pieces).hold_after(1));
    let mut chat = client.chat(session, "go").await;
    let began = chat.until("user").await;
    let place = began.last().unwrap().id.clone().unwrap();
    chat.until("stream").await;
    (chat, place)
}

/// Asks every 20 ms how much memory the server holds; the most is in the answer.
fn watch_memory(pid: u32) -> (JoinHandle<()>, tokio::sync::watch::Receiver<u64>) {
    let (most, seen) = tokio::sync::watch::channel(0);
    let task = tokio::spawn(async move {
        loop {
            most.send_modify(|most| *most = resident_kib(pid).max(*most));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    (task, seen)
}

/// All of the answer, each frame once, to the end.
fn assert_whole(frames: &[Frame], text: &str) {
    assert_eq!(kinds_of(frames), ["session", "stream", "complete"]);
    assert!(text_of(frames) == text, "another text, of {} bytes", text_of(frames).len());
    assert_follow_each_other(frames);
}

fn assert_follow_each_other(frames: &[Frame]) {
    let ids: Vec<u64> = frames
        .iter()
        .filter_map(|frame| frame.id.as_deref())
        .map(|id| id.split_once('.').unwrap().1.parse().unwrap())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a hole or a repeat");
}

#[tokio::test]
async fn a_reader_that_stops_slows_nobody_costs_nothing_and_misses_nothing() {
    let (model, server, client) = start().await;
    let text = pieces(DELTAS, DELTA_BYTES).concat();

    // The same answer with one reader, twice: what it takes by itself.
    let (task, most) = watch_memory(server.pid());
    for _ in 0..2 {
        let (chat, _) = begin(&model, &client, &client.mint().await, pieces(DELTAS, DELTA_BYTES)).await;
        model.release();
        chat.rest().await;
    }
    task.abort();
    let before = *most.borrow();

    let session = client.mint().await;
    let (chat, place) = begin(&model, &client, &session, pieces(DELTAS, DELTA_BYTES)).await;
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(Slow::subscribe(&server, &client, &session, &place).await);
    }
    let normal = client.subscribe(&session, Some(&place)).await;
    let silent_since = Instant::now();
    let (task, most) = watch_memory(server.pid());
    model.release();
    // Whoever reads gets all of it while the slow ones do not read a byte.
    let (chat, normal) = tokio::join!(chat.rest(), normal.rest());
    let took = silent_since.elapsed();
    assert_whole(&normal, &text);
    assert_eq!(chat.last().map(Frame::kind), Some("complete"));
    assert_eq!(client.history(&session).await["running"], false);
    tokio::time::sleep(SILENCE.saturating_sub(took)).await;
    task.abort();
    let more = most.borrow().saturating_sub(before);
    println!("{before} KiB before, {more} KiB more with {SLOW} slow readers; the others took {took:?}");
    assert!(more < MORE_KIB, "{more} KiB more with {SLOW} slow readers, not below {MORE_KIB}");

    for (index, slow) in slow.into_iter().enumerate() {
        let mut frames = slow.go_on();
        if index % 2 == 0 {
            assert_whole(&frames.rest().await, &text);
            continue;
        }
        // These cut the connection instead, and resume after what they have seen.
        let mut seen = frames.until("stream").await;
        drop(frames);
        let rest = client.subscribe(&session, seen.last().unwrap().id.as_deref()).await.rest().await;
        seen.extend(rest.into_iter().filter(|frame| frame.kind() != "session"));
        assert_whole(&seen, &text);
    }
}

#[tokio::test]
async fn a_reader_whose_place_is_gone_is_let_go_and_a_resync_and_the_history_give_it_everything() {
    let (model, server, client) = start().await;
    // 12 MiB, of which the server holds the last 8.
    let all = pieces(3000, 4096);
    let text = all.concat();
    let session = client.mint().await;
    let count = all.len();
    model.push(Script::text([all.concat()]));
    let warm = client.mint().await;
    client.chat(&warm, "go").await.rest().await;

    model.push(Script::text(all).hold_after(count - 1));
    let mut chat = client.chat(&session, "go").await;
    let place = chat.until("user").await.last().unwrap().id.clone().unwrap();
    let slow = Slow::subscribe(&server, &client, &session, &place).await;
    let last = format!("w{}x", count - 1);
    while !text_of(&[chat.next().await.unwrap()]).contains(&last) {}

    let mut frames = slow.go_on();
    let mut seen = Vec::new();
    while let Some(frame) = frames.next().await {
        seen.push(frame);
    }
    assert_eq!(kinds_of(&seen), ["session", "stream"], "let go, without an end that would be none");
    assert_follow_each_other(&seen);
    assert!(text.starts_with(&text_of(&seen)));

    let mut again = client.subscribe(&session, seen.last().unwrap().id.as_deref()).await;
    let mut rest = again.until("resync").await;
    assert_eq!(first(&rest, "resync")["truncated"], true);
    model.release();
    rest.extend(again.rest().await);
    assert_eq!(kinds_of(&rest), ["session", "resync", "stream", "complete"]);
    assert_follow_each_other(&rest);
    assert!(text.ends_with(&text_of(&rest)), "the run as far back as it is held");
    let history = client.history(&session).await;
    let row = history["messages"].as_array().unwrap().last().unwrap();
    assert!(row["content"] == text.as_str(), "the log has all of it");
    chat.rest().await;
}
