/* Checks what the functions return without rdma-core: the failure that each manual page documents, with errno EOPNOTSUPP.
 *
 * The objects are fake and belong to a device of no provider in this process, as rdma-core's would. */

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <rdma_mummy.h>
#include <stdio.h>
#include <string.h>

static int faults;

static void judge(int well, const char *what)
{
	if (!well) {
		printf("%s: errno %d (%s)\n", what, errno, strerror(errno));
		faults++;
	}
	errno = 0;
}

#define IS_NULL(call) judge(!(call) && errno == EOPNOTSUPP, #call " is not null")
#define IS_CODE(call) judge((call) == EOPNOTSUPP && errno == EOPNOTSUPP, #call " is not EOPNOTSUPP")
#define IS_MINUS_CODE(call) judge((call) == -EOPNOTSUPP && errno == EOPNOTSUPP, #call " is not -EOPNOTSUPP")
#define IS_MINUS_ONE(call) judge((call) == -1 && errno == EOPNOTSUPP, #call " is not -1")
#define IS_ZERO(call) judge((call) == 0 && errno == EOPNOTSUPP, #call " is not 0")
#define SETS_ERRNO(call) judge(((call), errno == EOPNOTSUPP), #call)

static struct ibv_device device;
/* As large as the header's functions expect. */
static struct verbs_context whole = { .context = { .device = &device } };
static struct ibv_pd pd = { .context = &whole.context };
static struct ibv_mr mr = { .context = &whole.context, .pd = &pd };
static struct ibv_dm dm = { .context = &whole.context };
static struct ibv_comp_channel channel = { .context = &whole.context };
static struct ibv_cq cq = { .context = &whole.context };
static struct ibv_srq srq = { .context = &whole.context };
static struct ibv_qp qp = { .context = &whole.context };
static struct ibv_ah ah = { .context = &whole.context };
static char memory[64];

static void devices(void)
{
	int count = 7;
	struct ibv_device_attr attributes;
	struct ibv_port_attr port;
	struct ibv_async_event event;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 key;
	char text[8];

	IS_NULL(ibv_get_device_list(&count));
	judge(count == 0, "the number of devices is not 0");
	IS_NULL(ibv_get_device_name(&device));
	IS_MINUS_ONE(ibv_get_device_index(&device));
	IS_ZERO(ibv_get_device_guid(&device));
	IS_NULL(ibv_open_device(&device));
	IS_MINUS_ONE(ibv_close_device(&whole.context));
	IS_NULL(ibv_import_device(0));
	IS_MINUS_ONE(ibv_get_async_event(&whole.context, &event));
	IS_CODE(ibv_query_device(&whole.context, &attributes));
	IS_CODE(ibv_query_port(&whole.context, 1, &port));
	IS_MINUS_ONE(ibv_query_gid(&whole.context, 1, 0, &gid));
	IS_CODE(ibv_query_gid_ex(&whole.context, 1, 0, &entry, 0));
	IS_MINUS_CODE(ibv_query_gid_table(&whole.context, &entry, 1, 0));
	IS_MINUS_ONE(ibv_query_pkey(&whole.context, 1, 0, &key));
	IS_MINUS_ONE(ibv_get_pkey_index(&whole.context, 1, key));
	IS_CODE(ibv_fork_init());
	judge(ibv_is_fork_initialized() == IBV_FORK_DISABLED, "ibv_is_fork_initialized() is not IBV_FORK_DISABLED");

	/* Exported by the library, but not declared in current headers. */
	extern const char *ibv_get_sysfs_path(void);
	extern int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
	extern int ibv_dontfork_range(void *, size_t), ibv_dofork_range(void *, size_t);

	IS_NULL(ibv_get_sysfs_path());
	IS_MINUS_ONE(ibv_read_sysfs_file("/", "x", text, sizeof(text)));
	IS_CODE(ibv_dontfork_range(memory, sizeof(memory)));
	IS_CODE(ibv_dofork_range(memory, sizeof(memory)));
}

static void memories(void)
{
	IS_NULL(ibv_alloc_pd(&whole.context));
	IS_CODE(ibv_dealloc_pd(&pd));
	IS_NULL(ibv_import_pd(&whole.context, 1));
	SETS_ERRNO(ibv_unimport_pd(&pd));
	IS_NULL(ibv_reg_mr(&pd, memory, sizeof(memory), 0));
	IS_NULL(ibv_reg_mr_iova(&pd, memory, sizeof(memory), 0, 0));
	IS_NULL(ibv_reg_mr_iova2(&pd, memory, sizeof(memory), 0, 0));
	IS_NULL(ibv_reg_dmabuf_mr(&pd, 0, sizeof(memory), 0, 0, 0));
	IS_MINUS_ONE(ibv_rereg_mr(&mr, IBV_REREG_MR_CHANGE_PD, &pd, NULL, 0, 0));
	IS_CODE(ibv_dereg_mr(&mr));
	IS_NULL(ibv_import_mr(&pd, 1));
	SETS_ERRNO(ibv_unimport_mr(&mr));
	IS_NULL(ibv_import_dm(&whole.context, 1));
	SETS_ERRNO(ibv_unimport_dm(&dm));
}

static void queues(void)
{
	struct ibv_cq *ready;
	void *its_context;
	struct ibv_srq_init_attr srq_init = { 0 };
	struct ibv_srq_attr srq_attributes = { 0 };
	struct ibv_qp_init_attr qp_init = { 0 };
	struct ibv_qp_attr qp_attributes = { 0 };
	struct ibv_ah_attr ah_attributes = { 0 };
	struct ibv_wc completion = { 0 };
	struct ibv_ece ece = { 0 };
	union ibv_gid gid = { { 0 } };
	uint8_t mac[6];
	uint16_t vlan;

	IS_NULL(ibv_create_comp_channel(&whole.context));
	IS_CODE(ibv_destroy_comp_channel(&channel));
	IS_NULL(ibv_create_cq(&whole.context, 1, NULL, NULL, 0));
	IS_CODE(ibv_resize_cq(&cq, 2));
	IS_CODE(ibv_destroy_cq(&cq));
	IS_MINUS_ONE(ibv_get_cq_event(&channel, &ready, &its_context));
	SETS_ERRNO(ibv_ack_cq_events(&cq, 1));
	IS_NULL(ibv_create_srq(&pd, &srq_init));
	IS_CODE(ibv_modify_srq(&srq, &srq_attributes, 0));
	IS_CODE(ibv_query_srq(&srq, &srq_attributes));
	IS_CODE(ibv_destroy_srq(&srq));
	IS_NULL(ibv_create_qp(&pd, &qp_init));
	IS_NULL(ibv_qp_to_qp_ex(&qp));
	IS_CODE(ibv_modify_qp(&qp, &qp_attributes, 0));
	IS_CODE(ibv_query_qp(&qp, &qp_attributes, 0, &qp_init));
	IS_ZERO(ibv_query_qp_data_in_order(&qp, IBV_WR_SEND, 0));
	IS_CODE(ibv_destroy_qp(&qp));
	IS_CODE(ibv_set_ece(&qp, &ece));
	IS_CODE(ibv_query_ece(&qp, &ece));
	IS_NULL(ibv_create_ah(&pd, &ah_attributes));
	IS_MINUS_ONE(ibv_init_ah_from_wc(&whole.context, 1, &completion, NULL, &ah_attributes));
	IS_NULL(ibv_create_ah_from_wc(&pd, &completion, NULL, 1));
	IS_CODE(ibv_destroy_ah(&ah));
	IS_CODE(ibv_attach_mcast(&qp, &gid, 0));
	IS_CODE(ibv_detach_mcast(&qp, &gid, 0));
	IS_CODE(ibv_resolve_eth_l2_from_gid(&whole.context, &ah_attributes, mac, &vlan));
}

static void connections(void)
{
	struct rdma_event_channel events = { 0 };
	struct rdma_cm_id id = { 0 }, *new_id;
	struct rdma_cm_event event = { .id = &id }, *next;
	struct rdma_conn_param parameters = { 0 };
	struct rdma_addrinfo info = { 0 }, *found;
	struct rdma_cm_join_mc_attr_ex join = { 0 };
	struct sockaddr address = { 0 };
	struct ibv_qp_init_attr qp_init = { 0 };
	struct ibv_qp_init_attr_ex qp_init_ex = { 0 };
	struct ibv_srq_init_attr srq_init = { 0 };
	struct ibv_srq_init_attr_ex srq_init_ex = { 0 };
	struct ibv_qp_attr qp_attributes;
	struct ibv_ece ece = { 0 };
	int mask, count = 7, option = 0;

	IS_NULL(rdma_create_event_channel());
	SETS_ERRNO(rdma_destroy_event_channel(&events));
	IS_MINUS_ONE(rdma_create_id(NULL, &new_id, NULL, RDMA_PS_TCP));
	IS_MINUS_ONE(rdma_create_id(&events, &new_id, NULL, RDMA_PS_TCP));
	IS_MINUS_ONE(rdma_destroy_id(&id));
	IS_MINUS_ONE(rdma_create_ep(&new_id, &info, NULL, NULL));
	SETS_ERRNO(rdma_destroy_ep(&id));
	IS_MINUS_ONE(rdma_bind_addr(&id, &address));
	IS_MINUS_ONE(rdma_resolve_addr(&id, NULL, &address, 1));
	IS_MINUS_ONE(rdma_resolve_route(&id, 1));
	IS_MINUS_ONE(rdma_create_qp(&id, NULL, &qp_init));
	IS_MINUS_ONE(rdma_create_qp_ex(&id, &qp_init_ex));
	SETS_ERRNO(rdma_destroy_qp(&id));
	IS_MINUS_ONE(rdma_create_srq(&id, NULL, &srq_init));
	IS_MINUS_ONE(rdma_create_srq_ex(&id, &srq_init_ex));
	SETS_ERRNO(rdma_destroy_srq(&id));
	IS_MINUS_ONE(rdma_connect(&id, &parameters));
	IS_MINUS_ONE(rdma_establish(&id));
	IS_MINUS_ONE(rdma_listen(&id, 1));
	IS_MINUS_ONE(rdma_get_request(&id, &new_id));
	IS_MINUS_ONE(rdma_accept(&id, &parameters));
	IS_MINUS_ONE(rdma_reject(&id, NULL, 0));
	IS_MINUS_ONE(rdma_reject_ece(&id, NULL, 0));
	IS_MINUS_ONE(rdma_notify(&id, IBV_EVENT_COMM_EST));
	IS_MINUS_ONE(rdma_disconnect(&id));
	IS_MINUS_ONE(rdma_join_multicast(&id, &address, NULL));
	IS_MINUS_ONE(rdma_join_multicast_ex(&id, &join, NULL));
	IS_MINUS_ONE(rdma_leave_multicast(&id, &address));
	IS_MINUS_ONE(rdma_get_cm_event(&events, &next));
	IS_MINUS_ONE(rdma_ack_cm_event(&event));
	IS_ZERO(rdma_get_src_port(&id));
	IS_ZERO(rdma_get_dst_port(&id));
	IS_NULL(rdma_get_devices(&count));
	judge(count == 0, "the number of the connection manager's devices is not 0");
	IS_MINUS_ONE(rdma_set_option(&id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &option, sizeof(option)));
	IS_MINUS_ONE(rdma_migrate_id(&id, &events));
	IS_MINUS_ONE(rdma_getaddrinfo("127.0.0.1", "1", NULL, &found));
	SETS_ERRNO(rdma_freeaddrinfo(&info));
	IS_MINUS_ONE(rdma_init_qp_attr(&id, &qp_attributes, &mask));
	IS_MINUS_ONE(rdma_set_local_ece(&id, &ece));
	IS_MINUS_ONE(rdma_get_remote_ece(&id, &ece));
}

static void sockets(void)
{
	struct sockaddr address = { 0 };
	socklen_t length = sizeof(address);
	struct iovec piece = { memory, sizeof(memory) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	int option = 0;

	IS_MINUS_ONE(rsocket(AF_INET, SOCK_STREAM, 0));
	IS_MINUS_ONE(rbind(3, &address, length));
	IS_MINUS_ONE(rlisten(3, 1));
	IS_MINUS_ONE(raccept(3, &address, &length));
	IS_MINUS_ONE(rconnect(3, &address, length));
	IS_MINUS_ONE(rshutdown(3, SHUT_RDWR));
	IS_MINUS_ONE(rclose(3));
	IS_MINUS_ONE(rrecv(3, memory, 1, 0));
	IS_MINUS_ONE(rrecvfrom(3, memory, 1, 0, &address, &length));
	IS_MINUS_ONE(rrecvmsg(3, &message, 0));
	IS_MINUS_ONE(rsend(3, memory, 1, 0));
	IS_MINUS_ONE(rsendto(3, memory, 1, 0, &address, length));
	IS_MINUS_ONE(rsendmsg(3, &message, 0));
	IS_MINUS_ONE(rread(3, memory, 1));
	IS_MINUS_ONE(rreadv(3, &piece, 1));
	IS_MINUS_ONE(rwrite(3, memory, 1));
	IS_MINUS_ONE(rwritev(3, &piece, 1));
	IS_MINUS_ONE(rgetpeername(3, &address, &length));
	IS_MINUS_ONE(rgetsockname(3, &address, &length));
	IS_MINUS_ONE(rsetsockopt(3, SOL_SOCKET, SO_REUSEADDR, &option, sizeof(option)));
	IS_MINUS_ONE(rgetsockopt(3, SOL_SOCKET, SO_REUSEADDR, &option, &length));
	IS_MINUS_ONE(rfcntl(3, 3));
	IS_MINUS_ONE(riomap(3, memory, 1, 0, 0, 0));
	IS_MINUS_ONE(riounmap(3, memory, 1));
	IS_MINUS_ONE((ssize_t)riowrite(3, memory, 1, 0, 0));
	/* Ordinary descriptors are polled as by poll(). */
	judge(rpoll(NULL, 0, 0) == 0, "rpoll() of nothing is not 0");
	judge(rselect(0, NULL, NULL, NULL, &(struct timeval){ 0 }) == 0, "rselect() of nothing is not 0");
}

/* These need no library. */
static void words(void)
{
	judge(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success"), "ibv_wc_status_str()");
	judge(!strcmp(ibv_port_state_str(IBV_PORT_DOWN), "down"), "ibv_port_state_str()");
	judge(strstr(ibv_node_type_str(IBV_NODE_RNIC), "iWARP") != NULL, "ibv_node_type_str()");
	judge(strstr(ibv_event_type_str(IBV_EVENT_CQ_ERR), "CQ") != NULL, "ibv_event_type_str()");
	judge(!strcmp(rdma_event_str(RDMA_CM_EVENT_CONNECT_ERROR), "RDMA_CM_EVENT_CONNECT_ERROR"), "rdma_event_str()");
	judge(ibv_rate_to_mult(IBV_RATE_40_GBPS) == 16 && mult_to_ibv_rate(16) == IBV_RATE_40_GBPS, "multiples");
	judge(ibv_rate_to_mbps(IBV_RATE_40_GBPS) == 40000 && mbps_to_ibv_rate(40000) == IBV_RATE_40_GBPS, "Mb/s");
}

/* Checks the description of the failure and its remedy. */
static void own(void)
{
	char text[4096], part[16];
	size_t length = rdma_mummy_describe(text, sizeof(text));

	judge(length == strlen(text), "the description has another length");
	judge(strstr(text, "libibverbs: cannot load") && strstr(text, "librdmacm: cannot load"), text);
	judge(rdma_mummy_describe(NULL, 0) == length, "the length of the description is not returned");
	judge(rdma_mummy_describe(part, sizeof(part)) == length && strlen(part) == sizeof(part) - 1 &&
		      !strncmp(part, text, sizeof(part) - 1),
	      "a truncated description is not its beginning");

	int code = rdma_mummy_register_softrnic(), count = 0;

	if (code == EOPNOTSUPP) {
		judge(errno == EOPNOTSUPP, "rdma_mummy_register_softrnic()");
		puts("softrnic is not in this library");
		return;
	}
	judge(code == 0 && rdma_mummy_register_softrnic() == 0, "rdma_mummy_register_softrnic()");

	struct ibv_device **list = ibv_get_device_list(&count);

	judge(list && count == 2 && !strcmp(ibv_get_device_name(list[0]), "soft0") &&
		      !strcmp(ibv_get_device_name(list[1]), "softiw0"),
	      "soft0 and softiw0 are not the only devices");
	ibv_free_device_list(list);
}

int main(void)
{
	errno = 0;
	devices();
	memories();
	queues();
	connections();
	sockets();
	words();
	own();
	puts(faults ? "not all is well" : "all is well");
	return faults != 0;
}
