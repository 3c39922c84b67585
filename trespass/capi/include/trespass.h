#ifndef TRESPASS_H
#define TRESPASS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Sockets and messages over RDMA, or over TCP without an RDMA device. Link with -ltrespass.
 *
 * Each function that returns int returns 0 or more if it succeeded, else -errno. A time of -1 ms is without limit.
 * Handles may be used by several threads at once, but a closed or freed handle by none.
 *
 * tr_use_softrnic    Adds a NIC in software, by which processes of one host meet. Before the first connection.
 * tr_listen          Listens at a host's name or address, for RDMA and TCP. Port 0 is any port.
 * tr_listener_port   The port of a listener.
 * tr_accept          Waits for a connection. -ETIMEDOUT: there was none.
 * tr_connect         Connects: by RDMA if both sides have it, else by TCP.
 * tr_send            Sends a message, by copying it; waits if too much waits already, or with TR_DONTWAIT returns -EAGAIN.
 * tr_recv            Waits for the next message; the caller frees it. 0 with a null message: the peer sends no more.
 *                    With a time of 0 ms it returns -EAGAIN if there is none.
 * tr_message_data    The bytes of a message, aligned to 16.
 * tr_flush           Waits until the peer's NIC has everything that was sent.
 * tr_shutdown        Ends this side's messages; receiving goes on.
 * tr_transport       What a connection runs on, in words: "RDMA: mlx5_0 port 1 ...", "TCP: ... (no RDMA: reason)".
 * tr_close           Closes after the peer has everything, or 10 s, and frees the handle in any case. The peer can read the code.
 * tr_poll            Waits until an item has what its events ask for; returns how many have, 0 after the time.
 */

#define TR_DONTWAIT 1
#define TR_IN 1
#define TR_OUT 4

struct tr_connection;

struct tr_listener;

struct tr_message;

struct tr_pollitem {
  const struct tr_connection *connection;
  const struct tr_listener *listener;
  short events;
  short revents;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

int tr_use_softrnic(void);

int tr_listen(const char *host, uint16_t port, struct tr_listener **listener);

uint16_t tr_listener_port(const struct tr_listener *listener);

int tr_accept(const struct tr_listener *listener, int timeout_ms, struct tr_connection **connection);

void tr_listener_close(struct tr_listener *listener);

int tr_connect(const char *host, uint16_t port, int timeout_ms, struct tr_connection **connection);

int tr_send(const struct tr_connection *connection, const void *message, size_t length, int flags);

int tr_recv(const struct tr_connection *connection, int timeout_ms, struct tr_message **message);

const void *tr_message_data(const struct tr_message *message);

size_t tr_message_length(const struct tr_message *message);

void tr_message_free(struct tr_message *message);

int tr_flush(const struct tr_connection *connection);

int tr_shutdown(const struct tr_connection *connection);

const char *tr_transport(const struct tr_connection *connection);

int tr_close(struct tr_connection *connection, uint32_t close_code);

int tr_poll(struct tr_pollitem *items, size_t count, int timeout_ms);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* TRESPASS_H */
