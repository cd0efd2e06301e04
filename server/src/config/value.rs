//! The types of settings: reading a value from text, naming what is allowed, and showing it.

use crate::allow_list;
use secrecy::{ExposeSecret, SecretString};
use std::fmt;

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP port; 0 picks a free one.
    Port,
    /// A host name or IP address.
    Host,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Number {
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// A part of a whole, above 0 and at most 1.
    Fraction,
    /// A time in milliseconds, from 1 to a day.
    Millis,
    /// How much is logged.
    Level,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Text that is never shown.
    Secret,
    /// Web origins, `https://host` or `https://host:port`.
    Origins,
    /// Addresses, ranges and host names, as [`crate::allow_list`] reads them.
    AllowList,
    /// Absolute paths, or paths that begin with `~/`.
    Paths,
}

/// The log levels, from least to most.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A value of a [`Kind`].
#[derive(Clone)]
pub enum Value {
    /// Not set.
    Unset,
    /// `Host`, `Text`, `Level`, `Choice`.
    Text(String),
    /// `Port`, `Number`, `Millis`.
    Number(u64),
    /// `Fraction`.
    Fraction(f64),
    /// `Bool`.
    Bool(bool),
    /// `Origins`, `AllowList`, `Paths`.
    List(Vec<String>),
    /// `Secret`.
    Secret(SecretString),
}

impl Kind {
    /// What a value must be, as error messages and the documentation say it.
    pub fn expected(self) -> String {
        match self {
            Self::Port => "a port number from 0 to 65535".into(),
            Self::Host => "a host name or an IP address".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Number { min, max: u64::MAX } => format!("a whole number, at least {min}"),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Fraction => "a number above 0 and at most 1".into(),
            Self::Millis => format!("milliseconds, a whole number from 1 to {DAY_MS}"),
            Self::Level => format!("one of {}", LEVELS.join(", ")),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text | Self::Secret => "text".into(),
            Self::Origins => "web origins such as https://example.com, separated by commas".into(),
            Self::AllowList => {
                "addresses, ranges such as 10.0.0.0/8 or hosts such as *.example.com, separated by commas"
                    .into()
            }
            Self::Paths => "absolute paths (or ~/…), separated by commas".into(),
        }
    }

    /// Reads a value. The error says what was expected, and what was found unless it is a secret.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let trimmed = text.trim();
        let value = match self {
            Self::Port => whole(trimmed, 0, u64::from(u16::MAX)).map(Value::Number),
            Self::Number { min, max } => whole(trimmed, min, max).map(Value::Number),
            Self::Millis => whole(trimmed, 1, DAY_MS).map(Value::Number),
            Self::Fraction => {
                let part = trimmed.parse().ok().filter(|part| *part > 0.0 && *part <= 1.0);
                part.map(Value::Fraction)
            }
            Self::Bool => match trimmed.to_ascii_lowercase().as_str() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Level => {
                let level = trimmed.to_ascii_lowercase();
                LEVELS.contains(&level.as_str()).then_some(Value::Text(level))
            }
            Self::Choice(words) => {
                let word = trimmed.to_ascii_lowercase();
                words.contains(&word.as_str()).then_some(Value::Text(word))
            }
            Self::Host => {
                let host = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(trimmed);
                is_host(host).then(|| Value::Text(host.to_owned()))
            }
            Self::Text if trimmed.is_empty() => Some(Value::Unset),
            Self::Text => Some(Value::Text(trimmed.to_owned())),
            Self::Secret if text.is_empty() => Some(Value::Unset),
            Self::Secret => Some(Value::Secret(text.into())),
            Self::Origins | Self::AllowList | Self::Paths => {
                return self.parse_list(trimmed.split(',').map(str::to_owned));
            }
        };
        value.ok_or_else(|| format!("expected {}, found `{}`", self.expected(), found(text)))
    }

    /// Reads a list: items are trimmed; empty and repeated ones are dropped.
    pub fn parse_list(self, items: impl IntoIterator<Item = String>) -> Result<Value, String> {
        let mut list: Vec<String> = Vec::new();
        for item in items {
            let item = item.trim();
            let good = match self {
                Self::Origins => is_origin(item),
                Self::AllowList => allow_list::is_entry(item),
                Self::Paths => item.starts_with('/') || item.starts_with("~/"),
                _ => return Err(format!("expected {}, found a list", self.expected())),
            };
            if item.is_empty() || list.iter().any(|known| known == item) {
                continue;
            }
            if !good {
                return Err(format!("expected {}, found `{}`", self.expected(), found(item)));
            }
            list.push(item.to_owned());
        }
        Ok(Value::List(list))
    }
}

/// At most 60 characters of what was found, on one line.
fn found(text: &str) -> String {
    crate::text::head_chars(text, 60).replace(char::is_control, " ")
}

fn whole(text: &str, min: u64, max: u64) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| (min..=max).contains(number))
}

fn is_host(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".-_:%".contains(&b);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !host.is_empty()
        && !host.contains(['/', '?', '#', '@', '*', ' '])
}

/// Shows the value; secrets as `(set)`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("(none)"),
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Fraction(part) => write!(f, "{part}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::List(items) if items.is_empty() => f.write_str("(none)"),
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Secret(_) => f.write_str("(set)"),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unset, Self::Unset) => true,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Fraction(a), Self::Fraction(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Secret(a), Self::Secret(b)) => a.expose_secret() == b.expose_secret(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Kind::Port, "9527", "9527")]
    #[case(Kind::Port, " 0 ", "0")]
    #[case(Kind::Bool, "True", "true")]
    #[case(Kind::Fraction, "0.90", "0.9")]
    #[case(Kind::Level, "WARN", "warn")]
    #[case(Kind::Choice(&["on", "off"]), " Off", "off")]
    #[case(Kind::Host, "[::1]", "::1")]
    #[case(Kind::Text, "  ", "(none)")]
    #[case(Kind::Secret, "", "(none)")]
    #[case(Kind::Secret, "s3cret", "(set)")]
    #[case(Kind::Paths, " /a, ~/b ,,/a", "/a,~/b")]
    #[case(Kind::Paths, "", "(none)")]
    #[case(Kind::AllowList, "10.0.0.0/8, ::1,*.ts.net", "10.0.0.0/8,::1,*.ts.net")]
    #[case(Kind::Origins, "https://a.example,http://b:8080", "https://a.example,http://b:8080")]
    fn good_values_are_read(#[case] kind: Kind, #[case] text: &str, #[case] shown: &str) {
        assert_eq!(kind.parse(text).unwrap().to_string(), shown);
    }

    #[rstest]
    #[case(Kind::Port, "65536", "expected a port number from 0 to 65535, found `65536`")]
    #[case(Kind::Port, "-1", "expected a port number from 0 to 65535, found `-1`")]
    #[case(Kind::Port, "+1", "expected a port number from 0 to 65535, found `+1`")]
    #[case(Kind::Bool, "yes", "expected `true` or `false`, found `yes`")]
    #[case(Kind::Number { min: 1, max: 9 }, "0", "expected a whole number from 1 to 9, found `0`")]
    #[case(Kind::Millis, "1.5", "expected milliseconds, a whole number from 1 to 86400000, found `1.5`")]
    #[case(Kind::Fraction, "90", "expected a number above 0 and at most 1, found `90`")]
    #[case(Kind::Fraction, "NaN", "expected a number above 0 and at most 1, found `NaN`")]
    #[case(Kind::Choice(&["on", "off"]), "maybe", "expected one of on, off, found `maybe`")]
    #[case(Kind::Level, "loud", "expected one of off, error, warn, info, debug, trace, found `loud`")]
    #[case(Kind::Paths, "a/b", "expected absolute paths (or ~/…), separated by commas, found `a/b`")]
    #[case(
        Kind::AllowList,
        "10.0.0.0/8,http://a",
        "expected addresses, ranges such as 10.0.0.0/8 or hosts such as *.example.com, separated by commas, found \
         `http://a`"
    )]
    #[case(
        Kind::Origins,
        "https://a.example/",
        "expected web origins such as https://example.com, separated by commas, found `https://a.example/`"
    )]
    fn bad_values_say_what_is_allowed(#[case] kind: Kind, #[case] text: &str, #[case] error: &str) {
        assert_eq!(kind.parse(text).unwrap_err(), error);
    }
}
