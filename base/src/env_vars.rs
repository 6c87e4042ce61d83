//! Every environment variable that agent-sandbox reads or sets, in one place.

/// Set to `1` inside the jail. Read by the launcher, which refuses to start inside a jail.
pub const INSIDE: &str = "AGENT_SANDBOX";
/// Read: what is logged (`logging`). Given to the chaperon and to jobs of the session.
pub use agent_sandbox_wire::logging::VARIABLE as LOG;
/// Set inside: the project directory.
pub const PROJECT: &str = "AGENT_SANDBOX_PROJECT";
/// Set inside: the session's id.
pub const SESSION: &str = "AGENT_SANDBOX_SESSION";
/// Set inside where Landlock makes the jail, and read there by `agent-sandbox explain`: what it answers
/// from. Whoever sets it gets another text, and nothing that it could not read itself.
pub const DOCUMENT: &str = "AGENT_SANDBOX_EXPLAIN";
/// Set inside where a profile has instructions: the file that tells the agent of its jail.
pub const INSTRUCTIONS: &str = "AGENT_SANDBOX_INSTRUCTIONS";
/// Read: the home directory. Kept inside.
pub const HOME: &str = "HOME";
/// Read inside the jail by init to find the command.
pub const PATH: &str = "PATH";
/// Set inside where Landlock makes the jail and the network is filtered: how glibc's resolver asks (resolv.conf(5)).
pub const RES_OPTIONS: &str = "RES_OPTIONS";
/// Read by `notify`: the kind of terminal (environ(7)).
pub const TERM: &str = "TERM";
/// Read by `notify`: set in the panes of a tmux (tmux(1)).
pub const TMUX: &str = "TMUX";
/// Read: the name by which the user knows the current directory. Set inside.
pub const PWD: &str = "PWD";
/// Read: where configuration stands (XDG Base Directory Specification 0.8).
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Read: where state stands (XDG Base Directory Specification 0.8).
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Set inside, to a private directory.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Set inside, to the private `/tmp`, if it was set outside.
pub const TMPDIR: &str = "TMPDIR";
/// Set inside where Landlock makes the jail: tmux has its sockets in `/tmp` otherwise (tmux(1)).
pub const TMUX_TMPDIR: &str = "TMUX_TMPDIR";
/// Set inside where Landlock makes the jail: what the names of zsh's own temporary files begin with, such as
/// those of here-documents (zshparam(1)). Its default lies in `/tmp`.
pub const TMPPREFIX: &str = "TMPPREFIX";
/// Cleaned of relative entries for the shell that loads modules (ld.so(8)).
pub const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Read: the names of the modules that are loaded, with `:` between them, and the paths of their modulefiles in the same
/// order (Lmod and Environment Modules, module(1), ENVIRONMENT).
pub const LOADEDMODULES: &str = "LOADEDMODULES";
/// See [`LOADEDMODULES`].
pub const LMFILES: &str = "_LMFILES_";
/// Read: Lmod's program (Lmod sets it in every shell that it initialises).
pub const LMOD_CMD: &str = "LMOD_CMD";
/// Read: Slurm's configuration, for the real commands (`slurm.conf(5)`). Never passed inside.
pub const SLURM_CONF: &str = "SLURM_CONF";
/// Read by `doctor --nodes`: the account that pays for its jobs (`srun(1)`).
pub const SLURM_ACCOUNT: &str = "SLURM_ACCOUNT";
/// Read by `doctor --nodes`: the quality of service of its jobs (`srun(1)`).
pub const SLURM_QOS: &str = "SLURM_QOS";
/// Read by `doctor --nodes`: the reservation in which its jobs run (`srun(1)`).
pub const SLURM_RESERVATION: &str = "SLURM_RESERVATION";
/// The search path when none is set (`execvp(3)`, glibc's `confstr(_CS_PATH)`).
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Set by Slurm in a job and in an allocation: its partition (`sbatch(1)`, `salloc(1)`).
pub const SLURM_JOB_PARTITION: &str = "SLURM_JOB_PARTITION";
/// Set by Slurm in a job and in an allocation: its number (`sbatch(1)`, `salloc(1)`). A hint alone: a
/// session believes what Slurm says of the job.
pub const SLURM_JOB_ID: &str = "SLURM_JOB_ID";
/// The older name of the same.
pub const SLURM_JOBID: &str = "SLURM_JOBID";
/// Set by slurmd for what it starts: the node's name in Slurm (`sbatch(1)`).
pub const SLURMD_NODENAME: &str = "SLURMD_NODENAME";
/// Set by Slurm in a job that was put back into the queue and runs again (`sbatch(1)`).
pub const SLURM_RESTART_COUNT: &str = "SLURM_RESTART_COUNT";
/// Set by Slurm in a job: the host from which it was submitted (`sbatch(1)`).
pub const SLURM_SUBMIT_HOST: &str = "SLURM_SUBMIT_HOST";
/// On how many nodes a step runs, as Slurm tells its tasks.
pub const SLURM_STEP_NUM_NODES: &str = "SLURM_STEP_NUM_NODES";
/// Set by Slurm's plugin `mpi/pmix` for each task of a step.
pub const PMIX: &str = "PMIX_NAMESPACE";
/// Read: the program by which git reaches other hosts, where neither `GIT_SSH_COMMAND` nor `core.sshCommand`
/// says otherwise (`git(1)`). Set inside, where git has no key of its own to log in by.
pub const GIT_SSH: &str = "GIT_SSH";
/// Read: the user's own command for the same (`git(1)`).
pub const GIT_SSH_COMMAND: &str = "GIT_SSH_COMMAND";
/// Read: the socket of the user's ssh-agent (`ssh-agent(1)`). Set inside where that signs logins.
pub const SSH_AUTH_SOCK: &str = "SSH_AUTH_SOCK";
/// Set inside where the user's ssh-agent signs logins, and read there in place of ssh: the file with the keys of the hosts.
pub const KNOWN_HOSTS: &str = "AGENT_SANDBOX_KNOWN_HOSTS";
/// Which store of PMIx a client uses (PMIx 2 to 5, framework `gds`). Set inside.
pub const PMIX_STORE: &str = "PMIX_MCA_gds";
