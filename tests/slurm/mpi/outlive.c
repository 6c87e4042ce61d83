/* Rank 0 leaves a daemon behind: forked twice, in a session of its own, deaf to what ends a job in
 * a friendly way. All ranks end at once and well.
 *
 *   outlive FILE [SECONDS]      the daemon appends a line with its time to FILE every 0.1 s, for
 *                               SECONDS (60)
 *
 * The first line of FILE is "daemon". Whether FILE still grows after the step shows whether it
 * outlived the step. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void stay(const char *path, double seconds, int said) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) {
        _exit(1);
    }
    dprintf(file, "daemon\n");
    if (write(said, "x", 1) != 1) {
        _exit(1);
    }
    /* No descriptor of the task's stays open: a step may wait for the end of its output. */
    for (int number = 0; number < 1024; number++) {
        if (number != file) {
            close(number);
        }
    }
    struct timespec pause = {0, 100 * 1000 * 1000};
    for (long count = 0; count < (long)(seconds * 10); count++) {
        dprintf(file, "%ld\n", (long)time(NULL));
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    int rank, ends[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int bad = 0;
    if (rank == 0) {
        char byte;
        if (pipe(ends) != 0) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        pid_t first = fork();
        if (first == 0) {
            close(ends[0]);
            setsid();
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            signal(SIGCONT, SIG_IGN);
            if (fork() == 0) {
                stay(argv[1], argc > 2 ? atof(argv[2]) : 60, ends[1]);
            }
            _exit(0);
        }
        close(ends[1]);
        bad = first < 0 || waitpid(first, NULL, 0) < 0 || read(ends[0], &byte, 1) != 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return bad;
}
