/*
 * The loops that sideway's are compared with, as a program in C has them. What does not change from request to request
 * stands in local variables.
 *
 * Requests of the basic interface come in two styles. FRESH: each is initialised where it is posted, whatever it was before.
 * KEPT: lists are linked before the loop, and a request is only told what sideway tells one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define BATCH 32
#define FAILED UINT64_MAX

/* Laid out as `Work` of c.rs. */
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

/* Takes one completion, and adds its number. */
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

/* Takes so many completions, and adds their numbers. */
static inline int extended_take(struct ibv_cq_ex *cq, uint64_t count, uint64_t *sum)
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
			count--;
			ret = ibv_next_poll(cq);
		} while (!ret);
		ibv_end_poll(cq);
		if (ret != ENOENT)
			return ret;
	}
	return 0;
}

static inline int basic_take(struct ibv_cq *cq, uint64_t count, uint64_t *sum)
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
			count--;
		}
	}
	return 0;
}

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
		if (ibv_wr_complete(qp) || extended_take(cq, BATCH, &sum))
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
		if (ibv_post_send(qp, wr, &bad) || basic_take(cq, BATCH, &sum))
			return FAILED;
	}
	return sum;
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

/* Receives in one list, for those that have completed. */
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

/* The list has `count` receives, one at least. */
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

/* A sum whose terms cannot change places: each field is taken in its turn. */
static inline void add(uint64_t *sum, uint64_t field)
{
	uint64_t with = *sum + field;

	*sum = with << 5 | with >> 59;
}

uint64_t extended_standard(const struct work *work, uint64_t rounds)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	struct ibv_poll_cq_attr attr = {};
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int ret = ibv_start_poll(cq, &attr), count = 0;

		if (ret)
			return FAILED;
		do {
			add(&sum, cq->wr_id);
			add(&sum, cq->status);
			add(&sum, ibv_wc_read_opcode(cq));
			add(&sum, ibv_wc_read_vendor_err(cq));
			add(&sum, ibv_wc_read_byte_len(cq));
			add(&sum, ntohl(ibv_wc_read_imm_data(cq)));
			add(&sum, ibv_wc_read_qp_num(cq));
			add(&sum, ibv_wc_read_src_qp(cq));
			add(&sum, ibv_wc_read_wc_flags(cq));
			add(&sum, ibv_wc_read_slid(cq));
			add(&sum, ibv_wc_read_sl(cq));
			add(&sum, ibv_wc_read_dlid_path_bits(cq));
		} while (++count < BATCH && !(ret = ibv_next_poll(cq)));
		ibv_end_poll(cq);
		if (ret)
			return FAILED;
	}
	return sum;
}

uint64_t basic_standard(const struct work *work, uint64_t rounds)
{
	struct ibv_cq *cq = work->cq;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int count = ibv_poll_cq(cq, BATCH, wc);

		if (count < 0)
			return FAILED;
		for (int i = 0; i < count; i++) {
			add(&sum, wc[i].wr_id);
			add(&sum, wc[i].status);
			add(&sum, wc[i].opcode);
			add(&sum, wc[i].vendor_err);
			add(&sum, wc[i].byte_len);
			add(&sum, ntohl(wc[i].imm_data));
			add(&sum, wc[i].qp_num);
			add(&sum, wc[i].src_qp);
			add(&sum, wc[i].wc_flags);
			add(&sum, wc[i].slid);
			add(&sum, wc[i].sl);
			add(&sum, wc[i].dlid_path_bits);
		}
	}
	return sum;
}

uint64_t extended_fields(const struct work *work, uint64_t rounds)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	struct ibv_poll_cq_attr attr = {};
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int ret = ibv_start_poll(cq, &attr), count = 0;

		if (ret)
			return FAILED;
		do {
			struct ibv_wc_tm_info info;

			add(&sum, cq->wr_id);
			add(&sum, cq->status);
			add(&sum, ibv_wc_read_opcode(cq));
			add(&sum, ibv_wc_read_vendor_err(cq));
			add(&sum, ibv_wc_read_byte_len(cq));
			add(&sum, ntohl(ibv_wc_read_imm_data(cq)));
			add(&sum, ibv_wc_read_qp_num(cq));
			add(&sum, ibv_wc_read_src_qp(cq));
			add(&sum, ibv_wc_read_wc_flags(cq));
			add(&sum, ibv_wc_read_slid(cq));
			add(&sum, ibv_wc_read_sl(cq));
			add(&sum, ibv_wc_read_dlid_path_bits(cq));
			add(&sum, ibv_wc_read_completion_ts(cq));
			add(&sum, ibv_wc_read_completion_wallclock_ns(cq));
			add(&sum, ibv_wc_read_cvlan(cq));
			add(&sum, ibv_wc_read_flow_tag(cq));
			ibv_wc_read_tm_info(cq, &info);
			add(&sum, info.tag);
			add(&sum, info.priv);
		} while (++count < BATCH && !(ret = ibv_next_poll(cq)));
		ibv_end_poll(cq);
		if (ret)
			return FAILED;
	}
	return sum;
}

uint64_t basic_fields(const struct work *work, uint64_t rounds)
{
	struct ibv_cq *cq = work->cq;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int count = ibv_poll_cq(cq, BATCH, wc);

		if (count < 0)
			return FAILED;
		for (int i = 0; i < count; i++) {
			add(&sum, wc[i].wr_id);
			add(&sum, wc[i].status);
			add(&sum, wc[i].opcode);
			add(&sum, wc[i].vendor_err);
			add(&sum, wc[i].byte_len);
			add(&sum, ntohl(wc[i].imm_data));
			add(&sum, wc[i].qp_num);
			add(&sum, wc[i].src_qp);
			add(&sum, wc[i].wc_flags);
			add(&sum, wc[i].pkey_index);
			add(&sum, wc[i].slid);
			add(&sum, wc[i].sl);
			add(&sum, wc[i].dlid_path_bits);
		}
	}
	return sum;
}

/* Both count how often there was nothing, which is always. */
uint64_t extended_empty(const struct work *work, uint64_t rounds)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)work->cq;
	struct ibv_poll_cq_attr attr = {};
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int ret = ibv_start_poll(cq, &attr);

		if (ret == ENOENT) {
			sum++;
			continue;
		}
		if (ret)
			return FAILED;
		ibv_end_poll(cq);
	}
	return sum;
}

uint64_t basic_empty(const struct work *work, uint64_t rounds)
{
	struct ibv_cq *cq = work->cq;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		int count = ibv_poll_cq(cq, BATCH, wc);

		if (count < 0)
			return FAILED;
		if (count == 0)
			sum++;
	}
	return sum;
}
