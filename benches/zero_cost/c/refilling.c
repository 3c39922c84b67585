/* Receives that are posted again when they complete. */
#include "loops.h"

/* A list of receives, to post for completed ones. */
struct refill {
	struct ibv_recv_wr wr[BATCH];
	struct ibv_sge sge[BATCH];
};

static inline void refill_link(struct refill *refill)
{
	for (int i = 0; i < BATCH; i++) {
		refill->wr[i].next = &refill->wr[i + 1];
		refill->wr[i].sg_list = &refill->sge[i];
	}
}

static inline void refill_add(struct refill *refill, int i, uint64_t wr_id, const struct ibv_sge *sge)
{
#ifdef KEPT
	refill->wr[i].wr_id = wr_id;
	refill->wr[i].num_sge = 1;
#else
	refill->wr[i] = (struct ibv_recv_wr){
		.wr_id = wr_id,
		.next = &refill->wr[i + 1],
		.sg_list = &refill->sge[i],
		.num_sge = 1,
	};
#endif
	refill->sge[i] = *sge;
}

/* The list has `count` receives, at least one. */
static inline int refill_post(struct refill *refill, int count, struct ibv_qp *qp)
{
	struct ibv_recv_wr *bad, *last = &refill->wr[count - 1];
	int ret;

	last->next = NULL;
	ret = ibv_post_recv(qp, refill->wr, &bad);
#ifdef KEPT
	last->next = last + 1;
#endif
	return ret;
}

uint64_t extended_refill(const struct work *work, uint64_t rounds)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	struct ibv_sge sge = { .addr = work->addr, .length = work->length, .lkey = work->lkey };
	struct ibv_poll_cq_attr attr = {};
	struct refill refill;
	uint64_t sum = 0;

	refill_link(&refill);
	for (uint64_t round = 0; round < rounds; round++) {
		int ret = ibv_start_poll(cq, &attr), count = 0;

		if (ret == ENOENT)
			continue;
		if (ret)
			return FAILED;
		do {
			if (cq->status != IBV_WC_SUCCESS) {
				ibv_end_poll(cq);
				return FAILED;
			}
			sum += cq->wr_id;
			refill_add(&refill, count++, cq->wr_id, &sge);
		} while (count < BATCH && !(ret = ibv_next_poll(cq)));
		ibv_end_poll(cq);
		if (ret && ret != ENOENT)
			return FAILED;
		if (refill_post(&refill, count, qp))
			return FAILED;
	}
	return sum;
}

uint64_t basic_refill(const struct work *work, uint64_t rounds)
{
	struct ibv_qp *qp = work->qp;
	struct ibv_cq *cq = work->cq;
	struct ibv_sge sge = { .addr = work->addr, .length = work->length, .lkey = work->lkey };
	struct ibv_wc wc[BATCH];
	struct refill refill;
	uint64_t sum = 0;

	refill_link(&refill);
	for (uint64_t round = 0; round < rounds; round++) {
		int count = ibv_poll_cq(cq, BATCH, wc);

		if (count < 0)
			return FAILED;
		if (count == 0)
			continue;
		for (int i = 0; i < count; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				return FAILED;
			sum += wc[i].wr_id;
			refill_add(&refill, i, wc[i].wr_id, &sge);
		}
		if (refill_post(&refill, count, qp))
			return FAILED;
	}
	return sum;
}
