/* The process outside that is attacked, and programs for what happens when a jail ends. */
#include "probe.h"

#include <mqueue.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <termios.h>

/* Aligned, so that a page of it can be named; at the same place in every process of this program. */
const char victim_secret[128] __attribute__((aligned(4096))) = "VICTIM-SECRET-1\0";
static char writable[128] __attribute__((aligned(4096))) = "VICTIM-SECRET-1\0";
static int signals = -1;

static void arrived(int number)
{
    char line[32];
    int length = snprintf(line, sizeof line, "signal %d\n", number - SIGNAL_OF(0));
    if (write(signals, line, length) < 0)
        _exit(9);
}

/* Listens on sockets and waits for signals until it is killed. Its files name it. */
int victim_main(void)
{
    struct sigaction action = { .sa_handler = arrived, .sa_flags = SA_RESTART };
    signals = open(VICTIM_LOG, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    for (int n = 0; n < SIGNALS; n++)
        sigaction(SIGNAL_OF(n), &action, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (chdir(HOST_HOME))
        return 9;
    int opened = open(SECRET, O_RDONLY);
    bool good = opened >= 0 && listening(SOCK_STREAM, HOST_HOME "/host.sock") >= 0 &&
                listening(SOCK_STREAM, SHOWN "/host.sock") >= 0 && listening(SOCK_STREAM, RUNTIME "/host.sock") >= 0 &&
                listening(SOCK_STREAM, "/tmp/host.sock") >= 0 && listening(SOCK_SEQPACKET, SHOWN "/host.seq") >= 0 &&
                listening(SOCK_STREAM, "@" ABSTRACT) >= 0 && listening(SOCK_DGRAM, SHOWN "/host.dgram") >= 0 &&
                listening(SOCK_DGRAM, "@" ABSTRACT_DATAGRAM) >= 0;
    good = good && shmget(IPC_KEY, 4096, IPC_CREAT | 0600) >= 0 && msgget(IPC_KEY, IPC_CREAT | 0600) >= 0 &&
           semget(IPC_KEY, 1, IPC_CREAT | 0600) >= 0;
    struct mq_attr small = { .mq_maxmsg = 10, .mq_msgsize = 16 };
    good = good && mq_open("/host", O_CREAT | O_RDWR, 0600, &small) >= 0;
    FILE *file = fopen(VICTIM_FILE ".new", "w");
    if (!good || !file) {
        perror("victim");
        return 9;
    }
    fprintf(file, "%d %lx %d\n", getpid(), (unsigned long)writable, opened);
    if (fclose(file) || rename(VICTIM_FILE ".new", VICTIM_FILE))
        return 9;
    for (;;)
        pause();
}

/* Leaves a process behind that does what it can to stay. */
int leave_main(void)
{
    pid_t first = fork();
    if (first == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        if (fork())
            _exit(0);
        if (freopen("/dev/null", "r", stdin) && freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
            for (;;)
                pause();
        _exit(9);
    }
    waitpid(first, NULL, 0);
    puts("left");
    return 0;
}

/* Attacks without a pause, while others end the jail around it. Says what ever went through. */
int storm_main(void)
{
    bool shown[4] = { false };
    for (int round = 0; round < 100000; round++) {
        struct sockaddr_un address;
        socklen_t length;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        unix_address(&address, SHOWN "/host.sock", &length);
        const char *through[4] = {
            !connect(fd, (void *)&address, length) ? "connect" : NULL,
            !chmod(SHOWN "/mode", 0644) ? "chmod" : NULL,
            !truncate(SHOWN "/truncate", 0) ? "truncate" : NULL,
            closed(open(PROJECT "/.git/config", O_WRONLY)) >= 0 ? "git" : NULL,
        };
        close(fd);
        for (int n = 0; n < 4; n++)
            if (through[n] && !shown[n]) {
                printf("through %s\n", through[n]);
                shown[n] = true;
            }
        if (round == 0)
            puts("storm");
    }
    puts("the end");
    return 0;
}

/* What a shell does with a terminal: stops a group in the foreground, and lets it go on. */
int jobs_main(void)
{
    int status = 0;
    signal(SIGTTOU, SIG_IGN);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        signal(SIGTTOU, SIG_DFL);
        kill(getpid(), SIGTSTP);
        _exit(tcgetpgrp(0) == getpid() ? 7 : 8);
    }
    setpgid(child, child);
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) {
        printf("not stopped: %x\n", status);
        return 1;
    }
    printf("stopped %d\n", tcgetpgrp(0) == child);
    tcsetpgrp(0, getpgrp());
    tcsetpgrp(0, child);
    kill(-child, SIGCONT);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        printf("not continued: %x\n", status);
        return 1;
    }
    tcsetpgrp(0, getpgrp());
    printf("ended %d\n", WEXITSTATUS(status));
    return 0;
}

/* Runs a command on a terminal of its own, and shows what it writes. */
int terminal_main(char **command)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), status = 0;
    if (master < 0 || grantpt(master) || unlockpt(master))
        return 9;
    const char *name = ptsname(master);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int slave = open(name, O_RDWR);
        if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) || dup2(slave, 0) || dup2(slave, 1) < 0 || dup2(slave, 2) < 0)
            _exit(9);
        execvp(command[0], command);
        _exit(127);
    }
    char some[512];
    ssize_t got;
    while ((got = read(master, some, sizeof some)) > 0)
        for (ssize_t at = 0; at < got; at++)
            if (some[at] != '\r')
                putchar(some[at]);
    fflush(stdout);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
