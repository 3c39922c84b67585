/* Reading the fields of completions, and polling an empty queue. */
#include <arpa/inet.h>

#include "loops.h"

/* A sum in which the order of the fields matters. */
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

/* Both count the polls without a completion, which are all. */
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
