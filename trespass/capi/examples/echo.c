/*
 * Echoes messages. `echo` listens on port 7175; `echo HOST` sends a message and prints the reply. With `--soft` as the
 * first argument, both use softrnic and need no NIC.
 */

#include <stdio.h>
#include <string.h>

#include <trespass.h>

static int fail(const char *what, int code)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-code));
	return 1;
}

static int serve(void)
{
	struct tr_listener *listener;
	struct tr_connection *connection;
	struct tr_message *message;
	int code = tr_listen("0.0.0.0", 7175, &listener);

	if (code < 0)
		return fail("listen", code);
	for (;;) {
		code = tr_accept(listener, -1, &connection);
		if (code < 0)
			return fail("accept", code);
		printf("connected over %s\n", tr_transport(connection));
		fflush(stdout);
		while ((code = tr_recv(connection, -1, &message)) == 0 && message) {
			code = tr_send(connection, tr_message_data(message), tr_message_length(message), 0);
			tr_message_free(message);
			if (code < 0)
				break;
		}
		code = tr_close(connection, 0);
		if (code < 0)
			fail("connection", code);
	}
}

static int ask(const char *host)
{
	static const char text[] = "hello";
	struct tr_connection *connection;
	struct tr_message *message;
	int code = tr_connect(host, 7175, 5000, &connection);

	if (code < 0)
		return fail("connect", code);
	code = tr_send(connection, text, strlen(text), 0);
	if (code == 0)
		code = tr_recv(connection, 5000, &message);
	if (code == 0 && message) {
		printf("%.*s, over %s\n", (int)tr_message_length(message), (const char *)tr_message_data(message),
		       tr_transport(connection));
		tr_message_free(message);
	}
	if (code < 0)
		fail("echo", code);
	return tr_close(connection, 0) < 0 || code < 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--soft") == 0) {
		int code = tr_use_softrnic();

		if (code < 0)
			return fail("softrnic", code);
		argc--;
		argv++;
	}
	return argc > 1 ? ask(argv[1]) : serve();
}
