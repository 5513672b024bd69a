"""Twelve ordinary programs, as people write them with the usual libraries, each with one planted cause.

    pip install -r benchmarks/ordinary/requirements.txt
    python -m benchmarks.ordinary                      # record and score all, about ten minutes on two cores
    python -m benchmarks.ordinary gan server --keep OUT

Each program runs in two forms, with the cause (`--fault`) and mended, several times in turn. The realised
gain is the difference of the medians of unrecorded steps. `labels.yaml` says which labels changed after
results were seen.
"""
