-- agent-sandbox: what `module load agent-sandbox` does. `make install` fills in the places between @ signs,
-- and puts the file below PREFIX/share/agent-sandbox/modulefiles, unless it is told another `moduledir`.
--
-- It adds one directory each to PATH and MANPATH, and tells an interactive shell how to complete the
-- command. It sets no variable of agent-sandbox's own: what a jail allows stands in policy files alone.

help([[
agent-sandbox @VERSION@: run AI coding agents, and other commands, in a jail that hides your credentials.

    agent-sandbox claude        an agent in the current project
    agent-sandbox --dry-run ls  what a jail would hold, and why
    man agent-sandbox           the manual; man 5 agent-sandbox.toml for the policy

More: @DOCDIR@
]])

whatis("Name: agent-sandbox")
whatis("Version: @VERSION@")
whatis("Category: tools, security")
whatis("Description: runs AI coding agents and other commands in a jail that hides your credentials")
whatis("URL: https://github.com/agent-sandbox/agent-sandbox")

conflict("agent-sandbox")

prepend_path("PATH", "@PREFIX@/bin")
-- No MANPATH means the system's pages, and one with an entry takes them away; an empty entry at its end
-- stands for them (manpath(1)). It comes with the first entry and goes with the last.
local entries = (os.getenv("MANPATH") or ""):gsub(":+$", "")
if entries == "" or (mode() == "unload" and entries == "@MANDIR@") then
   append_path("MANPATH", "")
end
prepend_path("MANPATH", "@MANDIR@")

-- Completions. Not by XDG_DATA_DIRS: where that is unset it has a default, which setting it would hide.
local shell = myShellName()
local on, off
if shell == "bash" then
   on = [[case $- in *i*) . '@BASHDIR@/agent-sandbox';; esac]]
   off = [[complete -r agent-sandbox 2> /dev/null || :]]
elseif shell == "zsh" then
   on = [=[[[ -o interactive ]] && (( $+functions[compdef] )) && fpath=('@ZSHDIR@' $fpath) &&]=]
      .. [=[ autoload -Uz _agent-sandbox && compdef _agent-sandbox agent-sandbox || :]=]
   off = [=[fpath=(${fpath:#@ZSHDIR@}); (( $+functions[compdef] )) && compdef -d agent-sandbox || :]=]
elseif shell == "fish" then
   on = [[status is-interactive; and source '@FISHDIR@/agent-sandbox.fish'; or true;]]
   off = [[complete -c agent-sandbox -e;]]
end
if on then
   execute({ cmd = on, modeA = { "load" } })
   execute({ cmd = off, modeA = { "unload" } })
end
