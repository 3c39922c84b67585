/*
 * Every inline of the headers as a function, named with a `c_` before it; and the functions of the libraries that the
 * inlines call, which report each call to the test and return its answer.
 */

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <infiniband/ib.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/efadv.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PROC(name, parameters, arguments) \
	void c_##name parameters \
	{ \
		name arguments; \
	}

#define CALL(type, name, parameters, arguments) \
	type c_##name parameters \
	{ \
		return name arguments; \
	}

/* infiniband/verbs.h */

PROC(ibv_wr_atomic_cmp_swp, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
      uint64_t swap), (qp, rkey, remote_addr, compare, swap))
PROC(ibv_wr_atomic_fetch_add, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t add),
     (qp, rkey, remote_addr, add))
PROC(ibv_wr_bind_mw, (struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
      const struct ibv_mw_bind_info *bind_info), (qp, mw, rkey, bind_info))
PROC(ibv_wr_local_inv, (struct ibv_qp_ex *qp, uint32_t invalidate_rkey), (qp, invalidate_rkey))
PROC(ibv_wr_rdma_read, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr), (qp, rkey, remote_addr))
PROC(ibv_wr_rdma_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr), (qp, rkey, remote_addr))
PROC(ibv_wr_rdma_write_imm, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, __be32 imm_data),
     (qp, rkey, remote_addr, imm_data))
PROC(ibv_wr_send, (struct ibv_qp_ex *qp), (qp))
PROC(ibv_wr_send_imm, (struct ibv_qp_ex *qp, __be32 imm_data), (qp, imm_data))
PROC(ibv_wr_send_inv, (struct ibv_qp_ex *qp, uint32_t invalidate_rkey), (qp, invalidate_rkey))
PROC(ibv_wr_send_tso, (struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss), (qp, hdr, hdr_sz, mss))
PROC(ibv_wr_set_ud_addr, (struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey),
     (qp, ah, remote_qpn, remote_qkey))
PROC(ibv_wr_set_xrc_srqn, (struct ibv_qp_ex *qp, uint32_t remote_srqn), (qp, remote_srqn))
PROC(ibv_wr_set_inline_data, (struct ibv_qp_ex *qp, void *addr, size_t length), (qp, addr, length))
PROC(ibv_wr_set_inline_data_list, (struct ibv_qp_ex *qp, size_t num_buf, const struct ibv_data_buf *buf_list),
     (qp, num_buf, buf_list))
PROC(ibv_wr_set_sge, (struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length), (qp, lkey, addr, length))
PROC(ibv_wr_set_sge_list, (struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list), (qp, num_sge, sg_list))
PROC(ibv_wr_start, (struct ibv_qp_ex *qp), (qp))
CALL(int, ibv_wr_complete, (struct ibv_qp_ex *qp), (qp))
PROC(ibv_wr_abort, (struct ibv_qp_ex *qp), (qp))
PROC(ibv_wr_atomic_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, const void *atomic_wr),
     (qp, rkey, remote_addr, atomic_wr))
CALL(struct ibv_cq *, ibv_cq_ex_to_cq, (struct ibv_cq_ex *cq), (cq))
CALL(int, ibv_start_poll, (struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr), (cq, attr))
CALL(int, ibv_next_poll, (struct ibv_cq_ex *cq), (cq))
PROC(ibv_end_poll, (struct ibv_cq_ex *cq), (cq))
CALL(enum ibv_wc_opcode, ibv_wc_read_opcode, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_vendor_err, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_byte_len, (struct ibv_cq_ex *cq), (cq))
CALL(__be32, ibv_wc_read_imm_data, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_invalidated_rkey, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_qp_num, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_src_qp, (struct ibv_cq_ex *cq), (cq))
CALL(unsigned int, ibv_wc_read_wc_flags, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_slid, (struct ibv_cq_ex *cq), (cq))
CALL(uint8_t, ibv_wc_read_sl, (struct ibv_cq_ex *cq), (cq))
CALL(uint8_t, ibv_wc_read_dlid_path_bits, (struct ibv_cq_ex *cq), (cq))
CALL(uint64_t, ibv_wc_read_completion_ts, (struct ibv_cq_ex *cq), (cq))
CALL(uint64_t, ibv_wc_read_completion_wallclock_ns, (struct ibv_cq_ex *cq), (cq))
CALL(uint16_t, ibv_wc_read_cvlan, (struct ibv_cq_ex *cq), (cq))
CALL(uint32_t, ibv_wc_read_flow_tag, (struct ibv_cq_ex *cq), (cq))
PROC(ibv_wc_read_tm_info, (struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info), (cq, tm_info))
CALL(int, ibv_post_wq_recv, (struct ibv_wq *wq, struct ibv_recv_wr *recv_wr, struct ibv_recv_wr **bad_recv_wr),
     (wq, recv_wr, bad_recv_wr))
CALL(struct verbs_context *, verbs_get_ctx, (struct ibv_context *ctx), (ctx))
CALL(int, ___ibv_query_port, (struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr),
     (context, port_num, port_attr))
CALL(int, ibv_query_port, (struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr),
     (context, port_num, port_attr))
CALL(int, ibv_query_gid_ex, (struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
      struct ibv_gid_entry *entry, uint32_t flags), (context, port_num, gid_index, entry, flags))
CALL(ssize_t, ibv_query_gid_table, (struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
      uint32_t flags), (context, entries, max_entries, flags))
CALL(struct ibv_flow *, ibv_create_flow, (struct ibv_qp *qp, struct ibv_flow_attr *flow), (qp, flow))
CALL(int, ibv_destroy_flow, (struct ibv_flow *flow_id), (flow_id))
CALL(struct ibv_flow_action *, ibv_create_flow_action_esp, (struct ibv_context *ctx,
      struct ibv_flow_action_esp_attr *esp), (ctx, esp))
CALL(int, ibv_modify_flow_action_esp, (struct ibv_flow_action *action, struct ibv_flow_action_esp_attr *esp),
     (action, esp))
CALL(int, ibv_destroy_flow_action, (struct ibv_flow_action *action), (action))
CALL(struct ibv_xrcd *, ibv_open_xrcd, (struct ibv_context *context, struct ibv_xrcd_init_attr *xrcd_init_attr),
     (context, xrcd_init_attr))
CALL(int, ibv_close_xrcd, (struct ibv_xrcd *xrcd), (xrcd))
CALL(struct ibv_mr *, __ibv_reg_mr, (struct ibv_pd *pd, void *addr, size_t length, unsigned int access,
      int is_access_const), (pd, addr, length, access, is_access_const))
CALL(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *pd, void *addr, size_t length, int access),
     (pd, addr, length, access))
CALL(struct ibv_mr *, __ibv_reg_mr_iova, (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
      unsigned int access, int is_access_const), (pd, addr, length, iova, access, is_access_const))
CALL(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access),
     (pd, addr, length, iova, access))
CALL(struct ibv_mw *, ibv_alloc_mw, (struct ibv_pd *pd, enum ibv_mw_type type), (pd, type))
CALL(int, ibv_dealloc_mw, (struct ibv_mw *mw), (mw))
CALL(uint32_t, ibv_inc_rkey, (uint32_t rkey), (rkey))
CALL(int, ibv_bind_mw, (struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind), (qp, mw, mw_bind))
CALL(int, ibv_advise_mr, (struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
      struct ibv_sge *sg_list, uint32_t num_sge), (pd, advice, flags, sg_list, num_sge))
CALL(struct ibv_dm *, ibv_alloc_dm, (struct ibv_context *context, struct ibv_alloc_dm_attr *attr), (context, attr))
CALL(int, ibv_free_dm, (struct ibv_dm *dm), (dm))
CALL(int, ibv_memcpy_to_dm, (struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr, size_t length),
     (dm, dm_offset, host_addr, length))
CALL(int, ibv_memcpy_from_dm, (void *host_addr, struct ibv_dm *dm, uint64_t dm_offset, size_t length),
     (host_addr, dm, dm_offset, length))
CALL(struct ibv_mr *, ibv_alloc_null_mr, (struct ibv_pd *pd), (pd))
CALL(struct ibv_mr *, ibv_reg_dm_mr, (struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset, size_t length,
      unsigned int access), (pd, dm, dm_offset, length, access))
CALL(struct ibv_cq_ex *, ibv_create_cq_ex, (struct ibv_context *context, struct ibv_cq_init_attr_ex *cq_attr),
     (context, cq_attr))
CALL(int, ibv_poll_cq, (struct ibv_cq *cq, int num_entries, struct ibv_wc *wc), (cq, num_entries, wc))
CALL(int, ibv_req_notify_cq, (struct ibv_cq *cq, int solicited_only), (cq, solicited_only))
CALL(int, ibv_modify_cq, (struct ibv_cq *cq, struct ibv_modify_cq_attr *attr), (cq, attr))
CALL(struct ibv_srq *, ibv_create_srq_ex, (struct ibv_context *context,
      struct ibv_srq_init_attr_ex *srq_init_attr_ex), (context, srq_init_attr_ex))
CALL(int, ibv_get_srq_num, (struct ibv_srq *srq, uint32_t *srq_num), (srq, srq_num))
CALL(int, ibv_post_srq_recv, (struct ibv_srq *srq, struct ibv_recv_wr *recv_wr, struct ibv_recv_wr **bad_recv_wr),
     (srq, recv_wr, bad_recv_wr))
CALL(int, ibv_post_srq_ops, (struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op), (srq, op, bad_op))
CALL(struct ibv_qp *, ibv_create_qp_ex, (struct ibv_context *context, struct ibv_qp_init_attr_ex *qp_init_attr_ex),
     (context, qp_init_attr_ex))
CALL(struct ibv_td *, ibv_alloc_td, (struct ibv_context *context, struct ibv_td_init_attr *init_attr),
     (context, init_attr))
CALL(int, ibv_dealloc_td, (struct ibv_td *td), (td))
CALL(struct ibv_pd *, ibv_alloc_parent_domain, (struct ibv_context *context,
      struct ibv_parent_domain_init_attr *attr), (context, attr))
CALL(int, ibv_query_rt_values_ex, (struct ibv_context *context, struct ibv_values_ex *values), (context, values))
CALL(int, ibv_query_device_ex, (struct ibv_context *context, const struct ibv_query_device_ex_input *input,
      struct ibv_device_attr_ex *attr), (context, input, attr))
CALL(struct ibv_qp *, ibv_open_qp, (struct ibv_context *context, struct ibv_qp_open_attr *qp_open_attr),
     (context, qp_open_attr))
CALL(int, ibv_modify_qp_rate_limit, (struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr), (qp, attr))
CALL(struct ibv_wq *, ibv_create_wq, (struct ibv_context *context, struct ibv_wq_init_attr *wq_init_attr),
     (context, wq_init_attr))
CALL(int, ibv_modify_wq, (struct ibv_wq *wq, struct ibv_wq_attr *wq_attr), (wq, wq_attr))
CALL(int, ibv_destroy_wq, (struct ibv_wq *wq), (wq))
CALL(struct ibv_rwq_ind_table *, ibv_create_rwq_ind_table, (struct ibv_context *context,
      struct ibv_rwq_ind_table_init_attr *init_attr), (context, init_attr))
CALL(int, ibv_destroy_rwq_ind_table, (struct ibv_rwq_ind_table *rwq_ind_table), (rwq_ind_table))
CALL(int, ibv_post_send, (struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr), (qp, wr, bad_wr))
CALL(int, ibv_post_recv, (struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr), (qp, wr, bad_wr))
CALL(int, ibv_is_qpt_supported, (uint32_t caps, enum ibv_qp_type qpt), (caps, qpt))
CALL(struct ibv_counters *, ibv_create_counters, (struct ibv_context *context,
      struct ibv_counters_init_attr *init_attr), (context, init_attr))
CALL(int, ibv_destroy_counters, (struct ibv_counters *counters), (counters))
CALL(int, ibv_attach_counters_point_flow, (struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
      struct ibv_flow *flow), (counters, attr, flow))
CALL(int, ibv_read_counters, (struct ibv_counters *counters, uint64_t *counters_value, uint32_t ncounters,
      uint32_t flags), (counters, counters_value, ncounters, flags))
CALL(uint16_t, ibv_flow_label_to_udp_sport, (uint32_t fl), (fl))

/* rdma/rdma_verbs.h */

CALL(int, rdma_seterrno, (int ret), (ret))
CALL(struct ibv_mr *, rdma_reg_msgs, (struct rdma_cm_id *id, void *addr, size_t length), (id, addr, length))
CALL(struct ibv_mr *, rdma_reg_read, (struct rdma_cm_id *id, void *addr, size_t length), (id, addr, length))
CALL(struct ibv_mr *, rdma_reg_write, (struct rdma_cm_id *id, void *addr, size_t length), (id, addr, length))
CALL(int, rdma_dereg_mr, (struct ibv_mr *mr), (mr))
CALL(int, rdma_post_recvv, (struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge),
     (id, context, sgl, nsge))
CALL(int, rdma_post_sendv, (struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge, int flags),
     (id, context, sgl, nsge, flags))
CALL(int, rdma_post_readv, (struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge, int flags,
      uint64_t remote_addr, uint32_t rkey), (id, context, sgl, nsge, flags, remote_addr, rkey))
CALL(int, rdma_post_writev, (struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge, int flags,
      uint64_t remote_addr, uint32_t rkey), (id, context, sgl, nsge, flags, remote_addr, rkey))
CALL(int, rdma_post_recv, (struct rdma_cm_id *id, void *context, void *addr, size_t length, struct ibv_mr *mr),
     (id, context, addr, length, mr))
CALL(int, rdma_post_send, (struct rdma_cm_id *id, void *context, void *addr, size_t length, struct ibv_mr *mr,
      int flags), (id, context, addr, length, mr, flags))
CALL(int, rdma_post_read, (struct rdma_cm_id *id, void *context, void *addr, size_t length, struct ibv_mr *mr,
      int flags, uint64_t remote_addr, uint32_t rkey), (id, context, addr, length, mr, flags, remote_addr, rkey))
CALL(int, rdma_post_write, (struct rdma_cm_id *id, void *context, void *addr, size_t length, struct ibv_mr *mr,
      int flags, uint64_t remote_addr, uint32_t rkey), (id, context, addr, length, mr, flags, remote_addr, rkey))
CALL(int, rdma_post_ud_send, (struct rdma_cm_id *id, void *context, void *addr, size_t length, struct ibv_mr *mr,
      int flags, struct ibv_ah *ah, uint32_t remote_qpn), (id, context, addr, length, mr, flags, ah, remote_qpn))
CALL(int, rdma_get_send_comp, (struct rdma_cm_id *id, struct ibv_wc *wc), (id, wc))
CALL(int, rdma_get_recv_comp, (struct rdma_cm_id *id, struct ibv_wc *wc), (id, wc))

/* rdma/rdma_cma.h */

CALL(struct sockaddr *, rdma_get_local_addr, (struct rdma_cm_id *id), (id))
CALL(struct sockaddr *, rdma_get_peer_addr, (struct rdma_cm_id *id), (id))

/* infiniband/ib.h */

CALL(int, ib_addr_any, (const struct ib_addr *a), (a))
CALL(int, ib_addr_loopback, (const struct ib_addr *a), (a))
PROC(ib_addr_set, (struct ib_addr *addr, __be32 w1, __be32 w2, __be32 w3, __be32 w4), (addr, w1, w2, w3, w4))
CALL(int, ib_addr_cmp, (const struct ib_addr *a1, const struct ib_addr *a2), (a1, a2))

/* infiniband/mlx5dv.h */

PROC(mlx5dv_wr_set_dc_addr, (struct mlx5dv_qp_ex *mqp, struct ibv_ah *ah, uint32_t remote_dctn,
      uint64_t remote_dc_key), (mqp, ah, remote_dctn, remote_dc_key))
PROC(mlx5dv_wr_set_dc_addr_stream, (struct mlx5dv_qp_ex *mqp, struct ibv_ah *ah, uint32_t remote_dctn,
      uint64_t remote_dc_key, uint16_t stream_id), (mqp, ah, remote_dctn, remote_dc_key, stream_id))
PROC(mlx5dv_wr_mr_interleaved, (struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey, uint32_t access_flags,
      uint32_t repeat_count, uint16_t num_interleaved, struct mlx5dv_mr_interleaved *data),
     (mqp, mkey, access_flags, repeat_count, num_interleaved, data))
PROC(mlx5dv_wr_mr_list, (struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey, uint32_t access_flags,
      uint16_t num_sges, struct ibv_sge *sge), (mqp, mkey, access_flags, num_sges, sge))
PROC(mlx5dv_wr_mkey_configure, (struct mlx5dv_qp_ex *mqp, struct mlx5dv_mkey *mkey, uint8_t num_setters,
      struct mlx5dv_mkey_conf_attr *attr), (mqp, mkey, num_setters, attr))
PROC(mlx5dv_wr_set_mkey_access_flags, (struct mlx5dv_qp_ex *mqp, uint32_t access_flags), (mqp, access_flags))
PROC(mlx5dv_wr_set_mkey_layout_list, (struct mlx5dv_qp_ex *mqp, uint16_t num_sges, const struct ibv_sge *sge),
     (mqp, num_sges, sge))
PROC(mlx5dv_wr_set_mkey_layout_interleaved, (struct mlx5dv_qp_ex *mqp, uint32_t repeat_count,
      uint16_t num_interleaved, const struct mlx5dv_mr_interleaved *data), (mqp, repeat_count, num_interleaved, data))
PROC(mlx5dv_wr_set_mkey_sig_block, (struct mlx5dv_qp_ex *mqp, const struct mlx5dv_sig_block_attr *attr), (mqp, attr))
PROC(mlx5dv_wr_set_mkey_crypto, (struct mlx5dv_qp_ex *mqp, const struct mlx5dv_crypto_attr *attr), (mqp, attr))
PROC(mlx5dv_wr_memcpy, (struct mlx5dv_qp_ex *mqp, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
      uint64_t src_addr, size_t length), (mqp, dest_lkey, dest_addr, src_lkey, src_addr, length))
CALL(int, mlx5dv_mkey_check, (struct mlx5dv_mkey *mkey, struct mlx5dv_mkey_err *err_info), (mkey, err_info))
PROC(mlx5dv_wr_raw_wqe, (struct mlx5dv_qp_ex *mqp, const void *wqe), (mqp, wqe))
CALL(uint8_t, mlx5dv_get_cqe_owner, (struct mlx5_cqe64 *cqe), (cqe))
PROC(mlx5dv_set_cqe_owner, (struct mlx5_cqe64 *cqe, uint8_t val), (cqe, val))
CALL(uint8_t, mlx5dv_get_cqe_se, (struct mlx5_cqe64 *cqe), (cqe))
CALL(uint8_t, mlx5dv_get_cqe_format, (struct mlx5_cqe64 *cqe), (cqe))
CALL(uint8_t, mlx5dv_get_cqe_opcode, (struct mlx5_cqe64 *cqe), (cqe))
PROC(mlx5dv_set_ctrl_seg, (struct mlx5_wqe_ctrl_seg *seg, uint16_t pi, uint8_t opcode, uint8_t opmod,
      uint32_t qp_num, uint8_t fm_ce_se, uint8_t ds, uint8_t signature, uint32_t imm),
     (seg, pi, opcode, opmod, qp_num, fm_ce_se, ds, signature, imm))
#ifdef __SSE3__
PROC(mlx5dv_x86_set_ctrl_seg, (struct mlx5_wqe_ctrl_seg *seg, uint16_t pi, uint8_t opcode, uint8_t opmod,
      uint32_t qp_num, uint8_t fm_ce_se, uint8_t ds, uint8_t signature, uint32_t imm),
     (seg, pi, opcode, opmod, qp_num, fm_ce_se, ds, signature, imm))
#endif
PROC(mlx5dv_set_dgram_seg, (struct mlx5_wqe_datagram_seg *seg, uint64_t key, uint32_t dqp_dct, uint8_t ext,
      uint8_t stat_rate_sl, uint8_t fl_mlid, uint16_t rlid, uint8_t *rmac, uint8_t tclass, uint8_t hop_limit,
      uint32_t grh_gid_fi, uint8_t *rgid),
     (seg, key, dqp_dct, ext, stat_rate_sl, fl_mlid, rlid, rmac, tclass, hop_limit, grh_gid_fi, rgid))
PROC(mlx5dv_set_data_seg, (struct mlx5_wqe_data_seg *seg, uint32_t length, uint32_t lkey, uintptr_t address),
     (seg, length, lkey, address))
#ifdef __SSE3__
PROC(mlx5dv_x86_set_data_seg, (struct mlx5_wqe_data_seg *seg, uint32_t length, uint32_t lkey, uintptr_t address),
     (seg, length, lkey, address))
#endif
PROC(mlx5dv_set_eth_seg, (struct mlx5_wqe_eth_seg *seg, uint8_t cs_flags, uint16_t mss, uint16_t inline_hdr_sz,
      uint8_t *inline_hdr_start), (seg, cs_flags, mss, inline_hdr_sz, inline_hdr_start))
CALL(uint64_t, mlx5dv_ts_to_ns, (struct mlx5dv_clock_info *clock_info, uint64_t device_timestamp),
     (clock_info, device_timestamp))
CALL(int, mlx5dv_query_port, (struct ibv_context *context, uint32_t port_num, struct mlx5dv_port *info),
     (context, port_num, info))
PROC(_devx_set, (void *p, uint32_t value, size_t bit_off, size_t bit_sz), (p, value, bit_off, bit_sz))
CALL(uint32_t, _devx_get, (const void *p, size_t bit_off, size_t bit_sz), (p, bit_off, bit_sz))
PROC(_devx_set64, (void *p, uint64_t v, size_t bit_off), (p, v, bit_off))
CALL(uint64_t, _devx_get64, (const void *p, size_t bit_off), (p, bit_off))

/* infiniband/efadv.h */

CALL(int, efadv_wc_read_sgid, (struct efadv_cq *efadv_cq, union ibv_gid *sgid), (efadv_cq, sgid))

/* The libraries. */

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

typedef uint64_t (*recorder)(const char *name, size_t count, const uint64_t *arguments);

static recorder record;
static struct ibv_cq *event_cq;
static void *event_context;

void set_recorder(recorder function)
{
	record = function;
}

/* What ibv_get_cq_event delivers. */
void set_event(struct ibv_cq *cq, void *context)
{
	event_cq = cq;
	event_context = context;
}

#define NUMBER(value) ((uint64_t)(value))
#define POINTER(value) ((uint64_t)(uintptr_t)(value))
#define RECORD(name, ...) record(name, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return (int)RECORD("ibv_query_device", POINTER(context), POINTER(attr));
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	return (int)RECORD("ibv_query_port", POINTER(context), NUMBER(port_num), POINTER(attr));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t entry_size)
{
	return (int)RECORD("_ibv_query_gid_ex", POINTER(context), NUMBER(port_num), NUMBER(gid_index), POINTER(entry),
			   NUMBER(flags), NUMBER(entry_size));
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
			     uint32_t flags, size_t entry_size)
{
	return (ssize_t)RECORD("_ibv_query_gid_table", POINTER(context), POINTER(entries), NUMBER(max_entries),
			       NUMBER(flags), NUMBER(entry_size));
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return (void *)(uintptr_t)RECORD("ibv_reg_mr", POINTER(pd), POINTER(addr), NUMBER(length), NUMBER(access));
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return (void *)(uintptr_t)RECORD("ibv_reg_mr_iova", POINTER(pd), POINTER(addr), NUMBER(length), iova,
					 NUMBER(access));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return (void *)(uintptr_t)RECORD("ibv_reg_mr_iova2", POINTER(pd), POINTER(addr), NUMBER(length), iova,
					 NUMBER(access));
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return (int)RECORD("ibv_dereg_mr", POINTER(mr));
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return (void *)(uintptr_t)RECORD("ibv_create_srq", POINTER(pd), POINTER(attr));
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return (void *)(uintptr_t)RECORD("ibv_create_qp", POINTER(pd), POINTER(attr));
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	*cq = event_cq;
	*context = event_context;
	return (int)RECORD("ibv_get_cq_event", POINTER(channel));
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	RECORD("ibv_ack_cq_events", POINTER(cq), NUMBER(nevents));
}

int _mlx5dv_mkey_check(struct mlx5dv_mkey *mkey, struct mlx5dv_mkey_err *err_info, size_t err_info_size)
{
	return (int)RECORD("_mlx5dv_mkey_check", POINTER(mkey), POINTER(err_info), NUMBER(err_info_size));
}

int _mlx5dv_query_port(struct ibv_context *context, uint32_t port_num, struct mlx5dv_port *info, size_t info_len)
{
	return (int)RECORD("_mlx5dv_query_port", POINTER(context), NUMBER(port_num), POINTER(info), NUMBER(info_len));
}
