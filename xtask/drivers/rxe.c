/* rxe: ibv_bind_mw follows the region, also of a bind of no bytes that has none. */

#include DRIVER
#include "common.h"

static void bind_window(struct ibv_mr *mr)
{
	struct ibv_device device = {};
	struct rxe_qp *qp = must(calloc(1, sizeof(*qp)));
	size_t element = 512, entries = 16;
	struct ibv_mw mw = {};
	struct ibv_mw_bind request = { .bind_info = { .mr = mr } };

	qp->vqp.qp.context = &context_of(&device)->context;
	qp->vqp.qp.qp_type = IBV_QPT_RC;
	qp->sq.max_sge = qp->sq.max_inline = 4;
	qp->sq.queue = must(calloc(1, sizeof(*qp->sq.queue) + element * entries));
	qp->sq.queue->log2_elem_size = 9;
	qp->sq.queue->index_mask = entries - 1;
	pthread_spin_init(&qp->sq.lock, PTHREAD_PROCESS_PRIVATE);
	answers(rxe_bind_mw(&qp->vqp.qp, &mw, &request), 0, "rxe_bind_mw");
}

static void call(const char *what)
{
	struct ibv_mr mr = {};

	bind_window(strcmp(what, "passed") ? NULL : &mr);
}
