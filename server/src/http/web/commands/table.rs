//! The commands that there are: objects with their verbs, the level that each needs, and what help says of it.

use crate::access::AccessLevel::{self, Full, ReadOnly, Workspace};
use crate::store::accounts::Language;

/// What people manage with commands.
pub struct Object {
    /// Its name, without `/`.
    pub name: &'static str,
    about: [&'static str; 2],
    /// What can be done with it.
    pub verbs: &'static [Verb],
}

/// One thing to do.
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// What follows it, for help; may be empty.
    pub takes: &'static str,
    /// The level that it needs.
    pub needs: AccessLevel,
    /// What it does.
    pub action: Action,
    about: [&'static str; 2],
}

/// What a verb does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new session.
    SessionNew,
    /// The sessions.
    SessionList,
    /// The tree of the current one.
    SessionInfo,
    /// To another session.
    SessionSwitch,
    /// Ends the run in flight.
    SessionStop,
    /// Ends the turn in flight.
    SessionInterrupt,
    /// Makes the context smaller.
    SessionCompact,
    /// How full the context is.
    SessionContext,
    /// The agents.
    AgentList,
    /// A new session with another agent.
    AgentSwitch,
    /// One agent.
    AgentDesc,
    /// Deletes an agent.
    AgentDelete,
    /// The skills.
    SkillList,
    /// One skill.
    SkillDesc,
    /// Switches a skill on.
    SkillEnable,
    /// Switches a skill off.
    SkillDisable,
    /// Deletes a skill.
    SkillDelete,
    /// The workspace.
    WorkspaceInfo,
    /// To another workspace.
    WorkspaceSwitch,
}

/// Every object, sorted by name.
pub const OBJECTS: [Object; 4] = [
    Object {
        name: "agent",
        about: ["Agents", "智能体"],
        verbs: &[
            verb("list", "", ReadOnly, Action::AgentList, ["List the agents", "列出智能体"]),
            verb(
                "switch",
                "<name or number>",
                ReadOnly,
                Action::AgentSwitch,
                ["Open a new session with this agent", "用该智能体开启新会话"],
            ),
            verb(
                "desc",
                "[name or number]",
                ReadOnly,
                Action::AgentDesc,
                ["Describe an agent", "查看智能体详情"],
            ),
            verb(
                "delete",
                "<name or number>",
                Full,
                Action::AgentDelete,
                ["Delete an agent with its folder", "删除智能体及其文件夹"],
            ),
        ],
    },
    Object {
        name: "session",
        about: ["Sessions", "会话"],
        verbs: &[
            verb("new", "", ReadOnly, Action::SessionNew, ["Open a new session", "开启新会话"]),
            verb(
                "list",
                "",
                ReadOnly,
                Action::SessionList,
                ["List the sessions, newest first", "列出会话，最新的在前"],
            ),
            verb(
                "info",
                "",
                ReadOnly,
                Action::SessionInfo,
                ["Show the session with all its sub-agents", "显示当前会话及其全部子智能体"],
            ),
            verb(
                "switch",
                "<number>",
                ReadOnly,
                Action::SessionSwitch,
                ["Move to a session of the list", "切换到列表中的会话"],
            ),
            verb("stop", "", ReadOnly, Action::SessionStop, ["Stop what runs", "停止正在运行的任务"]),
            verb(
                "interrupt",
                "",
                ReadOnly,
                Action::SessionInterrupt,
                ["Cut what runs; waiting messages come next", "打断当前任务，随后处理排队的消息"],
            ),
            verb(
                "compact",
                "",
                ReadOnly,
                Action::SessionCompact,
                ["Replace older messages by a summary", "用摘要压缩较早的上下文"],
            ),
            verb(
                "context",
                "",
                ReadOnly,
                Action::SessionContext,
                ["Show how full the context is", "显示上下文用量"],
            ),
        ],
    },
    Object {
        name: "skill",
        about: ["Skills", "技能"],
        verbs: &[
            verb("list", "", ReadOnly, Action::SkillList, ["List the skills", "列出技能"]),
            verb("desc", "<id or number>", ReadOnly, Action::SkillDesc, ["Describe a skill", "查看技能详情"]),
            verb(
                "enable",
                "<id or number>",
                Workspace,
                Action::SkillEnable,
                ["Switch a skill on in this workspace", "在此工作区启用技能"],
            ),
            verb(
                "disable",
                "<id or number>",
                Workspace,
                Action::SkillDisable,
                ["Switch a skill off in this workspace", "在此工作区停用技能"],
            ),
            verb(
                "delete",
                "<id or number>",
                Full,
                Action::SkillDelete,
                ["Delete a skill with its folder", "删除技能及其文件夹"],
            ),
        ],
    },
    Object {
        name: "workspace",
        about: ["The workspace", "工作区"],
        verbs: &[
            verb("info", "", ReadOnly, Action::WorkspaceInfo, ["Show the workspace", "显示当前工作区"]),
            verb(
                "switch",
                "<path>",
                Full,
                Action::WorkspaceSwitch,
                ["Move this token to another folder", "将此令牌切换到另一个目录"],
            ),
        ],
    },
];

const fn verb(
    name: &'static str,
    takes: &'static str,
    needs: AccessLevel,
    action: Action,
    about: [&'static str; 2],
) -> Verb {
    Verb { name, takes, needs, action, about }
}

fn in_language(about: [&'static str; 2], language: Language) -> &'static str {
    match language {
        Language::En => about[0],
        Language::Zh => about[1],
    }
}

/// The object of this name.
pub fn object(name: &str) -> Option<&'static Object> {
    OBJECTS.iter().find(|object| object.name == name)
}

impl Object {
    /// What help says of it.
    pub fn about(&self, language: Language) -> &'static str {
        in_language(self.about, language)
    }

    /// The verb of this name.
    pub fn verb(&self, name: &str) -> Option<&'static Verb> {
        self.verbs.iter().find(|verb| verb.name == name)
    }

    /// The verbs that a session of this level may use.
    pub fn verbs_for(&self, access: AccessLevel) -> impl Iterator<Item = &'static Verb> + use<> {
        self.verbs.iter().filter(move |verb| verb.needs <= access)
    }
}

impl Verb {
    /// What help says of it.
    pub fn about(&self, language: Language) -> &'static str {
        in_language(self.about, language)
    }
}
