/* How often each rank is asked to end, and whether it gets the time to.
 *
 *   signals DIRECTORY      says "begun RANK"; after SIGTERM waits a second for more of them, and then
 *                          leaves "N SIGTERM" in DIRECTORY/rank-RANK.txt
 *
 * It ends by itself after two minutes. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t count;

static void heard(int signal) {
    (void)signal;
    count++;
}

int main(int argc, char **argv) {
    int rank;
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct sigaction action = {.sa_handler = heard};
    sigaction(SIGTERM, &action, NULL);
    alarm(120);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("begun %d\n", rank);
    fflush(stdout);
    while (!count) {
        usleep(20 * 1000);
    }
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    do {
        usleep(20 * 1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
    snprintf(path, sizeof path, "%s/rank-%d.txt", argc > 1 ? argv[1] : ".", rank);
    FILE *file = fopen(path, "w");
    if (!file) {
        return 1;
    }
    fprintf(file, "%d SIGTERM\n", (int)count);
    fclose(file);
    /* The others are told to end, too; nobody waits for anybody. */
    _exit(0);
}
