# Second stage: process 1 of the guest, in the host's tree.
#
# Creates the RDMA device, runs the command that the host sends, and reports its exit status. Four virtio ports lead to the
# host: `stdout` and `stderr` carry the command's output (a port, unlike a terminal, passes every byte unchanged), `control`
# carries lines:
#
#   guest -> host   ready                the device is up
#   host  -> guest  LENGTH, SCRIPT       the decimal length in bytes, a newline, then a shell script that execs the command
#   guest -> host   exit STATUS          the command has ended and all its output is out; the host ends the machine now
#
# The shell is busybox, which prefers its own `ip` to the distribution's: programs of the host are called by their path.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
box=/run/softroce/busybox
cd /run/softroce || exit

fail() {
    echo "softroce: FAILED: $*" >/dev/console
    "$box" sleep 1
    "$box" poweroff -f
    "$box" sleep 60
}

# Prints the path of a program of the host.
tool() {
    for folder in /usr/sbin /sbin /usr/bin /bin; do
        [ -x "$folder/$1" ] && echo "$folder/$1" && return
    done
    fail "the host has no $1"
}
ip=$(tool ip)
rdma=$(tool rdma)

$box mkdir -p /dev/pts /dev/shm
$box mount -t devpts -o mode=0620,ptmxmode=0666 devpts /dev/pts
$box mount -t tmpfs -o mode=1777 tmpfs /dev/shm
$box ln -sf /proc/self/fd /dev/fd
$box ln -sf /proc/self/fd/0 /dev/stdin
$box ln -sf /proc/self/fd/1 /dev/stdout
$box ln -sf /proc/self/fd/2 /dev/stderr
$box ln -sf pts/ptmx /dev/ptmx
$box mkdir -p -m 1777 /run/lock
$box hostname softroce

# Without duplicate address detection the link-local GID is valid at once.
for when in all default; do
    echo 0 >"/proc/sys/net/ipv6/conf/$when/accept_dad"
done
$ip -batch - <<END || fail "ip: the network interfaces"
link set lo up
link add eth_a mtu $SOFTROCE_MTU type veth peer name eth_b mtu $SOFTROCE_MTU
address add 10.71.0.1/24 dev eth_a
address add 10.71.0.2/24 dev eth_b
link set eth_a up
link set eth_b up
END
$rdma link add rxe_0 type rxe netdev eth_a || fail "rdma link add rxe_0: see the kernel's lines above"

# GID 0 is link-local, GID 1 the IPv4-mapped one; the kernel fills the table a little after the command has returned.
port=/sys/class/infiniband/rxe_0/ports/1
tries=0
until read -r state <$port/state && [ "$state" = "4: ACTIVE" ] &&
    read -r gid <$port/gids/1 && [ "$gid" != 0000:0000:0000:0000:0000:0000:0000:0000 ]; do
    tries=$((tries + 1))
    [ $tries -le 100 ] || fail "rxe_0 did not become active (state $state, GID 1 $gid)"
    $box usleep 50000
done 2>/dev/null

# Prints the device file of the port with the host's name `softroce.$1`; ports appear a moment after the module.
find_port() {
    tries=0
    while [ $tries -le 100 ]; do
        for file in /sys/class/virtio-ports/*/name; do
            if read -r name <"$file" && [ "$name" = "softroce.$1" ]; then
                file=${file%/name}
                echo "/dev/${file##*/}"
                return
            fi
        done 2>/dev/null
        tries=$((tries + 1))
        $box usleep 50000
    done
}
control=$(find_port control)
stdout=$(find_port stdout)
stderr=$(find_port stderr)
[ -c "$control" ] && [ -c "$stdout" ] && [ -c "$stderr" ] || fail "the virtio ports are missing"

# For the tests of memory in huge pages, of which a machine has none unless its owner reserves some.
echo 4 >/proc/sys/vm/nr_hugepages

echo "softroce: rxe_0 is ready"
exec 3<>"$control"
echo ready >&3
read -r length <&3
$box head -c "$length" <&3 >command

# The command writes into pipes, not into the ports: a port can be opened once only, and /dev/stdout must open again.
$box mkfifo out err
$box cat <out >"$stdout" 3>&- &
out_relay=$!
$box cat <err >"$stderr" 3>&- &
err_relay=$!

ulimit -l unlimited
ulimit -n 65536
ulimit -c 0
# A session of its own, so that a command which signals its process group does not hit the relays.
$box env -i "$box" setsid /bin/sh ./command </dev/null >out 2>err 3>&-
status=$?

# Processes that the command has left hold the pipes open, so the relays would not end.
for process in /proc/[0-9]*; do
    process=${process#/proc/}
    case $process in
    1 | "$out_relay" | "$err_relay") ;;
    *) kill -KILL "$process" ;;
    esac
done 2>/dev/null
wait $out_relay
wait $err_relay
echo "exit $status" >&3

$box sleep 5
$box poweroff -f
$box sleep 60
