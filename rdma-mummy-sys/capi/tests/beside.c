/* Two Rust libraries in one program: this one's devices are listed, and the other's panics do not affect it. */

#include <infiniband/verbs.h>
#include <rdma_mummy.h>
#include <stdbool.h>
#include <stdio.h>

bool beside_catches(size_t index);

int main(void)
{
	int count = 0;
	struct ibv_device **list;

	if (rdma_mummy_register_softrnic() || !beside_catches(3))
		return 1;
	list = ibv_get_device_list(&count);
	if (!list || !count || !beside_catches(4))
		return 1;
	ibv_free_device_list(list);
	puts("all is well");
	return 0;
}
