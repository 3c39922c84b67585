// One thread waits for messages of several connections with tr_poll. Both ends are in this process and use softrnic.

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <trespass.h>

static int check(const char *what, int code)
{
	if (code < 0)
		throw std::runtime_error(std::string(what) + ": " + std::strerror(-code));
	return code;
}

struct Close {
	void operator()(tr_connection *connection) const { tr_close(connection, 0); }
	void operator()(tr_listener *listener) const { tr_listener_close(listener); }
	void operator()(tr_message *message) const { tr_message_free(message); }
};

template <typename T> using Handle = std::unique_ptr<T, Close>;

int main()
try {
	check("softrnic", tr_use_softrnic());
	tr_listener *opened;
	check("listen", tr_listen("127.0.0.1", 0, &opened));
	Handle<tr_listener> listener(opened);

	std::vector<Handle<tr_connection>> clients, servers;
	for (int i = 0; i < 3; i++) {
		tr_connection *connection;
		check("connect", tr_connect("127.0.0.1", tr_listener_port(opened), 5000, &connection));
		clients.emplace_back(connection);
		check("accept", tr_accept(opened, 5000, &connection));
		servers.emplace_back(connection);
	}
	for (std::size_t i = 0; i < clients.size(); i++)
		check("send", tr_send(clients[i].get(), &i, sizeof i, 0));

	for (std::size_t left = clients.size(); left > 0;) {
		std::vector<tr_pollitem> items;
		for (auto &server : servers)
			items.push_back({server.get(), nullptr, TR_IN, 0});
		if (check("poll", tr_poll(items.data(), items.size(), 5000)) == 0)
			throw std::runtime_error("poll: nothing arrived");
		for (std::size_t i = 0; i < items.size(); i++) {
			if (!(items[i].revents & TR_IN))
				continue;
			tr_message *received;
			check("recv", tr_recv(servers[i].get(), 0, &received));
			Handle<tr_message> message(received);
			std::size_t number;
			std::memcpy(&number, tr_message_data(received), sizeof number);
			std::printf("message %zu arrived\n", number);
			left--;
		}
	}
	return 0;
} catch (const std::exception &error) {
	std::fprintf(stderr, "%s\n", error.what());
	return 1;
}
