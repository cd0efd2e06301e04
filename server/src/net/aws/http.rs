//! The HTTP of the AWS SDK, carried by the clients of [`crate::net`]: one TLS set-up, one rule about proxies. Promises
//! that a silent server is an error after the read timeout of the SDK's settings, which every byte of an answer arms
//! anew, and that an answer is bounded.

use crate::net::{causes, innermost, model_client};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use reqwest::{Body, Url};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The most bytes of one answer (192 MiB): base64 within frames makes an answer of a model larger than it is elsewhere.
const MAX_ANSWER_BYTES: usize = 192 * 1024 * 1024;

/// Why there is no answer, or not all of it. Its text names no more of the address than host and port.
#[derive(Debug, thiserror::Error)]
pub enum HttpFault {
    /// The server is not there.
    #[error("cannot connect to {0}")]
    NotConnected(String),
    /// Something else on the way.
    #[error("{0}")]
    Broken(String),
    /// Nothing came for so long.
    #[error("the model was silent for {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// More came than is believed.
    #[error("the answer is larger than {MAX_ANSWER_BYTES} bytes allow")]
    TooLarge,
}

impl HttpFault {
    /// The fault among an error and its causes.
    pub fn within<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }
}

/// What the SDK is given as its HTTP.
pub fn sdk_client() -> SharedHttpClient {
    SharedHttpClient::new(Carrier)
}

#[derive(Debug)]
struct Carrier;

impl HttpClient for Carrier {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector { patience: settings.read_timeout() })
    }
}

#[derive(Debug)]
struct Connector {
    patience: Option<Duration>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let patience = self.patience;
        HttpConnectorFuture::new(async move {
            send(request, patience).await.map_err(|fault| match fault {
                HttpFault::Silent(_) => ConnectorError::timeout(fault.into()),
                _ => ConnectorError::io(fault.into()),
            })
        })
    }
}

async fn send(request: HttpRequest, patience: Option<Duration>) -> Result<HttpResponse, HttpFault> {
    let broken = |why: &(dyn std::error::Error + 'static)| HttpFault::Broken(causes(why));
    let (parts, body) = request.try_into_http1x().map_err(|why| broken(&why))?.into_parts();
    let url = Url::parse(&parts.uri.to_string()).map_err(|why| broken(&why))?;
    let client =
        model_client(&url).map_err(|why| HttpFault::Broken(format!("no HTTP client: {}", causes(&why))))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or_default();
    let sending = client.request(parts.method, url).headers(parts.headers).body(Body::wrap(body)).send();
    let sent = match patience {
        Some(patience) => {
            tokio::time::timeout(patience, sending).await.map_err(|_| HttpFault::Silent(patience))?
        }
        None => sending.await,
    };
    let response = sent.map_err(|why| {
        if why.is_connect() {
            HttpFault::NotConnected(format!("{host}:{port}: {}", innermost(&why)))
        } else {
            HttpFault::Broken(format!("the request failed at {host}: {}", causes(&why.without_url())))
        }
    })?;
    let (parts, body) = http::Response::<Body>::from(response).into_parts();
    let body = SdkBody::from_body_1_x(Watched { inner: body, patience, alarm: None, left: MAX_ANSWER_BYTES });
    HttpResponse::try_from(http::Response::from_parts(parts, body)).map_err(|why| broken(&why))
}

/// A body that is an error when nothing comes for too long, or too much.
struct Watched {
    inner: Body,
    patience: Option<Duration>,
    /// Rings when the patience is over; made when the body is first waited for.
    alarm: Option<Pin<Box<Sleep>>>,
    left: usize,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = HttpFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpFault>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            self.alarm = None;
            return Poll::Ready(match frame {
                None => None,
                Some(Err(why)) => {
                    Some(Err(HttpFault::Broken(format!("the connection was cut: {}", causes(&why)))))
                }
                Some(Ok(frame)) => {
                    let size = frame.data_ref().map_or(0, Bytes::len);
                    match self.left.checked_sub(size) {
                        Some(left) => self.left = left,
                        None => return Poll::Ready(Some(Err(HttpFault::TooLarge))),
                    }
                    Some(Ok(frame))
                }
            });
        }
        let Some(patience) = self.patience else { return Poll::Pending };
        let alarm =
            self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Some(Err(HttpFault::Silent(patience))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
