/* What the programs in this folder share. Each includes a driver's own C file and calls it in sideway's order:
 * with "refused" by what sideway refuses, which must end in a report of AddressSanitizer, and with "passed" by the
 * nearest that sideway lets through, which must end with 0. Nothing of libibverbs is linked: the drivers' calls into
 * the kernel are not reached, and its log is silent. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void __verbs_log(struct verbs_context *context, uint32_t level, const char *format, ...)
{
}

/* Drivers announce themselves before main. */
void verbs_register_driver(const struct verbs_device_ops *ops)
{
}

/* A context whose doorbell is /dev/null. */
static struct verbs_context *context_of(struct ibv_device *device)
{
	struct verbs_context *context = calloc(1, sizeof(*context));

	context->context.device = device;
	context->context.cmd_fd = open("/dev/null", O_RDWR);
	return context;
}

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

/* Ends the program unless the driver answered as expected. */
static void answers(int answer, int expected, const char *what)
{
	if (answer == expected)
		return;
	fprintf(stderr, "%s: %d instead of %d\n", what, answer, expected);
	exit(2);
}

/* Calls the driver as the case names it. */
static void call(const char *what);

int main(int count, char **words)
{
	if (count != 2)
		return 3;
	call(words[1]);
	return 0;
}
