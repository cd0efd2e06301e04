//! The command line: which server, which token, which headers. Promises that what it returns is usable as it
//! is (a base address that parses, header names and values that HTTP allows), and that whatever is wrong
//! becomes one line that names the flag and what it takes. Nothing here is contacted.

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Exit code of a wrong command line.
const USAGE: u8 = 2;

/// Headers that the adapter or HTTP itself sets: a `--header` never replaces them.
const RESERVED: &[&str] = &[
    "x-token",
    "content-type",
    "content-length",
    "transfer-encoding",
    "accept",
    "last-event-id",
    "x-session-id",
    "x-workspace",
    "x-agent-id",
];

#[derive(Parser)]
#[command(
    name = "halo-acp",
    version,
    about = "Connects an ACP editor over stdin and stdout to a halo server.",
    after_help = "stdout carries protocol messages only; this program is meant to be started by an editor."
)]
struct Raw {
    /// Host name, IPv4 or IPv6 address of the halo server
    #[arg(long)]
    host: String,
    /// Port of the halo server, 1-65535
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Web-channel token; the environment variable keeps it out of process lists
    // A token is base64url, so it may well begin with a hyphen.
    #[arg(long, env = "HALO_ACP_TOKEN", hide_env_values = true, allow_hyphen_values = true)]
    token: Option<String>,
    /// Absolute path of a workspace on the server [default: the token's own]
    #[arg(long)]
    workspace: Option<String>,
    /// How to reach the server
    #[arg(long, value_enum, default_value_t = Scheme::Http)]
    scheme: Scheme,
    /// Agent profile of new sessions [default: the server decides]
    #[arg(long, alias = "agent")]
    agent_id: Option<String>,
    /// "Name: value", sent with every request, for a gateway in front of the server; repeatable
    #[arg(long, allow_hyphen_values = true)]
    header: Vec<String>,
    /// Detail of the log on stderr
    #[arg(long, value_enum, default_value_t = LogLevel::Warn)]
    log_level: LogLevel,
}

/// The scheme of the server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS, with the roots of the system.
    Https,
}

/// How much goes to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// Also what was dropped, skipped or retried.
    Warn,
    /// Also what the server is.
    Info,
    /// Also each step of a turn.
    Debug,
    /// Also every protocol line; prompts and replies are in it.
    Trace,
}

/// A web-channel token. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token itself, for the header that carries it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the token replaced, for texts that another side wrote. What is too short
    /// to be a secret is also too likely to be a part of a word.
    pub fn redact(&self, text: &str) -> String {
        if self.0.len() < 6 { text.to_owned() } else { text.replace(&self.0, "[token]") }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[token]")
    }
}

/// A checked command line.
#[derive(Debug)]
pub struct Args {
    /// `<scheme>://<host>:<port>/`.
    pub base: Url,
    /// The token of every request.
    pub token: Token,
    /// The workspace of every request; `None` = the token's own.
    pub workspace: Option<String>,
    /// The profile of new sessions; `None` = the server decides.
    pub agent_id: Option<String>,
    /// What `--header` gave, without the reserved names; the last of two with one name counts.
    pub headers: HeaderMap,
    /// Names given with `--header` that were left out because they are reserved.
    pub ignored_headers: Vec<String>,
    /// Detail of the log.
    pub log_level: LogLevel,
}

/// Reads the command line of this process. `Err` is the exit code: what there was to say is already written,
/// help and version to stdout (0), a mistake to stderr (2).
pub fn from_env() -> Result<Args, ExitCode> {
    parse(std::env::args_os()).map_err(|stop| {
        // A closed stdout or stderr leaves nobody to tell.
        match stop {
            Stop::Show(text) => {
                let _ = std::io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Stop::Wrong(line) => {
                let _ = writeln!(std::io::stderr(), "{line}");
                ExitCode::from(USAGE)
            }
        }
    })
}

/// Why there is nothing to run.
#[derive(Debug)]
enum Stop {
    /// A text that was asked for.
    Show(String),
    /// One line about a mistake.
    Wrong(String),
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, Stop> {
    let raw = Raw::try_parse_from(args).map_err(|error| {
        if error.use_stderr() {
            Stop::Wrong(one_line(&error.render().to_string()))
        } else {
            Stop::Show(error.render().to_string())
        }
    })?;
    check(raw).map_err(|what| Stop::Wrong(format!("error: {what}")))
}

/// clap explains over several lines, with a usage text below; the first paragraph says what is wrong.
fn one_line(rendered: &str) -> String {
    rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty() && !line.starts_with("tip:"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn check(raw: Raw) -> Result<Args, String> {
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let token = given(raw.token)
        .ok_or("--token is required: a web-channel token, here or in the environment as HALO_ACP_TOKEN")?;
    let flag_name = token.split('=').next().unwrap_or_default();
    if FLAGS.contains(&flag_name) {
        return Err(format!("--token needs a value, but {flag_name} follows it"));
    }
    if HeaderValue::from_str(&token).is_err() || token.contains(char::is_whitespace) {
        return Err("--token takes a web-channel token: visible ASCII characters without spaces".to_owned());
    }
    let workspace = given(raw.workspace);
    if let Some(path) = workspace.as_deref().filter(|path| !is_absolute(path)) {
        return Err(format!("--workspace takes an absolute path on the server, not '{}'", flat(path)));
    }
    let (headers, ignored_headers) = headers(&raw.header)?;
    Ok(Args {
        base: base(raw.scheme, &raw.host, raw.port)?,
        token: Token(token),
        workspace,
        agent_id: given(raw.agent_id),
        headers,
        ignored_headers,
        log_level: raw.log_level,
    })
}

/// Our flags, to tell a forgotten token from one that begins with hyphens.
const FLAGS: &[&str] = &[
    "--host",
    "--port",
    "--token",
    "--workspace",
    "--scheme",
    "--agent-id",
    "--agent",
    "--header",
    "--log-level",
    "--help",
    "--version",
];

/// Whether `path` is absolute on any system: the server's may be another than ours.
pub fn is_absolute(path: &str) -> bool {
    let bytes = path.as_bytes();
    path.starts_with('/')
        || path.starts_with(r"\\")
        || (bytes.len() > 2
            && bytes[0].is_ascii_alphabetic()
            && bytes[1] == b':'
            && matches!(bytes[2], b'/' | b'\\'))
}

fn base(scheme: Scheme, host: &str, port: u16) -> Result<Url, String> {
    let wrong = || {
        format!(
            "--host takes a host name, an IPv4 or an IPv6 address, without scheme and port, not '{}'",
            flat(host)
        )
    };
    let bare = host.trim().trim_start_matches('[').trim_end_matches(']');
    if bare.is_empty() || bare.contains(['/', '?', '#', '@', '\\', '%']) || bare.contains(char::is_whitespace)
    {
        return Err(wrong());
    }
    let host = if bare.contains(':') {
        let address: std::net::Ipv6Addr = bare.parse().map_err(|_| wrong())?;
        format!("[{address}]")
    } else {
        bare.to_owned()
    };
    let scheme = match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    Url::parse(&format!("{scheme}://{host}:{port}/")).map_err(|_| wrong())
}

fn headers(given: &[String]) -> Result<(HeaderMap, Vec<String>), String> {
    let mut headers = HeaderMap::new();
    let mut ignored = Vec::new();
    for one in given {
        // The value may be a secret (a cookie, basic auth), so an error shows the name alone.
        let (name, value) = one
            .split_once(':')
            .map(|(name, value)| (name.trim(), value.trim()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or("--header takes \"Name: value\", with a colon after the name")?;
        let shown = flat(name);
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("--header takes \"Name: value\"; '{shown}' is no header name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            format!("--header takes \"Name: value\"; the value of '{shown}' has characters that HTTP forbids")
        })?;
        value.set_sensitive(true);
        if RESERVED.contains(&name.as_str()) {
            ignored.push(name.as_str().to_owned());
        } else {
            headers.insert(name, value);
        }
    }
    Ok((headers, ignored))
}

/// A value for an error of one line: control characters replaced, cut at 80 characters.
fn flat(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parsed(args: &[&str]) -> Result<Args, String> {
        let all = ["halo-acp"].iter().chain(args).map(|arg| OsString::from(*arg));
        parse(all).map_err(|stop| match stop {
            Stop::Show(text) | Stop::Wrong(text) => text,
        })
    }

    const GOOD: &[&str] = &["--host", "h", "--port", "80", "--token", "t"];

    fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
        GOOD.iter().chain(more).copied().collect()
    }

    #[rstest]
    #[case("127.0.0.1", "http://127.0.0.1:9527/")]
    #[case("box.local", "http://box.local:9527/")]
    #[case("::1", "http://[::1]:9527/")]
    #[case("[fe80::2]", "http://[fe80::2]:9527/")]
    fn a_host_becomes_an_address(#[case] host: &str, #[case] base: &str) {
        let args = parsed(&["--host", host, "--port=9527", "--token=x"]).expect("good");
        assert_eq!(args.base.as_str(), base);
    }

    #[rstest]
    #[case("http://x")]
    #[case("")]
    #[case("a b")]
    #[case("x:80")]
    #[case("user@x")]
    fn a_host_that_is_none_is_refused(#[case] host: &str) {
        let error = parsed(&["--host", host, "--port=1", "--token=x"]).expect_err("bad host");
        assert!(error.contains("--host") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn both_spellings_and_the_alias_of_a_flag_count() {
        let args = parsed(&with(&["--agent=coder", "--workspace", "/w", "--scheme=https"])).expect("good");
        assert_eq!(args.agent_id.as_deref(), Some("coder"));
        assert_eq!(args.workspace.as_deref(), Some("/w"));
        assert_eq!(args.base.as_str(), "https://h:80/");
        assert_eq!(parsed(&with(&["--agent-id", ""])).expect("good").agent_id, None);
    }

    #[test]
    fn a_token_may_begin_with_a_hyphen_but_is_no_flag() {
        let args = parsed(&["--host=h", "--port=1", "--token", "-abc"]).expect("good");
        assert_eq!(args.token.reveal(), "-abc");
        let error = parsed(&["--host=h", "--token", "--port=1", "--port=2"]).expect_err("no token");
        assert!(error.contains("--token needs a value"), "{error}");
    }

    #[test]
    fn headers_split_at_the_first_colon_and_the_last_of_a_name_wins() {
        let args =
            parsed(&with(&["--header", "Cookie: a=b:c", "--header=X-Y:1", "--header=x-y: 2"])).expect("good");
        assert_eq!(args.headers["cookie"], "a=b:c");
        assert_eq!(args.headers["x-y"], "2");
    }

    #[test]
    fn a_header_never_replaces_the_token() {
        let args =
            parsed(&with(&["--header", "X-Token: other", "--header", "content-type: x"])).expect("good");
        assert!(args.headers.is_empty());
        assert_eq!(args.ignored_headers, ["x-token", "content-type"]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let args =
            parsed(&["--host=h", "--port=1", "--token=s3cret", "--header=Cookie: h1dden"]).expect("good");
        let shown = format!("{args:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("h1dden"), "{shown}");
    }
}
