/* mlx4: a bind follows the region, also of a bind of no bytes that has none. */

#include DRIVER
#include "common.h"

static void bind_window(struct ibv_mr *mr)
{
	struct mlx4_wqe_bind_seg segment;
	struct ibv_mw mw = {};
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .bind_mw = { .mw = &mw, .bind_info = { .mr = mr } } };

	set_bind_seg(&segment, &wr);
}

static void call(const char *what)
{
	struct ibv_mr mr = {};

	bind_window(strcmp(what, "passed") ? NULL : &mr);
}
