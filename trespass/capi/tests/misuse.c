/*
 * Uses every function wrongly. Each call returns an error, and the program neither crashes nor hangs. `misuse fork` only
 * uses the functions in children. With `--soft` as the first argument, it uses softrnic, otherwise TCP.
 */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <trespass.h>

#define EXPECT(call, expected) expect(__LINE__, #call, (long)(call), expected)

static void expect(int line, const char *what, long result, long expected)
{
	if (result != expected) {
		fprintf(stderr, "misuse.c:%d: %s returned %ld, not %ld\n", line, what, result, expected);
		_exit(1);
	}
}

struct pair {
	struct tr_listener *listener;
	struct tr_connection *near, *far;
};

static struct pair pair(void)
{
	struct pair made;

	EXPECT(tr_listen("127.0.0.1", 0, &made.listener), 0);
	EXPECT(tr_connect("127.0.0.1", tr_listener_port(made.listener), 60000, &made.near), 0);
	EXPECT(tr_accept(made.listener, 60000, &made.far), 0);
	return made;
}

static void close_pair(struct pair made)
{
	EXPECT(tr_close(made.near, 0), 0);
	EXPECT(tr_close(made.far, 0), 0);
	tr_listener_close(made.listener);
}

static void echo(struct pair ends, const char *text)
{
	struct tr_message *message;

	EXPECT(tr_send(ends.near, text, strlen(text), 0), 0);
	EXPECT(tr_recv(ends.far, 60000, &message), 0);
	EXPECT(tr_message_length(message), (long)strlen(text));
	EXPECT(memcmp(tr_message_data(message), text, strlen(text)), 0);
	tr_message_free(message);
}

/* Calls every function with a handle that is not valid. */
static void use(struct tr_connection *connection, struct tr_listener *listener, struct tr_message *message, int code)
{
	struct tr_connection *connected = (void *)&connected;
	struct tr_message *received = (void *)&received;
	struct tr_pollitem items[2] = {{.connection = connection, .events = TR_IN}, {.listener = listener, .events = TR_IN}};

	EXPECT(tr_listener_port(listener), 0);
	EXPECT(tr_accept(listener, -1, &connected), code);
	EXPECT(connected == NULL, 1);
	EXPECT(tr_send(connection, "x", 1, 0), code);
	EXPECT(tr_send(connection, "x", 1, TR_DONTWAIT), code);
	EXPECT(tr_recv(connection, -1, &received), code);
	EXPECT(received == NULL, 1);
	EXPECT(tr_recv(connection, 0, &received), code);
	EXPECT(tr_flush(connection), code);
	EXPECT(tr_shutdown(connection), code);
	EXPECT(strcmp(tr_transport(connection), ""), 0);
	EXPECT(tr_poll(&items[0], 1, -1), code);
	EXPECT(tr_poll(&items[1], 1, -1), code);
	EXPECT(tr_message_data(message) == NULL, 1);
	EXPECT(tr_message_length(message), 0);
	EXPECT(tr_close(connection, 0), connection ? code : 0);
	EXPECT(tr_abandon(connection, 0), connection ? code : 0);
	tr_listener_close(listener);
	tr_message_free(message);
}

static void use_handles(void)
{
	struct pair ends = pair(), other = pair();
	struct tr_message *message;
	int here = 0;

	use(NULL, NULL, NULL, -EINVAL);
	EXPECT(tr_send(ends.near, "left", 4, 0), 0);
	EXPECT(tr_recv(ends.far, 60000, &message), 0);
	/* Handles of other kinds, and pointers that are no handles. */
	use((void *)ends.listener, (void *)ends.near, (void *)ends.near, -EBADF);
	use((void *)message, (void *)message, (void *)ends.listener, -EBADF);
	use((void *)&here, (void *)&here, (void *)&here, -EBADF);
	use((void *)1, (void *)2, (void *)3, -EBADF);
	use((void *)-1, (void *)-2, (void *)-3, -EBADF);
	echo(ends, "still there");
	tr_message_free(message);
	close_pair(ends);
	use(ends.near, ends.listener, message, -EBADF);
	use(ends.far, ends.listener, message, -EBADF);
	/* New handles in the same slots. */
	ends = pair();
	echo(ends, "new");
	close_pair(ends);
	close_pair(other);
}

static void use_arguments(void)
{
	struct pair ends = pair();
	struct tr_pollitem item = {.connection = ends.near, .events = TR_OUT};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *endless = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tr_listener *listener;
	struct tr_connection *connection;
	struct tr_message *message;

	EXPECT(tr_listen("127.0.0.1", 0, NULL), -EINVAL);
	EXPECT(tr_listen(NULL, 0, &listener), -EINVAL);
	EXPECT(tr_connect("127.0.0.1", 1, -1, NULL), -EINVAL);
	EXPECT(tr_connect(NULL, 1, -1, &connection), -EINVAL);
	EXPECT(tr_listen("\xff\xfe", 0, &listener), -EINVAL);
	EXPECT(tr_listen("", 0, &listener) < 0, 1);
	EXPECT(tr_connect("127.0.0.1", 0, 1000, &connection) < 0, 1);
	EXPECT(connection == NULL, 1);
	/* No byte after the page may be read. */
	memset(endless, 'a', page);
	EXPECT(mprotect(endless + page, page, PROT_NONE), 0);
	EXPECT(tr_listen(endless, 0, &listener), -ENAMETOOLONG);
	EXPECT(tr_connect(endless, 1, -1, &connection), -ENAMETOOLONG);

	EXPECT(tr_accept(ends.listener, 0, NULL), -EINVAL);
	EXPECT(tr_accept(ends.listener, 0, &connection), -ETIMEDOUT);
	EXPECT(tr_send(ends.near, NULL, 1, 0), -EINVAL);
	EXPECT(tr_send(ends.near, "x", SIZE_MAX, 0), -EINVAL);
	EXPECT(tr_send(ends.near, "x", SIZE_MAX / 2, 0), -EINVAL);
	EXPECT(tr_send(ends.near, "x", (size_t)UINT32_MAX + 1, 0), -EINVAL);
	EXPECT(tr_send(ends.near, "x", 1, -1), -EINVAL);
	EXPECT(tr_send(ends.near, "x", 1, 2), -EINVAL);
	EXPECT(tr_send(ends.near, NULL, 0, 0), 0);
	/* A call without a place for the message does not lose it. */
	EXPECT(tr_recv(ends.far, -1, NULL), -EINVAL);
	EXPECT(tr_recv(ends.far, 60000, &message), 0);
	EXPECT(message != NULL, 1);
	EXPECT(tr_message_length(message), 0);
	tr_message_free(message);
	EXPECT(tr_recv(ends.far, 0, &message), -EAGAIN);

	EXPECT(tr_poll(NULL, 1, -1), -EINVAL);
	EXPECT(tr_poll(&item, 0, -1), -EINVAL);
	EXPECT(tr_poll(&item, SIZE_MAX, -1), -EINVAL);
	EXPECT(tr_poll(&item, SIZE_MAX / 64, -1), -EINVAL);
	EXPECT(tr_poll(&item, 1, -1), 1);
	item.listener = ends.listener;
	EXPECT(tr_poll(&item, 1, -1), -EINVAL);
	item.connection = NULL;
	EXPECT(tr_poll(&item, 1, -1), -EINVAL);
	item.events = TR_IN;
	EXPECT(tr_poll(&item, 1, 0), 0);
	item.events = 0x40;
	EXPECT(tr_poll(&item, 1, -1), -EINVAL);
	item.events = 0;
	EXPECT(tr_poll(&item, 1, -1), -EINVAL);
	item.listener = NULL;
	EXPECT(tr_poll(&item, 1, -1), -EINVAL);
	close_pair(ends);
	munmap(endless, 2 * page);
}

/* A call that waits without a limit, and what it returned. */
struct waiting {
	struct pair ends;
	int kind;
	int code;
};

static void *wait_for_nothing(void *argument)
{
	struct waiting *call = argument;
	struct tr_pollitem item = {.connection = call->ends.near, .events = TR_IN};
	struct tr_connection *connection;
	struct tr_message *message;
	static char bytes[1 << 16];

	switch (call->kind) {
	case 0:
		call->code = tr_recv(call->ends.near, -1, &message);
		break;
	case 1:
		call->code = tr_accept(call->ends.listener, -1, &connection);
		break;
	case 2:
		call->code = tr_poll(&item, 1, -1);
		break;
	default:
		/* The peer reads nothing, so that this blocks. */
		while ((call->code = tr_send(call->ends.near, bytes, sizeof(bytes), 0)) == 0)
			;
	}
	return NULL;
}

static void *close_near(void *argument)
{
	struct pair *ends = argument;

	return (void *)(long)tr_close(ends->near, 7);
}

static void close_while_others_wait(void)
{
	struct waiting calls[4];
	pthread_t threads[4];
	int kind;

	for (kind = 0; kind < 4; kind++) {
		calls[kind] = (struct waiting){.ends = pair(), .kind = kind};
		EXPECT(pthread_create(&threads[kind], NULL, wait_for_nothing, &calls[kind]), 0);
	}
	usleep(100000);
	for (kind = 0; kind < 4; kind++) {
		pthread_t closing;
		struct pair ends = calls[kind].ends;

		tr_listener_close(ends.listener);
		EXPECT(pthread_create(&closing, NULL, close_near, &ends), 0);
		EXPECT(pthread_join(threads[kind], NULL), 0);
		tr_close(ends.far, 0);
		EXPECT(pthread_join(closing, NULL), 0);
	}
	/* The handle may be closed before the call, which is rare. */
	EXPECT(calls[0].code == -ENOTCONN || calls[0].code == -EBADF, 1);
	EXPECT(calls[1].code == -ENOTCONN || calls[1].code == -EBADF, 1);
	EXPECT(calls[2].code == 1 || calls[2].code == -EBADF, 1);
	EXPECT(calls[3].code == -EPIPE || calls[3].code == -ENOTCONN || calls[3].code == -EBADF, 1);
}

static void close_in_two_threads(void)
{
	int round;

	for (round = 0; round < 20; round++) {
		struct pair ends = pair();
		pthread_t other;
		void *theirs;
		long ours;

		EXPECT(pthread_create(&other, NULL, close_near, &ends), 0);
		ours = tr_close(ends.near, 7);
		EXPECT(pthread_join(other, &theirs), 0);
		EXPECT(ours == 0 ? (long)theirs : ours, -EBADF);
		EXPECT(ours == 0 ? ours : (long)theirs, 0);
		tr_close(ends.far, 0);
		tr_listener_close(ends.listener);
	}
}

/* Sends until the peer, which reads nothing, makes further messages wait. Returns the number of messages. */
static int send_all(struct tr_connection *connection)
{
	struct tr_pollitem item = {.connection = connection, .events = TR_OUT};
	static char bytes[1 << 16];
	int count = 0, code;

	do {
		while ((code = tr_send(connection, bytes, sizeof(bytes), TR_DONTWAIT)) == 0)
			count++;
		EXPECT(code, -EAGAIN);
	} while (tr_poll(&item, 1, 500) == 1);
	return count;
}

static void abandon_while_the_peer_reads_nothing(void)
{
	struct pair ends = pair();
	struct tr_message *message;
	int count = send_all(ends.near);

	/* tr_close would wait, and return -ETIMEDOUT. */
	EXPECT(tr_abandon(ends.near, 7), 0);
	EXPECT(tr_abandon(ends.near, 7), -EBADF);
	while (count--) {
		EXPECT(tr_recv(ends.far, 60000, &message), 0);
		EXPECT(message != NULL, 1);
		tr_message_free(message);
	}
	EXPECT(tr_recv(ends.far, 60000, &message), 0);
	EXPECT(message == NULL, 1);
	EXPECT(tr_close(ends.far, 0), 0);
	tr_listener_close(ends.listener);
}

static void cancel_a_thread_that_waits(void)
{
	struct waiting call = {.ends = pair(), .kind = 0, .code = 1};
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, wait_for_nothing, &call), 0);
	usleep(50000);
	EXPECT(pthread_cancel(thread), 0);
	usleep(50000);
	/* No function is a cancellation point. A thread that ended inside would keep locks. */
	EXPECT(tr_send(call.ends.far, "end", 3, 0), 0);
	EXPECT(pthread_join(thread, NULL), 0);
	echo(call.ends, "after the cancellation");
	close_pair(call.ends);
}

/* A thread of the library must not take a signal for which the program waits. */
static void wait_for_a_signal(void)
{
	struct pair ends = pair();
	struct timespec limit = {.tv_sec = 60};
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	EXPECT(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
	EXPECT(kill(getpid(), SIGUSR1), 0);
	EXPECT(sigtimedwait(&set, NULL, &limit), SIGUSR1);
	EXPECT(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	close_pair(ends);
}

/* Connections that are open when the process ends. */
static struct pair left, of_thread;
static int is_over;

static void *echo_without_end(void *argument)
{
	struct pair *ends = argument;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		echo(*ends, "busy");
	return NULL;
}

static void fork_children(void)
{
	struct pair ends = pair(), busy = pair();
	struct tr_message *message, *unread;
	pthread_t thread;
	int round, status;

	EXPECT(tr_send(ends.near, "held", 4, 0), 0);
	EXPECT(tr_recv(ends.far, 60000, &message), 0);
	EXPECT(tr_send(ends.near, "unread", 6, 0), 0);
	/* At the forks, this thread holds locks of the library. */
	EXPECT(pthread_create(&thread, NULL, echo_without_end, &busy), 0);
	for (round = 0; round < 10; round++) {
		pid_t child = fork();

		if (child == 0) {
			struct pair own;

			alarm(120);
			use(ends.near, ends.listener, message, -EBADF);
			use(busy.far, busy.listener, message, -EBADF);
			own = pair();
			echo(own, "of the child");
			use(ends.far, ends.listener, message, -EBADF);
			if (round % 2)
				close_pair(own);
			left = pair();
			of_thread = pair();
			exit(0);
		}
		EXPECT(waitpid(child, &status, 0), child);
		EXPECT(status, 0);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	EXPECT(pthread_join(thread, NULL), 0);
	EXPECT(memcmp(tr_message_data(message), "held", 4), 0);
	EXPECT(tr_recv(ends.far, 60000, &unread), 0);
	EXPECT(memcmp(tr_message_data(unread), "unread", 6), 0);
	tr_message_free(unread);
	tr_message_free(message);
	echo(ends, "of the parent");
	close_pair(ends);
	close_pair(busy);
}

static pthread_key_t at_thread_end;

/* Runs after the library's own handler, which was registered later. */
static void close_at_exit(void)
{
	close_pair(left);
	echo(of_thread, "at the end");
}

static void close_at_thread_end(void *connection)
{
	EXPECT(tr_close(connection, 0), 0);
}

static void *open_and_end(void *argument)
{
	struct pair own = pair();

	(void)argument;
	of_thread = pair();
	EXPECT(pthread_setspecific(at_thread_end, own.near), 0);
	pthread_exit(NULL);
}

static void end_with_open_handles(void)
{
	static struct waiting call;
	pthread_t thread;

	EXPECT(pthread_key_create(&at_thread_end, close_at_thread_end), 0);
	EXPECT(pthread_create(&thread, NULL, open_and_end, NULL), 0);
	EXPECT(pthread_join(thread, NULL), 0);
	left = pair();
	call.ends = pair();
	EXPECT(pthread_create(&thread, NULL, wait_for_nothing, &call), 0);
	/* The program ends by exit, with open handles, while a thread waits. */
}

int main(int argc, char **argv)
{
	/* The limit for a call that hangs. */
	alarm(120);
	EXPECT(atexit(close_at_exit), 0);
	if (argc > 1 && strcmp(argv[1], "--soft") == 0) {
		EXPECT(tr_use_softrnic(), 0);
		argc--;
		argv++;
	}
	if (argc > 1 && strcmp(argv[1], "fork") == 0) {
		fork_children();
	} else {
		use_handles();
		use_arguments();
		close_while_others_wait();
		close_in_two_threads();
		abandon_while_the_peer_reads_nothing();
		cancel_a_thread_that_waits();
		wait_for_a_signal();
	}
	end_with_open_handles();
	printf("every call returned\n");
	return 0;
}
