-- `claude` becomes `agent-sandbox claude`, and so do the other agents: a directory with their names comes
-- first in PATH. Installed beside agent-sandbox's own modulefile by `make install`.

help([[
Starts agents in a jail when you type their names: claude, codex, gemini, aider and others
call `agent-sandbox claude` and so on. `ls $AGENT_SANDBOX_WRAPPERS` lists the names.

The jail's options stand in ~/.config/agent-sandbox/config.toml, or call agent-sandbox yourself:

    agent-sandbox --read /data/shared claude

To call an agent without a jail, name its file, or unload this module.
]])

whatis("Name: agent-sandbox-wrappers")
whatis("Version: @VERSION@")
whatis("Description: agents start in a jail when their names are typed")

depends_on("agent-sandbox/@VERSION@")
conflict("agent-sandbox-wrappers")

local wrappers = "@PREFIX@/libexec/agent-sandbox/wrappers"
setenv("AGENT_SANDBOX_WRAPPERS", wrappers)
-- Before every directory that was added with no priority, whenever that was.
prepend_path({ "PATH", wrappers, priority = 100 })
