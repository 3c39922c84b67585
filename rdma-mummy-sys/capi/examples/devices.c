/* Lists the RDMA devices of this machine, with the state, MTU and addresses (GIDs) of each port.
 *
 *   devices            rdma-core's devices, or why rdma-core cannot be loaded
 *   devices --soft     also softrnic's device soft0 */

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma_mummy.h>
#include <stdio.h>
#include <string.h>

static void show_port(struct ibv_context *context, uint8_t number)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	char address[INET6_ADDRSTRLEN];

	if (ibv_query_port(context, number, &port)) {
		printf("  port %u: %s\n", number, strerror(errno));
		return;
	}
	printf("  port %u: %s, MTU %d\n", number, ibv_port_state_str(port.state), 128 << port.active_mtu);
	for (uint32_t index = 0; index < (uint32_t)port.gid_tbl_len; index++) {
		if (ibv_query_gid_ex(context, number, index, &gid, 0))
			continue; /* an empty table entry */
		inet_ntop(AF_INET6, gid.gid.raw, address, sizeof(address));
		printf("    GID %u: %s%s\n", index, address, gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? ", RoCE v2" : "");
	}
}

static int show_device(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attributes;

	printf("%s: %s\n", ibv_get_device_name(device), ibv_node_type_str(device->node_type));
	if (!context || ibv_query_device(context, &attributes)) {
		perror("  cannot open it");
		return 1;
	}
	for (int number = 1; number <= attributes.phys_port_cnt; number++)
		show_port(context, (uint8_t)number);
	return ibv_close_device(context) != 0;
}

int main(int argc, char **argv)
{
	char why[4096];
	int count = 0, failed = 0;

	if (argc > 1 && !strcmp(argv[1], "--soft") && rdma_mummy_register_softrnic())
		perror("cannot register softrnic");

	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || !count) {
		fprintf(stderr, "no devices: %s\n", list ? "the list is empty" : strerror(errno));
		rdma_mummy_describe(why, sizeof(why));
		fputs(why, stderr);
	}
	for (int i = 0; i < count; i++)
		failed |= show_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return failed || !count;
}
