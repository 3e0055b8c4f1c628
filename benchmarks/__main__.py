"""``python -m benchmarks``: the benchmark of offloading, with the defaults of docs/performance.md."""

from benchmarks.offload import main

main()
