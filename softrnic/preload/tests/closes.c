/* Under `lens run`: a program that closes its standard error, and opens a file that gets the number 2, before its first
 * verb. The trace must go to the standard error that it was started with, and not into the file. */

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static void child(const char *file)
{
	struct ibv_device **list;

	CHECK(!close(2) && open(file, O_RDWR) == 2);
	list = ibv_get_device_list(NULL);
	CHECK(list);
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	char file[] = "/tmp/closes-XXXXXX", text[65536];
	size_t length = 0;
	ssize_t got;
	struct stat state;
	int ends[2], number, status;

	if (argc > 1) {
		child(argv[1]);
		return 0;
	}
	number = mkstemp(file);
	CHECK(number >= 0 && !pipe(ends));
	if (!fork()) {
		CHECK(dup2(ends[1], 2) == 2 && !close(ends[0]) && !close(ends[1]));
		execl(argv[0], argv[0], file, NULL);
		_exit(127);
	}
	close(ends[1]);
	while (length < sizeof(text) - 1 && (got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	text[length] = 0;
	CHECK(wait(&status) > 0 && !status);
	CHECK(!fstat(number, &state) && !unlink(file));
	if (state.st_size || !strstr(text, "ibv_get_device_list")) {
		printf("%ld bytes in the file, %zu in the standard error:\n%s", (long)state.st_size, length, text);
		return 1;
	}
	puts("all is well");
	return 0;
}
