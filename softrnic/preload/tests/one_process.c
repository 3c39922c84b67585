/* Two RC queue pairs of one process on soft0: a send, a write and a read, each compared byte by byte. Then the contexts of librdmacm.
 *
 * With the argument `fork` the process forks before its first verb, and parent and child each run the whole test. */

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 8192, TRIES = 100000000 };

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct ibv_context *open_soft(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	CHECK(list);
	for (int i = 0; i < count && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "soft0"))
			context = ibv_open_device(list[i]);
	CHECK(context);
	CHECK(!strcmp(context->device->ibdev_path, "/sys/class/infiniband/soft0"));
	CHECK(!access(context->device->ibdev_path, F_OK) && !access(context->device->dev_path, F_OK));
	ibv_free_device_list(list);
	return context;
}

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_qp *qp;

	init.cap.max_send_wr = init.cap.max_recv_wr = 8;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = all };
	struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
				     .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				    .max_rd_atomic = 1 };

	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	ready.ah_attr.is_global = 1;
	ready.ah_attr.port_num = 1;
	ready.ah_attr.grh.dgid = gid;
	ready.ah_attr.grh.hop_limit = 1;
	CHECK(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void complete(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	for (long tries = 0; count > 0 && tries < TRIES; tries++) {
		int found = ibv_poll_cq(cq, 1, &wc);

		CHECK(found >= 0);
		if (found && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "the completion of wr %d failed: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
			exit(1);
		}
		count -= found;
	}
	CHECK(count == 0);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to)
{
	struct ibv_sge piece = { .addr = (uintptr_t)from->addr, .length = SIZE, .lkey = from->lkey };
	struct ibv_send_wr wr = { .wr_id = opcode, .sg_list = &piece, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
	wr.wr.rdma.rkey = to->rkey;
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void everything(void)
{
	static unsigned char here[SIZE], there[SIZE];
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_context *context = open_soft();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_mr *near = ibv_reg_mr(pd, here, SIZE, all), *far = ibv_reg_mr(pd, there, SIZE, all);
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(pd && cq && near && far);
	CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(!ibv_query_gid(context, 1, 0, &gid));

	struct ibv_qp *one = make(pd, cq), *two = make(pd, cq);
	struct ibv_sge piece = { .addr = (uintptr_t)there, .length = SIZE, .lkey = far->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1000, .sg_list = &piece, .num_sge = 1 }, *bad;

	connect_to(one, two, gid);
	connect_to(two, one, gid);

	memset(here, 0x5a, SIZE);
	CHECK(!ibv_post_recv(two, &receive, &bad));
	post(one, IBV_WR_SEND, near, far);
	complete(cq, 2);
	CHECK(!memcmp(here, there, SIZE));

	memset(here, 0xa5, SIZE);
	post(one, IBV_WR_RDMA_WRITE, near, far);
	complete(cq, 1);
	CHECK(!memcmp(here, there, SIZE));

	memset(there, 0x33, SIZE);
	post(one, IBV_WR_RDMA_READ, near, far);
	complete(cq, 1);
	CHECK(!memcmp(here, there, SIZE));

	CHECK(!ibv_destroy_qp(one) && !ibv_destroy_qp(two));
	CHECK(!ibv_dereg_mr(near) && !ibv_dereg_mr(far));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* All identifiers on a device share one context, which rdma_get_devices lists once. */
static void contexts(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_context **list = rdma_get_devices(NULL);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int soft = 0, same = 0;

	CHECK(list && channel);
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&here) && id->verbs);
	for (int i = 0; list[i]; i++) {
		soft += !strcmp(ibv_get_device_name(list[i]->device), "soft0");
		same += list[i] == id->verbs;
	}
	CHECK(soft == 1 && same == 1);
	rdma_free_devices(list);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	int status = 0;
	pid_t child = argc > 1 && !strcmp(argv[1], "fork") ? fork() : -1;

	everything();
	contexts();
	if (child > 0)
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	if (child != 0)
		puts("all is well");
	return 0;
}
