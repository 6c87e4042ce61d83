#!/bin/sh
# Slurm's Prolog for a site with agent-sandbox: a job of an account or a partition for agents starts only if its batch
# script is one that starts in the jail. job_submit.lua has refused others when they were submitted; this holds for
# those that came past it: before there was a rule, or while the controller had lost its plugin.
#
# Place: a path that every node has; slurm.conf names it (`Prolog=/etc/slurm/prolog.sh`) and says `PrologFlags=Alloc`, so
# that it runs before the first step of an allocation as well. It runs as root. A site that has a Prolog calls this from
# it. What is refused is cancelled: a Prolog that fails would drain the node.

# As in job_submit.lua: names with blanks between them, those of accounts in lower case.
ACCOUNTS=''
PARTITIONS=''
VERIFY=/usr/local/libexec/agent-sandbox/agent-sandbox-attest
KEYS=/etc/agent-sandbox/mark.keys
LAUNCHER=/usr/local/bin/agent-sandbox
PATH=/usr/bin:/bin
# Slurm answers within so many seconds that the job is cancelled; else the Prolog fails, and the node is drained.
PATIENCE=30

is_one_of() { # NAME NAMES; no name is none of them
    [ -n "$1" ] || return 1
    case " $2 " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

account=$(printf %s "${SLURM_JOB_ACCOUNT:-}" | tr '[:upper:]' '[:lower:]')
is_one_of "$account" "$ACCOUNTS" || is_one_of "${SLURM_JOB_PARTITION:-}" "$PARTITIONS" || exit 0

# Slurm starts the batch script on the first node. The others do not ask the controller, unless it is unknown which it is.
first=$(scontrol show hostnames "$SLURM_NODELIST" | head -n 1)
[ -z "${SLURMD_NODENAME:-}" ] || [ -z "$first" ] || [ "$first" = "$SLURMD_NODENAME" ] || exit 0

# Through a file: what is read must have been read to its end, and Slurm's command says whether it was.
script=$(mktemp) || exit 1
trap 'rm -f -- "$script"' EXIT
if scontrol write batch_script "$SLURM_JOB_ID" - > "$script" 2> /dev/null; then
    answer=$("$VERIFY" verify --submitted --keys "$KEYS" --launcher "$LAUNCHER" \
        --cluster "$SLURM_CLUSTER_NAME" --uid "$SLURM_JOB_UID" < "$script" 2> /dev/null)
else
    answer='refused: it has no batch script'
fi
case $answer in 'accepted '*) exit 0 ;; esac

logger -t agent-sandbox "job $SLURM_JOB_ID of $SLURM_JOB_USER is cancelled: ${answer:-it cannot be verified}" 2> /dev/null
scancel "$SLURM_JOB_ID" || exit 1
# slurmd does not start what was cancelled while its Prolog ran.
waited=0
while squeue -h -j "$SLURM_JOB_ID" -t running,configuring -o %T 2> /dev/null | grep -q .; do
    [ "$waited" -lt "$PATIENCE" ] || exit 1
    sleep 1
    waited=$((waited + 1))
done
# The node hears of it a moment later.
sleep 2
exit 0
