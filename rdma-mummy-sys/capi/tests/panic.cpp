// A panic inside the library aborts the program: it does not unwind through the program's functions.
//
// To force a panic, this program replaces clock_gettime() and makes it fail: Rust's standard library panics if the clock fails.

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <infiniband/verbs.h>
#include <rdma_mummy.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_broken;

// Replaces the C library's function.
extern "C" int clock_gettime(clockid_t clock, struct timespec *time) noexcept
{
	if (!is_broken)
		return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
	errno = EINVAL;
	return -1;
}

struct Frame {
	~Frame() { puts("a frame of the program was unwound"); }
};

static int addresses(ibv_context *context)
{
	Frame frame;
	ibv_gid gid;

	return ibv_query_gid(context, 1, 0, &gid);
}

int main()
{
	const struct rlimit no_core = { 0, 0 };
	ibv_device **list;
	ibv_context *context;

	setrlimit(RLIMIT_CORE, &no_core);
	setbuf(stdout, nullptr);
	if (rdma_mummy_register_softrnic() || !(list = ibv_get_device_list(nullptr)))
		return 1;
	if (!*list || !(context = ibv_open_device(*list)) || addresses(context))
		return 1;
	puts("the clock fails from now on");
	is_broken = true;
	try {
		printf("ibv_query_gid returned %d\n", addresses(context));
	} catch (...) {
		puts("a panic arrived as an exception");
	}
	return 0;
}
