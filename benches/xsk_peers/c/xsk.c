/* Loops over AF_XDP sockets in C: `xsk TASK INTERFACE MAP SECONDS` prints the packets and the nanoseconds of CPU time. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define RING 2048
#define FRAME 4096ull
#define FRAMES 4096
#define LEN 60

struct ring {
	uint32_t *producer, *consumer, *flags;
	void *entries;
	uint32_t cached_producer, cached_consumer;
};

static struct ring rx, tx, fill, completion;
static char *umem;
static int fd;

static void check(int failed, const char *what)
{
	if (!failed)
		return;
	perror(what);
	exit(1);
}

static void map(struct ring *r, int name, uint64_t at, const struct xdp_ring_offset *offset, size_t entry)
{
	uint32_t size = RING;
	char *base;

	check(setsockopt(fd, SOL_XDP, name, &size, sizeof size), "ring");
	base = mmap(NULL, offset->desc + RING * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
	check(base == MAP_FAILED, "mmap");
	r->producer = (uint32_t *)(base + offset->producer);
	r->consumer = (uint32_t *)(base + offset->consumer);
	r->flags = (uint32_t *)(base + offset->flags);
	r->entries = base + offset->desc;
}

/* Entries that can be taken. */
static inline uint32_t peek(struct ring *r, uint32_t max, uint32_t *at)
{
	uint32_t count = r->cached_producer - r->cached_consumer;

	if (!count) {
		r->cached_producer = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
		count = r->cached_producer - r->cached_consumer;
	}
	if (count > max)
		count = max;
	*at = r->cached_consumer;
	r->cached_consumer += count;
	return count;
}

static inline void release(struct ring *r, uint32_t count)
{
	__atomic_store_n(r->consumer, *r->consumer + count, __ATOMIC_RELEASE);
}

/* Space for entries, up to a number. */
static inline uint32_t space(struct ring *r, uint32_t max)
{
	uint32_t free = RING - (r->cached_producer - r->cached_consumer);

	if (free < max) {
		r->cached_consumer = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE);
		free = RING - (r->cached_producer - r->cached_consumer);
	}
	return free < max ? free : max;
}

static inline void submit(struct ring *r, uint32_t count)
{
	r->cached_producer += count;
	__atomic_store_n(r->producer, r->cached_producer, __ATOMIC_RELEASE);
}

static inline struct xdp_desc *desc(struct ring *r, uint32_t at)
{
	return &((struct xdp_desc *)r->entries)[at & (RING - 1)];
}

static inline uint64_t *addr(struct ring *r, uint32_t at)
{
	return &((uint64_t *)r->entries)[at & (RING - 1)];
}

static void wake(void)
{
	if (!(*(volatile uint32_t *)tx.flags & XDP_RING_NEED_WAKEUP))
		return;
	if (sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
		check(errno != EAGAIN && errno != EBUSY && errno != ENOBUFS && errno != EINTR, "sendto");
}

static uint32_t rxdrop(void)
{
	uint32_t from, count = peek(&rx, space(&fill, BATCH), &from);

	for (uint32_t i = 0; i < count; i++)
		*addr(&fill, fill.cached_producer + i) = desc(&rx, from + i)->addr & ~(FRAME - 1);
	submit(&fill, count);
	release(&rx, count);
	return count;
}

static uint32_t txpush(uint32_t *unused)
{
	uint32_t from, max = space(&tx, BATCH), count = peek(&completion, max, &from), all = count;

	for (uint32_t i = 0; i < count; i++)
		*desc(&tx, tx.cached_producer + i) = (struct xdp_desc){ *addr(&completion, from + i), LEN, 0 };
	release(&completion, count);
	for (; all < max && *unused; all++)
		*desc(&tx, tx.cached_producer + all) = (struct xdp_desc){ --*unused * FRAME, LEN, 0 };
	submit(&tx, all);
	wake();
	return all;
}

static uint32_t l2fwd(void)
{
	uint32_t from, sent, count = peek(&rx, space(&tx, BATCH), &from);

	for (uint32_t i = 0; i < count; i++) {
		struct xdp_desc *d = desc(&rx, from + i);
		char *packet = umem + d->addr, other[6];

		memcpy(other, packet, 6);
		memcpy(packet, packet + 6, 6);
		memcpy(packet + 6, other, 6);
		*desc(&tx, tx.cached_producer + i) = (struct xdp_desc){ d->addr, d->len, 0 };
	}
	submit(&tx, count);
	release(&rx, count);
	if (__atomic_load_n(tx.consumer, __ATOMIC_ACQUIRE) != tx.cached_producer)
		wake();
	sent = peek(&completion, space(&fill, BATCH), &from);
	for (uint32_t i = 0; i < sent; i++)
		*addr(&fill, fill.cached_producer + i) = *addr(&completion, from + i) & ~(FRAME - 1);
	submit(&fill, sent);
	release(&completion, sent);
	return count;
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
	int is_push, is_forward, map_fd;
	uint32_t budget = RING, key = 0, unused = FRAMES;
	struct xdp_umem_reg reg = { .chunk_size = FRAME, .len = FRAME * FRAMES };
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_USE_NEED_WAKEUP };
	struct xdp_mmap_offsets offsets;
	socklen_t size = sizeof offsets;
	uint64_t packets = 0;
	double end, cpu;

	if (count != 5)
		return 2;
	is_push = !strcmp(arguments[1], "txpush");
	is_forward = !strcmp(arguments[1], "l2fwd");
	map_fd = atoi(arguments[3]);
	fd = socket(AF_XDP, SOCK_RAW, 0);
	check(fd < 0, "socket");
	umem = mmap(NULL, reg.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(umem == MAP_FAILED, "mmap");
	reg.addr = (uintptr_t)umem;
	check(setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg), "UMEM");
	check(getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size), "offsets");
	map(&fill, XDP_UMEM_FILL_RING, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, 8);
	map(&completion, XDP_UMEM_COMPLETION_RING, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, 8);
	if (!is_push)
		map(&rx, XDP_RX_RING, XDP_PGOFF_RX_RING, &offsets.rx, 16);
	if (is_push || is_forward) {
		map(&tx, XDP_TX_RING, XDP_PGOFF_TX_RING, &offsets.tx, 16);
		setsockopt(fd, SOL_XDP, 9 /* XDP_MAX_TX_SKB_BUDGET */, &budget, sizeof budget);
	}
	address.sxdp_ifindex = if_nametoindex(arguments[2]);
	check(bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
	for (uint64_t at = 0; is_push && at < FRAMES; at++)
		memcpy(umem + at * FRAME, "\xff\xff\xff\xff\xff\xff\2\0\0\0\0\1\x88\xb5", 14);
	for (uint32_t at = 0; !is_push && at < RING; at++)
		*addr(&fill, at) = --unused * FRAME;
	if (!is_push) {
		union bpf_attr attr = { .map_fd = map_fd, .key = (uintptr_t)&key, .value = (uintptr_t)&fd };

		submit(&fill, RING);
		check(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof attr), "map");
	}
	end = now(CLOCK_MONOTONIC) + atof(arguments[4]);
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	for (uint32_t at = 0; at++ % 256 || now(CLOCK_MONOTONIC) < end;) {
		uint32_t moved = is_push ? txpush(&unused) : is_forward ? l2fwd() : rxdrop();
		struct pollfd idle = { fd, POLLIN, 0 };

		packets += moved;
		if (!moved && !is_push)
			poll(&idle, 1, 100);
	}
	cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("%llu %.0f\n", (unsigned long long)packets, cpu * 1e9);
	return 0;
}
