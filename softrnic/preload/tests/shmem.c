// A test for four processes: puts, gets, atomics, a lock and collectives of OpenSHMEM.
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, count;
static long sums[1000], own[1000], reduce_work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 1000], reduce_sync[SHMEM_REDUCE_SYNC_SIZE];
static long collect_sync[SHMEM_COLLECT_SYNC_SIZE], gathered[64], counter, word, lock, shared, flag;

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%d: %s: wrong data\n", me, what);
		shmem_global_exit(1);
	}
}

static void ring(int length)
{
	int *in = shmem_malloc(length * sizeof *in), *out = malloc(length * sizeof *out);
	int next = (me + 1) % count, last = (me + count - 1) % count;

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < length; i++)
			out[i] = me * 1000 + round + i;
		shmem_barrier_all();
		shmem_int_put(in, out, length, next);
		shmem_barrier_all();
		for (int i = 0; i < length; i++)
			check(in[i] == last * 1000 + round + i, "put");
		memset(out, 0, length * sizeof *out);
		shmem_int_get(out, in, length, next);
		for (int i = 0; i < length; i++)
			check(out[i] == me * 1000 + round + i, "get");
	}
	// Put, then set a flag: the flag must not arrive before the data.
	shmem_barrier_all();
	for (int round = 1; round <= 100; round++) {
		for (int i = 0; i < length; i++)
			out[i] = round;
		shmem_int_put_nbi(in, out, length, next);
		shmem_fence();
		shmem_long_p(&flag, round, next);
		shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
		check(in[0] == round && in[length - 1] == round, "put before flag");
		shmem_barrier_all();
	}
	flag = 0;
	shmem_barrier_all();
	free(out);
	shmem_free(in);
}

static void atomics(void)
{
	for (int i = 0; i < 100; i++)
		shmem_long_atomic_fetch_add(&counter, 1, 0);
	for (int i = 0; i < 100; i++)
		shmem_long_atomic_inc(&counter, 0);
	for (int i = 0; i < 20; i++) {
		long before;
		do
			before = shmem_long_atomic_fetch(&word, 0);
		while (shmem_long_atomic_compare_swap(&word, before, before + 2, 0) != before);
	}
	for (int i = 0; i < 10; i++) {
		shmem_set_lock(&lock);
		long value = shmem_long_g(&shared, 0);
		shmem_long_p(&shared, value + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	check(shmem_long_g(&counter, 0) == 200 * count, "fetch and add");
	check(shmem_long_g(&word, 0) == 40 * count, "compare and swap");
	check(shmem_long_g(&shared, 0) == 10 * count, "lock");
	shmem_barrier_all();
}

static void collectives(void)
{
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		reduce_sync[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < SHMEM_COLLECT_SYNC_SIZE; i++)
		collect_sync[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < 1000; i++)
		own[i] = me + i;
	shmem_barrier_all();
	shmem_long_sum_to_all(sums, own, 1000, 0, 0, count, reduce_work, reduce_sync);
	for (int i = 0; i < 1000; i++)
		check(sums[i] == count * (count - 1) / 2 + (long)count * i, "sum");
	shmem_fcollect64(gathered, own, 2, 0, 0, count, collect_sync);
	for (int peer = 0; peer < count; peer++)
		check(gathered[2 * peer] == peer && gathered[2 * peer + 1] == peer + 1, "gather");
	shmem_barrier_all();
}

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	count = shmem_n_pes();
	check(count > 1, "number of processes");
	ring(1);
	ring(1000);
	ring(100000);
	atomics();
	collectives();
	if (me == 0)
		puts("all is well");
	shmem_finalize();
	return 0;
}
