-- Slurm's job_submit/lua for a site with agent-sandbox: marks the jobs that its sessions submit, so that
-- `sacct -o JobID,User,AdminComment` shows them, keeps those of some accounts to some partitions, and keeps
-- accounts and partitions for agents free of jobs that are not in the jail.
--
-- Place: beside slurm.conf, which says `JobSubmitPlugins=lua`. slurmctld reads the file again when it
-- has changed. Try it on a test cluster first: an error in it stops every submission. What is said of accounts
-- holds only with `AccountingStorageEnforce=associations`: without it, a job whose account is unknown gets the user's
-- default one after this file has judged it.
--
-- What is written into AdminComment:
--   agent-sandbox session=ID node=NAME   a tracer of the site's signed the job's batch script: it starts in the jail
--   agent-sandbox                        it looks like one of a session's, which is no proof
-- docs/admin/enforced-use.md says what both are worth.

-- How AdminComment begins. Users cannot set or change that field.
local MARK = "agent-sandbox"

-- Accounts whose sessions may submit only into these partitions. Accounts that are not named may use any.
local PARTITIONS = {
    students = { teaching = true },
}

-- Accounts and partitions that are for agents alone: a job of theirs must be a batch script that a tracer signed.
-- Names of accounts in lower case: Slurm takes them in any.
local AGENTS = {
    accounts = {},
    partitions = {},
}

-- What verifies signatures, copied to the controller; the nodes' public keys, on a local disk; agent-sandbox on
-- the nodes, which is root's there; ClusterName of slurm.conf.
local VERIFY = "/usr/local/libexec/agent-sandbox/agent-sandbox-attest"
local KEYS = "/etc/agent-sandbox/mark.keys"
local LAUNCHER = "/usr/local/bin/agent-sandbox"
local CLUSTER = "cluster"

-- No line with a mark is longer, in bytes.
local LONGEST = 2200

-- Variables by which something of the user's would run on the node before agent-sandbox does, or in place of it. The
-- chaperon sets none.
local LOADING = {
    "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_ORIGIN_PATH", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_PROFILE",
    "LD_PROFILE_OUTPUT", "LD_HWCAP_MASK", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH",
    -- A TaskProlog of the site's may be a shell's.
    "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS",
    -- slurmd starts a login shell of the user's for it (`--export=NONE`, `--get-user-env`).
    "SLURM_GET_USER_ENV",
}

-- Options of SPANK plug-ins that give the job another root or other files at LAUNCHER's path, as PLUGIN_OPTION. Those of
-- NVIDIA's pyxis, CSCS's variant of it, and Shifter. Add what the plug-ins of your plugstack.conf have of the kind:
-- `srun OPTION env | grep SPANK` shows their names.
local SPANK = {
    "pyxis_container_image", "pyxis_container_name", "pyxis_container_mounts", "pyxis_environment",
    "shifter_image", "shifter_volume",
}
-- How Slurm puts them into the environment of a job.
for _, option in ipairs(SPANK) do
    LOADING[#LOADING + 1] = "_SLURM_SPANK_OPTION_" .. option
    LOADING[#LOADING + 1] = "SLURM_SPANK__SLURM_SPANK_OPTION_" .. option
end

-- The first two lines of a batch script of a session's: the kernel hands it to agent-sandbox, which
-- makes the jail of the job. The second line keeps scripts apart that a user wrote.
local function is_capsule(script)
    return script ~= nil
        and string.find(script, "^#!/[^%s]*/agent%-sandbox job\n# agent%-sandbox capsule %d+ %d+\n") ~= nil
end

-- An `srun` of a session's that is a job of its own says which program its tasks run.
local function is_task(argv)
    return argv ~= nil and argv[0] ~= nil and string.find(argv[0], "^/[^%s]*/agent%-sandbox$") ~= nil
end

-- `salloc` says nothing of the kind: its job gets no mark here. Its tasks run in a jail all the same, and
-- task_prolog.sh sees them.
local function of_session(job_desc)
    return is_capsule(job_desc.script) or is_task(job_desc.argv)
end

local function is_set(text)
    return text ~= nil and text ~= ""
end

local function lower(name)
    return name ~= nil and string.lower(name) or nil
end

-- Asks the verifier. What it says on success, or nil and why not.
local function verified(script, uid)
    local answer = os.tmpname()
    local command = string.format(
        "'%s' verify --keys '%s' --launcher '%s' --cluster '%s' --uid %d > '%s' 2> /dev/null",
        VERIFY, KEYS, LAUNCHER, CLUSTER, uid, answer
    )
    local pipe = io.popen(command, "w")
    if pipe ~= nil then
        pipe:write(script)
        pipe:close()
    end
    local file = io.open(answer)
    local line = file ~= nil and file:read("*l") or ""
    if file ~= nil then
        file:close()
    end
    os.remove(answer)
    local session, node = string.match(line or "", "^accepted session=([%w._-]+) node=([%w._-]+) time=%d+$")
    if session ~= nil then
        return string.format("%s session=%s node=%s", MARK, session, node)
    end
    return nil, string.match(line or "", "^refused: (.+)$") or "the controller cannot verify it"
end

-- What AdminComment gets of a job whose batch script starts in the jail, or nil and why that is not shown.
local function attested(job_desc)
    local script = job_desc.script
    if not is_set(script) then
        return nil, "only a batch script can be verified, and this is srun or salloc"
    end
    if string.find(string.sub(script, -LONGEST), "\n# agent%-sandbox mark [^\n]*\n?$") == nil then
        return nil, "it carries no mark of a login node's tracer"
    end
    if is_set(job_desc.container) then
        return nil, "in a container it would be another program that starts it"
    end
    local environment = job_desc.environment
    for _, name in ipairs(LOADING) do
        if environment[name] ~= nil then
            return nil, "its environment has " .. name .. ", by which something else could start before the jail"
        end
    end
    return verified(script, job_desc.user_id)
end

-- The names in a list. None is in one of commas alone, which Slurm since 25.11 takes for no list.
local function names_in(list)
    local names = {}
    for name in string.gmatch(list or "", "[^,]+") do
        names[#names + 1] = name
    end
    return names
end

-- The partitions of a job: those that it names, or the default one.
local function partitions(named, part_list)
    local names = names_in(named)
    if #names == 0 then
        for name, partition in pairs(part_list) do
            if partition.flag_default == 1 then
                names[#names + 1] = name
            end
        end
    end
    return names
end

-- What of a job is for agents alone, in words; nil if nothing is.
local function for_agents(account, named, reservation, part_list)
    if account ~= nil and AGENTS.accounts[account] then
        return "account " .. account
    end
    for _, name in ipairs(partitions(named, part_list)) do
        if AGENTS.partitions[name] then
            return "partition " .. name
        end
    end
    -- A job that names none may get the one of its reservation.
    if #names_in(named) == 0 and next(AGENTS.partitions) ~= nil then
        for _, name in ipairs(names_in(reservation)) do
            local found = slurm.reservations[name]
            if found == nil or AGENTS.partitions[found.partition or ""] then
                return "the partition of reservation " .. name
            end
        end
    end
    return nil
end

-- Says to the user what is refused, and answers whether something is.
local function refused(account, named, part_list)
    local allowed = PARTITIONS[account]
    if allowed == nil then
        return false
    end
    local usable = {}
    for name in pairs(allowed) do
        usable[#usable + 1] = name
    end
    table.sort(usable)
    for _, name in ipairs(partitions(named, part_list)) do
        if not allowed[name] then
            slurm.log_user(
                "this site lets agents of account %s use partition %s only, not %s",
                account,
                table.concat(usable, ", "),
                name
            )
            return true
        end
    end
    return false
end

local function refuse_unjailed(what, why)
    slurm.log_user(
        "%s is for jobs that start in the jail of agent-sandbox, and this one does not show that it does: %s",
        what,
        why
    )
    slurm.log_user("hint: submit it with sbatch from inside of agent-sandbox, or use another account and partition")
    return slurm.ERROR
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    local account = lower(names_in(job_desc.account)[1] and job_desc.account or job_desc.default_account)
    local agents = for_agents(account, job_desc.partition, job_desc.reservation, part_list)
    local comment, why
    if agents ~= nil or is_capsule(job_desc.script) then
        -- Whatever goes wrong here concerns jobs for agents, and no others.
        local done
        done, comment, why = pcall(attested, job_desc)
        if not done then
            slurm.log_error("agent-sandbox: %s", tostring(comment))
            comment, why = nil, "the controller cannot verify it"
        end
    end
    if agents ~= nil and comment == nil then
        return refuse_unjailed(agents, why)
    end
    if not of_session(job_desc) then
        -- Nobody brings a mark along.
        if is_set(job_desc.admin_comment) and string.sub(job_desc.admin_comment, 1, #MARK) == MARK then
            job_desc.admin_comment = ""
        end
        return slurm.SUCCESS
    end
    if refused(account, job_desc.partition, part_list) then
        return slurm.ERROR
    end
    job_desc.admin_comment = comment or MARK
    return slurm.SUCCESS
end

-- A job that waits can be moved (`scontrol update`): the rules hold there, too.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    local comment = job_rec.admin_comment or ""
    -- An empty name is one: Slurm takes the default account or partition then.
    local account = lower(job_desc.account or job_rec.account)
    local named = job_desc.partition or job_rec.partition
    local moved = job_desc.account ~= nil or job_desc.partition ~= nil or is_set(job_desc.reservation)
    if moved and modify_uid ~= 0 and string.sub(comment, 1, #MARK + 9) ~= MARK .. " session=" then
        local agents = for_agents(account, named, job_desc.reservation, part_list)
        -- Which account is the default one is not told here.
        if agents == nil and job_desc.account ~= nil and #names_in(account) == 0 and next(AGENTS.accounts) ~= nil then
            agents = "what may be the default account"
        end
        if agents ~= nil then
            return refuse_unjailed(agents, "it was submitted without a mark")
        end
    end
    if string.sub(comment, 1, #MARK) ~= MARK then
        return slurm.SUCCESS
    end
    if refused(account, named, part_list) then
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

slurm.log_info("agent-sandbox: job_submit.lua is loaded")
return slurm.SUCCESS
