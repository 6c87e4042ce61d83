#!/bin/sh -p
# Slurm's TaskProlog for a site with agent-sandbox: recognises the tasks of sessions, notes the first one
# of each step in the system's log, and tells the task by a variable.
#
# Place: a path that every node has; slurm.conf names it (`TaskProlog=/etc/slurm/task_prolog.sh`). Set
# SPOOL to what `SlurmdSpoolDir` says. It runs as the job's user, outside of the jail, before each task.
#
# `-p`: where sh is bash, it would take functions from the job's environment (`BASH_FUNC_echo%%`), and the user's text
# would run here, before the jail. Keep it, and start a TaskProlog of your own likewise.
#
# This is a note, no proof: a user can imitate what is looked for, and can write to the system's log.

# SlurmdSpoolDir of slurm.conf; where it has `%n`, that is the node's name.
SPOOL=/var/spool/slurmd
PATH=/usr/bin:/bin

# A task of `srun`: its capsule travels in variables of this name. Leave them as they are.
kind=''
if [ -n "${AGENT_SANDBOX_STEP:-}" ]; then
    kind='step'
elif [ "${SLURM_STEP_ID:--5}" = -5 ]; then
    # A batch script has no step's number, and since Slurm 26.05 this one (SLURM_BATCH_SCRIPT). Its file is the capsule.
    script=$SPOOL/job$(printf %05d "$SLURM_JOB_ID")/slurm_script
    {
        if read -r first && read -r second; then
            case "$first|$second" in
                '#!/'*'/agent-sandbox job|# agent-sandbox capsule '*) kind='batch' ;;
            esac
        fi
    } 2> /dev/null < "$script"
fi
[ -n "$kind" ] || exit 0

# One line for each step, not one for each of ten thousand tasks.
if [ "${SLURM_PROCID:-0}" = 0 ]; then
    logger -t agent-sandbox "job $SLURM_JOB_ID of $SLURM_JOB_USER: $kind of a session" 2> /dev/null
fi

# What is printed as `export NAME=VALUE` is a variable of the task, inside of its jail, too.
echo "export SITE_AGENT_SANDBOX=$kind"
exit 0
