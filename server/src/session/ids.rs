//! Ids of sessions, runs, frames and log rows: their shapes, and making new ones.

use rand::RngExt;
use std::fmt;
use std::str::FromStr;

/// The longest session id, in characters (web contract, section 1).
pub const MAX_SESSION_ID_CHARS: usize = 200;

/// A session id of the right shape: one segment of letters, digits, `_ . : > -` or U+4E00–U+9FFF, 1 to 200
/// characters, not `.` or `..`. Sub-sessions are `root>child>grandchild`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

/// The text is no session id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid session id")]
pub struct InvalidSessionId;

impl SessionId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names a sub-session.
    pub fn is_child(&self) -> bool {
        self.0.contains('>')
    }

    /// The session that this one works for; none for a root.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('>').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// The root of its tree: itself, or what stands before the first `>`.
    #[must_use]
    pub fn root(&self) -> Self {
        Self(self.0.split_once('>').map_or(&*self.0, |(root, _)| root).to_owned())
    }

    /// Its depth: 1 for a root.
    pub fn depth(&self) -> usize {
        self.0.split('>').count()
    }

    /// Whether it lies below `other`.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.starts_with('>'))
    }

    /// A new sub-session: `<this>><8 random characters>`. None when it would be longer than an id may be.
    pub fn new_child(&self) -> Option<Self> {
        let random = base36(rand::rng().random_range(0..36u64.pow(8)));
        let id = format!("{}>{random:0>8}", self.0);
        (id.chars().count() <= MAX_SESSION_ID_CHARS).then_some(Self(id))
    }

    /// What every session of the account's own starts with.
    pub fn web_prefix(account_id: &str) -> String {
        format!("web_{account_id}_")
    }

    /// A new root of an account: `web_<accountId>_<base36 ms>_<rand>`.
    pub fn new_web(account_id: &str, now_ms: i64) -> Self {
        let random = base36(rand::rng().random_range(0..36u64.pow(8)));
        Self(format!("web_{account_id}_{}_{random:0>8}", base36(now_ms.unsigned_abs())))
    }
}

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| {
            c.is_ascii_alphanumeric() || "_.:>-".contains(c) || ('\u{4e00}'..='\u{9fff}').contains(&c)
        };
        let short = text.chars().take(MAX_SESSION_ID_CHARS + 1).count() <= MAX_SESSION_ID_CHARS;
        if text.is_empty() || text == "." || text == ".." || !short || !text.chars().all(allowed) {
            return Err(InvalidSessionId);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a frame: `<run>.<seq>` (web contract, section 2, exact resume).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// Random per run.
    pub run: String,
    /// Counts from 1 within the run; 0 is the place before the first frame.
    pub seq: u64,
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (run, seq) = text.rsplit_once('.').ok_or(())?;
        if run.is_empty() || run.len() > 64 || !run.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(());
        }
        if seq.is_empty() || !seq.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        Ok(Self { run: run.to_owned(), seq: seq.parse().map_err(|_| ())? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.seq)
    }
}

/// A new run's random name: 12 characters.
pub fn new_run() -> String {
    format!("{:0>12}", base36(rand::rng().random_range(0..36u64.pow(12))))
}

/// The id of a log row: `m_<base36 ms>_<base36 seq>`; the sequence number is within its session.
pub fn row_id(at_ms: i64, seq: i64) -> String {
    format!("m_{}_{}", base36(at_ms.unsigned_abs()), base36(seq.unsigned_abs()))
}

/// The sequence number that a row id carries.
pub fn row_seq(id: &str) -> Option<i64> {
    let mut parts = id.strip_prefix("m_")?.split('_');
    parts.next()?;
    let seq = i64::from_str_radix(parts.next()?, 36).ok()?;
    (parts.next().is_none() && seq > 0).then_some(seq)
}

/// A number in base 36, lower case.
pub fn base36(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = Vec::with_capacity(13);
    loop {
        digits.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("web_a1_x", true)]
    #[case("a..b", true)]
    #[case("root>child:1", true)]
    #[case("会话-1", true)]
    #[case("", false)]
    #[case(".", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("a\\b", false)]
    #[case("a b", false)]
    #[case("a%2f", false)]
    #[case("é", false)]
    #[case("a\u{0}", false)]
    fn a_session_id_is_one_segment_of_the_allowed_characters(#[case] id: &str, #[case] good: bool) {
        assert_eq!(id.parse::<SessionId>().is_ok(), good, "{id:?}");
    }

    #[test]
    fn a_session_id_has_at_most_200_characters() {
        assert!("会".repeat(200).parse::<SessionId>().is_ok());
        assert!("a".repeat(201).parse::<SessionId>().is_err());
    }

    #[test]
    fn minted_ids_are_of_the_right_shape_and_carry_the_account() {
        let id = SessionId::new_web("a1b2c3d4", 1_796_148_373_010);
        assert!(id.as_str().starts_with(&SessionId::web_prefix("a1b2c3d4")));
        assert_eq!(id.as_str().parse::<SessionId>(), Ok(id.clone()));
        assert_ne!(id, SessionId::new_web("a1b2c3d4", 1_796_148_373_010));
    }

    proptest! {
        #[test]
        fn a_session_id_is_what_the_contract_says(
            text in r"([a-zA-Z0-9_.:>\-\u{4e00}-\u{9fff}]|[/\\ %é\u{4dff}\u{a000}\x00\n~]){0,6}",
            repeat in prop_oneof![Just(1usize), 1usize..80],
        ) {
            let text = text.repeat(repeat);
            let allowed = |c: char| matches!(c,
                'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | ':' | '>' | '-' | '\u{4e00}'..='\u{9fff}');
            let good = (1..=200).contains(&text.chars().count())
                && text.chars().all(allowed)
                && text != "."
                && text != "..";
            let parsed = text.parse::<SessionId>();
            prop_assert_eq!(parsed.is_ok(), good);
            if let Ok(id) = parsed {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn every_minted_session_id_has_the_right_shape_and_belongs_to_its_account(
            account in "[0-9a-f]{8}",
            at in any::<i64>(),
        ) {
            let id = SessionId::new_web(&account, at);
            prop_assert_eq!(id.as_str().parse::<SessionId>(), Ok(id.clone()));
            prop_assert!(id.as_str().starts_with(&SessionId::web_prefix(&account)) && !id.is_child());
        }

        #[test]
        fn an_event_id_is_a_run_and_a_number(run in "[a-z0-9.]{0,70}", seq in "[0-9a+-]{0,22}") {
            let text = format!("{run}.{seq}");
            let number = seq.bytes().all(|b| b.is_ascii_digit()).then(|| seq.parse::<u64>().ok()).flatten();
            let named = (1..=64).contains(&run.len()) && !run.contains('.');
            let expected = number.filter(|_| named).map(|seq| EventId { run, seq });
            prop_assert_eq!(text.parse::<EventId>().ok(), expected);
        }

        #[test]
        fn event_ids_survive_the_wire(seq in any::<u64>()) {
            let id = EventId { run: new_run(), seq };
            prop_assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        }

        #[test]
        fn junk_is_no_event_id_and_never_panics(text in ".{0,30}") {
            if let Ok(id) = text.parse::<EventId>() {
                prop_assert!(text.starts_with(&id.run));
            }
        }

        #[test]
        fn a_row_id_carries_its_sequence_number(at in 0i64..4_000_000_000_000, seq in 1i64..i64::MAX) {
            prop_assert_eq!(row_seq(&row_id(at, seq)), Some(seq));
        }
    }
}
