# Transfers memory with a wheel of PyPI, and compares it. pip installs the wheel, without its dependencies, below the
# folder of this script.
#
# Usage: wheels.sh NAME PACKAGE...
set -eu
here=$(dirname "$0")
name=$1
shift
folder="$here/wheels/$name"
if [ ! -e "$folder/complete" ]; then
	rm -rf "$folder"
	python3 -m pip install --quiet --no-deps --disable-pip-version-check --target "$folder" "$@" >&2
	touch "$folder/complete"
fi
PYTHONPATH="$folder" exec python3 "$here/wheels.py" "$name"
