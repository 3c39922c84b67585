# Runs a program of others as server and as client, over RDMA and with a peer that uses TCP, and compares the data.
#
# Usage: sockets.sh RUN PORT PROGRAM, where RUN is the path of trespass-run
set -eu
run=$1 port=$2 name=$3
folder=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || :; wait; rm -rf "$folder"' EXIT
PATH=$PATH:/usr/sbin
for program in "$name" curl; do
	command -v "$program" >/dev/null || { echo "$program is not installed" && exit 1; }
done
cd "$folder"
export TRESPASS_SOCKETS_LOG=1 SOFTRNIC_DEVICES=soft0
# Starts the server, which writes the library's lines to a file, and waits until it serves RDMA.
serve() {
	"$run" "$@" >>log 2>&1 &
	server=$!
	until grep -qs "listening at .*:$port over RDMA and TCP" log; do
		kill -0 $server || { cat log && exit 1; }
		sleep 0.1
	done
}
# Compares the file that each kind of client gets.
fetch() {
	head -c 100M /dev/urandom >file
	for client in "$run" env; do
		"$client" curl -sS --max-time 60 "http://127.0.0.1:$port/file" 2>>client | cmp - file
	done
	grep -q "connected to 127.0.0.1:$port over soft0" client
	grep -q "accepted .* over soft0" log
}
case $name in
nginx)
	# soft0 connects processes of one user, so the workers must not change theirs.
	cat >conf <<-END
		$(test "$(id -u)" != 0 || echo "user root;") daemon off; pid $folder/pid; error_log $folder/log info; worker_processes 2;
		events { use epoll; }
		http { access_log off; server { listen 127.0.0.1:$port; root $folder; } }
	END
	serve nginx -p "$folder" -c "$folder/conf"
	fetch
	;;
python3)
	serve python3 -m http.server --bind 127.0.0.1 "$port"
	fetch
	;;
redis-server)
	serve redis-server --port "$port" --bind 127.0.0.1 --save ''
	"$run" redis-benchmark -p "$port" -n 10000 -q -t set,get -d 5000 >>client 2>&1
	head -c 300000 /dev/urandom | base64 -w 0 >value
	"$run" redis-cli -p "$port" -x set key <value >>client 2>&1
	for client in "$run" env; do
		"$client" redis-cli -p "$port" --raw get key 2>>client | tr -d '\n' | cmp - value
	done
	grep -q "connected to 127.0.0.1:$port over soft0" client
	grep -q "accepted .* over soft0" log
	;;
iperf3)
	for client in "$run" env; do
		serve iperf3 -s -1 -p "$port"
		"$client" iperf3 -c 127.0.0.1 -p "$port" -n 100M >>client 2>&1
		wait $server
		mv log last
	done
	[ "$(grep -c "iperf Done" client)" = 2 ]
	grep -q "connected to 127.0.0.1:$port over soft0" client
	;;
esac
echo "all is well"
