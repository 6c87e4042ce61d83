/* What the attacks have in common: the places of the machine that `init` sets up, the process that
 * is attacked, and how a result is reported. */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* `init` makes these. What is in SHOWN may be read, MINE is not granted; both belong to the user. */
#define HOST_HOME "/home/user"
#define PROJECT HOST_HOME "/project"
#define SECRET HOST_HOME "/.ssh/id_rsa"
#define SHOWN "/srv/shown"
#define MINE "/srv/mine"
#define RUNTIME "/run/user/1000"
#define VICTIM_FILE SHOWN "/victim"
#define VICTIM_LOG MINE "/signals"
#define ABSTRACT "host"
#define ABSTRACT_DATAGRAM "host-datagram"
#define IPC_KEY 0x4242
/* With which signal an attack is recognised in the victim's log. */
#define SIGNAL_OF(n) (SIGRTMIN + 1 + (n))
#define SIGNALS 16

/* What an attack returns: -1 with errno, or anything else, which means that it was let through. */
typedef long attack_call(void);
struct attack {
    const char *name;
    attack_call *call;
};
struct attack_set {
    const char *name;
    const struct attack *attacks; /* up to one without a name */
};

extern const struct attack file_attacks[], git_attacks[], socket_attacks[], signal_attacks[], process_attacks[],
    inside_calls[];

/* The process outside: its number, where its secret lies in its memory, one of its descriptors. */
struct victim {
    int pid;
    unsigned long secret;
    int descriptor;
};
extern const char victim_secret[];
struct victim victim(void);

/* Places in the sandbox's own directories. */
const char *in_variable(const char *variable, const char *name);
/* Of a call that is to be refused: closes the descriptor. */
long closed(int descriptor);
long fail(int error);
int unix_address(struct sockaddr_un *address, const char *path, socklen_t *length);
int listening(int type, const char *path);

int victim_main(void);
int leave_main(void);
int storm_main(void);
int jobs_main(void);
int group_main(void);
int terminal_main(char **command);
int as_main(char **command);

#endif
