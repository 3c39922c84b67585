#!/usr/bin/env bash
# Runs `cargo xtask test` many times under conditions that machines of users have, and counts the runs that end with status 0.
#
#   tests/conditions.sh [RUNS [CONDITION…]]      by default 20 runs of each; keeps the log of each failed run
#
# Needs root for namespaces, and python3, setpriv, unshare and ip. The tests are built once, before the first run.
# The second clone of `two` stands in a folder that is closed to other users.
set -u
cd "$(dirname "$0")/.."
runs=${1:-20}
conditions=("${@:2}")
[ ${#conditions[@]} -gt 0 ] || conditions=(two busy user shm ipv6 name memlock ports together)
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null' EXIT
export CARGO_NET_OFFLINE=true

small_shm='mount -t tmpfs -o size=64m tmpfs /dev/shm'
no_ipv6='ip link set lo up && sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.lo.disable_ipv6=1'
no_name='hostname no-such-host.invalid'
memlock='ulimit -l 64'
tests='cargo xtask test'
# A user other than root has no capabilities after exec, although the files belong to it.
user='unshare --user --map-user=1000 --map-group=1000'

# Takes ports that the system chooses, and releases them, all the time.
ports='
import random, socket
while True:
    held = [socket.socket(random.choice([socket.AF_INET, socket.AF_INET6]),
                          random.choice([socket.SOCK_STREAM, socket.SOCK_DGRAM])) for _ in range(random.randrange(1, 300))]
    for one in held:
        try: one.bind(("", 0))
        except OSError: pass
    for one in held: one.close()
'

once() {
    case $1 in
        two)
            (cd "$logs/second" && $tests) >"$log.second" 2>&1 &
            local other=$!
            $tests && wait $other ;;
        busy)
            local loops=()
            for _ in 1 2 3 4; do (while :; do :; done) & loops+=($!); done
            $tests
            local status=$?
            kill "${loops[@]}"
            return $status ;;
        ports)
            python3 -c "$ports" &
            local taker=$!
            $tests
            local status=$?
            kill $taker
            return $status ;;
        user) $user bash -c "$tests" ;;
        shm) unshare --mount bash -c "$small_shm && $tests" ;;
        ipv6) unshare --net bash -c "$no_ipv6 && $tests" ;;
        name) unshare --uts bash -c "$no_name && $tests" ;;
        memlock) bash -c "$memlock && $user $tests" ;;
        together)
            unshare --mount --net --uts bash -c "
                $small_shm && $no_ipv6 && $no_name && $memlock || exit
                python3 -c '$ports' & taker=\$!
                $user $tests; status=\$?
                kill \$taker; exit \$status" ;;
        *) echo "no condition $1" >&2; return 2 ;;
    esac
}

$tests --no-run || exit
case " ${conditions[*]} " in *" two "*)
    git clone -q . "$logs/second" && (cd "$logs/second" && $tests --no-run) || exit ;;
esac
all=0
for condition in "${conditions[@]}"; do
    passed=0
    for ((run = 1; run <= runs; run++)); do
        log=$logs/$condition.$run
        if once "$condition" >"$log" 2>&1; then
            passed=$((passed + 1))
            rm -f "$log" "$log.second"
        else
            all=1
            echo "$condition: run $run failed: $log"
        fi
    done
    echo "$condition: $passed of $runs passed"
done
exit $all
