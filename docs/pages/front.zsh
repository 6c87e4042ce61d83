# The names of the profiles, for --profile.
_agent_sandbox_profiles() {
    local -a names
    names=(${${(f)"$(agent-sandbox profile list 2> /dev/null | tail -n +2 | grep -E '^[A-Za-z0-9._-]+ ')"}%% *})
    _describe -t profiles profile names
}

# The ids of the sessions that run, for `allow`.
_agent_sandbox_sessions() {
    local -a names
    names=(${${(f)"$(agent-sandbox sessions 2> /dev/null | tail -n +2 | grep -E '^[A-Za-z0-9]+ ')"}%% *})
    _describe -t sessions session names
}

# What --set takes: the keys of the policy, and behind `=` the values of one that has few.
_agent_sandbox_keys() {
    local -a known=(@KEYS@)
    local key
    if [[ $PREFIX = *=* ]]; then
        key=${PREFIX%%=*}=
        compset -P '*='
        compadd -- ${${(M)known:#$key?*}#$key}
    else
        compadd -S '' -- ${(M)known:#*=}
    fi
}

# In front of clap's function: where the user's own command begins, that command completes itself.
_agent_sandbox_front() {
    local -i i=2
    local escaped=no
    while (( i < CURRENT )); do
        case ${words[i]} in
            (--) escaped=yes; (( i++ )); break ;;
            (@VALUE_OPTIONS@) (( i += 2 )) ;;
            (-?*) (( i++ )) ;;
            (*) break ;;
        esac
    done
    if [[ $escaped = no ]]; then
        if (( i < CURRENT )); then
            case ${words[i]} in
                (run)
                    (( i++ ))
                    if [[ ${words[i]} = -- ]] && (( i < CURRENT )); then (( i++ )); fi
                    ;;
                (@SUBCOMMANDS@) _agent-sandbox; return ;;
            esac
        elif (( i > CURRENT )) || [[ ${words[i]} = -* ]]; then
            _agent-sandbox
            return
        else
            _alternative 'subcommands: :_agent-sandbox_commands' 'commands:command: _command_names -e'
            return
        fi
    fi
    if (( i == CURRENT )); then
        _command_names -e
        return
    fi
    shift $(( i - 1 )) words
    (( CURRENT -= i - 1 ))
    _normal -p agent-sandbox
}

if [ "$funcstack[1]" = _agent-sandbox ]; then
    # Loaded by compinit under this name: from here on the front is asked.
    compdef _agent_sandbox_front agent-sandbox
    _agent_sandbox_front "$@"
else
    compdef _agent_sandbox_front agent-sandbox
fi
