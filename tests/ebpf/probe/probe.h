/* What the actions have in common: the places that `init` makes, and how one is named and reported. */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

/* `init` makes these. All but RDONLY belong to the user whose tasks are traced. */
#define PLACE "/srv/t"
/* A file system that is mounted read-only. */
#define RDONLY "/srv/rdonly"
/* What the plan hides: a directory. */
#define SECRET "/srv/user/secret"
/* The same: a single file in a directory that is open. */
#define SINGLE PLACE "/single"
/* Where a file system may be mounted by who has a mount namespace. */
#define MOUNT "/srv/mount"
#define BUSYBOX "/usr/bin/busybox"
/* A process of the user's that is not traced (`keeper_main`): its number, and its socket. */
#define KEEPER_FILE "/srv/keeper/pid"
#define KEEPER_SOCKET "/srv/keeper/socket"
/* The keeper holds the secret open as this descriptor. */
#define KEEPER_DESCRIPTOR 77

/* What an action returns: -1 with errno, or anything else, which means that it was let through. */
typedef long action_call(void);
struct action {
    const char *name; /* at most 15 bytes: the process that does it bears it */
    action_call *call;
};
struct actions {
    const char *name;
    const struct action *list; /* up to one without a name */
};

extern const struct action exec_actions[], open_actions[], failing_actions[], root_actions[], ring_actions[],
    socket_actions[], listening_actions[], operation_actions[], scope_actions[], attempt_actions[],
    root_attempt_actions[], jailed_actions[], internet_actions[], namespace_actions[], forged_actions[];

#define A(name, expression)                                                                                           \
    static long name(void)                                                                                            \
    {                                                                                                                 \
        return expression;                                                                                            \
    }

long fail(int error);
/* Closes the descriptor that a call returned, if it is one. */
long closed(long descriptor);
/* The exit code of a child: 0, or an errno, which is made this process's. */
long joined(pid_t child);
/* In a child, what `call` returns. */
long in_child(action_call *call);
pid_t keeper(void);
long readable(const char *path);
/* New user and mount namespaces, in which this process is root. */
long own_namespaces(void);
/* Writes a text to a file that exists, or is made. */
long put(const char *path, const char *text);

/* --- io_uring, without a library (rings.c) --- */
#define RING_SQPOLL 1
#define RING_ASYNC 2
struct io_uring_sqe;
/* Sets a ring up, has one entry carried out, and returns its result as a system call would. */
long ring_call(int how, const struct io_uring_sqe *entry);
long ring_open(int how, const char *path, int flags);

/* --- programs for the init script --- */
int keeper_main(void);
int many_main(int tasks);
int storm_main(long times, int processes);
int speed_main(void);
int wait_main(const char *go, const char *path);

#endif
