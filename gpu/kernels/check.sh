#!/bin/sh
# Checks and times the router kernels of this folder on a machine with a GPU, in under 8 minutes:
#
#     gpu/kernels/check.sh OUT [MOEREF_GPU [CASES [EDGES]]]
#
# OUT: folder for results. MOEREF_GPU: build/moeref-gpu. CASES: cases. EDGES: a folder of cases that
# `moeref gen` made; by default build/moeref makes them. Phases, each within a time limit of its own:
# probe, run on the shipped cases, recordings, bench, run on the adversarial classes,
# compute-sanitizer. OUT holds bench.log, records.tar.gz (what tests/test_kernel_records.c replays)
# and logs.tar.gz (all logs and JSON, packed anew after each phase): few files, since a lent machine
# may give back few. The last lines say what failed. Status 1 if anything did.
out=${1:?usage: check.sh OUT [MOEREF_GPU [CASES [EDGES]]]}
gpu=${2:-build/moeref-gpu}
cases=${3:-cases}
edges=${4:-}
mkdir -p "$out"
work=$(mktemp -d)
logs=$work/logs
mkdir -p "$logs" "$work/records"
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
pack() {
    tar -C "$work" -czf "$out/logs.tar.gz" logs
}

"$gpu" probe >"$logs/probe.log" 2>&1 || fail probe
cat "$logs/probe.log"

if [ -z "$edges" ]; then
    edges=$work/edges
    mkdir -p "$edges"
    for class in $(build/moeref gen --list | awk 'NR > 1 { print $1 }'); do
        build/moeref gen "$class" -o "$edges" >/dev/null || fail "gen $class"
    done
fi

# Shipped cases. At most 64 launches at a row count; of few rows, a part of the tokens.
timeout 200 "$gpu" run "$cases/glm-5.3-flash.json" --kernel all --rows axis --launches 64 \
    --json "$logs/run.json" -v >"$logs/run.glm-5.3-flash.log" 2>&1 || fail run-glm-5.3-flash
for c in glm4moe-tiny qwen3moe-tiny; do
    timeout 60 "$gpu" run "$cases/$c.json" --kernel all --rows 1,4,5,16,17,96,257,1024 --launches 8 \
        -v >"$logs/run.$c.log" 2>&1 || fail "run-$c"
done
timeout 100 "$gpu" run "$cases/kimi-k3-shape.json" --kernel all --rows 1,6,16,17,96,257,1024 \
    --launches 4 -v >"$logs/run.kimi-k3-shape.log" 2>&1 || fail run-kimi-k3-shape
pack
say "shipped cases done"

# What the CPU replays: one launch of few rows, together less than a megabyte.
record() { # CASE KERNEL ROWS...
    case=$1 kernel=$2 rows=$3
    shift 3
    mkdir -p "$work/records/$case"
    timeout 40 "$gpu" run "$cases/$case.json" --kernel "$kernel" --rows "$rows" --launches 1 -q \
        --out "$work/records/$case" "$@" >>"$logs/records.log" 2>&1 || fail "records-$case"
}
record glm-5.3-flash all 6,17
record glm4moe-tiny all 1,16 --layers 1 --phase decode
record qwen3moe-tiny all 5 --layers 0 --phase decode
record kimi-k3-shape merged_front_logits 1,6
tar -C "$work/records" -czf "$out/records.tar.gz" .
du -sk "$work/records"
pack
say "recordings done"

timeout 120 "$gpu" bench "$cases/glm-5.3-flash.json" --kernel all \
    --rows 1,2,4,6,8,16,17,32,64,96,256,1024,8192 --json "$logs/bench.json" >"$out/bench.log" 2>&1 ||
    fail bench
for kernel in merged_front cublas; do
    timeout 60 "$gpu" bench "$cases/kimi-k3-shape.json" --kernel $kernel --rows 1,6,16,96,1024,8192 \
        >"$logs/bench.kimi-k3-shape.$kernel" 2>&1 || fail "bench-kimi-k3-shape-$kernel"
done
cat "$logs"/bench.kimi-k3-shape.* >>"$out/bench.log"
cp "$out/bench.log" "$logs"
pack
say "bench done"

# Adversarial classes, six at a time.
one_edge() {
    case=$1
    for kernel in fused_topk naive_steps routing_stage routing_stage_128 radix_select; do
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
cat "$work"/edge.* >"$logs/edges.log"
[ ! -s "$work/edges.failed" ] || { cat "$work/edges.failed"; fail edges; }
pack
say "adversarial classes done: $running"

# compute-sanitizer, four at a time. Children are processes of their own.
sanitize() { # TOOL NAME run-arguments
    tool=$1 log=$logs/sanitizer.$1.$2
    shift 2
    timeout 100 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 "$gpu" \
        run "$@" --launches 1 --threads 2 --timeout 80 -q >"$log" 2>&1 || echo "status $?" >>"$log"
    echo >>"$log"
}
tiny="$cases/glm4moe-tiny.json --layers 1 --phase decode"
hard="$edges/bias-negative.json --layers 0"
if command -v compute-sanitizer >/dev/null; then
    for t in memcheck racecheck; do
        for kernel in tiny_gemm_16 pair fused_topk routing_stage; do
            case $kernel in
            tiny_gemm_16 | pair) sanitize $t $kernel $tiny --kernel $kernel --rows 1,5,16 & ;;
            *) sanitize $t $kernel $hard --kernel $kernel --rows 3,16,40,260 & ;;
            esac
        done
        wait
        sanitize $t tiny_gemm_64 $tiny --kernel tiny_gemm_64 --rows 3,17,64 &
        sanitize $t naive_steps $hard --kernel naive_steps --rows 3,40 &
        sanitize $t naive $tiny --kernel naive --rows 17 &
        sanitize $t cublas_pinned $tiny --kernel cublas_pinned --rows 17 &
        wait
        for kernel in single single_sorted; do
            sanitize $t $kernel $tiny --kernel $kernel --rows 1,5,17,100,300 &
        done
        sanitize $t merged_front $tiny --kernel merged_front_logits --rows 3,17 &
        sanitize $t radix_select $hard --kernel radix_select --rows 3,40 &
        wait
    done
    for log in "$logs"/sanitizer.*; do
        if ! grep -q 'SUMMARY: 0 ' "$log" || grep -q 'SUMMARY: [1-9]\|^status ' "$log"; then
            fail "$(basename "$log")"
        fi
    done
else
    fail compute-sanitizer-missing
fi
say "compute-sanitizer done"

# The short table.
cat "$logs"/run.*.log | grep -v -w -e ok | grep -E '^[a-z_0-9]+ +[0-9]+ +[0-9]' | head -20
head -60 "$out/bench.log"
if [ -n "$failed" ]; then
    echo "FAILED:$failed" | tee "$logs/failed"
fi
pack
[ -z "$failed" ] || exit 1
echo "all phases passed"
