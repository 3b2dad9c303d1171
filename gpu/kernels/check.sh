#!/bin/sh
# Checks and times the router kernels of this folder on a machine with a GPU, in under 8 minutes:
#
#     gpu/kernels/check.sh OUT [MOEREF_GPU [CASES [EDGES]]]
#
# OUT: folder for results. MOEREF_GPU: build/moeref-gpu. CASES: cases. EDGES: a folder of cases that
# `moeref gen` made; by default build/moeref makes them. Phases, each within a time limit of its own:
# probe, run on the shipped cases, bench, run on the adversarial classes, compute-sanitizer. Results
# lie in OUT as one log a phase, JSON, and records.tar.gz; the last lines say what failed. Status 1 if
# anything did.
out=${1:?usage: check.sh OUT [MOEREF_GPU [CASES [EDGES]]]}
gpu=${2:-build/moeref-gpu}
cases=${3:-cases}
edges=${4:-}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=
begin=$(date +%s)

say() {
    echo "$(($(date +%s) - begin)) s: $*"
}
fail() {
    failed="$failed $1"
    say "FAILED: $1"
}

"$gpu" probe >"$out/probe.log" 2>&1 || fail probe
cat "$out/probe.log"

if [ -z "$edges" ]; then
    edges=$work/edges
    mkdir -p "$edges"
    for class in $(build/moeref gen --list | awk 'NR > 1 { print $1 }'); do
        build/moeref gen "$class" -o "$edges" >/dev/null || fail "gen $class"
    done
fi

# Shipped cases. At most 64 launches at a row count; of few rows, a part of the tokens.
timeout 200 "$gpu" run "$cases/glm-5.3-flash.json" --kernel all --rows axis --launches 64 \
    --json "$out/run.json" -v >"$work/run.glm-5.3-flash" 2>&1 || fail run-glm-5.3-flash
for c in glm4moe-tiny qwen3moe-tiny; do
    timeout 60 "$gpu" run "$cases/$c.json" --kernel all --rows 1,4,5,16,17,96,257,1024 --launches 8 \
        -v >"$work/run.$c" 2>&1 || fail "run-$c"
done
cat "$work"/run.* >"$out/run.log"
say "shipped cases done"

# What the CPU replays: few rows of each kernel.
timeout 40 "$gpu" run "$cases/glm-5.3-flash.json" --kernel all --rows 6,16,96 --launches 1 -q \
    --out "$work/records/glm-5.3-flash" >"$work/records.log" 2>&1 || fail records
timeout 40 "$gpu" run "$cases/glm4moe-tiny.json" --kernel all --rows 1,16,17 --launches 1 --layers 1 \
    -q --out "$work/records/glm4moe-tiny" >>"$work/records.log" 2>&1 || fail records-tiny
tar -C "$work" -czf "$out/records.tar.gz" records records.log
say "recordings done"

timeout 120 "$gpu" bench "$cases/glm-5.3-flash.json" --kernel all \
    --rows 1,2,4,6,8,16,17,32,64,96,256,1024,8192 --json "$out/bench.json" >"$out/bench.log" 2>&1 ||
    fail bench
say "bench done"

# Adversarial classes, six at a time.
one_edge() {
    case=$1
    for kernel in fused_topk naive_steps routing_stage routing_stage_128; do
        timeout 60 "$gpu" run "$edges/$case.json" --kernel "$kernel" --rows 1,4,5,16,17,33,257 \
            --launches 8 --threads 2 >"$work/edge.$case.$kernel" 2>&1 ||
            echo "$case $kernel: status $?" >>"$work/edges.failed"
    done
}
running=0
for f in "$edges"/*.json; do
    case $f in */no-tokens.json) continue ;; esac
    one_edge "$(basename "$f" .json)" &
    running=$((running + 1))
    [ $((running % 6)) -ne 0 ] || wait
done
wait
cat "$work"/edge.* >"$out/edges.log"
[ ! -s "$work/edges.failed" ] || { cat "$work/edges.failed"; fail edges; }
say "adversarial classes done: $running"

# compute-sanitizer, four at a time. Children are processes of their own.
sanitize() { # TOOL NAME run-arguments
    tool=$1 log=$work/sanitizer.$1.$2
    shift 2
    timeout 100 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 "$gpu" \
        run "$@" --launches 1 --threads 2 --timeout 80 -q >"$log" 2>&1 || echo "status $?" >>"$log"
    echo >>"$log"
}
tiny="$cases/glm4moe-tiny.json --layers 1 --phase decode"
if command -v compute-sanitizer >/dev/null; then
    for t in memcheck racecheck; do
        for kernel in tiny_gemm_16 pair fused_topk routing_stage; do
            case $kernel in
            tiny_gemm_16 | pair) sanitize $t $kernel $tiny --kernel $kernel --rows 1,5,16 & ;;
            *) sanitize $t $kernel "$edges/bias-negative.json" --layers 0 --kernel $kernel \
                --rows 3,16,40,260 & ;;
            esac
        done
        wait
        sanitize $t tiny_gemm_64 $tiny --kernel tiny_gemm_64 --rows 3,17,64 &
        sanitize $t naive_steps "$edges/bias-negative.json" --layers 0 --kernel naive_steps --rows 3,40 &
        sanitize $t naive $tiny --kernel naive --rows 17 &
        sanitize $t cublas_pinned $tiny --kernel cublas_pinned --rows 17 &
        wait
    done
    cat "$work"/sanitizer.* >"$out/sanitizer.log"
    for log in "$work"/sanitizer.*; do
        if ! grep -q 'SUMMARY: 0 ' "$log" || grep -q 'SUMMARY: [1-9]\|^status ' "$log"; then
            fail "$(basename "$log")"
        fi
    done
else
    fail compute-sanitizer-missing
fi
say "compute-sanitizer done"

# The short table.
grep -h -v -w -e ok "$out/run.log" | grep -E '^(tiny|cublas|naive|pair|fused|routing)' | head -20
head -60 "$out/bench.log"
if [ -n "$failed" ]; then
    echo "FAILED:$failed"
    exit 1
fi
echo "all phases passed"
