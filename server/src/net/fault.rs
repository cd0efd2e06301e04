//! Why a connection failed, told apart by what a person can do about it.

use std::error::Error;
use std::io::ErrorKind;

/// Where on its way a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The name of the host has no address.
    NoName,
    /// Nobody listens at the address.
    Refused,
    /// No way leads to the address.
    Unreachable,
    /// The encrypted connection did not come about: no TLS there, or a certificate that is not trusted.
    Tls,
    /// The connection did not come up in time.
    TimedOut,
    /// The connection is up, and nothing came in time.
    Silent,
    /// The connection ended before the answer did.
    Cut,
    /// Something else.
    Other,
}

impl Fault {
    /// What an error of the HTTP client means, by its chain of causes: the client names no kinds.
    pub fn of(error: &reqwest::Error) -> Self {
        let found = from_causes(error);
        match found {
            Self::Other | Self::Cut if error.is_timeout() => Self::TimedOut,
            Self::Other if !error.is_connect() => Self::Cut,
            // While the connection comes up, an end means that the other side does not speak TLS.
            Self::Cut if error.is_connect() => Self::Tls,
            found => found,
        }
    }
}

fn from_causes(error: &(dyn Error + 'static)) -> Fault {
    let mut found = Fault::Other;
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if text.starts_with("dns error") || text.contains("failed to lookup address") {
            return Fault::NoName;
        }
        if TLS.iter().any(|word| text.contains(word)) {
            return Fault::Tls;
        }
        if let Some(error) = cause.downcast_ref::<std::io::Error>() {
            found = match error.kind() {
                ErrorKind::ConnectionRefused => Fault::Refused,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
                    Fault::Unreachable
                }
                ErrorKind::TimedOut => Fault::TimedOut,
                ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof => Fault::Cut,
                _ => found,
            };
        }
        next = cause.source();
    }
    found
}

/// Words of the TLS library; what it says of certificates, alerts and bytes that are no TLS.
const TLS: &[&str] = &[
    "certificate",
    "received fatal alert",
    "received corrupt message",
    "tls handshake",
    "HandshakeFailure",
    "peer is incompatible",
    "peer misbehaved",
];

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fmt;
    use std::io;

    /// An error and what it comes from, as the HTTP client nests them.
    #[derive(Debug)]
    struct Outer(&'static str, Option<io::Error>);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|inner| inner as _)
        }
    }

    #[rstest]
    #[case::name(
        "dns error",
        Some(io::Error::other("failed to lookup address information: Name or service not known")),
        Fault::NoName
    )]
    #[case::refused("tcp connect error", Some(ErrorKind::ConnectionRefused.into()), Fault::Refused)]
    #[case::no_route("tcp connect error", Some(ErrorKind::HostUnreachable.into()), Fault::Unreachable)]
    #[case::certificate(
        "client error (Connect)",
        Some(io::Error::new(ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer")),
        Fault::Tls
    )]
    #[case::no_tls(
        "client error (Connect)",
        Some(io::Error::new(ErrorKind::InvalidData, "received corrupt message of type InvalidContentType")),
        Fault::Tls
    )]
    #[case::reset("connection error", Some(ErrorKind::ConnectionReset.into()), Fault::Cut)]
    #[case::odd("odd", None, Fault::Other)]
    fn the_chain_of_causes_tells_where_it_failed(
        #[case] text: &'static str,
        #[case] inner: Option<io::Error>,
        #[case] fault: Fault,
    ) {
        assert_eq!(from_causes(&Outer(text, inner)), fault);
    }
}
