//! Files of a project directory that programs outside of the jail obey without being told to: settings
//! that name commands to run, and the like. Whoever writes one decides what a later `claude`, `code` or
//! `direnv` of the user does. Build files and scripts are not among them: those run when somebody runs them.

use std::path::{Path, PathBuf};

use super::git::GitEntry;
use crate::host::files::{Files, Look};
use crate::plan::model::Access;

/// What a session may do about such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Care {
    /// One that is new or changed is said at the end of the session.
    Said,
    /// As [`Care::Set`], but the agent keeps notes in it (which questions it need not ask again), so that it
    /// stays writable: at the end the user's own file is put back.
    Notes,
    /// One in the project directory itself is read-only; one that is new is set aside at the end of the session.
    Set,
}

/// A file, or a directory of them.
#[derive(Clone, Copy, Debug)]
pub struct Obeyed {
    /// The program that obeys it.
    pub by: &'static str,
    /// The last parts of its path. A `/` at the end: everything below.
    pub path: &'static str,
    /// What is done about it.
    pub care: Care,
}

macro_rules! obeyed {
    ($($by:literal $care:ident [$($path:literal)*])*) => {
        /// Every such file. From the documentation of the programs; of agents also from running them.
        pub const OBEYED: &[Obeyed] = &[$($(
            Obeyed { by: $by, path: $path, care: Care::$care },
        )*)*];
    };
}

obeyed! {
    // Hooks, MCP servers and other commands that start with the agent.
    "claude" Set [".claude/settings.json" ".mcp.json"]
    "claude" Notes [".claude/settings.local.json"]
    "claude" Said [".claude/agents/" ".claude/commands/" ".claude/hooks/" ".claude/output-styles/" ".claude/plugins/" ".claude/skills/"]
    "codex" Set [".codex/config.toml" ".codex/hooks.json" ".codex/rules/"]
    "codex" Said [".agents/skills/" ".codex/agents/" ".codex/hooks/" ".codex/prompts/" ".codex/skills/"]
    "gemini" Set [".gemini/settings.json" ".gemini/.env" ".gemini/extensions/" ".gemini/policies/"]
    "gemini" Said [".gemini/agents/" ".gemini/commands/" ".gemini/hooks/" ".gemini/skills/"]
    "qwen" Set [".qwen/settings.json" ".qwen/.env" ".qwen/extensions/"]
    "qwen" Said [".qwen/agents/" ".qwen/commands/" ".qwen/skills/"]
    "opencode" Set ["opencode.json" "opencode.jsonc" ".opencode/opencode.json" ".opencode/opencode.jsonc"
        ".opencode/plugin/" ".opencode/plugins/" ".opencode/tool/" ".opencode/tools/"]
    "opencode" Said [".opencode/agent/" ".opencode/agents/" ".opencode/command/" ".opencode/commands/" ".opencode/skills/"]
    "copilot" Set [".copilot/" ".github/hooks/"]
    "cursor" Set [".cursor/mcp.json" ".cursor/hooks.json" ".cursor/cli.json" ".cursor/environment.json"]
    "aider" Set [".aider.conf.yml"]
    "cline" Set [".clinerules/hooks/" ".cline/"]
    "continue" Set [".continue/" ".continuerc.json"]
    "goose" Set [".goose/"]
    "openhands" Set [".openhands/setup.sh" ".openhands/hooks.json" ".openhands/pre-commit.sh" ".openhands_instructions"]
    "pi" Set [".pi/settings.json" ".pi/extensions/"]
    // Editors run tasks, interpreters and language servers that the directory names.
    "code" Said [".vscode/settings.json" ".vscode/tasks.json" ".vscode/launch.json" ".vscode/mcp.json" ".devcontainer/" ".devcontainer.json"]
    "idea" Said [".idea/"]
    "zed" Said [".zed/settings.json" ".zed/tasks.json"]
    "vim" Said [".exrc" ".nvimrc" ".nvim.lua" ".vimrc"]
    "emacs" Said [".dir-locals.el" ".dir-locals-2.el"]
    // Shells' helpers.
    "direnv" Said [".envrc"]
    "mise" Said ["mise.toml" ".mise.toml" "mise.local.toml" ".mise.local.toml" ".mise/config.toml" ".config/mise.toml"]
    "programs that read .env" Said [".env"]
    // What begins by itself where it starts in this directory.
    "R" Said [".Rprofile" ".Renviron"]
    "octave" Said [".octaverc"]
    "gdb" Said [".gdbinit"]
    "lldb" Said [".lldbinit"]
    "npm" Said [".npmrc" ".pnpmfile.cjs"]
    "yarn" Said [".yarnrc" ".yarnrc.yml"]
    // Hooks that live in the work tree.
    "git, by pre-commit" Said [".pre-commit-config.yaml"]
    "git, by husky" Said [".husky/" ".huskyrc"]
    "git, by lefthook" Said ["lefthook.yml" ".lefthook.yml"]
    "git, by core.hooksPath" Said [".githooks/"]
}

impl Obeyed {
    /// The parts of its path, and whether it stands for all that is below.
    #[must_use]
    pub fn parts(&self) -> (Vec<&'static str>, bool) {
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        (parts.collect(), self.path.ends_with('/'))
    }
}

/// What becomes read-only of a project: settings that stand in the directory itself. Deeper ones may
/// belong to checkouts that come and go, and a mount point cannot be removed.
pub(super) fn read_only(files: &dyn Files, project: &Path) -> Vec<GitEntry> {
    let set = OBEYED.iter().filter(|one| one.care == Care::Set);
    let all: Vec<PathBuf> = set
        .map(|one| project.join(one.path.trim_end_matches('/')))
        .collect();
    // Their directories first: in one that is missing, nothing needs a look.
    let directories = all.iter().filter_map(|path| path.parent());
    let directories = directories.filter(|directory| *directory != project);
    files.prefetch(&directories.map(Path::to_path_buf).collect::<Vec<_>>());
    files.prefetch(&all);
    let entry = |path: PathBuf| match files.look(&path) {
        // A link can be replaced, and is looked at when the session is over.
        Look::Found(found) if found.real == path => Some(GitEntry {
            path,
            id: found.id,
            access: Access::Read,
            unless_shown: None,
        }),
        _ => None,
    };
    all.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain() {
        for one in OBEYED {
            let (parts, _) = one.parts();
            assert!(!parts.is_empty() && parts.len() < 3, "{}", one.path);
            assert!(
                !one.path.starts_with('/') && !parts.contains(&".."),
                "{}",
                one.path
            );
        }
    }
}
