#!/bin/sh
# Starts the command by whose name it is called in a jail: `claude` means `agent-sandbox claude`. The
# modulefile agent-sandbox-wrappers puts the directory of these names first in PATH.
#
# No program is called here but the launcher, by its full name: PATH may lead into the project.

name=${0##*/}
fail() {
    printf 'error: the wrapper of %s: %s\n' "$name" "$1" >&2
    exit 125
}

# The shell and the kernel hand over the path by which this was found.
case $0 in
    */*) here=${0%/*}/ ;;
    *) here=. ;;
esac
# dash, bash, ksh and busybox have -ef. Without it this would come back here for ever.
# shellcheck disable=SC3013
[ "$0" -ef "$0" ] || fail 'cannot tell where it stands: call it by its full name'

# The real command is the one that PATH finds without this directory, so that nothing comes back here.
# Its other names (links, `..`, a slash at the end, nothing at all) are this directory, too.
path=
rest=$PATH:
while [ -n "$rest" ]; do
    entry=${rest%%:*}
    rest=${rest#*:}
    # shellcheck disable=SC3013
    if ! [ "${entry:-.}" -ef "$here" ]; then path=$path:$entry; fi
done
# An empty PATH would be the current directory.
[ -n "$path" ] || fail "no other directory is in PATH, so no other $name is"
PATH=${path#:}
export PATH

# In a jail already: an agent that starts another one.
if [ -n "${AGENT_SANDBOX:-}" ]; then
    exec "$name" "$@"
fi
exec '@PREFIX@/bin/agent-sandbox' -- "$name" "$@"
