/* One rank ends badly while the others wait for it.
 *
 *   crash HOW [RANK]      HOW: abort (abort(3)), segv, mpi (MPI_Abort with 7), exit (3, without
 *                         MPI_Finalize), kill (SIGKILL); RANK is the last one otherwise
 *
 * Every rank says "begun RANK" before. The others wait in a barrier that never ends, for ten minutes
 * at most. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *how = argc > 1 ? argv[1] : "abort";
    int which = argc > 2 ? atoi(argv[2]) : size - 1;
    printf("begun %d\n", rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    alarm(600);
    if (rank == which) {
        if (strcmp(how, "segv") == 0) {
            *(volatile int *)0 = 1;
        } else if (strcmp(how, "mpi") == 0) {
            MPI_Abort(MPI_COMM_WORLD, 7);
        } else if (strcmp(how, "exit") == 0) {
            _exit(3);
        } else if (strcmp(how, "kill") == 0) {
            raise(SIGKILL);
        }
        abort();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
