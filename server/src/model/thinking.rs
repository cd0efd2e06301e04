//! From what a profile and a provider file say about thinking to what a model is told: one scale of effort labels
//! and numbers of tokens for all protocols. The vendors' peculiarities come from [`super::vendor`].

use super::anthropic;
use super::openai::Switch;
use super::provider::{ThinkingMode, ThinkingSupport};
use super::responses::Reasoning;
use super::vendor::{Efforts, Quirks, Switching};

/// Effort labels from low to high, and the tokens of thinking that each stands for.
const SCALE: [(&str, u64); 6] = [
    ("minimal", 1024),
    ("low", 4096),
    ("medium", 8192),
    ("high", 16_384),
    ("xhigh", 32_768),
    ("max", 65_536),
];

/// Tokens of thinking where nothing says how many.
const DEFAULT_BUDGET: u64 = 8192;

/// What a usage row says of a model that thinks and is told neither label nor number.
const ON: &str = "on";

/// What a profile says about thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether the model thinks at all.
    pub enabled: bool,
    /// A label such as `high`.
    pub effort: Option<String>,
    /// Tokens, for models that take a number.
    pub budget_tokens: Option<u64>,
}

/// What is wanted of a model, once profile, provider file and vendor have been heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nobody said anything: the model does as it is used to.
    Unsaid,
    /// No thinking.
    Off,
    /// Thinking.
    On {
        /// How hard.
        effort: Option<String>,
        /// Tokens, where the profile gives a number.
        tokens: Option<u64>,
    },
}

impl Wish {
    /// The profile's word counts; where it says nothing, or not how hard, the file's does.
    pub(super) fn of(given: Option<&Thinking>, support: Option<&ThinkingSupport>, quirks: Quirks) -> Self {
        let mode = quirks.mode.or(support.map(|support| support.mode)).unwrap_or_default();
        let usual = || {
            let tokens = support.and_then(|support| support.default_budget_tokens);
            let tokens = tokens.filter(|_| mode == ThinkingMode::Manual);
            let label = support.and_then(ThinkingSupport::default_effort).filter(|_| tokens.is_none());
            Self::On { effort: label.map(str::to_owned), tokens }
        };
        let starts = support.is_some_and(|support| support.default_enabled) || quirks.always_thinks;
        match given {
            None if starts => usual(),
            None => Self::Unsaid,
            Some(Thinking { enabled: true, effort: None, budget_tokens: None }) => usual(),
            Some(Thinking { enabled: true, effort, budget_tokens }) => {
                Self::On { effort: effort.clone(), tokens: *budget_tokens }
            }
            Some(_) if quirks.always_thinks => Self::On { effort: Some(SCALE[0].0.to_owned()), tokens: None },
            Some(_) => Self::Off,
        }
    }

    /// The label that usage rows show; `None` for off.
    pub(super) fn label(&self) -> Option<String> {
        let Self::On { effort, tokens } = self else { return None };
        let label = effort.clone().or_else(|| tokens.map(|tokens| label_for(tokens).to_owned()));
        Some(label.unwrap_or_else(|| ON.to_owned()))
    }

    /// The label that goes out, if one does.
    fn sent_label(&self, efforts: Efforts) -> Option<String> {
        let Self::On { effort, tokens } = self else { return None };
        let wanted = effort.as_deref().or_else(|| tokens.map(label_for));
        match efforts {
            Efforts::Any => wanted.map(str::to_owned),
            Efforts::Never => None,
            Efforts::Of([only]) => Some((*only).to_owned()),
            Efforts::Of(known) => {
                let wanted = rank(wanted?)?;
                let higher = known.iter().find(|label| rank(label).is_some_and(|rank| rank >= wanted));
                higher.or(known.last()).map(|label| (*label).to_owned())
            }
        }
    }
}

fn rank(label: &str) -> Option<usize> {
    SCALE.iter().position(|(known, _)| *known == label)
}

/// Only the three labels that every model with labels knows.
fn label_for(tokens: u64) -> &'static str {
    match tokens {
        0..=4096 => "low",
        4097..=8192 => "medium",
        _ => "high",
    }
}

/// Chat Completions: the vendor's switch, and `reasoning_effort`.
pub(super) fn chat(wish: &Wish, quirks: Quirks) -> (Option<Switch>, Option<String>) {
    let on = |clear_thinking| Some(Switch::Enabled { clear_thinking });
    let switch = match (quirks.switch, wish) {
        (Switching::None, _) | (_, Wish::Unsaid) => None,
        (_, Wish::Off) => Some(Switch::Disabled),
        (Switching::Plain, Wish::On { .. }) => on(None),
        (Switching::Keeping, Wish::On { .. }) => on(Some(false)),
    };
    (switch, wish.sent_label(quirks.efforts))
}

/// Messages: adaptive with a label, or by a number of tokens. A number makes thinking manual where no label is
/// given, and so does a model that takes nothing else; for such a model a label is turned into a number.
pub(super) fn messages(
    wish: &Wish,
    support: Option<&ThinkingSupport>,
    quirks: Quirks,
) -> anthropic::Thinking {
    let (effort, tokens) = match wish {
        Wish::On { effort, tokens } => (effort.as_deref(), *tokens),
        Wish::Off if quirks.says_off => return anthropic::Thinking::Refused,
        Wish::Off | Wish::Unsaid => return anthropic::Thinking::Off,
    };
    let mode = quirks.mode.or(support.map(|support| support.mode)).unwrap_or_default();
    match tokens {
        Some(tokens) if mode == ThinkingMode::Manual || effort.is_none() => {
            anthropic::Thinking::Budget(tokens)
        }
        _ if mode == ThinkingMode::Manual => {
            let label = effort.and_then(|label| SCALE.iter().find(|(known, _)| *known == label));
            anthropic::Thinking::Budget(label.map_or(DEFAULT_BUDGET, |(_, tokens)| *tokens))
        }
        _ => anthropic::Thinking::Adaptive(wish.sent_label(quirks.efforts)),
    }
}

/// Responses: a label. Reasoning comes in a form that can go back where the model can think.
pub(super) fn responses(wish: &Wish, support: Option<&ThinkingSupport>, quirks: Quirks) -> Reasoning {
    let asked = matches!(wish, Wish::On { .. });
    Reasoning { asked, effort: wish.sent_label(quirks.efforts), replay: asked || support.is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::provider::Preset;
    use crate::model::vendor::quirks;
    use rstest::rstest;

    #[allow(clippy::unnecessary_wraps, reason = "what a profile may leave out")]
    fn on(effort: Option<&str>, budget_tokens: Option<u64>) -> Option<Thinking> {
        Some(Thinking { enabled: true, effort: effort.map(str::to_owned), budget_tokens })
    }

    #[allow(clippy::unnecessary_wraps, reason = "what a profile may leave out")]
    fn off() -> Option<Thinking> {
        Some(Thinking::default())
    }

    fn support(mode: ThinkingMode) -> ThinkingSupport {
        ThinkingSupport { mode, ..ThinkingSupport::default() }
    }

    fn told(
        given: Option<&Thinking>,
        support: &ThinkingSupport,
        vendor: (&str, &str),
    ) -> anthropic::Thinking {
        let quirks = quirks(vendor.0, vendor.1);
        messages(&Wish::of(given, Some(support), quirks), Some(support), quirks)
    }

    const PLAIN: (&str, &str) = ("anthropic-messages", "m");
    const QWEN: (&str, &str) = ("qwen", "qwen3.7-max");
    const M2: (&str, &str) = ("minimax", "MiniMax-M2.7");
    const M3: (&str, &str) = ("minimax", "MiniMax-M3");

    fn adaptive(label: &str) -> anthropic::Thinking {
        anthropic::Thinking::Adaptive(Some(label.to_owned()))
    }

    #[rstest]
    #[case::nobody_chose(PLAIN, ThinkingMode::Adaptive, None, anthropic::Thinking::Off)]
    #[case::off(PLAIN, ThinkingMode::Adaptive, off(), anthropic::Thinking::Off)]
    #[case::a_label(PLAIN, ThinkingMode::Adaptive, on(Some("high"), None), adaptive("high"))]
    #[case::a_label_goes_before_a_number(
        PLAIN,
        ThinkingMode::Adaptive,
        on(Some("low"), Some(9)),
        adaptive("low")
    )]
    #[case::a_number(PLAIN, ThinkingMode::Adaptive, on(None, Some(3000)), anthropic::Thinking::Budget(3000))]
    #[case::neither(PLAIN, ThinkingMode::Adaptive, on(None, None), anthropic::Thinking::Adaptive(None))]
    #[case::manual(PLAIN, ThinkingMode::Manual, on(None, None), anthropic::Thinking::Budget(8192))]
    #[case::manual_by_label(
        PLAIN,
        ThinkingMode::Manual,
        on(Some("low"), None),
        anthropic::Thinking::Budget(4096)
    )]
    #[case::manual_by_number(
        PLAIN,
        ThinkingMode::Manual,
        on(Some("low"), Some(9000)),
        anthropic::Thinking::Budget(9000)
    )]
    #[case::manual_by_an_unknown_label(
        PLAIN,
        ThinkingMode::Manual,
        on(Some("wild"), None),
        anthropic::Thinking::Budget(8192)
    )]
    #[case::qwen_untold(QWEN, ThinkingMode::Adaptive, None, anthropic::Thinking::Off)]
    #[case::qwen_off(QWEN, ThinkingMode::Adaptive, off(), anthropic::Thinking::Refused)]
    #[case::qwen(QWEN, ThinkingMode::Adaptive, on(Some("max"), None), anthropic::Thinking::Budget(65_536))]
    #[case::m2_untold(M2, ThinkingMode::Adaptive, None, anthropic::Thinking::Budget(8192))]
    #[case::m2_off(M2, ThinkingMode::Adaptive, off(), anthropic::Thinking::Budget(1024))]
    #[case::m3(M3, ThinkingMode::Manual, on(Some("high"), None), anthropic::Thinking::Adaptive(None))]
    fn messages_are_told_by_label_or_by_number(
        #[case] vendor: (&str, &str),
        #[case] mode: ThinkingMode,
        #[case] given: Option<Thinking>,
        #[case] expected: anthropic::Thinking,
    ) {
        assert_eq!(told(given.as_ref(), &support(mode), vendor), expected);
    }

    #[test]
    fn what_a_file_says_counts_where_the_profile_is_silent() {
        let preset = |value: &str| Preset { value: value.into(), label: None };
        let file = ThinkingSupport {
            default_enabled: true,
            default_budget_tokens: Some(2048),
            effort_presets: vec![preset("medium"), preset("high")],
            ..ThinkingSupport::default()
        };
        // The first preset stands in for a missing default.
        assert_eq!(told(None, &file, PLAIN), adaptive("medium"));
        let named = ThinkingSupport { default: Some("high".into()), ..file.clone() };
        assert_eq!(told(None, &named, PLAIN), adaptive("high"));
        assert_eq!(told(on(None, None).as_ref(), &named, PLAIN), adaptive("high"));
        assert_eq!(told(on(Some("low"), None).as_ref(), &named, PLAIN), adaptive("low"));
        assert_eq!(told(off().as_ref(), &named, PLAIN), anthropic::Thinking::Off);
        let manual = ThinkingSupport { mode: ThinkingMode::Manual, ..named };
        assert_eq!(told(None, &manual, PLAIN), anthropic::Thinking::Budget(2048));
        assert_eq!(
            told(on(Some("high"), None).as_ref(), &manual, PLAIN),
            anthropic::Thinking::Budget(16_384)
        );
    }

    #[rstest]
    #[case("deepseek", "m", Some("medium"), Some("medium"))]
    #[case("hunyuan", "m", Some("medium"), Some("high"))]
    #[case("hunyuan", "m", Some("max"), Some("high"))]
    #[case("hunyuan", "m", Some("none"), None)]
    #[case("zhipu", "glm-5.2", Some("minimal"), Some("low"))]
    #[case("zhipu", "glm-5.2", Some("xhigh"), Some("max"))]
    #[case("kimi", "kimi-k3", Some("low"), Some("max"))]
    #[case("kimi", "kimi-k3", None, Some("max"))]
    #[case("doubao", "m", Some("high"), None)]
    fn a_label_becomes_one_that_the_vendor_knows(
        #[case] runtime: &str,
        #[case] model: &str,
        #[case] given: Option<&str>,
        #[case] sent: Option<&str>,
    ) {
        let quirks = quirks(runtime, model);
        let wish = Wish::of(on(given, None).as_ref(), None, quirks);
        assert_eq!(chat(&wish, quirks).1.as_deref(), sent);
    }

    #[rstest]
    #[case(4096, "low")]
    #[case(8192, "medium")]
    #[case(60_000, "high")]
    fn a_number_becomes_a_label_where_only_labels_are_taken(#[case] tokens: u64, #[case] label: &str) {
        let plain = quirks("openai-chat", "m");
        let wish = Wish::of(on(None, Some(tokens)).as_ref(), None, plain);
        assert_eq!(chat(&wish, plain), (None, Some(label.to_owned())));
        let expected = Reasoning { asked: true, effort: Some(label.to_owned()), replay: true };
        assert_eq!(responses(&wish, None, plain), expected);
    }

    #[test]
    fn reasoning_comes_in_a_form_that_can_go_back_only_where_the_model_can_think() {
        let plain = quirks("openai-responses", "m");
        let thinks = Reasoning { replay: true, ..Reasoning::default() };
        assert_eq!(responses(&Wish::Unsaid, Some(&support(ThinkingMode::Adaptive)), plain), thinks);
        assert_eq!(responses(&Wish::Off, None, plain), Reasoning::default());
    }

    #[rstest]
    #[case(on(Some("high"), None), Some("high"))]
    #[case(on(None, Some(5000)), Some("medium"))]
    #[case(on(None, None), Some("on"))]
    #[case(off(), None)]
    #[case(None, None)]
    fn usage_rows_name_the_effort(#[case] given: Option<Thinking>, #[case] label: Option<&str>) {
        assert_eq!(Wish::of(given.as_ref(), None, quirks("doubao", "m")).label().as_deref(), label);
    }
}
