/* What runs in the machine that `tests/kernels` boots: attacks, each of which reports `NAME ok` or
 * `NAME ERRNO`; the process that they are aimed at; and small programs for the init script. */
#include "probe.h"
#include "../../machine/report.h"

#include <grp.h>

/* An attack that takes longer hangs. Emulated machines are slow. */
#define ATTACK_SECONDS 10

static const struct attack_set groups[] = {
    { "files", file_attacks },     { "git", git_attacks },           { "sockets", socket_attacks },
    { "signals", signal_attacks }, { "processes", process_attacks }, { "inside", inside_calls },
};

long fail(int error)
{
    errno = error;
    return -1;
}

long closed(int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
    return descriptor;
}

const char *in_variable(const char *variable, const char *name)
{
    static char path[4096];
    const char *base = getenv(variable);
    snprintf(path, sizeof path, "%s/%s", base ? base : "/nowhere", name);
    return path;
}

struct victim victim(void)
{
    struct victim found = { 0, 0, -1 };
    FILE *file = fopen(VICTIM_FILE, "r");
    if (!file || fscanf(file, "%d %lx %d", &found.pid, &found.secret, &found.descriptor) != 3) {
        printf("no victim\n");
        exit(9);
    }
    fclose(file);
    return found;
}

static int attacks_main(char **names)
{
    for (; *names; names++)
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            if (!strcmp(*names, groups[i].name))
                for (const struct attack *attack = groups[i].attacks; attack->name; attack++)
                    report(attack->name, attack->call, ATTACK_SECONDS);
    puts("the end");
    return 0;
}

/* Becomes the ordinary user, in a session of its own and with an environment of its own. */
int as_main(char **command)
{
    const gid_t id = 1000;
    setsid(); /* fails where it leads one already */
    if (setgroups(1, &id) || setresgid(id, id, id) || setresuid(id, id, id) || chdir(PROJECT)) {
        perror("as");
        return 126;
    }
    clearenv();
    putenv("HOME=" HOST_HOME);
    putenv("USER=user");
    putenv("LOGNAME=user");
    putenv("SHELL=/bin/sh");
    putenv("PATH=/usr/bin:/bin");
    putenv("TERM=dumb");
    /* A user has these from the login; attacks without a jail use them as those in one do theirs. */
    putenv("XDG_RUNTIME_DIR=" RUNTIME);
    putenv("TMPDIR=/tmp");
    execvp(command[0], command);
    perror(command[0]);
    return 127;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "attack"))
        return attacks_main(words + 2);
    if (!strcmp(what, "as") && count > 2)
        return as_main(words + 2);
    if (!strcmp(what, "terminal") && count > 2)
        return terminal_main(words + 2);
    if (!strcmp(what, "victim"))
        return victim_main();
    if (!strcmp(what, "leave"))
        return leave_main();
    if (!strcmp(what, "storm"))
        return storm_main();
    if (!strcmp(what, "jobs"))
        return jobs_main();
    if (!strcmp(what, "group"))
        return group_main();
    if (!strcmp(what, "priority") && count > 2) {
        printf("io %ld\n", syscall(SYS_ioprio_get, 1, atoi(words[2])));
        return 0;
    }
    fprintf(stderr, "no `%s`\n", what);
    return 2;
}
