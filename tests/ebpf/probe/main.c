/* What runs in the machine that `tests/ebpf` boots: actions, each in a process that bears its name (so the
 * records name it), each of which reports `NAME ok` or `NAME ERRNO`; and small programs for the init
 * script. */
#include "probe.h"
#include "../../machine/report.h"

#include <grp.h>
#include <linux/sched.h>
#include <sys/resource.h>

/* An action that takes longer hangs. Emulated machines are slow. */
#define ACTION_SECONDS 15
#define NAME_BYTES 15

static const struct actions groups[] = {
    { "exec", exec_actions },           { "open", open_actions },
    { "failing", failing_actions },     { "root", root_actions },
    { "ring", ring_actions },           { "sockets", socket_actions },
    { "listening", listening_actions }, { "operations", operation_actions },
    { "scope", scope_actions },         { "attempts", attempt_actions },
    { "internet", internet_actions },   { "namespaces", namespace_actions },
    { "root-attempts", root_attempt_actions }, { "jailed", jailed_actions },
    { "forged", forged_actions },
};

long fail(int error)
{
    errno = error;
    return -1;
}

long closed(long descriptor)
{
    int error = errno;
    if (descriptor >= 0)
        close((int)descriptor);
    errno = error;
    return descriptor;
}

long joined(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    if (!WIFEXITED(status))
        return fail(ECANCELED);
    return WEXITSTATUS(status) ? fail(WEXITSTATUS(status)) : 0;
}

long in_child(action_call *call)
{
    pid_t child = fork();
    if (child == 0)
        _exit(call() == -1 ? errno : 0);
    return joined(child);
}

pid_t keeper(void)
{
    int found = 0;
    FILE *file = fopen(KEEPER_FILE, "r");
    if (!file || fscanf(file, "%d", &found) != 1) {
        printf("no keeper\n");
        exit(9);
    }
    fclose(file);
    return found;
}

long readable(const char *path)
{
    char byte;
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    long got = read(file, &byte, 1) == 1 ? 1 : -1;
    closed(file);
    return got;
}

long put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    if (file < 0)
        return -1;
    long put = write(file, text, strlen(text)) < 0 ? -1 : 0;
    closed(file);
    return put;
}

long own_namespaces(void)
{
    char map[64];
    int user = (int)geteuid(), group = (int)getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || put("/proc/self/setgroups", "deny"))
        return -1;
    snprintf(map, sizeof map, "0 %d 1", user);
    if (put("/proc/self/uid_map", map))
        return -1;
    snprintf(map, sizeof map, "0 %d 1", group);
    return put("/proc/self/gid_map", map);
}

static int act_main(char **names)
{
    for (; *names; names++)
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
            const struct action *action = groups[i].list;
            for (; !strcmp(*names, groups[i].name) && action->name; action++) {
                if (strlen(action->name) > NAME_BYTES)
                    printf("%s is-too-long-a-name\n", action->name);
                else
                    report(action->name, action->call, ACTION_SECONDS);
            }
        }
    puts("the end");
    return 0;
}

/* Becomes an ordinary user, with an environment of its own. */
static int as_main(char **words)
{
    const uid_t id = (uid_t)atoi(words[0]);
    const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_NPROC, &unlimited);
    if (setgroups(1, &id) || setresgid(id, id, id) || setresuid(id, id, id) || chdir("/")) {
        perror("as");
        return 126;
    }
    /* What changes ids is not dumpable; an ordinary process of the user's is. */
    prctl(PR_SET_DUMPABLE, 1);
    execvp(words[1], words + 1);
    perror(words[1]);
    return 127;
}

/* A command that cannot gain privileges, and so may be denied something. */
static int confined_main(char **words)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 126;
    execvp(words[0], words);
    perror(words[0]);
    return 127;
}

/* A command that begins as soon as there is a file. */
static int when_main(char **words)
{
    while (access(words[0], F_OK))
        usleep(10000);
    execvp(words[1], words + 1);
    perror(words[1]);
    return 127;
}

/* A process that comes to be in a cgroup, as root's, and becomes a user's: as the tasks of a job do. */
static int into_main(char **words)
{
    const uid_t id = (uid_t)atoi(words[1]);
    struct clone_args how = { .flags = CLONE_INTO_CGROUP,
                              .exit_signal = SIGCHLD,
                              .cgroup = (uint64_t)open(words[0], O_PATH | O_DIRECTORY) };
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0) {
        if (setgroups(1, &id) || setresgid(id, id, id) || setresuid(id, id, id))
            _exit(errno);
        _exit(closed(open(words[2], O_RDONLY)) < 0 ? errno : 0);
    }
    return child < 0 || joined((pid_t)child) ? errno : 0;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "act"))
        return act_main(words + 2);
    if (!strcmp(what, "as") && count > 3)
        return as_main(words + 2);
    if (!strcmp(what, "confined") && count > 2)
        return confined_main(words + 2);
    if (!strcmp(what, "when") && count > 3)
        return when_main(words + 2);
    if (!strcmp(what, "into") && count > 4)
        return into_main(words + 2);
    if (!strcmp(what, "keeper"))
        return keeper_main();
    if (!strcmp(what, "many") && count > 2)
        return many_main(atoi(words[2]));
    if (!strcmp(what, "storm") && count > 3)
        return storm_main(atol(words[2]), atoi(words[3]));
    if (!strcmp(what, "speed"))
        return speed_main();
    if (!strcmp(what, "wait") && count > 3)
        return wait_main(words[2], words[3]);
    if (!strcmp(what, "open") && count > 2)
        return readable(words[2]) < 0 ? errno : 0;
    fprintf(stderr, "no `%s`\n", what);
    return 2;
}
