# The names of the profiles, for --profile.
function __fish_agent_sandbox_profiles
    agent-sandbox profile list 2>/dev/null | tail -n +2 | string match -r '^[A-Za-z0-9._-]+(?= )'
end

# The ids of the sessions that run, for `allow`.
function __fish_agent_sandbox_sessions
    agent-sandbox sessions 2>/dev/null | tail -n +2 | string match -r '^[A-Za-z0-9]+(?= )'
end

# What --set takes: the keys of the policy, and behind `=` the values of one that has few.
function __fish_agent_sandbox_keys
    set -l words @KEYS@
    if string match -q "*=*" -- (commandline -ct | string replace -r "^--set=" "")
        printf '%s\n' $words
    else
        string match -r '.*=$' -- $words
    end
end

# The user's own command and its arguments, without agent-sandbox and its options.
function __fish_agent_sandbox_own_command
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_agent_sandbox_global_optspecs) -- $cmd 2>/dev/null
    or return
    if test "$argv[1]" = run
        set -e argv[1]
        if test "$argv[1]" = --
            set -e argv[1]
        end
    end
    set -l current (commandline -ct)
    complete -C (string join ' ' -- (string escape -- $argv) $current)
end

complete -c agent-sandbox -n "__fish_agent_sandbox_needs_command" -f -a "(__fish_complete_command)"
complete -c agent-sandbox -n "not __fish_agent_sandbox_needs_command >/dev/null; and not __fish_agent_sandbox_using_subcommand @SUBCOMMAND_WORDS@" -f -a "(__fish_agent_sandbox_own_command)"
