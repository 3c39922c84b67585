# Runs in the guest. $1 is the folder of the example programs.
set -u
pingpong=$1/rc_pingpong

# $1 is the title, $2 the port, the rest the two programs with their options.
pair() {
    echo
    echo "== $1"
    port=$2 server=$3 client=$4
    $server -d rxe_0 -g 1 -p "$port" -n 1000 -c >/tmp/server.log 2>&1 &
    # The server listens once the port is in the kernel's table.
    waited=0
    until grep -qi ":$(printf %04x "$port") " /proc/net/tcp /proc/net/tcp6; do
        waited=$((waited + 1))
        [ $waited -lt 200 ] || { echo "the server does not listen"; cat /tmp/server.log; exit 1; }
        sleep 0.05
    done
    $client -d rxe_0 -g 1 -p "$port" -n 1000 -c 127.0.0.1 || { cat /tmp/server.log; exit 1; }
    wait $! || { cat /tmp/server.log; exit 1; }
}

"$1/show_gids" || exit 1
pair "rc_pingpong with itself: 1000 round trips of 4096 bytes, checked" 18515 "$pingpong" "$pingpong"
pair "rc_pingpong as the client of rdma-core's ibv_rc_pingpong" 18516 ibv_rc_pingpong "$pingpong"
pair "rdma-core's ibv_rc_pingpong as the client of rc_pingpong" 18517 "$pingpong" ibv_rc_pingpong
echo
echo "All data arrived as it was sent."
