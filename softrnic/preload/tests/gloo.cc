/* Three processes add and broadcast numbers with Gloo's transport for verbs on soft0, and compare the results.
 *
 * Gloo aborts if an algorithm is destroyed before its last sends have completed, and has no function that waits for
 * them. So nothing is destroyed, and no process exits before all have their results. */

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "gloo/allreduce_halving_doubling.h"
#include "gloo/allreduce_ring.h"
#include "gloo/allreduce_ring_chunked.h"
#include "gloo/barrier_all_to_all.h"
#include "gloo/broadcast_one_to_all.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/file_store.h"
#include "gloo/transport/ibverbs/device.h"

static const int SIZE = 3;

static void check(bool is_right, const char *what)
{
	if (!is_right) {
		fprintf(stderr, "%s: wrong data\n", what);
		exit(1);
	}
}

template <typename Algorithm> static void add(const std::shared_ptr<gloo::Context> &context, int count, const char *what)
{
	auto &numbers = *new std::vector<int>(count);

	for (int i = 0; i < count; i++)
		numbers[i] = (context->rank + 1) * i;
	(new Algorithm(context, std::vector<int *>{numbers.data()}, count))->run();
	for (int i = 0; i < count; i++)
		check(numbers[i] == SIZE * (SIZE + 1) / 2 * i, what);
}

static void run(int rank, const std::string &folder)
{
	auto device = gloo::transport::ibverbs::CreateDevice({"soft0", 1, 0});
	gloo::rendezvous::FileStore store(folder);
	auto &context = *new auto(std::make_shared<gloo::rendezvous::Context>(rank, SIZE));

	context->connectFullMesh(store, device);
	auto &barrier = *new gloo::BarrierAllToAll(context);
	for (int count : {1, 1000, 1000000}) {
		add<gloo::AllreduceRing<int>>(context, count, "ring");
		barrier.run();
		add<gloo::AllreduceRingChunked<int>>(context, count, "ring of chunks");
		barrier.run();
		add<gloo::AllreduceHalvingDoubling<int>>(context, count, "halving and doubling");
		barrier.run();
		auto &numbers = *new std::vector<int>(count, rank == 0 ? 77 : 0);
		(new gloo::BroadcastOneToAll<int>(context, std::vector<int *>{numbers.data()}, count, 0))->run();
		for (int number : numbers)
			check(number == 77, "broadcast");
		barrier.run();
	}
}

int main()
{
	char folder[] = "/tmp/gloo.XXXXXX", byte = 0;
	int done[2], end[2], failures = 0;

	check(mkdtemp(folder) && !pipe(done) && !pipe(end), "set-up");
	for (int rank = 0; rank < SIZE; rank++)
		if (!fork()) {
			close(end[1]);
			run(rank, folder);
			check(write(done[1], &byte, 1) == 1 && !close(done[1]), "write");
			check(!read(end[0], &byte, 1), "read");
			_exit(0);
		}
	close(done[1]);
	for (int rank = 0; rank < SIZE; rank++)
		check(read(done[0], &byte, 1) == 1, "a process");
	close(end[1]);
	for (int rank = 0; rank < SIZE; rank++) {
		int status;

		check(wait(&status) > 0, "wait");
		failures += status != 0;
	}
	check(!failures && !system(("rm -r " + std::string(folder)).c_str()), "the end");
	puts("all is well");
	return 0;
}
