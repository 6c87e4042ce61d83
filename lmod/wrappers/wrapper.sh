#!/bin/sh
# Starts the command by whose name it is called in a jail: `claude` means `agent-sandbox claude`. The
# modulefile agent-sandbox-wrappers puts the directory of these names first in PATH.

name=${0##*/}
# The shell and the kernel hand over the path by which this was found.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 125

# The real command is the one that PATH finds without this directory, so that nothing comes back here.
# Its other names (links, `..`, a slash at the end) are this directory, too.
path=
rest=$PATH:
while [ -n "$rest" ]; do
    entry=${rest%%:*}
    rest=${rest#*:}
    # shellcheck disable=SC3013 # dash, bash, ksh and busybox have -ef
    if ! [ "$entry" -ef "$here" ]; then path=$path:$entry; fi
done
PATH=${path#:}
export PATH

# In a jail already: an agent that starts another one.
if [ -n "${AGENT_SANDBOX:-}" ]; then
    exec "$name" "$@"
fi
exec '@PREFIX@/bin/agent-sandbox' -- "$name" "$@"
