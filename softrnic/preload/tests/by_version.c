/* Opens libibverbs and librdmacm with dlopen and looks up each function with its version, like communication libraries. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *versioned(void *library, const char *name, const char *version)
{
	void *found = dlvsym(library, name, version);

	if (!found) {
		fprintf(stderr, "%s@%s: %s\n", name, version, dlerror());
		exit(1);
	}
	return found;
}

static void *opened(const char *name)
{
	void *library = dlopen(name, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return library;
}

int main(void)
{
	/* In this order, because librdmacm must find libibverbs without help. */
	void *rdmacm = opened("librdmacm.so.1"), *verbs = opened("libibverbs.so.1");
	static const char *const of_rdmacm[][2] = {
		{ "rdma_create_event_channel", "RDMACM_1.0" }, { "rdma_join_multicast_ex", "RDMACM_1.1" },
		{ "rdma_establish", "RDMACM_1.2" }, { "rdma_set_local_ece", "RDMACM_1.3" }, { "rpoll", "RDMACM_1.0" },
		{ "rdma_query_addrinfo", "RDMACM_1.4" }, { "repoll_wait", "RDMACM_1.5" },
	};
	static const char *const of_verbs[][2] = {
		{ "ibv_create_comp_channel", "IBVERBS_1.0" }, { "ibv_reg_mr", "IBVERBS_1.1" },
		{ "ibv_qp_to_qp_ex", "IBVERBS_1.6" }, { "ibv_reg_mr_iova2", "IBVERBS_1.8" },
		{ "ibv_query_ece", "IBVERBS_1.10" }, { "_ibv_query_gid_ex", "IBVERBS_1.11" },
		{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" }, { "ibv_is_fork_initialized", "IBVERBS_1.13" },
		{ "ibv_query_qp_data_in_order", "IBVERBS_1.14" }, { "ibv_reg_mr_ex", "IBVERBS_1.15" },
		{ "ibv_query_port_speed", "IBVERBS_1.16" }, { "ibv_alloc_buf", "IBVERBS_1.17" },
		{ "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18" }, { "_ibv_query_comp_cntr_caps", "IBVERBS_1.18" },
	};
	void **(*get)(int *) = versioned(verbs, "ibv_get_device_list", "IBVERBS_1.1");
	void (*give_back)(void **) = versioned(verbs, "ibv_free_device_list", "IBVERBS_1.1");
	const char *(*name_of)(void *) = versioned(verbs, "ibv_get_device_name", "IBVERBS_1.1");
	int count = 0, found = 0;

	for (size_t i = 0; i < sizeof(of_rdmacm) / sizeof(*of_rdmacm); i++)
		versioned(rdmacm, of_rdmacm[i][0], of_rdmacm[i][1]);
	for (size_t i = 0; i < sizeof(of_verbs) / sizeof(*of_verbs); i++)
		versioned(verbs, of_verbs[i][0], of_verbs[i][1]);

	void **list = get(&count);

	for (int i = 0; list && i < count; i++)
		found |= !strcmp(name_of(list[i]), "soft0");
	if (!found) {
		fprintf(stderr, "soft0 is not one of the %d devices\n", count);
		return 1;
	}
	give_back(list);

	/* Threads of the library stay, so it is not unloaded. */
	if (dlclose(rdmacm) || dlclose(verbs) || !dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD)) {
		fprintf(stderr, "libibverbs was unloaded\n");
		return 1;
	}
	puts("all is well");
	return 0;
}
