#ifndef TRESPASS_H
#define TRESPASS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Sockets and messages over RDMA, or over TCP if a host has no RDMA device. Link with -ltrespass.
 *
 * Functions that return int return 0 or a positive number if they succeed, and -errno if they fail. Times are in
 * milliseconds; -1 means no limit. Ports are in the byte order of the host. Several threads may use a handle at the
 * same time. If one of them closes it, calls of the others that wait for it end: tr_recv, tr_accept and tr_flush with
 * -ENOTCONN, tr_send with -EPIPE, tr_poll with an event. No function is a cancellation point of pthread_cancel. A
 * thread with PTHREAD_CANCEL_ASYNCHRONOUS must not call them: its cancellation ends the process.
 *
 * A signal handler may interrupt a function, which then continues. It must not call functions of this header, and must
 * not leave one by siglongjmp: the interrupted function may hold locks.
 *
 * A handle is a number, not a pointer to memory. A null handle is -EINVAL. A handle that was closed or freed, that
 * belongs to the parent of this process (fork), or has another kind, is -EBADF; functions without an error return
 * then return null, 0 or an empty string. Functions that close or free a handle accept a null pointer.
 *
 * tr_use_softrnic    Adds the devices of softrnic, which connect processes of one host without a NIC. Call it before
 *                    the first tr_listen or tr_connect.
 * tr_listen          Listens on a host name or address, for RDMA and TCP. Port 0 selects a free port.
 * tr_listener_port   Returns the port of a listener.
 * tr_listener_close  Closes and frees a listener.
 * tr_accept          Waits for a connection. Returns -ETIMEDOUT if none arrives in time.
 * tr_connect         Connects over RDMA if both sides have a device, otherwise over TCP.
 * tr_send            Sends a copy of a message. Blocks while too many bytes wait to be sent; with TR_DONTWAIT, returns
 *                    -EAGAIN instead.
 * tr_recv            Waits for the next message; free it with tr_message_free. If the peer sends no more messages,
 *                    returns 0 and a null message. If the time is 0 and no message has arrived, returns -EAGAIN.
 * tr_message_data    Returns the bytes of a message, aligned to 16 bytes. They are valid until the message is freed.
 * tr_message_length  Returns the number of bytes of a message.
 * tr_message_free    Frees a message.
 * tr_flush           Waits until the peer's NIC has received all messages.
 * tr_shutdown        Ends sending. The connection can still receive.
 * tr_transport       Describes the transport: "RDMA: mlx5_0 port 1 ...", or "TCP: ... (no RDMA: reason)". The string is
 *                    valid until the connection is closed.
 * tr_close           Waits until the peer has received all messages, but for at most 10 s, then closes and frees the
 *                    connection, also if it returns an error. The peer receives the code. This is close(2) of a socket
 *                    with SO_LINGER.
 * tr_abandon         Closes and frees a connection without waiting, as close(2) of a socket without SO_LINGER. The peer
 *                    still receives the messages and the code, for at most 10 s; exit(3) waits for this.
 * tr_poll            Waits until an item has one of its events. Returns the number of items that have events, or 0
 *                    after the time.
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

int tr_abandon(struct tr_connection *connection, uint32_t close_code);

int tr_poll(struct tr_pollitem *items, size_t count, int timeout_ms);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* TRESPASS_H */
