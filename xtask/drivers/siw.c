/* siw: an atomic write has an opcode beyond its table. */

#include DRIVER
#include "common.h"

static struct siw_qp *queue_pair(void)
{
	struct siw_qp *qp = must(calloc(1, sizeof(*qp)));

	qp->base_qp.context = &context_of(NULL)->context;
	qp->num_sqe = 64;
	qp->sendq = must(calloc(qp->num_sqe, sizeof(*qp->sendq)));
	pthread_spin_init(&qp->sq_lock, PTHREAD_PROCESS_PRIVATE);
	return qp;
}

static void post(enum ibv_wr_opcode opcode, int expected)
{
	struct siw_qp *qp = queue_pair();
	struct ibv_sge list[SIW_MAX_SGE] = {};
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = list, .num_sge = SIW_MAX_SGE }, *bad;

	answers(siw_post_send(&qp->base_qp, &wr, &bad), expected, "siw_post_send");
}

static void call(const char *what)
{
	if (strcmp(what, "passed")) {
		post(IBV_WR_ATOMIC_WRITE, 0);
		return;
	}
	post(IBV_WR_RDMA_WRITE, 0);
	post(IBV_WR_RDMA_READ, 0);
	post(IBV_WR_SEND, 0);
	post(IBV_WR_SEND_WITH_INV, 0);
	post(IBV_WR_SEND_WITH_IMM, -EINVAL);
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, -EINVAL);
	post(IBV_WR_BIND_MW, -EINVAL);
}
