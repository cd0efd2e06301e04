//! The time, handed in so that tests can be exact. The only place that asks the operating system for it.

use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// Gives the current time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn now_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as i64)
    }
}

/// `2026-12-01T18:05:00.123Z` for milliseconds since the Unix epoch; the epoch itself for what no calendar holds.
pub fn iso(ms: i64) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .format(&format)
        .unwrap_or_default()
}

/// Milliseconds since the Unix epoch for a time as [`iso`] writes it, or with any other offset (RFC 3339).
pub fn from_iso(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_iso_8601_in_utc_with_milliseconds() {
        assert_eq!(iso(1_796_148_373_010), "2026-12-01T18:06:13.010Z");
        assert_eq!(iso(i64::MAX), "1970-01-01T00:00:00.000Z");
        assert_eq!(from_iso("2026-12-01T18:06:13.010Z"), Some(1_796_148_373_010));
        assert_eq!(from_iso("2026-12-01T19:06:13+01:00"), Some(1_796_148_373_000));
        assert_eq!(from_iso("yesterday"), None);
    }
}
