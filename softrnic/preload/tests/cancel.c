/* Cancels threads while they post, with a completion event each, and while they wait for events. Neither is a cancellation point of
 * softrnic, so no lock stays held and the process continues. Also cancels a thread in open(2), which softrnic interposes, and
 * leaves functions that wait for an event by a jump from a signal handler. */

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 200, SIZE = 64 };

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static volatile int posted;

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
	ibv_free_device_list(list);
	return context;
}

/* Creates a QP that is connected to itself. */
static void make(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	static unsigned char memory[2 * SIZE];
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_qp_init_attr made = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = all };
	struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1,
				     .min_rnr_timer = 12 };
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				    .max_rd_atomic = 1 };

	CHECK(pd);
	CHECK((cq = ibv_create_cq(context, 4096, NULL, channel, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, all)));
	made.send_cq = made.recv_cq = cq;
	made.cap.max_send_wr = made.cap.max_recv_wr = made.cap.max_send_sge = made.cap.max_recv_sge = 1;
	CHECK((qp = ibv_create_qp(pd, &made)));
	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	ready.dest_qp_num = qp->qp_num;
	ready.ah_attr.is_global = ready.ah_attr.port_num = ready.ah_attr.grh.hop_limit = 1;
	CHECK(!ibv_query_gid(context, 1, 0, &ready.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_once(void)
{
	struct ibv_sge piece = { .addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + SIZE;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void *writes(void *unused)
{
	for (posted = 0;; posted++) {
		write_once();
		pthread_testcancel();
	}
	return unused;
}

static void *waits(void *channel)
{
	struct ibv_cq *of;
	void *unused;

	for (;;) {
		CHECK(!ibv_get_cq_event(channel, &of, &unused) && of == cq);
		ibv_ack_cq_events(of, 1);
		pthread_testcancel();
	}
	return unused;
}

/* Waits until another process opens the FIFO. */
static void *opens(void *path)
{
	CHECK(open(path, O_RDONLY) >= 0);
	return NULL;
}

static void cancel_open(void)
{
	char folder[] = "/tmp/cancelXXXXXX", path[64];
	pthread_t thread;
	void *result;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/fifo", folder);
	CHECK(!mkfifo(path, 0600));
	CHECK(!pthread_create(&thread, NULL, opens, path));
	usleep(10000);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	CHECK(!unlink(path) && !rmdir(folder));
}

static sigjmp_buf before;

static void jump(int signal)
{
	siglongjmp(before, signal);
}

/* Sends a signal to the main thread when it sleeps. */
static void *disturb(void *main_thread)
{
	char path[64], state = 'R';

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	while (state != 'S') {
		FILE *file = fopen(path, "r");

		CHECK(file && fscanf(file, "%*d %*s %c", &state) == 1 && !fclose(file));
		usleep(10000);
	}
	CHECK(!pthread_kill(*(pthread_t *)main_thread, SIGUSR1));
	return NULL;
}

/* Waits for an event that does not arrive, until the signal ends the wait. */
static void wait_and_jump(struct ibv_comp_channel *channel, struct rdma_event_channel *connections)
{
	static pthread_t self, thread;
	struct rdma_cm_event *event;
	struct ibv_cq *of;
	void *unused;

	self = pthread_self();
	if (!sigsetjmp(before, 1)) {
		CHECK(!pthread_create(&thread, NULL, disturb, &self));
		if (connections)
			rdma_get_cm_event(connections, &event);
		else
			ibv_get_cq_event(channel, &of, &unused);
		CHECK(!"an event");
	}
	CHECK(!pthread_join(thread, NULL));
	/* The thread is no longer in a verb, so the files of soft devices are its own again. */
	CHECK(!access("/sys/class/infiniband/soft0/node_guid", R_OK));
}

static void jump_out(struct ibv_comp_channel *channel)
{
	struct rdma_event_channel *connections = rdma_create_event_channel();
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(connections && signal(SIGUSR1, jump) != SIG_ERR);
	for (int round = 0; round < 5; round++) {
		wait_and_jump(channel, NULL);
		wait_and_jump(channel, connections);
	}
	CHECK(!rdma_create_id(connections, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&local, 1000));
	CHECK(!rdma_get_cm_event(connections, &event) && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
	rdma_destroy_event_channel(connections);
}

int main(void)
{
	struct ibv_context *context = open_soft();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *of;
	pthread_t thread;
	void *result;

	CHECK(channel);
	/* Ends the program if a lock stays held. */
	alarm(60);
	make(context, channel);
	for (int round = 0; round < ROUNDS; round++) {
		posted = 0;
		CHECK(!pthread_create(&thread, NULL, writes, NULL));
		while (posted < 3)
			usleep(10);
		CHECK(!pthread_cancel(thread));
		CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
		write_once();
	}
	for (int round = 0; round < 10; round++) {
		CHECK(!pthread_create(&thread, NULL, waits, channel));
		usleep(10000);
		CHECK(!pthread_cancel(thread));
		write_once();
		CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	}
	cancel_open();
	jump_out(channel);
	write_once();
	CHECK(!ibv_get_cq_event(channel, &of, &result) && of == cq);
	ibv_ack_cq_events(of, 1);
	puts("all is well");
	return 0;
}
