# Runs tests of libiscsi against tgtd, over iSER. The tests compare data. tgtd listens on port 3260: version 1.0.85
# rejects its option for the port of iSER.
#
# Usage: tgt.sh PORT, which is the port for iSCSI over TCP
set -eu
folder=$(mktemp -d)
daemon=
trap 'kill -9 $daemon 2>/dev/null || :; rm -rf "$folder"' EXIT
PATH=$PATH:/usr/sbin
export TGT_IPC_SOCKET="$folder/control"
truncate -s 4M "$folder/disk"
tgtd -f --iscsi "portal=127.0.0.1:$1" >"$folder/log" 2>&1 &
daemon=$!
admin() {
	tgtadm --lld iser --mode "$@"
}
until admin target --op new --tid 1 -T iqn.softrnic 2>/dev/null; do
	kill -0 $daemon || { cat "$folder/log" && exit 1; }
	sleep 0.1
done
admin logicalunit --op new --tid 1 --lun 1 -b "$folder/disk"
# With iSER, both the address and the name of the initiator must be allowed.
admin target --op bind --tid 1 -I ALL
admin target --op bind --tid 1 -Q iqn.softrnic:test
# libiscsi 1.19 reads memory that it has allocated and not initialized, and crashes in about 1 of 12 runs: malloc clears it.
export MALLOC_PERTURB_=255
for name in Write16.Simple Verify16.Simple Verify16.Mismatch CompareAndWrite.Miscompare; do
	iscsi-test-cu -i iqn.softrnic:test --dataloss --fail --test=ALL.$name iser://127.0.0.1/iqn.softrnic/1 2>&1 |
		tee -a "$folder/results"
done
[ "$(grep -cE '^ +tests +1 +1 +1 +0' "$folder/results")" = 4 ]
echo "all is well"
