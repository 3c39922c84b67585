// Writes a message by RDMA from one reliable queue pair of a device to another, and checks every byte.
//
//   loopback [DEVICE]
//
// The default is the first device with an active port, or softrnic's if this machine has none.

#include <infiniband/verbs.h>
#include <rdma_mummy.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

// A C object that its owner destroys.
template <auto destroy> struct Destroy {
	template <class Object> void operator()(Object *object) const { destroy(object); }
};
template <class Object, auto destroy> using Owned = std::unique_ptr<Object, Destroy<destroy>>;
using Context = Owned<ibv_context, ibv_close_device>;
using Domain = Owned<ibv_pd, ibv_dealloc_pd>;
using Queue = Owned<ibv_cq, ibv_destroy_cq>;
using Pair = Owned<ibv_qp, ibv_destroy_qp>;
using Region = Owned<ibv_mr, ibv_dereg_mr>;

constexpr std::uint8_t port = 1;
constexpr std::size_t size = 1 << 20;

// Verbs report failure by returning an errno value, or a null pointer with errno set.
void check(int code, const char *what)
{
	if (code)
		throw std::system_error(code, std::generic_category(), what);
}

template <class Object> Object *check(Object *object, const char *what)
{
	check(object ? 0 : errno, what);
	return object;
}

Context open_device(const std::string &name)
{
	int count = 0;
	Owned<ibv_device *, ibv_free_device_list> list(ibv_get_device_list(&count));

	for (int i = 0; list && i < count; i++) {
		ibv_device *device = list.get()[i];
		ibv_port_attr attributes;

		if (!name.empty() && name != ibv_get_device_name(device))
			continue;
		Context context(check(ibv_open_device(device), "ibv_open_device"));
		if (!ibv_query_port(context.get(), port, &attributes) && attributes.state == IBV_PORT_ACTIVE)
			return context;
	}
	return nullptr;
}

Context open_any(const std::string &name)
{
	Context context = open_device(name);

	if (!context) {
		check(rdma_mummy_register_softrnic(), "rdma_mummy_register_softrnic");
		context = open_device(name);
	}
	if (!context) {
		std::string why(4096, '\0');

		rdma_mummy_describe(why.data(), why.size());
		throw std::runtime_error("no device " + name + " with an active port\n" + why.c_str());
	}
	return context;
}

// The GID of the port: RoCE v2 with IPv4 if present, because every network carries it; otherwise the first.
ibv_gid_entry choose_gid(ibv_context *context)
{
	std::vector<ibv_gid_entry> entries(256);
	ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);

	check(count < 0 ? static_cast<int>(-count) : 0, "ibv_query_gid_table");
	check(count == 0 ? ENOENT : 0, "the port has no address");
	entries.resize(count);
	auto is_ipv4 = [](const ibv_gid_entry &entry) {
		static constexpr std::uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

		return entry.gid_type == IBV_GID_TYPE_ROCE_V2 && std::equal(mapped, mapped + 12, entry.gid.raw);
	};
	auto best = std::find_if(entries.begin(), entries.end(), is_ipv4);

	return best == entries.end() ? entries.front() : *best;
}

Pair make_pair(ibv_pd *domain, ibv_cq *queue)
{
	ibv_qp_init_attr attributes{};

	attributes.send_cq = attributes.recv_cq = queue;
	attributes.qp_type = IBV_QPT_RC;
	attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
	attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
	return Pair(check(ibv_create_qp(domain, &attributes), "ibv_create_qp"));
}

void connect_to(ibv_qp *pair, const ibv_qp *peer, const ibv_gid_entry &gid)
{
	ibv_port_attr attributes;
	ibv_qp_attr init{}, receive{}, send{};

	check(ibv_query_port(pair->context, port, &attributes), "ibv_query_port");
	init.qp_state = IBV_QPS_INIT;
	init.port_num = port;
	init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	check(ibv_modify_qp(pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");

	receive.qp_state = IBV_QPS_RTR;
	receive.path_mtu = attributes.active_mtu;
	receive.dest_qp_num = peer->qp_num;
	receive.max_dest_rd_atomic = 1;
	receive.min_rnr_timer = 12;
	receive.ah_attr.is_global = 1;
	receive.ah_attr.port_num = port;
	receive.ah_attr.dlid = attributes.lid;
	receive.ah_attr.grh.dgid = gid.gid;
	receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid.gid_index);
	receive.ah_attr.grh.hop_limit = 1;
	check(ibv_modify_qp(pair, &receive,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "to RTR");

	send.qp_state = IBV_QPS_RTS;
	send.timeout = 14;
	send.retry_cnt = send.rnr_retry = 7;
	send.max_rd_atomic = 1;
	check(ibv_modify_qp(pair, &send,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	      "to RTS");
}

void post_write(ibv_qp *pair, const ibv_mr *from, const ibv_mr *to)
{
	ibv_sge piece{ reinterpret_cast<std::uintptr_t>(from->addr), static_cast<std::uint32_t>(from->length), from->lkey };
	ibv_send_wr request{}, *bad;

	request.sg_list = &piece;
	request.num_sge = 1;
	request.opcode = IBV_WR_RDMA_WRITE;
	request.send_flags = IBV_SEND_SIGNALED;
	request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(to->addr);
	request.wr.rdma.rkey = to->rkey;
	check(ibv_post_send(pair, &request, &bad), "ibv_post_send");
}

void wait_for_completion(ibv_cq *queue)
{
	auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
	ibv_wc completion;
	int count;

	while ((count = ibv_poll_cq(queue, 1, &completion)) == 0)
		if (std::chrono::steady_clock::now() > deadline)
			throw std::runtime_error("no completion arrived");
	check(count < 0 ? EIO : 0, "ibv_poll_cq");
	if (completion.status != IBV_WC_SUCCESS)
		throw std::runtime_error(ibv_wc_status_str(completion.status));
}

void run(const std::string &name)
{
	std::vector<std::uint8_t> here(size), there(size);
	std::uint32_t next = 1;

	for (auto &byte : here)
		byte = static_cast<std::uint8_t>((next = next * 1664525 + 1013904223) >> 24);

	// Objects are destroyed in reverse order.
	Context context = open_any(name);
	Domain domain(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
	Queue queue(check(ibv_create_cq(context.get(), 2, nullptr, nullptr, 0), "ibv_create_cq"));
	int peer_writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	Region from(check(ibv_reg_mr(domain.get(), here.data(), size, 0), "ibv_reg_mr"));
	Region to(check(ibv_reg_mr(domain.get(), there.data(), size, peer_writes), "ibv_reg_mr"));
	Pair one = make_pair(domain.get(), queue.get()), other = make_pair(domain.get(), queue.get());
	ibv_gid_entry gid = choose_gid(context.get());

	connect_to(one.get(), other.get(), gid);
	connect_to(other.get(), one.get(), gid);
	post_write(one.get(), from.get(), to.get());
	wait_for_completion(queue.get());
	if (here != there)
		throw std::runtime_error("the received bytes differ from those sent");
	std::printf("%s: queue pair %u wrote %zu bytes to queue pair %u, and all of them arrived\n",
		    ibv_get_device_name(context->device), one->qp_num, size, other->qp_num);
}

} // namespace

int main(int argc, char **argv)
{
	try {
		run(argc > 1 ? argv[1] : "");
		return 0;
	} catch (const std::exception &error) {
		std::fprintf(stderr, "loopback: %s\n", error.what());
		return 1;
	}
}
