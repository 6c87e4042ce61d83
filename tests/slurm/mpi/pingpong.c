/* Ping-pong of 4 MiB between ranks 0 and 1; others wait.
 *
 *   pingpong [SECONDS]      how long to measure (1)
 *
 * Rank 0 prints "bytes_per_second N window_seconds W windows C": the best of several windows, for
 * other load on the machine only ever makes one slower. A message that arrives wrong ends it with 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE (4 << 20)
#define WINDOW 0.1

int main(int argc, char **argv) {
    int rank, size, windows = 0, bad = 0;
    double best = 0, seconds = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) {
        seconds = atof(argv[1]);
    }
    if (size < 2) {
        fprintf(stderr, "pingpong: two ranks are needed\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    unsigned char *out = malloc(MESSAGE), *in = malloc(MESSAGE);
    memset(out, rank + 1, MESSAGE);
    memset(in, 0, MESSAGE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank < 2) {
        int other = 1 - rank, go = 1;
        double begin = MPI_Wtime();
        while (go) {
            double start = MPI_Wtime(), time = 0;
            long rounds = 0;
            /* Rank 0 says with the first byte whether this is the last round of a window. */
            int more = 1;
            while (more) {
                if (rank == 0) {
                    time = MPI_Wtime() - start;
                    more = time < WINDOW;
                    out[0] = more ? 1 : 0;
                    MPI_Send(out, MESSAGE, MPI_BYTE, other, 0, MPI_COMM_WORLD);
                    MPI_Recv(in, MESSAGE, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                } else {
                    MPI_Recv(in, MESSAGE, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Send(out, MESSAGE, MPI_BYTE, other, 0, MPI_COMM_WORLD);
                    more = in[0];
                }
                rounds++;
            }
            time = MPI_Wtime() - start;
            bad |= in[MESSAGE - 1] != other + 1;
            if (rank == 0) {
                double rate = 2.0 * rounds * MESSAGE / time;
                best = rate > best ? rate : best;
                windows++;
                go = MPI_Wtime() - begin < seconds;
                MPI_Send(&go, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
            } else {
                MPI_Recv(&go, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("bytes_per_second %.0f window_seconds %g windows %d\n", best, WINDOW, windows);
    }
    MPI_Finalize();
    return bad;
}
