/* A token goes once round all ranks, each adds its number plus one; then all ranks add up what came
 * out. Prints "sum N of SIZE" from rank 0, and ends with 1 if a number is wrong. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size;
    long token = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0) {
        MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    token += rank + 1;
    if (size > 1) {
        MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    /* Each rank's own number, not the token: the ring and the reduction are to agree. */
    long own = rank + 1;
    MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    long expected = (long)size * (size + 1) / 2;
    int bad = sum != expected || (rank == 0 && token != expected);
    if (rank == 0) {
        printf("sum %ld of %d\n", sum, size);
        fflush(stdout);
    }
    MPI_Finalize();
    return bad;
}
