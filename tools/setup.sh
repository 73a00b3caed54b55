#!/bin/sh
# Makes the virtual environment that every other target uses: exactly what constraints.txt names, verified by hash, or
# what another such file names, given as the second argument.
# TORCH=no leaves PyTorch out, for those who bring a smaller build of their own (CPU only, say).
set -eu
venv=$1
constraints=${2:-constraints.txt}
python=${PYTHON:-python3}

fail() {
    echo "setup: $1" >&2
    exit 1
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "Python 3.11 or newer is needed, and '$python' is not that. Install it, or name it: make setup PYTHON=python3.12"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$python' has no venv module. Install your system's package for it (python3-venv on Debian and Ubuntu)"

need_gb=8
[ "${TORCH:-}" = no ] && need_gb=2
free_gb=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1048576))
if [ ! -e "$venv/bin/python" ] && [ "$free_gb" -lt "$need_gb" ]; then
    fail "$need_gb GB of disk are needed here, $free_gb are free. PyTorch's CUDA build takes 5.4 of them; 'make setup TORCH=no' leaves it out, for a smaller build of your own in $venv"
fi

[ -e "$venv/bin/python" ] || "$python" -m venv "$venv"
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
if [ "${TORCH:-}" = no ]; then
    echo "setup: installing everything but PyTorch; put a build of your own into $venv before you train"
    awk '/^[a-z]/ { skip = /^(torch|triton|nvidia-|cuda-)/ } !skip' "$constraints" >"$wanted"
else
    echo "setup: installing into $venv (about two minutes and 6 GB the first time, most of it PyTorch)"
    cp "$constraints" "$wanted"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$wanted"
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
