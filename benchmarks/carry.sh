#!/usr/bin/env bash
# What a target without a network lacks, as small as it travels: 40 MB.
#
#     benchmarks/carry.sh make DIR         # where there is a network, in two minutes
#     benchmarks/carry.sh unpack DIR SITE  # on the target; SITE goes into PYTHONPATH
#
# Wheels are for Python 3.12 on x86-64. Of polars its library is most: stripped and packed anew it is 28 MB, not 54.
set -euo pipefail
here=$2

wheels() { # DIR NAME…
    local into=$1 platforms=()
    shift
    for one in manylinux2014_x86_64 manylinux_2_17_x86_64 manylinux_2_24_x86_64 manylinux_2_27_x86_64 manylinux_2_28_x86_64; do
        platforms+=(--platform "$one")
    done
    "${PYTHON:-python3}" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
        --python-version 3.12 "${platforms[@]}" --dest "$into" "$@"
}

make() {
    mkdir -p "$here"
    wheels "$here" cupti-python cuda-pathfinder pyelftools msgspec isal platformdirs \
        pytest pluggy iniconfig hypothesis sortedcontainers
    large=$(mktemp -d)
    trap 'rm -rf "$large"' EXIT
    wheels "$large" polars polars-runtime-32
    for wheel in "$large"/*.whl; do
        "${PYTHON:-python3}" -m zipfile -e "$wheel" "$large/polars"
    done
    strip --strip-all "$large"/polars/_polars_runtime_32/*.so
    tar -C "$large/polars" -c . | xz -9e --threads=1 > "$here/polars.tar.xz"
}

unpack() {
    "${PYTHON:-python3}" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$2" "$here"/*.whl
    tar -C "$2" -xJf "$here/polars.tar.xz"
}

"$@"
