//! What sets the vendors behind a protocol apart, as one table: by the name that `runtime:` gives and, where models
//! of a vendor differ, by words of the model's id (agents reference, section 2.3). Only data: what a wish for
//! thinking becomes is [`super::thinking`]'s, how it is written the providers'.

use super::provider::ThinkingMode;

/// The peculiarities of one vendor, or of some of its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirks {
    /// The switch of Chat Completions, `thinking: {type}`.
    pub switch: Switching,
    /// The effort labels that it takes.
    pub efforts: Efforts,
    /// The model cannot be told not to think; a profile that wants none gets the least.
    pub always_thinks: bool,
    /// Messages: how the model is told, whatever its file says.
    pub mode: Option<ThinkingMode>,
    /// Messages: a model that is not to think is told so, since it would.
    pub says_off: bool,
    /// Messages: whether a model that is told by a number of tokens may think in a turn only if it did so from the
    /// beginning of that turn.
    pub strict_turns: bool,
    /// Messages: seals over thinking are the vendor's own, so that no other provider takes them.
    pub own_seals: bool,
    /// Chat: reasoning of earlier calls goes back as `reasoning_content` beside the tool calls that it led to.
    pub replays_reasoning: bool,
    /// Messages: which marks of prompt caching it knows.
    pub cache: CacheMarks,
    /// Responses: summaries of the reasoning can be had.
    pub summaries: bool,
}

/// Whether there is a switch for thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switching {
    /// None; to send one is an error.
    None,
    /// `enabled` or `disabled`.
    Plain,
    /// As before, and `enabled` asks to keep in mind what was thought in earlier calls.
    Keeping,
}

/// Which effort labels may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Efforts {
    /// Any; they go out as they are.
    Any,
    /// These, from low to high; others become the next higher one.
    Of(&'static [&'static str]),
    /// None.
    Never,
}

/// Which marks of prompt caching may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheMarks {
    /// With a lifetime.
    Lifetimes,
    /// Without: there is one lifetime, which has no name.
    OneLifetime,
    /// None.
    Never,
}

/// A protocol as its inventor speaks it.
const PLAIN: Quirks = Quirks {
    switch: Switching::None,
    efforts: Efforts::Any,
    always_thinks: false,
    mode: None,
    says_off: false,
    strict_turns: true,
    own_seals: false,
    replays_reasoning: false,
    cache: CacheMarks::Lifetimes,
    summaries: true,
};

const KIMI: Quirks = Quirks { efforts: Efforts::Never, replays_reasoning: true, ..PLAIN };
const ZHIPU: Quirks = Quirks {
    switch: Switching::Keeping,
    efforts: Efforts::Of(&["low", "high", "max"]),
    replays_reasoning: true,
    ..PLAIN
};
/// Vendors that took Messages over and seal thinking themselves.
const MESSAGES: Quirks = Quirks { strict_turns: false, own_seals: true, ..PLAIN };
const MINIMAX: Quirks = Quirks {
    efforts: Efforts::Never,
    mode: Some(ThinkingMode::Adaptive),
    cache: CacheMarks::Never,
    ..MESSAGES
};

/// Runtime, a word of the model's id in small letters (empty: every model), and what holds. The first row that
/// fits counts.
const TABLE: &[(&str, &str, Quirks)] = &[
    ("deepseek", "", Quirks { replays_reasoning: true, ..PLAIN }),
    ("kimi", "k3", Quirks { efforts: Efforts::Of(&["max"]), ..KIMI }),
    ("kimi", "k2.", Quirks { switch: Switching::Plain, ..KIMI }),
    ("kimi", "", KIMI),
    ("hunyuan", "", Quirks { efforts: Efforts::Of(&["low", "high"]), ..PLAIN }),
    ("doubao", "", Quirks { switch: Switching::Plain, efforts: Efforts::Never, ..PLAIN }),
    ("zhipu", "5.3", Quirks { always_thinks: true, ..ZHIPU }),
    ("zhipu", "", ZHIPU),
    (
        "minimax",
        "m2",
        Quirks {
            mode: Some(ThinkingMode::Manual),
            always_thinks: true,
            cache: CacheMarks::OneLifetime,
            ..MINIMAX
        },
    ),
    ("minimax", "", MINIMAX),
    (
        "qwen",
        "",
        Quirks {
            mode: Some(ThinkingMode::Manual),
            says_off: true,
            cache: CacheMarks::OneLifetime,
            ..MESSAGES
        },
    ),
    ("bedrock-mantle", "", Quirks { summaries: false, ..PLAIN }),
];

/// What holds for a model of a provider with this `runtime:`.
pub(super) fn quirks(runtime: &str, model: &str) -> Quirks {
    let model = model.to_ascii_lowercase();
    TABLE
        .iter()
        .find(|(name, word, _)| *name == runtime && model.contains(word))
        .map_or(PLAIN, |(_, _, quirks)| *quirks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::provider::Runtime;

    #[test]
    fn every_row_is_of_a_runtime_that_exists_and_none_hides_a_later_one() {
        for (at, (runtime, word, _)) in TABLE.iter().enumerate() {
            assert!(Runtime::parse(runtime).is_ok(), "{runtime}");
            let hidden = TABLE[..at].iter().any(|(name, wider, _)| name == runtime && word.contains(wider));
            assert!(!hidden, "{runtime} {word} is never reached");
        }
    }

    #[test]
    fn a_model_is_known_by_a_word_of_its_id_in_any_case() {
        assert!(quirks("minimax", "MiniMax-M2.7").always_thinks);
        assert!(!quirks("minimax", "MiniMax-M3").always_thinks);
        assert_eq!(quirks("anthropic-messages", "glm-5.3"), PLAIN);
    }
}
