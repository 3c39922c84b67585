/* Functions of librdma_mummy in addition to those of <infiniband/verbs.h>, <rdma/rdma_cma.h> and <rdma/rsocket.h>.
 *
 * Programs that use none of them do not need this header. */

#ifndef RDMA_MUMMY_H
#define RDMA_MUMMY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the devices of softrnic, a software NIC, to this process. Later device lists include soft0 after the system's devices. If
 * the system has no device, rdma_create_event_channel() and related functions use softrnic. Programs that do not call this function
 * can use softrnic with the environment variable RDMA_MUMMY_SOFTRNIC=1.
 *
 * The environment variable SOFTRNIC_DEVICES sets the names or the number of the devices.
 *
 * Returns 0, also if they are already registered; otherwise an errno value, which is also in errno:
 *   EOPNOTSUPP  this library was built without softrnic
 *   EINVAL      SOFTRNIC_DEVICES is not a list of devices
 *   EEXIST      this process has another softrnic, or SOFTRNIC_DEVICES has changed since the registration */
int rdma_mummy_register_softrnic(void);

/* Describes the loaded libraries: a line each for libibverbs and librdmacm, with the loaded file, or every path tried and a remedy;
 * then a line about softrnic. It loads the libraries, like a first verb.
 *
 * Like snprintf(): writes at most `size` bytes, the last of them zero, and returns the length of the whole text; `text` may be null
 * if `size` is 0. */
size_t rdma_mummy_describe(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
