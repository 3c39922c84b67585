/*
 * The loops in C for comparison with sideway's. Values that do not change between requests are local variables.
 *
 * Requests of the basic interface have two styles. FRESH: each is initialised where it is posted. KEPT: lists are
 * linked before the loop, which writes the same fields as sideway.
 */
#ifndef LOOPS_H
#define LOOPS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define BATCH 32
#define FAILED UINT64_MAX

/* The layout is that of `Work` in c.rs. */
struct work {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct ibv_cq *cq;
	const void *data;
	uint64_t addr;
	uint64_t remote_addr;
	uint32_t length;
	uint32_t lkey;
	uint32_t rkey;
};

/* Polls one completion, and adds its number. */
static inline int extended_take_1(struct ibv_cq_ex *cq, uint64_t *sum)
{
	struct ibv_poll_cq_attr attr = {};
	int ret;

	do
		ret = ibv_start_poll(cq, &attr);
	while (ret == ENOENT);
	if (ret)
		return ret;
	if (cq->status != IBV_WC_SUCCESS) {
		ibv_end_poll(cq);
		return EIO;
	}
	*sum += cq->wr_id;
	ibv_end_poll(cq);
	return 0;
}

static inline int basic_take_1(struct ibv_cq *cq, uint64_t *sum)
{
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(cq, 1, &wc);
	while (count == 0);
	if (count < 0 || wc.status != IBV_WC_SUCCESS)
		return EIO;
	*sum += wc.wr_id;
	return 0;
}

/* Polls `count` completions, and adds their numbers, and with `opcodes` their opcodes. */
static inline int extended_take(struct ibv_cq_ex *cq, uint64_t count, uint64_t *sum, bool opcodes)
{
	struct ibv_poll_cq_attr attr = {};

	while (count) {
		int ret = ibv_start_poll(cq, &attr);

		if (ret == ENOENT)
			continue;
		if (ret)
			return ret;
		do {
			if (cq->status != IBV_WC_SUCCESS) {
				ibv_end_poll(cq);
				return EIO;
			}
			*sum += cq->wr_id;
			if (opcodes)
				*sum += ibv_wc_read_opcode(cq);
			count--;
			ret = ibv_next_poll(cq);
		} while (!ret);
		ibv_end_poll(cq);
		if (ret != ENOENT)
			return ret;
	}
	return 0;
}

static inline int basic_take(struct ibv_cq *cq, uint64_t count, uint64_t *sum, bool opcodes)
{
	struct ibv_wc wc[BATCH];

	while (count) {
		int got = ibv_poll_cq(cq, BATCH, wc);

		if (got < 0)
			return EIO;
		for (int i = 0; i < got; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				return EIO;
			*sum += wc[i].wr_id;
			if (opcodes)
				*sum += wc[i].opcode;
			count--;
		}
	}
	return 0;
}

#endif
