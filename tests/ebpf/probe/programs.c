/* Programs for the init script: the process that is not traced, many tasks, many events, and how long
 * system calls take. */
#include "probe.h"

#include <arpa/inet.h>
#include <linux/futex.h>
#include <limits.h>
#include <netinet/in.h>
#include <stddef.h>
#include <time.h>

#define KEEPER_PORT 20020
/* Of each of many tasks. It opens one file, and waits. */
#define SMALL_STACK_BYTES 4096
/* Many short rounds, of which the shortest counts: the machine has the processor for itself in some of them. */
#define ROUNDS 60
#define CALLS 300
#define SHORT_CALLS 5000
#define NS 1000000000LL

static void handed_over(int to)
{
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec text = { &byte, 1 };
    struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int what = KEEPER_DESCRIPTOR;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof what);
    memcpy(CMSG_DATA(head), &what, sizeof what);
    if (sendmsg(to, &message, MSG_NOSIGNAL) != 1)
        perror("keeper");
}

static int bound(int type, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path, path);
    int server = socket(AF_UNIX, type, 0);
    unlink(path);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || (type == SOCK_STREAM && listen(server, 99)))
        perror(path);
    return server;
}

static void bound_inet(int family, int type)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(KEEPER_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 address6 = { .sin6_family = AF_INET6, .sin6_port = htons(KEEPER_PORT), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    const void *at = family == AF_INET ? (void *)&address : (void *)&address6;
    int server = socket(family, type, 0), one = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server, at, family == AF_INET ? sizeof address : sizeof address6) ||
        (type == SOCK_STREAM && listen(server, 99)))
        perror("keeper's port");
}

/* Belongs to the user and is never traced: it has the secret open, hands it to whoever connects, and can
 * be looked into, signalled and traced. */
int keeper_main(void)
{
    dup2(open(SECRET "/key", O_RDONLY), KEEPER_DESCRIPTOR);
    bound(SOCK_STREAM, SECRET "/stream");
    bound(SOCK_DGRAM, SECRET "/datagrams");
    bound_inet(AF_INET, SOCK_STREAM);
    bound_inet(AF_INET6, SOCK_STREAM);
    bound_inet(AF_INET, SOCK_DGRAM);
    int server = bound(SOCK_STREAM, KEEPER_SOCKET);
    FILE *file = fopen(KEEPER_FILE, "w");
    if (!file)
        return 1;
    fprintf(file, "%d\n", getpid());
    fclose(file);
    for (;;) {
        int client = accept(server, NULL, NULL);
        if (client < 0)
            continue;
        handed_over(client);
        close(client);
    }
}

static int go;

static int one_of_many(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &go, FUTEX_WAIT, 0, NULL, NULL, 0);
    /* Nothing of the C library's: all of them share its memory. */
    int file = (int)syscall(SYS_openat, AT_FDCWD, PLACE "/many", O_RDONLY);
    syscall(SYS_close, file);
    syscall(SYS_exit, file < 0);
    return 0;
}

/* So many processes at a time, which share memory as threads do; then each opens one file. */
int many_main(int tasks)
{
    char *stacks = mmap(NULL, (size_t)tasks * SMALL_STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int made = 0, good = 0, status;
    while (made < tasks) {
        char *top = stacks + (size_t)(made + 1) * SMALL_STACK_BYTES;
        if (clone(one_of_many, top, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL) < 0) {
            perror("clone");
            break;
        }
        made++;
    }
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    while (wait(&status) > 0)
        good += status == 0;
    printf("made %d\nopened %d\n", made, good);
    return made == tasks && good == tasks ? 0 : 1;
}

static long opens(long times)
{
    long good = 0;
    for (long i = 0; i < times; i++) {
        int file = open(PLACE "/storm", O_RDONLY);
        good += file >= 0;
        close(file);
    }
    return good;
}

int storm_main(long times, int processes)
{
    int status, good = 0;
    for (int i = 0; i < processes; i++)
        if (fork() == 0)
            _exit(opens(times) == times ? 0 : 1);
    while (wait(&status) > 0)
        good += status == 0;
    printf("opened %ld\n", good * times);
    return good == processes ? 0 : 1;
}

static long long now(void)
{
    struct timespec time;
    /* Without what the tracer does meanwhile on the same processor. */
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * NS + time.tv_nsec;
}

static long long per_call(void call(void), int calls)
{
    long long shortest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        long long begin = now();
        for (int i = 0; i < calls; i++)
            call();
        long long took = (now() - begin) / calls;
        if (round == 0 || took < shortest)
            shortest = took;
    }
    return shortest;
}

static void open_close(void)
{
    close(open(PLACE "/speed", O_RDONLY));
}

static void getppid_only(void)
{
    syscall(SYS_getppid);
}

/* Nanoseconds a call. */
int speed_main(void)
{
    printf("open-close %lld\n", per_call(open_close, CALLS));
    printf("getppid %lld\n", per_call(getppid_only, SHORT_CALLS));
    return 0;
}
