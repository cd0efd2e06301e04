//! The skills inside the program, sorted by id. A folder of the same id stands in for one.

/// Id and `SKILL.md`.
const BUILT_IN: [(&str, &str); 6] = [
    ("agent", include_str!("../../../assets/skills/agent/SKILL.md")),
    ("halo", include_str!("../../../assets/skills/halo/SKILL.md")),
    ("self", include_str!("../../../assets/skills/self/SKILL.md")),
    ("send-file", include_str!("../../../assets/skills/send-file/SKILL.md")),
    ("skill", include_str!("../../../assets/skills/skill/SKILL.md")),
    ("workspace", include_str!("../../../assets/skills/workspace/SKILL.md")),
];

/// Their ids.
pub(super) fn ids() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(id, _)| *id)
}

/// The text of one.
pub(super) fn text(id: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}
