//! A TCP proxy on 127.0.0.1 that breaks connections when told to: cut them all, hold their bytes, turn new ones
//! away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In the middle of everything, as when a machine vanishes and comes back.
    Reset,
    /// Politely, as when a gateway ends an idle connection.
    Finish,
}

/// The proxy; stops when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    server: String,
    /// How often all were cut, and how the last time.
    cuts: watch::Sender<(usize, Cut)>,
    held: watch::Sender<bool>,
    refusing: AtomicBool,
    accepted: AtomicUsize,
    open: watch::Sender<usize>,
}

impl Proxy {
    /// Stands before the server at this host and port.
    pub async fn start((host, port): (String, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            server: format!("{host}:{port}"),
            cuts: watch::Sender::new((0, Cut::Finish)),
            held: watch::Sender::new(false),
            refusing: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            open: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Host and port, as of a server.
    pub fn address(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.port())
    }

    /// Cuts every connection, and waits until all are gone.
    pub async fn cut(&self, how: Cut) {
        let mut open = self.shared.open.subscribe();
        self.shared.cuts.send_modify(|(count, last)| {
            *count += 1;
            *last = how;
        });
        crate::within("the connections are cut", open.wait_for(|open| *open == 0)).await.expect("it lives");
    }

    /// Turns new connections away, or takes them again.
    pub fn refuse(&self, refusing: bool) {
        self.shared.refusing.store(refusing, Ordering::SeqCst);
    }

    /// Holds every byte, or lets them go again.
    pub fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// How many connections came, those turned away included.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends its tasks when this one is aborted.
    let mut links = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        if shared.refusing.load(Ordering::SeqCst) {
            // A reset: nothing of the request was taken.
            let _ = client.set_zero_linger();
            continue;
        }
        shared.open.send_modify(|open| *open += 1);
        let shared = Arc::clone(&shared);
        let cuts = shared.cuts.subscribe();
        links.spawn(async move {
            link(client, &shared, cuts).await;
            shared.open.send_modify(|open| *open -= 1);
        });
        while links.try_join_next().is_some() {}
    }
}

async fn link(mut client: TcpStream, shared: &Shared, mut cuts: watch::Receiver<(usize, Cut)>) {
    let Ok(mut server) = TcpStream::connect(&shared.server).await else { return };
    let copied = {
        let (mut client_in, mut client_out) = client.split();
        let (mut server_in, mut server_out) = server.split();
        let there = copy(&mut client_in, &mut server_out, shared.held.subscribe());
        let back = copy(&mut server_in, &mut client_out, shared.held.subscribe());
        tokio::select! {
            // Either end closes the link, as a gateway does.
            () = async { tokio::join!(there, back); } => true,
            _ = cuts.changed() => false,
        }
    };
    if !copied && cuts.borrow().1 == Cut::Reset {
        for stream in [&client, &server] {
            // A stream that is closed already needs none.
            let _ = stream.set_zero_linger();
        }
    }
}

async fn copy(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut held: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown().await;
}
