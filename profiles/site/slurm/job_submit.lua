-- Slurm's job_submit/lua for a site with agent-sandbox: marks the jobs that its sessions submit, so that
-- `sacct -o JobID,User,AdminComment` shows them, and keeps those of some accounts to some partitions.
--
-- Place: beside slurm.conf, which says `JobSubmitPlugins=lua`. slurmctld reads the file again when it
-- has changed. Try it on a test cluster first: an error in it stops every submission.
--
-- A mark is no proof. Whoever submits outside of a session can write a script that looks like one of a
-- session's, and a job of theirs that is in no jail has no mark. What holds a session's jobs is
-- /etc/agent-sandbox/enforced.toml on each node; this file is for people who read accounting, and for
-- rules of courtesy.

-- What is written into AdminComment. Users cannot set or change that field.
local MARK = "agent-sandbox"

-- Accounts whose sessions may submit only into these partitions. Accounts that are not named may use any.
local PARTITIONS = {
    students = { teaching = true },
}

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

-- The partitions of a job: those that it names, or the default one.
local function partitions(named, part_list)
    local names = {}
    if named ~= nil and named ~= "" then
        for name in string.gmatch(named, "[^,]+") do
            names[#names + 1] = name
        end
    else
        for name, partition in pairs(part_list) do
            if partition.flag_default == 1 then
                names[#names + 1] = name
            end
        end
    end
    return names
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

function slurm_job_submit(job_desc, part_list, submit_uid)
    if not of_session(job_desc) then
        return slurm.SUCCESS
    end
    if refused(job_desc.account or job_desc.default_account, job_desc.partition, part_list) then
        return slurm.ERROR
    end
    job_desc.admin_comment = MARK
    return slurm.SUCCESS
end

-- A job that waits can be moved (`scontrol update`): the rule holds there, too.
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if job_rec.admin_comment ~= MARK then
        return slurm.SUCCESS
    end
    local account = job_desc.account or job_rec.account
    if refused(account, job_desc.partition or job_rec.partition, part_list) then
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

slurm.log_info("agent-sandbox: job_submit.lua is loaded")
return slurm.SUCCESS
