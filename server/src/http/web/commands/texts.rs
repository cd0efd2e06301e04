//! What commands say, in the languages of accounts.

use crate::store::accounts::Language;

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*) { en: $en:literal, zh: $zh:literal })*) => {
        $(
            $(#[$doc])*
            pub fn $name(language: Language, $($arg: $kind),*) -> String {
                match language {
                    Language::En => format!($en),
                    Language::Zh => format!($zh),
                }
            }
        )*
    };
}

texts! {
    /// Above the commands.
    help_head() { en: "Available commands:", zh: "可用命令：" }
    /// What `/help` is.
    help_about() { en: "Show the commands", zh: "显示可用命令" }
    /// How a text that begins with `/` gets past.
    help_escape() {
        en: "A text for the agent that begins with / needs a space in front.",
        zh: "若要把以 / 开头的文字发给智能体，请在前面加一个空格。"
    }
    /// Above the verbs of an object.
    object_head(name: &str) { en: "/{name} can:", zh: "/{name} 的用法：" }
    /// No such command.
    unknown(command: &str, cut: &str) {
        en: "Unknown command: {command}{cut}\nSend /help for the commands that there are.",
        zh: "未知命令：{command}{cut}\n发送 /help 查看可用命令。"
    }
    /// The level is too low.
    refused(command: &str, needs: &str, has: &str) {
        en: "{command} requires {needs} access; this session has {has} access.",
        zh: "{command} 需要 {needs} 权限；此会话的权限是 {has}。"
    }
    /// How a command is used.
    usage(command: &str, takes: &str) { en: "Usage: {command} {takes}", zh: "用法：{command} {takes}" }

    /// A new session.
    session_new() {
        en: "New session. The others stay as they are: /session list shows them, /session switch <number> goes back.",
        zh: "已开启新会话。其他会话保持不变：/session list 查看，/session switch <编号> 返回。"
    }
    /// There is none.
    session_none() {
        en: "There is no session yet. Send a message, or /session new.",
        zh: "还没有会话。发送一条消息，或使用 /session new。"
    }
    /// Above the list.
    session_list_head() { en: "Sessions, newest first (times in UTC):", zh: "会话，最新的在前（时间为 UTC）：" }
    /// Below a list that was cut.
    session_list_more(more: u32) { en: "… and {more} more", zh: "……还有 {more} 个" }
    /// Below the list of a token that sees all.
    session_list_all() {
        en: "/session switch <number> moves to any of them.",
        zh: "/session switch <编号> 可切换到其中任意一个。"
    }
    /// Below the list of a token that sees its own.
    session_list_own() {
        en: "/session switch <number> moves there. Only this token's own sessions are shown.",
        zh: "/session switch <编号> 进行切换。只显示此令牌自己的会话。"
    }
    /// A session without a title.
    untitled() { en: "(no title)", zh: "（无标题）" }
    /// Moved.
    session_switched(number: u32, title: &str, at: &str) {
        en: "Moved to session {number}: {title} (last active {at} UTC)",
        zh: "已切换到会话 {number}：{title}（最近活动 {at} UTC）"
    }
    /// Which numbers there are.
    session_switch_usage(count: u32) {
        en: "Usage: /session switch <number>  (1-{count}, see /session list)",
        zh: "用法：/session switch <编号>  （1-{count}，见 /session list）"
    }
    /// Above the tree.
    tree_head(root: &str, title: &str) { en: "Session …{root}: {title}", zh: "会话 …{root}：{title}" }
    /// One session of the tree.
    tree_times(created: &str, active: &str) {
        en: "made {created}, active {active} UTC",
        zh: "创建于 {created}，最近活动 {active} UTC"
    }
    /// Below a tree that was cut.
    tree_more() { en: "… and more", zh: "……还有更多" }
    /// A run is in flight.
    running() { en: "🟢 running", zh: "🟢 运行中" }
    /// Somebody stopped it.
    stopped() { en: "⏹ stopped", zh: "⏹ 已停止" }
    /// It was archived.
    archived() { en: "📦 archived", zh: "📦 已归档" }
    /// None of these.
    idle() { en: "⚪ idle", zh: "⚪ 空闲" }
    /// Stopped.
    session_stopped() { en: "Stopped.", zh: "已停止。" }
    /// Interrupted.
    session_interrupted() {
        en: "Interrupted. What waits is worked on now.",
        zh: "已打断，接着处理排队的消息。"
    }
    /// Nothing to stop or interrupt.
    session_idle() { en: "Nothing is running in this session.", zh: "此会话没有正在运行的任务。" }
    /// Compacted.
    compact_done(messages: usize) {
        en: "Context compacted: a summary stands for {messages} older messages now.",
        zh: "上下文已压缩：{messages} 条较早的消息由一份摘要代替。"
    }
    /// Too little to compact.
    compact_nothing() { en: "There is nothing to compact yet.", zh: "还没有可以压缩的内容。" }
    /// The model wrote nothing.
    compact_no_summary() {
        en: "The model gave no summary; the context is unchanged.",
        zh: "模型没有给出摘要；上下文未改变。"
    }
    /// The model failed.
    compact_failed(why: &str) {
        en: "Compaction failed, the context is unchanged: {why}",
        zh: "压缩失败，上下文未改变：{why}"
    }
    /// Somebody stopped it.
    compact_cancelled() {
        en: "Compaction was stopped; the context is unchanged.",
        zh: "压缩已取消；上下文未改变。"
    }
    /// A run is in flight.
    compact_busy() {
        en: "The session is working; it compacts by itself when it has to. Try again when it is idle.",
        zh: "会话正在运行；必要时它会自动压缩。请在空闲时再试。"
    }
    /// How full the context is.
    context(used: u64, window: u64, percent: &str, threshold: u64) {
        en: "Context: about {used} of {window} tokens ({percent} %); compacted at {threshold}",
        zh: "上下文：约 {used} / {window} tokens（{percent} %）；达到 {threshold} 时压缩"
    }
    /// What works in the session.
    context_agent(agent: &str, model: &str, tools: &str) {
        en: "Agent: {agent}\nModel: {model}\nTools: {tools}",
        zh: "智能体：{agent}\n模型：{model}\n工具：{tools}"
    }

    /// Above the agents.
    agent_list_head() { en: "Agents:", zh: "智能体：" }
    /// Below the agents.
    agent_list_foot() {
        en: "/agent switch <name or number> opens a new session with one.",
        zh: "/agent switch <名称或编号> 用该智能体开启新会话。"
    }
    /// No such agent.
    agent_unknown(name: &str) {
        en: "There is no agent {name}. /agent list shows those that there are.",
        zh: "没有智能体 {name}。用 /agent list 查看。"
    }
    /// Several of that name.
    agent_ambiguous(name: &str, ids: &str) {
        en: "Several agents are called {name}: {ids}. Take one of these ids.",
        zh: "有多个智能体名为 {name}：{ids}。请使用其中一个 id。"
    }
    /// A new session with it.
    agent_switched(name: &str) {
        en: "New session with {name}. The session before stays with its agent: /session list shows it.",
        zh: "已用 {name} 开启新会话。之前的会话保留原来的智能体：见 /session list。"
    }
    /// What an agent is made of.
    agent_parts(model: &str, tools: &str, skills: &str, team: &str) {
        en: "Model: {model}\nTools: {tools}\nSkills: {skills}\nTeam: {team}",
        zh: "模型：{model}\n工具：{tools}\n技能：{skills}\n团队：{team}"
    }
    /// Its files have a mistake.
    agent_broken(id: &str, why: &str) {
        en: "{id} cannot be used: {why}",
        zh: "{id} 无法使用：{why}"
    }
    /// What it names is not to be had.
    agent_missing(names: &str) {
        en: "Not here, so it works without: {names}",
        zh: "此处没有，将在缺少它们的情况下运行：{names}"
    }
    /// No model is named.
    agent_any_model() { en: "whichever is set up", zh: "使用已配置的模型" }
    /// An empty list.
    none() { en: "none", zh: "无" }

    /// Above the skills.
    skill_list_head() { en: "Skills:", zh: "技能：" }
    /// No skills.
    skill_list_none() {
        en: "There are no skills here. A skill is a folder with a SKILL.md, below .halo/skills of the workspace or global/skills of the home.",
        zh: "这里没有技能。技能是工作区 .halo/skills 或主目录 global/skills 下带有 SKILL.md 的文件夹。"
    }
    /// Marks one that is switched off.
    skill_off() { en: "off", zh: "已停用" }
    /// Says that it is not switched off.
    skill_on() { en: "on", zh: "已启用" }
    /// No such skill.
    skill_unknown(name: &str) {
        en: "There is no skill {name}. /skill list shows those that there are.",
        zh: "没有技能 {name}。用 /skill list 查看。"
    }
    /// It cannot be used.
    skill_broken(id: &str, why: &str) {
        en: "{id} cannot be used: {why}",
        zh: "{id} 无法使用：{why}"
    }
    /// The command that stands for it.
    skill_command(command: &str) { en: "Command: /{command}", zh: "命令：/{command}" }
    /// Only people start it.
    skill_not_for_models() {
        en: "Agents do not take it up by themselves.",
        zh: "智能体不会自行使用。"
    }
    /// What it says of tools.
    skill_tools(tools: &str) { en: "Tools that it names: {tools}", zh: "其中提到的工具：{tools}" }
    /// Where it is.
    skill_folder(folder: &str) { en: "Folder: {folder}", zh: "文件夹：{folder}" }
    /// Gone.
    deleted(id: &str, folder: &str, files: usize) {
        en: "Deleted {id}: {folder} with {files} file(s).",
        zh: "已删除 {id}：{folder}，共 {files} 个文件。"
    }
    /// Another one of the id counts now.
    deleted_next(id: &str, origin: &str) {
        en: "{id} is the {origin} one from now on.",
        zh: "{id} 现在使用 {origin} 版本。"
    }
    /// Not gone.
    not_deleted(id: &str, folder: &str, why: &str) {
        en: "{id} was not deleted ({folder}): {why}",
        zh: "未删除 {id}（{folder}）：{why}"
    }
    /// Inside the program.
    delete_built_in(id: &str) {
        en: "{id} is built in and cannot be deleted.",
        zh: "{id} 是内置的，无法删除。"
    }
    /// The last agent.
    delete_last(id: &str) {
        en: "{id} is the last agent in the home and cannot be deleted.",
        zh: "{id} 是主目录中的最后一个智能体，无法删除。"
    }
    /// Its state and the level that it needs.
    skill_state(state: &str, needs: &str) {
        en: "In this workspace: {state}\nRequires: {needs} access",
        zh: "在此工作区：{state}\n需要权限：{needs}"
    }
    /// Switched on.
    skill_enabled(id: &str) { en: "The skill {id} is on in this workspace.", zh: "技能 {id} 已在此工作区启用。" }
    /// Switched off.
    skill_disabled(id: &str) { en: "The skill {id} is off in this workspace.", zh: "技能 {id} 已在此工作区停用。" }

    /// Where it is.
    workspace_info(path: &str, level: &str) {
        en: "Workspace: {path}\nAccess: {level}",
        zh: "工作区：{path}\n权限：{level}"
    }
    /// Moved.
    workspace_switched(path: &str) {
        en: "This token works in {path} from now on, for everybody who uses it.",
        zh: "此令牌从现在起使用工作区 {path}，对所有使用者生效。"
    }
    /// No such folder.
    workspace_not_found(path: &str) {
        en: "Not a folder with an absolute path: {path}",
        zh: "不是绝对路径的文件夹：{path}"
    }
}
