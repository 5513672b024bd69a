#!/usr/bin/env bash
# What a target without a network lacks, as small as it travels: 40 MB.
#
#     benchmarks/carry.sh make DIR [PACKAGE …]  # where there is a network, in two minutes
#     benchmarks/carry.sh unpack DIR SITE       # on the target; SITE goes into PYTHONPATH
#
# Packages come with what they require, which `pip download --no-deps` leaves out: optuna for `fathom tune`; fastapi uvicorn openai python-multipart psutil for
# `transformers serve`.
# Wheels are for Python 3.12 on x86-64. Of polars its library is most: stripped and packed anew it is 28 MB, not 54.
set -euo pipefail
here=$2

wheels() { # DIR NAME…, or options of pip
    local into=$1 platforms=()
    shift
    for one in manylinux2014_x86_64 manylinux_2_17_x86_64 manylinux_2_24_x86_64 manylinux_2_27_x86_64 manylinux_2_28_x86_64; do
        platforms+=(--platform "$one")
    done
    "${PYTHON:-python3}" -m pip download --quiet --only-binary=:all: --implementation cp \
        --python-version 3.12 "${platforms[@]}" --dest "$into" "$@"
}

make() { # [PACKAGE…]
    mkdir -p "$here"
    if [ $# -gt 0 ]; then
        wheels "$here" "$@"
        rm -f "$here"/{numpy,packaging,pyyaml,typing_extensions}-* # the target has them
    fi
    wheels "$here" --no-deps cupti-python cuda-pathfinder pyelftools msgspec isal platformdirs \
        pytest pluggy iniconfig hypothesis sortedcontainers
    large=$(mktemp -d)
    trap 'rm -rf "$large"' EXIT
    wheels "$large" --no-deps polars polars-runtime-32
    for wheel in "$large"/*.whl; do
        "${PYTHON:-python3}" -m zipfile -e "$wheel" "$large/polars"
    done
    strip --strip-all "$large"/polars/_polars_runtime_32/*.so
    tar -C "$large/polars" -c . | xz -9e --threads=1 > "$here/polars.tar.xz"
}

unpack() { # SITE
    "${PYTHON:-python3}" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$1" "$here"/*.whl
    tar -C "$1" -xJf "$here/polars.tar.xz"
}

verb=$1
shift 2
"$verb" "$@"
