/* Loops over AF_XDP rings in C, with a kernel in the same process: `xsk_c TASK ROUNDS`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define RING 256
#define FRAME 4096ull
#define FRAMES 512
#define LEN 64

struct desc {
	uint64_t addr;
	uint32_t len, options;
};

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
	uint32_t mask, size, cached_producer, cached_consumer;
};

static struct ring rx, tx, fill, completion;
static char *umem;

static void make(struct ring *r, size_t entry)
{
	char *base = aligned_alloc(64, 192 + RING * entry);

	memset(base, 0, 192 + RING * entry);
	r->producer = (uint32_t *)base;
	r->consumer = (uint32_t *)(base + 64);
	r->entries = base + 192;
	r->size = RING;
	r->mask = RING - 1;
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

/* Space for entries: all of it, or none. The cached consumer is one ring ahead. */
static inline uint32_t reserve(struct ring *r, uint32_t count, uint32_t *at)
{
	if (r->cached_consumer - r->cached_producer < count) {
		r->cached_consumer = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE) + r->size;
		if (r->cached_consumer - r->cached_producer < count)
			return 0;
	}
	*at = r->cached_producer;
	r->cached_producer += count;
	return count;
}

static inline void submit(struct ring *r, uint32_t count)
{
	__atomic_store_n(r->producer, *r->producer + count, __ATOMIC_RELEASE);
}

static inline struct desc *desc(struct ring *r, uint32_t at)
{
	return &((struct desc *)r->entries)[at & r->mask];
}

static inline uint64_t *addr(struct ring *r, uint32_t at)
{
	return &((uint64_t *)r->entries)[at & r->mask];
}

__attribute__((noinline)) static void simulation_deliver(void)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		uint64_t frame = *addr(&fill, *fill.consumer);
		struct desc *d = desc(&rx, *rx.producer);

		memset(umem + frame + 256, 0, LEN);
		d->addr = frame + 256;
		d->len = LEN;
		d->options = 0;
		release(&fill, 1);
		submit(&rx, 1);
	}
}

__attribute__((noinline)) static void simulation_transmit(void)
{
	while (*tx.consumer != *tx.producer) {
		*addr(&completion, *completion.producer) = desc(&tx, *tx.consumer)->addr;
		release(&tx, 1);
		submit(&completion, 1);
	}
}

__attribute__((noinline)) static uint64_t rxdrop(void)
{
	uint32_t from, to, count = peek(&rx, BATCH, &from);
	uint64_t bytes = 0;

	if (!reserve(&fill, count, &to))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		struct desc *d = desc(&rx, from++);

		bytes += d->len;
		*addr(&fill, to++) = d->addr & ~(FRAME - 1);
	}
	submit(&fill, count);
	release(&rx, count);
	return bytes;
}

__attribute__((noinline)) static uint64_t txpush(void)
{
	uint32_t from, to, count = peek(&completion, BATCH, &from);

	if (!reserve(&tx, count, &to))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		struct desc *d = desc(&tx, to++);

		d->addr = *addr(&completion, from++) & ~(FRAME - 1);
		d->len = LEN;
		d->options = 0;
	}
	submit(&tx, count);
	release(&completion, count);
	return count;
}

__attribute__((noinline)) static uint64_t l2fwd(void)
{
	uint32_t from, to, count = peek(&rx, BATCH, &from);
	uint64_t bytes = 0;

	if (!reserve(&tx, count, &to))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		struct desc *in = desc(&rx, from++), *out = desc(&tx, to++);

		bytes += in->len;
		out->addr = in->addr;
		out->len = in->len;
		out->options = 0;
	}
	submit(&tx, count);
	release(&rx, count);
	count = peek(&completion, BATCH, &from);
	if (!reserve(&fill, count, &to))
		return bytes;
	for (uint32_t i = 0; i < count; i++)
		*addr(&fill, to++) = *addr(&completion, from++) & ~(FRAME - 1);
	submit(&fill, count);
	release(&completion, count);
	return bytes;
}

int main(int argc, char **argv)
{
	uint64_t sum = 0, rounds;
	uint32_t at;

	if (argc != 3)
		return 2;
	rounds = strtoull(argv[2], NULL, 10);
	umem = aligned_alloc(4096, FRAMES * FRAME);
	make(&rx, sizeof(struct desc));
	make(&tx, sizeof(struct desc));
	make(&fill, sizeof(uint64_t));
	make(&completion, sizeof(uint64_t));
	reserve(&fill, RING, &at);
	for (uint32_t i = 0; i < RING; i++)
		*addr(&fill, i) = i * FRAME;
	submit(&fill, RING);
	if (!strcmp(argv[1], "rxdrop")) {
		for (uint64_t i = 0; i < rounds; i++) {
			simulation_deliver();
			sum += rxdrop();
		}
	} else if (!strcmp(argv[1], "txpush")) {
		reserve(&tx, BATCH, &at);
		for (uint32_t i = 0; i < BATCH; i++)
			*desc(&tx, i) = (struct desc){ .addr = (RING + i) * FRAME, .len = LEN };
		submit(&tx, BATCH);
		for (uint64_t i = 0; i < rounds; i++) {
			simulation_transmit();
			sum += txpush();
		}
	} else {
		for (uint64_t i = 0; i < rounds; i++) {
			simulation_deliver();
			sum += l2fwd();
			simulation_transmit();
		}
	}
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
