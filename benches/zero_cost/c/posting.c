/* Posting one request and polling its completion, 32 of both, and inline data. */
#include "loops.h"

uint64_t extended_post_1(const struct work *work, uint64_t rounds)
{
	struct ibv_qp_ex *qp = work->qp_ex;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;

	for (uint64_t round = 0; round < rounds; round++) {
		ibv_wr_start(qp);
		qp->wr_id = round;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, rkey, remote_addr);
		ibv_wr_set_sge(qp, lkey, addr, length);
		if (ibv_wr_complete(qp) || extended_take_1(cq, &sum))
			return FAILED;
	}
	return sum;
}

uint64_t basic_post_1(const struct work *work, uint64_t rounds)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;
#ifdef KEPT
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge }, *bad;

	for (uint64_t round = 0; round < rounds; round++) {
		wr.wr_id = round;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
		sge.addr = addr;
		sge.length = length;
		sge.lkey = lkey;
#else
	for (uint64_t round = 0; round < rounds; round++) {
		struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };
		struct ibv_send_wr wr = {
			.wr_id = round,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
		};
		struct ibv_send_wr *bad;
#endif

		if (ibv_post_send(qp, &wr, &bad) || basic_take_1(cq, &sum))
			return FAILED;
	}
	return sum;
}

uint64_t extended_post_32(const struct work *work, uint64_t rounds)
{
	struct ibv_qp_ex *qp = work->qp_ex;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;

	for (uint64_t round = 0; round < rounds; round++) {
		ibv_wr_start(qp);
		for (uint64_t i = 0; i < BATCH; i++) {
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(qp, rkey, remote_addr);
			ibv_wr_set_sge(qp, lkey, addr, length);
		}
		if (ibv_wr_complete(qp) || extended_take(cq, BATCH, &sum, false))
			return FAILED;
	}
	return sum;
}

uint64_t basic_post_32(const struct work *work, uint64_t rounds)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;
	struct ibv_send_wr wr[BATCH] = {}, *bad;
	struct ibv_sge sge[BATCH];

	for (int i = 0; i < BATCH; i++) {
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
	}
	for (uint64_t round = 0; round < rounds; round++) {
		for (int i = 0; i < BATCH; i++) {
#ifdef KEPT
			wr[i].wr_id = i;
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = remote_addr;
			wr[i].wr.rdma.rkey = rkey;
#else
			wr[i] = (struct ibv_send_wr){
				.wr_id = i,
				.next = i + 1 < BATCH ? &wr[i + 1] : NULL,
				.sg_list = &sge[i],
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
			};
#endif
			sge[i] = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
		}
		if (ibv_post_send(qp, wr, &bad) || basic_take(cq, BATCH, &sum, false))
			return FAILED;
	}
	return sum;
}

/* Batches of a size that is not known at compile time, and completions with their opcodes. */
static __attribute__((noipa)) uint64_t extended_steps(const struct work *work, uint64_t rounds, uint64_t batch)
{
	struct ibv_qp_ex *qp = work->qp_ex;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;

	for (uint64_t round = 0; round < rounds; round++) {
		ibv_wr_start(qp);
		for (uint64_t i = 0; i < batch; i++) {
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(qp, rkey, remote_addr);
			ibv_wr_set_sge(qp, lkey, addr, length);
		}
		if (ibv_wr_complete(qp) || extended_take(cq, batch, &sum, true))
			return FAILED;
	}
	return sum;
}

static __attribute__((noipa)) uint64_t basic_steps(const struct work *work, uint64_t rounds, uint64_t batch)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	uint64_t addr = work->addr, remote_addr = work->remote_addr, sum = 0;
	uint32_t length = work->length, lkey = work->lkey, rkey = work->rkey;
	struct ibv_send_wr wr[BATCH] = {}, *bad;
	struct ibv_sge sge[BATCH];

	for (uint64_t i = 0; i < batch; i++) {
		wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
	}
	for (uint64_t round = 0; round < rounds; round++) {
		for (uint64_t i = 0; i < batch; i++) {
#ifdef KEPT
			wr[i].wr_id = i;
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = remote_addr;
			wr[i].wr.rdma.rkey = rkey;
#else
			wr[i] = (struct ibv_send_wr){
				.wr_id = i,
				.next = i + 1 < batch ? &wr[i + 1] : NULL,
				.sg_list = &sge[i],
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
			};
#endif
			sge[i] = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
		}
		if (ibv_post_send(qp, wr, &bad) || basic_take(cq, batch, &sum, true))
			return FAILED;
	}
	return sum;
}

uint64_t extended_steps_1(const struct work *work, uint64_t rounds)
{
	return extended_steps(work, rounds, 1);
}

uint64_t extended_steps_32(const struct work *work, uint64_t rounds)
{
	return extended_steps(work, rounds, BATCH);
}

uint64_t basic_steps_1(const struct work *work, uint64_t rounds)
{
	return basic_steps(work, rounds, 1);
}

uint64_t basic_steps_32(const struct work *work, uint64_t rounds)
{
	return basic_steps(work, rounds, BATCH);
}

/* A list that is linked and filled before the loop. */
static inline __attribute__((always_inline)) uint64_t basic_prepared(const struct work *work, uint64_t rounds, int batch,
								     bool moved)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	uint64_t remote_addr = work->remote_addr, sum = 0;
	struct ibv_sge sge = { .addr = work->addr, .length = work->length, .lkey = work->lkey };
	struct ibv_send_wr wr[BATCH], *bad;

	for (int i = 0; i < batch; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < batch ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = remote_addr, .rkey = work->rkey },
		};
	for (uint64_t round = 0; round < rounds; round++) {
		if (batch == 1)
			wr[0].wr_id = round;
		if (moved)
			for (int i = 0; i < batch; i++)
				wr[i].wr.rdma.remote_addr = remote_addr + round;
		if (ibv_post_send(qp, wr, &bad) || (batch == 1 ? basic_take_1(cq, &sum) : basic_take(cq, batch, &sum, false)))
			return FAILED;
	}
	return sum;
}

uint64_t basic_prepared_1(const struct work *work, uint64_t rounds)
{
	return basic_prepared(work, rounds, 1, false);
}

uint64_t basic_prepared_32(const struct work *work, uint64_t rounds)
{
	return basic_prepared(work, rounds, BATCH, false);
}

uint64_t basic_moved_32(const struct work *work, uint64_t rounds)
{
	return basic_prepared(work, rounds, BATCH, true);
}

uint64_t extended_inline(const struct work *work, uint64_t rounds)
{
	struct ibv_qp_ex *qp = work->qp_ex;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	const void *data = work->data;
	uint64_t sum = 0;
	uint32_t length = work->length;

	for (uint64_t round = 0; round < rounds; round++) {
		ibv_wr_start(qp);
		qp->wr_id = round;
		qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, (void *)data, length);
		if (ibv_wr_complete(qp) || extended_take_1(cq, &sum))
			return FAILED;
	}
	return sum;
}

uint64_t basic_inline(const struct work *work, uint64_t rounds)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	const void *data = work->data;
	uint64_t sum = 0;
	uint32_t length = work->length;
#ifdef KEPT
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge }, *bad;

	for (uint64_t round = 0; round < rounds; round++) {
		wr.wr_id = round;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		sge.addr = (uintptr_t)data;
		sge.length = length;
		sge.lkey = 0;
#else
	for (uint64_t round = 0; round < rounds; round++) {
		struct ibv_sge sge = { .addr = (uintptr_t)data, .length = length };
		struct ibv_send_wr wr = {
			.wr_id = round,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		};
		struct ibv_send_wr *bad;
#endif

		if (ibv_post_send(qp, &wr, &bad) || basic_take_1(cq, &sum))
			return FAILED;
	}
	return sum;
}
