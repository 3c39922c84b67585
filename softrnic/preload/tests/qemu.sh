# Migrates a virtual machine of QEMU over RDMA, and compares its memory before and after.
#
# Usage: qemu.sh PORT
set -eu
folder=$(mktemp -d)
source= target=
trap 'kill -9 $source $target 2>/dev/null || :; rm -rf "$folder"' EXIT
head -c 8M /dev/urandom >"$folder/before"
for name in source target; do
	mkfifo "$folder/$name.in" "$folder/$name.out"
done
machine="qemu-system-x86_64 -M pc -accel tcg -nodefaults -display none -m 64 -S"
$machine -device "loader,file=$folder/before,addr=0x100000,force-raw=on" -monitor "pipe:$folder/source" &
source=$!
$machine -incoming "rdma:127.0.0.1:$1" -monitor "pipe:$folder/target" &
target=$!
exec 3>"$folder/source.in" 4<"$folder/source.out" 5>"$folder/target.in" 6<"$folder/target.out"
# The monitor of the target replies when QEMU listens.
echo "info status" >&5
while read -r line <&6; do
	case $line in *inmigrate*) break ;; esac
done
echo "migrate rdma:127.0.0.1:$1" >&3
echo "info migrate" >&3
while read -r line <&4; do
	case $line in
	*"Migration status: completed"*) break ;;
	*"Migration status"* | *Error:*) echo "$line" && exit 1 ;;
	esac
done
echo quit >&3
echo "pmemsave 0x100000 0x800000 \"$folder/after\"" >&5
echo quit >&5
wait $source $target
cmp "$folder/before" "$folder/after"
echo "all is well"
