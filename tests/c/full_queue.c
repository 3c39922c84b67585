/* A driver whose extended send queue records an error for a request without space and continues, and a C program that fills such a queue.
 *
 * sideway recognizes drivers by their file names, so the test gives this one the name of mlx5's.
 */
#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>

#define ROOM 4

/* The fields of a request that the device reads, until the request has completed. */
struct slot {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t lkey;
	uint64_t addr;
	uint32_t length;
};

static struct {
	struct slot slots[ROOM];
	unsigned int head, tail, count;
	struct slot *current;
	int error;
} queue;

/* The requests in flight, oldest first, and their number. */
unsigned int in_flight(struct slot *out)
{
	unsigned int count = queue.head - queue.tail;

	for (unsigned int i = 0; i < count; i++)
		out[i] = queue.slots[(queue.tail + i) % ROOM];
	return count;
}

void empty_queue(void)
{
	memset(&queue, 0, sizeof(queue));
}

static int has_room(void)
{
	return queue.head + queue.count - queue.tail < ROOM;
}

static void wr_start(struct ibv_qp_ex *qp)
{
	queue.count = 0;
	queue.error = 0;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	/* Without space, the following data is written to the request before. */
	if (has_room())
		queue.current = &queue.slots[(queue.head + queue.count++) % ROOM];
	else
		queue.error = ENOMEM;
	queue.current->wr_id = qp->wr_id;
	queue.current->rkey = rkey;
	queue.current->remote_addr = remote_addr;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	queue.current->lkey = lkey;
	queue.current->addr = addr;
	queue.current->length = length;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	if (!queue.error)
		queue.head += queue.count;
	return queue.error;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
}

void set_functions(struct ibv_qp_ex *qp)
{
	qp->wr_start = wr_start;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
}

/* The basic interface of the same driver, which checks first. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	queue.count = 0;
	for (; wr; wr = wr->next) {
		if (!has_room()) {
			*bad = wr;
			return ENOMEM;
		}
		queue.slots[queue.head++ % ROOM] = (struct slot) {
			.wr_id = wr->wr_id,
			.remote_addr = wr->wr.rdma.remote_addr,
			.rkey = wr->wr.rdma.rkey,
			.lkey = wr->sg_list->lkey,
			.addr = wr->sg_list->addr,
			.length = wr->sg_list->length,
		};
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int polled = 0;

	for (; polled < count && queue.tail != queue.head; polled++)
		wc[polled] = (struct ibv_wc) { .wr_id = queue.slots[queue.tail++ % ROOM].wr_id };
	return polled;
}

void drive(struct ibv_context *context)
{
	context->ops.post_send = post_send;
	context->ops.poll_cq = poll_cq;
}

/* The program: posts N writes one by one and polls nothing; returns the result of the last post. */
int overfill(struct ibv_qp_ex *qp, unsigned int requests)
{
	int error = 0;

	for (unsigned int i = 0; i < requests; i++) {
		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, 100 + i, 0x1000 * i);
		ibv_wr_set_sge(qp, 7, 0x100000 * (i + 1), 64);
		error = ibv_wr_complete(qp);
	}
	return error;
}
