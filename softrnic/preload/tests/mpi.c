// Tests for four processes: a ring, an all-to-all exchange, and windows.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: wrong data\n", what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static int rank, size;

static void ring(int length)
{
	int *out = malloc(length * sizeof *out), *in = malloc(length * sizeof *in);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < length; i++) {
			out[i] = rank * 1000 + round + i;
			in[i] = -1;
		}
		MPI_Sendrecv(out, length, MPI_INT, next, round, in, length, MPI_INT, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < length; i++)
			check(in[i] == last * 1000 + round + i, "ring");
	}
	free(out);
	free(in);
}

static void all_to_all(int length)
{
	int *out = malloc(size * length * sizeof *out), *in = malloc(size * length * sizeof *in);

	for (int i = 0; i < size * length; i++) {
		out[i] = rank * 100000 + i;
		in[i] = -1;
	}
	MPI_Alltoall(out, length, MPI_INT, in, length, MPI_INT, MPI_COMM_WORLD);
	for (int peer = 0; peer < size; peer++)
		for (int i = 0; i < length; i++)
			check(in[peer * length + i] == peer * 100000 + rank * length + i, "all-to-all");
	free(out);
	free(in);
}

static void windows(int length)
{
	long *memory, *got = malloc(length * sizeof *got), *out = malloc(length * sizeof *out), one = 1, before;
	MPI_Win window;
	int next = (rank + 1) % size, last = (rank + size - 1) % size;

	MPI_Win_allocate((length + 1) * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	for (int i = 0; i <= length; i++)
		memory[i] = 0;
	for (int i = 0; i < length; i++)
		out[i] = rank * 1000 + i;
	MPI_Win_fence(0, window);
	MPI_Put(out, length, MPI_LONG, next, 0, length, MPI_LONG, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < length; i++)
		check(memory[i] == last * 1000 + i, "put");
	MPI_Get(got, length, MPI_LONG, next, 0, length, MPI_LONG, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < length; i++)
		check(got[i] == rank * 1000 + i, "get");
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < 100; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, length, MPI_SUM, window);
		MPI_Win_flush(0, window);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	MPI_Get(&before, 1, MPI_LONG, 0, length, 1, MPI_LONG, window);
	MPI_Win_unlock(0, window);
	check(before == 100 * size, "fetch and add");
	MPI_Win_free(&window);
	free(got);
	free(out);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(size > 1, "number of processes");
	const int lengths[] = {1, 1000, 100000};
	for (int i = 0; i < 3; i++) {
		ring(lengths[i]);
		all_to_all(lengths[i]);
	}
	windows(1000);
	if (rank == 0)
		puts("all is well");
	MPI_Finalize();
	return 0;
}
