#!/usr/bin/env bash
# The measurements that need NVIDIA GPUs, in parts that take at most ten minutes each:
#
#     benchmarks/on_target.sh PART OUT
#
# PART is measure, whole, stress, ceilings, record, stretches, cost, tests, links, bursts, counters, crafted,
# agreement, faults, unrelated, compiled, lab, lab-ranks, decode, handover, live-ranks, live-gpus, buckets, equal,
# aftermath, timeline, watch, watch-cost, compare or plan; or lanes: LANES="counters,lab faults,unrelated" does these
# lists side by side, each on a GPU and cores of its own, with their results in OUT/PART. What the target lacks:
# carry.sh.
#
# Results land in OUT (archives of raw records, JSON), to be finished where the table libraries are:
#
#     python -m benchmarks.accuracy.record_all finish OUT
#     python benchmarks/cost/stretches.py summary OUT/stretches
#     python benchmarks/cost/cost.py summary OUT/cost
#     python benchmarks/cost/burst_cost.py summary OUT/bursts
#     python -m benchmarks.referee.equal_sides summary OUT/equal
#     python -m benchmarks.accuracy.record_all finish OUT/timeline; python benchmarks/cost/timeline_cost.py FOLDER
#     python -m benchmarks.accuracy.compiling score OUT
set -euo pipefail
part=$1 out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
mkdir -p "$out"
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 FATHOM_HOME=${FATHOM_HOME:-$out/home}
python=${PYTHON:-python3}

stress() { # a recorder that starts and stops often, in a program that leaves it no time
    for run in 1 2 3 4; do
        status=0
        PYTHONFAULTHANDLER=1 "$python" -m fathom run --raw --no-measure --replace -o "$out/stress-$run.fathom" \
            --at 200 --at 300 --at 400 --at 500 -- "$python" benchmarks/programs/launch_bound.py --steps 700 || status=$?
        echo "stress $run: status $status"
    done
}

measure() { # what other parts need to know of the machine, before lanes that need it: 80 s
    "$python" -m fathom machine measure --only counters --json > "$out/counters.json"
    "$python" -m fathom machine measure --json > "$out/machine.json"
}

whole() { # the main commands as people give them, to the finding and the dive; needs polars (carry.sh)
    export COLUMNS=110
    "$python" -m fathom run --replace --stop-after -o "$out/gpt.fathom" -- "$python" examples/train_gpt.py \
        > "$out/run.txt" 2>&1 || echo "run: status $?"
    "$python" -m fathom dive "$out/gpt.fathom" "${PATTERN:-layer_norm_grad}" -o "$out/dive.fathom" \
        > "$out/dive.txt" 2>&1 || echo "dive: status $?"
    "$python" -m fathom run --replace --depth timeline --what-if --stop-after -o "$out/what-if.fathom" -- \
        "$python" benchmarks/programs/timm_jpeg.py --steps 2000 > "$out/what-if.txt" 2>&1 || echo "what-if: status $?"
}

ceilings() { # twice in a row: the figures, and how far they differ
    "$python" benchmarks/accuracy/gauges.py "$@"
    cp benchmarks/results/gauges.json "$out/"
    "$python" -m fathom machine measure --json > "$out/machine.json"
    "$python" -m fathom machine check --json > "$out/check.json" || true
}

record() { # every validation program, unchanged; their soundings carry the ceilings
    "$python" -m fathom machine measure --json > "$out/machine.json"
    "$python" -m benchmarks.accuracy.record_all record "$out"
}

stretches() { # the clean phase's cost within one process; nothing else may run on the machine
    "$python" benchmarks/cost/stretches.py record launch_bound --runs "${RUNS:-4}" --out "$out/stretches" -- --steps 6000
    "$python" benchmarks/cost/stretches.py record launch_bound --sham --runs 2 --out "$out/stretches" -- --steps 6000
}

cost() { # recorded against untouched, in pairs: batches of eight on each GPU, on sets of four cores
    gpus=$(gpus)
    sets=$("$python" -c "import os, sys
from faults.parallel import shares
count = max(len(os.sched_getaffinity(0)) // 4, len(sys.argv[1].split(',')))
print(*(','.join(map(str, sorted(part))) for part in shares(count)))" "$gpus")
    "$python" benchmarks/cost/cost.py pairs launch_bound --depth surface --pairs "${PAIRS:-40}" --batch "${BATCH:-8}" \
        --cores $sets --gpus "$gpus" --minutes "${MINUTES:-6}" --out "$out/cost" -- --steps 400
    "$python" benchmarks/cost/cost.py pairs train_gpt --depth surface --pairs "${GPT_PAIRS:-10}" \
        --minutes "${GPT_MINUTES:-3}" --out "$out/cost"
}

tests() { "$python" -m pytest -q -p no:cacheprovider tests/gpu; }

links() { # on several GPUs: peers, collectives, and data parallel training over NCCL
    ranks=$("$python" -c "import torch; print(torch.cuda.device_count())")
    "$python" benchmarks/accuracy/gauges.py --full --gpu all --merge --only copy,link,collective
    cp benchmarks/results/gauges.json "$out/"
    "$python" -m fathom run --raw --no-measure --replace -o "$out/ddp-nccl.fathom" -- \
        "$python" -m torch.distributed.run --standalone --nproc-per-node="$ranks" \
        benchmarks/programs/ddp.py --device cuda
    tar -C "$out" -czf "$out/ddp-nccl.tar.gz" ddp-nccl.fathom && rm -r "$out/ddp-nccl.fathom"
}

bursts() { # needs cupti-python: what sampling costs a launch-bound step, on all GPUs at once, nothing beside it
    "$python" -m fathom machine measure --only counters --json > "$out/counters-machine.json"
    IFS=, read -ra gpus <<< "$(gpus)"
    each=$(($(nproc) / ${#gpus[@]}))
    rm -rf "$out"/bursts-*
    for ((lane = 0; lane < ${#gpus[@]}; lane++)); do
        CUDA_VISIBLE_DEVICES=${gpus[lane]} "$python" benchmarks/cost/burst_cost.py record launch_bound \
            --cores $((lane * each))-$(((lane + 1) * each - 1)) --bursts 1000 --seconds "${SECONDS_EACH:-120}" \
            --out "$out/bursts-$lane" -- --steps 100000 &
    done
    wait
    mkdir -p "$out/bursts" && cat "$out"/bursts-*/bursts.jsonl >> "$out/bursts/bursts.jsonl"
}

counters() { # needs cupti-python: what sampling costs in time and memory (5 min), and samples of PROGRAMS
    "$python" -m fathom machine measure --only counters --json > "$out/counters-machine.json"
    "$python" benchmarks/cost/burst_cost.py record train_gpt --rest 1.5 --warm 0 --steps 4 --buffer 1024 \
        --bursts 40 --out "$out/bursts" -- --width 768 --layers 12 --steps 3000
    "$python" benchmarks/cost/counters_memory.py record train_gpt --seconds 120 --out "$out/memory"
    rm -rf "$out"/memory/*.fathom
    for program in ${PROGRAMS-train_gpt compiled cuda_graph timm_jpeg generate}; do
        file=benchmarks/programs/$program.py
        [ -e "$file" ] || file=examples/$program.py
        "$python" -m fathom run --raw --no-measure --replace --depth counters --stop-after \
            --counter-samples "${SAMPLES:-16000}" -o "$out/counters-$program.fathom" \
            -- "$python" "$file" || echo "$program: status $?"
        tar -C "$out" -czf "$out/counters-$program.tar.gz" "counters-$program.fathom"
        rm -r "$out/counters-$program.fathom"
    done
}

crafted() { # every flaw and its mended twin under ncu
    ncu --set full --clock-control none --profile-from-start off -f -o "$out/crafted" \
        "$python" -m faults.kernels.run all all --steps 3 --launches 2
    ncu --import "$out/crafted.ncu-rep" --csv --page raw > "$out/crafted.csv"
}

agreement() { # the GPT step with its counters, then under ncu; 130 s where one pass tells hit rates, else 290 s
    # the options are made where the table libraries are: OPTIONS, OPTIONS_replayed, WAYS
    "$python" -m fathom machine measure --only counters --json > "$out/counters-machine.json"
    "$python" -m fathom run --raw --no-measure --replace --depth counters --stop-after \
        --counter-samples "${SAMPLES:-40000}" -o "$out/gpt.fathom" -- "$python" examples/train_gpt.py --steps 2000
    tar -C "$out" -czf "$out/gpt.tar.gz" gpt.fathom && rm -r "$out/gpt.fathom"
    under_ncu gpt "${OPTIONS:-$("$python" benchmarks/counters/ncu_agreement.py options)}"
    for way in ${WAYS:-$("$python" benchmarks/counters/ncu_agreement.py options --ways)}; do
        single="--clock-control none --cache-control none --target-processes all"
        single+=" --metrics gpu__time_duration.sum,sm__cycles_elapsed.avg,$way"
        ncu $single --launch-count 1 "$python" -c "import torch; torch.ones(9, device='cuda')" > "$out/way.txt" 2>&1 || true
        if grep -q -- '- 1 pass$' "$out/way.txt"; then
            under_ncu gpt-replayed "$single"
            return
        fi
    done
    under_ncu gpt-replayed "${OPTIONS_replayed:-$("$python" benchmarks/counters/ncu_agreement.py options --replayed)}"
}

under_ncu() { # NAME OPTIONS: one step of the GPT example
    ncu $2 --profile-from-start off -f -o "$out/$1" \
        "$python" benchmarks/counters/profiled_steps.py 6 1 examples/train_gpt.py --steps 8 > "$out/$1.log"
    ncu --import "$out/$1.ncu-rep" --csv --page raw --print-units base > "$out/$1.csv"
}

faults() { # ONLY="GROUP/NAME …" or all that is not kept yet, on all GPUs at once; again with the same OUT until nothing is left
    gpus=$(gpus)
    "$python" -m faults.record record "$out/faults" --gpus "$gpus" --minutes "${MINUTES:-9}" \
        --severity ${SEVERITY:-2} $([ "${ONLY:-}" ] && echo --only $ONLY || echo --missing) --tar "$out/faults.tar"
}

unrelated() { # UNRELATED="PROGRAM/FAULT …" or what is left of the programs that no rule was built on
    "$python" -m benchmarks.unrelated.record record "$out/unrelated" --minutes "${MINUTES:-8}" \
        $([ "${UNRELATED:-}" ] && echo --only $UNRELATED || echo --missing) --gpus "$(gpus)" --tar "$out/unrelated.tar"
}

compiled() { # PROGRAMS or ten ordinary programs, eager and compiled in turns: about eight minutes on 16 cores
    "$python" -m fathom machine measure --only hbm,l2.read,latency,matmul.bf16,matmul.tf32,matmul.fp32 --json > "$out/machine.json"
    "$python" -m benchmarks.accuracy.compiling record "$out/compiled" --minutes "${MINUTES:-4}" \
        $([ "${PROGRAMS:-}" ] && echo --only $PROGRAMS) || true
    tar -C "$out/compiled" -c --exclude=cache . | split -b 15M -d - "$out/compiled.tar." # parts that travel
    rm -rf "$out/compiled"
}

lab() { # the referee's verdicts on NAMES or all techniques, shared among the GPUs; what is proven is kept in FATHOM_HOME
    IFS=, read -ra gpus <<< "$(gpus)"
    for ((lane = 0; lane < ${#gpus[@]}; lane++)); do
        names=$("$python" -c "import sys
from fathom.lab import techniques
print(*(sys.argv[3:] or list(techniques()))[int(sys.argv[1])::int(sys.argv[2])])" $lane ${#gpus[@]} ${NAMES:-})
        CUDA_VISIBLE_DEVICES=${gpus[lane]} "$python" -m fathom lab run $names --json --jobs "${JOBS:-6}" \
            --budget "${BUDGET:-5}" --limit "${LIMIT:-300}" > "$out/lab-$lane.json" 2> "$out/lab-$lane.txt" &
    done
    wait
}

lab-ranks() { # verdicts on NAMES or all techniques for several ranks, on each pair of GPUs, each printed as it comes: about 8 min
    IFS=, read -ra gpus <<< "$(gpus)"
    pairs=$((${#gpus[@]} / 2)) each=$(($(nproc) / (${#gpus[@]} / 2)))
    for ((lane = 0; lane < pairs; lane++)); do
        names=$("$python" -c "import sys
from fathom.lab import techniques
ranks = [name for name, technique in techniques().items() if technique.group == 'ranks']
print(*(sys.argv[3:] or ranks)[int(sys.argv[1])::int(sys.argv[2])])" $lane $pairs ${NAMES:-})
        for name in $names; do
            CUDA_VISIBLE_DEVICES=${gpus[lane * 2]},${gpus[lane * 2 + 1]} \
                taskset --cpu-list $((lane * each))-$(((lane + 1) * each - 1)) \
                "$python" -m fathom lab run "$name" --json --force --jobs 1 --budget "${BUDGET:-8}" --limit "${LIMIT:-90}" \
                2>> "$out/lab-ranks-$lane.txt" | tee -a "$out/lab-ranks-$lane.jsonl" || echo "$name: status $?"
        done &
    done
    wait
    tar -C "$FATHOM_HOME" -czf "$out/home.tar.gz" . # the kept verdicts: benchmarks.referee.lab gather
}

decode() { # share of the memory's bandwidth in a decode of one request: 3 min
    "$python" -m fathom machine measure --only hbm --json > "$out/machine.json"
    "$python" benchmarks/serving/decode.py --machine "$out/machine.json" --out "$out/decode.json"
}

handover() { # bandwidth of handing a cache of keys and values to another GPU, beside that of a copy: 1 min
    "$python" -m torch.distributed.run --standalone --nproc-per-node=2 benchmarks/serving/handover.py \
        --out "$out/handover.json"
}

live-ranks() { # faults of communication on 2 and 4 CPU ranks, four cores each; needs polars (carry.sh): 8 min on 16 cores
    "$python" -m benchmarks.ranks.live --ranks "${RANKS:-2,4}" --lanes $(($(nproc) / 4)) --keep "$out/live" \
        --out "$out/live_ranks.json" ${ONLY:+--only "$ONLY"}
    tar -C "$out" -czf "$out/live.tar.gz" live && rm -r "$out/live"
}

live-gpus() { # the same and faults of NCCL on each pair of GPUs; needs polars (carry.sh): 18 min on one pair
    IFS=, read -ra gpus <<< "$(gpus)"
    "$python" -m fathom machine measure --only hbm,link,collective,matmul.bf16 --json > "$out/machine.json"
    "$python" -m benchmarks.ranks.live --device cuda --ranks 2 --lanes $((${#gpus[@]} / 2)) --pairs "${PAIRS:-1}" \
        --seed "${SEED:-0}" --keep "$out/live" --out "$out/live_ranks_gpu.json" ${ONLY:+--only "$ONLY"}
    tar -C "$out" -czf "$out/live.tar.gz" live && rm -r "$out/live"
}

buckets() { # what-if bucket=SIZE against DDP with that size, two gloo ranks; needs polars (carry.sh) and 4 quiet cores: 3 min
    "$python" -m benchmarks.ranks.buckets --out "$out/buckets.json"
}

equal() { # ten kernels against themselves and with 2 % planted, shared among the GPUs, one process on each; what
    # lies in OUT/equal is not repeated. Twelve take two minutes; what is not done at the end is lost: MINUTES
    # ends two before
    gpus=$(gpus)
    CUDA_DEVICE_MAX_CONNECTIONS=1 "$python" -m benchmarks.referee.equal_sides record "$out/equal" --gpus "$gpus" \
        --jobs "${JOBS:-12}" --minutes "${MINUTES:-7}"
}

aftermath() { # what CUPTI costs while it records, and while it is attached, with nothing else on the machine: 2 min
    "$python" benchmarks/cost/aftermath.py record launch_bound --seconds "${SECONDS_EACH:-100}" --out "$out/aftermath" -- --steps 100000
}

timeline() { # what the timeline costs five programs, planted delays in a launch-bound one: 5 min
    "$python" -m benchmarks.accuracy.record_all record "$out/timeline" --only launch_bound hf_trainer lightning \
        generate train_gpt planted-launch-bound-{none,loader,python,checkpoint,gc,item}
    for program in launch_bound train_gpt; do # needs cupti-python
        "$python" benchmarks/cost/busy_time.py record $program --out "$out/busy" -- --steps 100000 || true
    done
}

watch-cost() { # steps with the watch over steps without it, on a quiet machine with four cores or more: 8 min
    "$python" -m benchmarks.cost.watch_cost turns --minutes "${MINUTES:-8}" > "$out/watch-turns.json"
}

compare() { # GPT-2 with eager attention and with sdpa, three runs of each; needs polars, transformers: 6 min
    export COLUMNS=110
    for run in 1 2 3; do
        for attention in eager sdpa; do
            "$python" -m fathom run --no-measure -q --replace --stop-after --depth timeline \
                -o "$out/$attention-$run.fathom" -- "$python" benchmarks/programs/gpt2.py --attention "$attention" \
                > "$out/$attention-$run.txt" 2>&1 || echo "$attention $run: status $?"
        done
    done
    for pair in eager-1:eager-2 eager-2:eager-3 sdpa-1:sdpa-2 sdpa-2:sdpa-3 eager-1:sdpa-1; do
        "$python" -m fathom compare "$out/${pair%:*}.fathom" "$out/${pair#*:}.fathom" > "$out/compare-${pair/:/-}.txt"
    done
    "$python" -m fathom compare --baseline "$out"/eager-?.fathom --candidate "$out"/sdpa-?.fathom > "$out/compare.txt"
    tar -C "$out" -czf "$out/soundings.tar.gz" {eager,sdpa}-{1,2,3}.fathom && rm -r "$out"/{eager,sdpa}-?.fathom
}

watch() { # programs that become slow while they are watched; needs polars (carry.sh): 3 min
    for cause in ${CAUSES:-input python compute}; do
        "$python" -m fathom run --no-measure -q --replace -o "$out/slow-$cause.fathom" -- "$python" \
            benchmarks/programs/slows_down.py --steps 5500 --at 3000 --cause $cause --by 4 2> "$out/slow-$cause.txt" &
        until [ -e "$out/slow-$cause.fathom/raw/launch.json" ]; do sleep 0.2; done
        "$python" -m fathom watch "$out/slow-$cause.fathom" --alert 20 --plain > "$out/watch-$cause.log"
        wait
    done
}

tuning() { # real programs tuned twice, and planted kernels; needs the extra tune: 160 min on 4 to 16 quiet cores, no GPU
    "$python" -m benchmarks.tuning.programs "$out/tuning" --budget "${BUDGET:-10m}" > "$out/tuning.txt"
    "$python" -m benchmarks.tuning.planted > "$out/planted.json"
}

tuning-lanes() { # each program tuned on a GPU and its share of the cores, beside torch.compile, then tuned again; needs
    # optuna, polars (carry.sh): 18 min on 4 GPUs. CPU="NAME …" WIDTH=8: on the other cores, too. MORE: further options
    IFS=, read -ra gpus <<< "$(gpus)"
    "$python" -m benchmarks.tuning.lanes "$out" --gpus "${gpus[@]}" --width "${WIDTH:-$(($(nproc) / ${#gpus[@]}))}" \
        --cpu ${CPU:-} ${GPU:+--gpu $GPU} --budget "${BUDGET:-310}" --compare "${COMPARE:-0}" ${MORE:-} \
        > "$out/lanes.txt" 2>&1
}

serving() { # ledgers against the client, and surface depth on a server; needs transformers[serving], polars: 60 min on 2 cores
    "$python" benchmarks/serving/tiny.py "$out/model"
    "$python" -m benchmarks.serving.ledger "$python" "$out/model" --requests 60 > "$out/serving-ledger.txt"
    "$python" -m benchmarks.serving.faults "$python" "$out/model" > "$out/serving-faults.txt"
    "$python" -m benchmarks.serving.faults "$python" "$out/model" --seed 2 > "$out/serving-faults-2.txt"
    "$python" -m benchmarks.serving.surface "$python" "$out/model" \
        --minutes "${MINUTES:-30}" > "$out/serving-surface.txt"
    rm -r "$out/model"
}

plan() { # the GPT and small programs planned from the machine file alone, on the GPU and on quiet cores; needs
    # polars (carry.sh): 8 min
    "$python" -m fathom machine measure --json > "$out/machine.json"
    for device in cuda cpu; do
        "$python" -m fathom run -q --no-measure --replace -o "$out/gpt-$device.fathom" -- \
            "$python" examples/train_gpt.py --device "$device"
        "$python" -m fathom plan check "$out/gpt-$device.fathom" --json > "$out/plan-$device.json"
        "$python" -m benchmarks.plan.pace "$out/pace" --home "$FATHOM_HOME" --device "$device" \
            --only mlp resnet encoder wide_encoder recurrent > "$out/pace-$device.jsonl"
    done
}

gpus() { # as CUDA_VISIBLE_DEVICES takes them
    echo "${CUDA_VISIBLE_DEVICES:-$("$python" -c "import torch; print(*range(torch.cuda.device_count()), sep=',')")}"
}

lanes() {
    read -ra lists <<< "$LANES"
    each=$(($(nproc) / ${#lists[@]}))
    for ((lane = 0; lane < ${#lists[@]}; lane++)); do
        for todo in ${lists[lane]//,/ }; do
            CUDA_VISIBLE_DEVICES=$lane taskset --cpu-list $((lane * each))-$(((lane + 1) * each - 1)) \
                bash benchmarks/on_target.sh "$todo" "$out/$todo" || echo "$todo: status $?"
        done > "$out/lane-$lane.txt" 2>&1 &
    done
    wait
}

"$part"
