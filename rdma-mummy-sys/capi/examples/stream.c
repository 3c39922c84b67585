/* Sends a message over rsockets, the sockets of librdmacm, to a child process, which echoes it.
 *
 *   stream ADDRESS     an IPv4 address of an RDMA device
 *
 * softrnic has no rsockets: this needs rdma-core and a device of the system. */

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 7471, SIZE = 100000 };

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static char message[SIZE], answer[SIZE];

static void send_all(int socket, const char *bytes)
{
	for (ssize_t sent, done = 0; done < SIZE; done += sent)
		CHECK((sent = rsend(socket, bytes + done, SIZE - done, 0)) > 0);
}

static void receive_all(int socket, char *bytes)
{
	struct pollfd ready = { .fd = socket, .events = POLLIN };

	for (ssize_t received, done = 0; done < SIZE; done += received) {
		CHECK(rpoll(&ready, 1, 30000) == 1);
		CHECK((received = rrecv(socket, bytes + done, SIZE - done, 0)) > 0);
	}
}

/* Echoes the received bytes; writes to `ready` once it listens. */
static void serve(struct sockaddr_in *address, int ready)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), yes = 1, socket;

	CHECK(listener >= 0 && !rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
	CHECK(!rbind(listener, (struct sockaddr *)address, sizeof(*address)) && !rlisten(listener, 1));
	CHECK(write(ready, "", 1) == 1);
	CHECK((socket = raccept(listener, NULL, NULL)) >= 0);
	receive_all(socket, answer);
	send_all(socket, answer);
	CHECK(!rshutdown(socket, SHUT_RDWR) && !rclose(socket) && !rclose(listener));
}

static void ask(struct sockaddr_in *address)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	for (int i = 0; i < SIZE; i++)
		message[i] = (char)(i * i >> 3);
	CHECK(socket >= 0 && !rconnect(socket, (struct sockaddr *)address, sizeof(*address)));
	send_all(socket, message);
	receive_all(socket, answer);
	CHECK(!memcmp(message, answer, SIZE));
	CHECK(!rclose(socket));
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int ready[2], status;
	char byte;

	if (argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: stream ADDRESS (an IPv4 address)\n");
		return 2;
	}
	CHECK(!pipe(ready));

	/* Fork before the first verb: children cannot use the devices of their parent. */
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		serve(&address, ready[1]);
		return 0;
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		return 1; /* the child has printed the reason */
	ask(&address);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	printf("%d bytes went to %s and came back\n", SIZE, argv[1]);
	return 0;
}
