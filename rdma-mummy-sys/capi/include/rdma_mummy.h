/* What librdma_mummy has beside the functions of <infiniband/verbs.h>, <rdma/rdma_cma.h> and <rdma/rsocket.h>.
 *
 * A program that uses none of it does not need this header. */

#ifndef RDMA_MUMMY_H
#define RDMA_MUMMY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the devices of softrnic, a NIC in software, to those of this process: lists of devices that are made from now on have soft0
 * after the devices of the system, and where the system has none, rdma_create_event_channel() and the like are softrnic's. To have
 * them in a program that does not call this, set the environment variable RDMA_MUMMY_SOFTRNIC to 1.
 *
 * The environment variable SOFTRNIC_DEVICES names other devices, or says how many.
 *
 * Returns 0, also where they are registered already; else an errno value, which is also in errno:
 *   EOPNOTSUPP  this library was built without softrnic
 *   EINVAL      SOFTRNIC_DEVICES is no list of devices
 *   EEXIST      there is another softrnic in this process, or SOFTRNIC_DEVICES is not what it was when this one was registered */
int rdma_mummy_register_softrnic(void);

/* Says what is behind the functions: a line for each of libibverbs and librdmacm, with the file that was loaded, or every path that
 * was tried and what to install or set; then a line about softrnic. It loads the libraries as a first verb does.
 *
 * As snprintf(): at most `size` bytes are written, the last of them zero, and the length of the whole text is returned; `text` may be
 * null where `size` is 0. */
size_t rdma_mummy_describe(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
