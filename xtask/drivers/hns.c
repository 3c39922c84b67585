/* hns, extended: an atomic reads the first entry of its list, also of an empty one, whose address is 8 in Rust if no
 * static entry stands for it; and the sum of the lengths of inline data wraps. */

#include DRIVER
#include "common.h"

static struct hns_roce_qp *queue_pair(void)
{
	struct hns_roce_qp *qp = must(calloc(1, sizeof(*qp)));
	struct hns_roce_cq *cq = must(calloc(1, sizeof(*cq)));

	qp->verbs_qp.qp.state = IBV_QPS_RTS;
	qp->verbs_qp.qp.send_cq = &cq->verbs_cq.cq;
	qp->sq.wqe_cnt = qp->sq.max_post = 16;
	qp->sq.max_gs = 4;
	qp->sq.wqe_shift = 6;
	qp->sq.ext_sge_cnt = 4;
	qp->sq.wrid = must(calloc(qp->sq.wqe_cnt, sizeof(*qp->sq.wrid)));
	qp->ex_sge.sge_cnt = 64;
	qp->ex_sge.sge_shift = 4;
	qp->ex_sge.offset = qp->sq.wqe_cnt << qp->sq.wqe_shift;
	qp->max_inline_data = 64;
	qp->path_mtu = IBV_MTU_1024;
	qp->buf.buf = must(calloc(1, qp->ex_sge.offset + (64 << 4)));
	fill_send_wr_ops_rc_xrc(&qp->verbs_qp.qp_ex);
	wr_start(&qp->verbs_qp.qp_ex);
	return qp;
}

static void atomic(const struct ibv_sge *nothing)
{
	struct hns_roce_qp *qp = queue_pair();

	qp->verbs_qp.qp_ex.wr_atomic_fetch_add(&qp->verbs_qp.qp_ex, 1, 4096, 1);
	qp->verbs_qp.qp_ex.wr_set_sge_list(&qp->verbs_qp.qp_ex, 0, nothing);
	answers(qp->err, 0, "wr_set_sge_list");
}

static void inlined(size_t parts, size_t length)
{
	struct hns_roce_qp *qp = queue_pair();
	struct ibv_data_buf *list = must(calloc(parts, sizeof(*list)));
	void *bytes = must(calloc(1, length));

	for (size_t part = 0; part < parts; part++)
		list[part] = (struct ibv_data_buf){ .addr = bytes, .length = length };
	qp->verbs_qp.qp_ex.wr_rdma_write(&qp->verbs_qp.qp_ex, 1, 4096);
	qp->verbs_qp.qp_ex.wr_set_inline_data_list(&qp->verbs_qp.qp_ex, parts, list);
	answers(qp->err, 0, "wr_set_inline_data_list");
}

static void call(const char *what)
{
	static const struct ibv_sge nothing;

	if (!strcmp(what, "refused")) {
		atomic((const struct ibv_sge *)8);
	} else if (!strcmp(what, "refused_inline")) {
		/* 2^32 bytes. */
		inlined(4096, 1 << 20);
	} else {
		atomic(&nothing);
		inlined(1, 64);
		inlined(4, 16);
		inlined(1, 0);
	}
}
