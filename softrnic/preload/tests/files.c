/* Reads the files of soft0 in /sys and /dev by each function of the C library that programs use for this. With the argument
 * `dlopen`, opens libibverbs with dlopen before; the program does not link it. */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define RDMA "/sys/class/infiniband/soft0"

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static void is_line(int fd, const char *line)
{
	char text[256] = "";

	CHECK(fd >= 0);
	CHECK(read(fd, text, sizeof(text) - 1) == (ssize_t)strlen(line));
	if (strcmp(text, line)) {
		fprintf(stderr, "%s instead of %s", text, line);
		exit(1);
	}
	close(fd);
}

static void is_invalid(int fd)
{
	char text[256];

	CHECK(fd >= 0);
	CHECK(read(fd, text, sizeof(text)) < 0 && errno == EINVAL);
	close(fd);
}

static int has_entry(DIR *folder, const char *name)
{
	struct dirent *entry;
	int found = 0;

	CHECK(folder);
	while ((entry = readdir(folder)))
		found |= !strcmp(entry->d_name, name);
	closedir(folder);
	return found;
}

static int is_soft(const struct dirent *entry)
{
	return !strcmp(entry->d_name, "soft0");
}

static int seen;

/* Each path is one that the program can open, and contains its name at the given place. */
static int check_path(const char *path, const struct stat *found, int kind)
{
	CHECK(!strncmp(path, RDMA "/ports/1", strlen(RDMA "/ports/1")) && (kind != FTW_F || S_ISREG(found->st_mode)));
	CHECK(!access(path, F_OK));
	seen++;
	return 0;
}

static int check_place(const char *path, const struct stat *found, int kind, struct FTW *place)
{
	const char *name = strrchr(path, '/') + 1;

	CHECK(path + place->base == name);
	/* A walk in a walk. */
	if (!strcmp(name, "gid_attrs"))
		CHECK(!nftw(RDMA "/ports/1/pkeys", check_place, 4, FTW_PHYS));
	return check_path(path, found, kind);
}

static void find_files(void)
{
	int walked;
	glob_t found;

	CHECK(!glob("/sys/class/infiniband/soft[0]/ports/*/gids/0", 0, NULL, &found));
	CHECK(found.gl_pathc == 1 && !strcmp(found.gl_pathv[0], RDMA "/ports/1/gids/0"));
	CHECK(!glob("/sys/class/infiniband_verbs/uverbs*", GLOB_APPEND, NULL, &found) && found.gl_pathc > 1);
	globfree(&found);
	CHECK(glob(RDMA "/ports/[2-9]", GLOB_MARK, NULL, &found) == GLOB_NOMATCH);
	CHECK(!glob("/et[c]", GLOB_MARK, NULL, &found) && !strcmp(found.gl_pathv[0], "/etc/"));
	globfree(&found);

	CHECK(!ftw(RDMA "/ports/1", check_path, 4) && seen > 10);
	walked = seen;
	CHECK(!nftw(RDMA "/ports/1", check_place, 4, FTW_PHYS) && seen > 2 * walked);
	CHECK(nftw(RDMA "/ports/2", check_place, 4, 0));
}

static void read_device(void)
{
	char path[PATH_MAX], *resolved, line[64];
	struct dirent **list;
	struct stat found;
	struct statx more;
	FILE *file;
	int folder;

	is_line(open(RDMA "/ports/1/state", O_RDONLY), "4: ACTIVE\n");
	is_line(open("/sys//class/./infiniband/soft0/node_type", O_RDONLY), "1: CA\n");
	is_line(openat(AT_FDCWD, RDMA "/ports/1/rate", O_RDONLY), "100 Gb/sec (4X EDR)\n");
	is_line(open(RDMA "/ports/1/gid_attrs/types/0", O_RDONLY), "RoCE v2\n");
	/* The last entry of the table is empty. Programs read the attributes until one is invalid. */
	is_line(open(RDMA "/ports/1/gids/255", O_RDONLY), "0000:0000:0000:0000:0000:0000:0000:0000\n");
	is_invalid(open(RDMA "/ports/1/gid_attrs/types/255", O_RDONLY));
	is_invalid(open(RDMA "/ports/1/gid_attrs/ndevs/255", O_RDONLY));
	CHECK(!stat(RDMA "/ports/1/gid_attrs/types/255", &found) && S_ISREG(found.st_mode));
	is_line(open(RDMA "/device/numa_node", O_RDONLY), "-1\n");
	CHECK((file = fopen(RDMA "/ports/1/pkeys/0", "r")) && fgets(line, sizeof(line), file) && !fclose(file));
	CHECK(!strcmp(line, "0xffff\n"));
	/* The folder is a real one. */
	CHECK((folder = open(RDMA "/ports", O_RDONLY | O_DIRECTORY)) >= 0);
	is_line(openat(folder, "1/link_layer", O_RDONLY), "Ethernet\n");
	CHECK(has_entry(fdopendir(folder), "1"));

	CHECK(has_entry(opendir("/sys/class/infiniband"), "soft0"));
	CHECK(has_entry(opendir("/sys/class/infiniband/"), "soft0"));
	CHECK(has_entry(opendir(RDMA "/ports/1/gids"), "0"));
	CHECK(has_entry(opendir(RDMA "/device/net"), "lo"));
	CHECK(scandir("/sys/class/infiniband", &list, is_soft, alphasort) == 1);
	free(list[0]), free(list);

	CHECK(!stat(RDMA, &found) && S_ISDIR(found.st_mode));
	CHECK(!lstat(RDMA, &found) && S_ISLNK(found.st_mode));
	CHECK(!fstatat(AT_FDCWD, RDMA "/fw_ver", &found, 0) && S_ISREG(found.st_mode));
	CHECK(!statx(AT_FDCWD, RDMA "/fw_ver", 0, STATX_ALL, &more) && S_ISREG(more.stx_mode));
	CHECK(!access(RDMA "/node_guid", R_OK) && !faccessat(AT_FDCWD, RDMA "/node_guid", R_OK, 0));
	CHECK(access(RDMA "/ports/2", F_OK) && access("/sys/class/infiniband/soft9", F_OK));

	/* The file systems of the tree have no such attribute, but the files exist. */
	CHECK(getxattr(RDMA, "user.none", line, sizeof(line)) < 0 && errno != ENOENT);
	CHECK(lgetxattr(RDMA "/ports", "user.none", line, sizeof(line)) < 0 && errno != ENOENT);
	CHECK(listxattr(RDMA "/ports", NULL, 0) >= 0 || errno != ENOENT);
	CHECK(llistxattr(RDMA "/fw_ver", NULL, 0) >= 0 || errno != ENOENT);
	/* ibstatus changes to the folder of the devices, and lists it. */
	CHECK((folder = open(".", O_RDONLY | O_DIRECTORY)) >= 0 && !chdir("/sys/class/infiniband"));
	CHECK(has_entry(opendir("."), "soft0"));
	is_line(open("soft0/ports/1/state", O_RDONLY), "4: ACTIVE\n");
	CHECK(!fchdir(folder) && !close(folder));

	CHECK(readlink(RDMA, path, sizeof(path)) > 0 && strstr(path, "/infiniband/soft0"));
	CHECK(realpath(RDMA "/device", path) == path && !strcmp(path, "/sys/devices/virtual/softrnic/soft0"));
	/* Mooncake finds the device's folder in this way. */
	CHECK((resolved = realpath(RDMA "/../..", NULL)) && !strcmp(resolved, path));
	free(resolved);
	strcat(path, "/infiniband/soft0/node_desc");
	is_line(open(path, O_RDONLY), "soft0\n");
	CHECK(realpath("/sys/class", path) && !strcmp(path, "/sys/class"));
}

/* The device file, as libibverbs finds it. */
static void read_verbs(void)
{
	char path[PATH_MAX], line[64];
	struct dirent *entry;
	struct stat found;
	DIR *folder;
	int fd;

	CHECK((folder = opendir("/sys/class/infiniband_verbs")));
	while ((entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%s/ibdev", entry->d_name);
		if (strncmp(entry->d_name, "uverbs", 6) || (fd = open(path, O_RDONLY)) < 0)
			continue;
		line[read(fd, line, sizeof(line) - 1)] = '\0';
		close(fd);
		if (strcmp(line, "soft0\n"))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
		CHECK(!stat(path, &found) && S_ISCHR(found.st_mode) && !access(path, R_OK | W_OK));
		snprintf(line, sizeof(line), "%u:%u\n", major(found.st_rdev), minor(found.st_rdev));
		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%s/dev", entry->d_name);
		is_line(open(path, O_RDONLY), line);
		CHECK(has_entry(opendir("/dev/infiniband"), entry->d_name));
		closedir(folder);
		return;
	}
	fprintf(stderr, "no device file is that of soft0\n");
	exit(1);
}

static void open_library(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void **(*get)(int *) = library ? dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1") : NULL;
	const char *(*name_of)(void *) = library ? dlsym(library, "ibv_get_device_name") : NULL;
	int count = 0, is_there = 0;
	void **list;

	if (!get || !name_of) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	list = get(&count);
	for (int i = 0; list && i < count; i++)
		is_there |= !strcmp(name_of(list[i]), "soft0");
	if (!is_there) {
		fprintf(stderr, "soft0 is not one of the %d devices\n", count);
		exit(1);
	}
	CHECK(dlopen("libm.so.6", RTLD_NOW));
	CHECK(!dlopen("libnot-there.so.1", RTLD_NOW));
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "dlopen"))
		open_library();
	read_device();
	find_files();
	read_verbs();
	puts("all is well");
	return 0;
}
