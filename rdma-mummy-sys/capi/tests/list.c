/* Lists the devices by name; with an argument it exits before the first verb. It does not depend on this library: BENCHMARKING.md has
 * its start-up cost with libibverbs and with librdma_mummy. */

#include <infiniband/verbs.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int count = 0;

	(void)argv;
	if (argc > 1)
		return 0;

	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list) {
		perror("ibv_get_device_list");
		return 1;
	}
	for (int i = 0; i < count; i++)
		puts(ibv_get_device_name(list[i]));
	ibv_free_device_list(list);
	return 0;
}
