
# The names of the profiles, for --profile. Letters, digits and . _ - alone: bash expands these words.
_agent_sandbox_profiles() {
    agent-sandbox profile list 2> /dev/null | awk 'NR > 1 && /^[A-Za-z0-9._-]+ / { print $1 }'
}

# The ids of the sessions that run, for `allow`.
_agent_sandbox_sessions() {
    agent-sandbox sessions 2> /dev/null | awk 'NR > 1 && /^[A-Za-z0-9]+ / { print $1 }'
}

# What --set takes: the keys of the policy, and behind `=` the values of one that has few.
_agent_sandbox_keys() {
    local word
    for word in @KEYS@; do
        case $cur in
            *=*) [[ $word == *= ]] || printf '%s\n' "$word" ;;
            *) [[ $word != *= ]] || printf '%s\n' "$word" ;;
        esac
    done
}

# In front of clap's function: where the user's own command begins, that command completes itself.
_agent_sandbox_front() {
    # bash splits words at `=` and `:` as well. Here a word is what the shell makes of it; `at` says
    # where each begins in COMP_WORDS.
    local -a words=() at=()
    local line=$COMP_LINE word i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $line == [[:space:]]* || -z $line ]]; then
            words+=("$word") at+=("$i")
        else
            words[${#words[@]} - 1]+=$word
        fi
        line=${line#"${line%%[![:space:]]*}"}
        line=${line#"$word"}
    done
    local last=$((${#words[@]} - 1)) option='' escaped=no
    i=1
    while ((i < last)); do
        case ${words[i]} in
            --) escaped=yes; ((i++)); break ;;
            @VALUE_OPTIONS@) option=${words[i]}; ((i += 2)) ;;
            -?*) ((i++)) ;;
            *) break ;;
        esac
    done
    COMPREPLY=()
    if ((i < last)) && [[ $escaped = no ]]; then
        case ${words[i]} in
            run)
                ((i++))
                if [[ ${words[i]} = -- ]] && ((i < last)); then ((i++)); fi
                ;;
            @SUBCOMMANDS@)
                _agent_sandbox_delegate "${words[i]}" "${words[@]:i+1}"
                return
                ;;
        esac
    elif ((i > last)); then
        _agent_sandbox_delegate "$option" "${words[last]}"
        return
    elif [[ $escaped = no ]]; then
        _agent_sandbox_delegate "${words[last]}"
        [[ ${words[last]} != -* ]] || return
    fi
    if ((i == last)); then
        local IFS=$'\n'
        COMPREPLY+=($(compgen -c -- "${words[last]}"))
    elif declare -F _comp_command_offset > /dev/null; then
        _comp_command_offset "${at[i]}"
    elif declare -F _command_offset > /dev/null; then
        _command_offset "${at[i]}"
    fi
}

# Asks clap's function about `agent-sandbox WORD…`.
_agent_sandbox_delegate() {
    local -a COMP_WORDS=(agent-sandbox "$@")
    local COMP_CWORD=$# prefix=''
    # `--option=value` in one word: asked as two, answered for what bash is completing.
    if [[ ${COMP_WORDS[COMP_CWORD]} == --*=* ]]; then
        local word=${COMP_WORDS[COMP_CWORD]}
        COMP_WORDS[COMP_CWORD]=${word%%=*}
        COMP_WORDS+=("${word#*=}")
        ((COMP_CWORD++))
        [[ $COMP_WORDBREAKS == *=* ]] || prefix=${word%%=*}=
    fi
    _agent__sandbox agent-sandbox "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    # A key with a value behind `=`, where bash completes the value alone.
    local typed=${COMP_WORDS[COMP_CWORD]}
    if [[ $typed == *=* && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${typed%%=*}="}"); fi
    if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
    if [[ -n $prefix ]]; then COMPREPLY=("${COMPREPLY[@]/#/$prefix}"); fi
}

complete -F _agent_sandbox_front -o bashdefault -o default agent-sandbox
