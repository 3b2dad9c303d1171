#!/bin/sh
# Runs all engines on all cases, on a machine with a GPU, in under 10 minutes:
#
#     tools/engines/h200.sh OUT [CASES]
#
# OUT: folder for results. CASES: cases. Engines are those that Python finds; $MOEREF (build/moeref) writes
# the cases out, $PYTHON (python3) runs the rest. In the order of worth, each within a time of its own (in
# seconds, variables of the environment):
#
#     RUN       judged: three cases at all row counts, those of suspects at two, adversarial classes at four,
#               the other cases at all
#     TIME      timed, alone on the GPU: glm-5.3-flash, and deepseek-v3-shape where a kernel serves only
#               that; in the end CROSS of it: crosscheck_timing.py, if build/moeref-gpu is there
#     SUSPECTS  suspects_*.py: smallest inputs of faults that the sources made us suspect
#     TOTAL     for all: a phase gets no more than what is left of it
#
# With two GPUs ($CUDA_VISIBLE_DEVICES, else what nvidia-smi lists; $GPUS says how many to use) the second
# times glm-5.3-flash during RUN, as long as RUN lasts; then both time the rest. times.json says of each
# record whether others used the machine meanwhile. Spans do not depend on it: they are of the device's
# clock (timing.py).
#
# OUT holds records.json.xz, times.json, times.txt, suspects.txt, logs.tar.xz and the recordings, as
# observed.pack.xz.00 and so on (cat them together), none beyond 15 MiB: a lent machine may give back few
# files. Cases are not among them: `moeref export` and `moeref gen` make the same again. Then, anywhere:
#
#     cat OUT/observed.pack.xz.* | xz -d | python3 tools/engines/pack.py --unpack - DIR
#     xz -dc OUT/records.json.xz >DIR/records.json
#     python3 tools/engines/table.py DIR --markdown F
out=${1:?usage: h200.sh OUT [CASES]}
cases=${2:-cases}
python=${PYTHON:-python3}
moeref=${MOEREF:-build/moeref}
gpu=${MOEREF_GPU:-build/moeref-gpu}
TOTAL=${TOTAL:-585} RUN=${RUN:-370} TIME=${TIME:-140} CROSS=${CROSS:-40} SUSPECTS=${SUSPECTS:-40}
cores=$(nproc)
jobs=$((cores > 28 ? 26 : cores > 3 ? cores - 2 : 1))
jobs=${JOBS:-$jobs}
engines=${ENGINES:-all}
tokens=${MAX_TOKENS:-128}
names=${NAMES:-1,6,16,96,513,1024,8192}
device=${DEVICE:-cuda}
axis=${ROWS:-axis}
edge_rows=${EDGE_ROWS:-1,6,17,513}
suspect_rows=${SUSPECT_ROWS:-1,513}
timed_rows=${TIMED_ROWS:-1,6,16,96,1024,8192}
here=$(dirname "$0")
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/run" "$work/time" "$work/rest0" "$work/rest1" "$work/logs" "$work/gen"
if [ -n "$CUDA_VISIBLE_DEVICES" ]; then
    devices=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' ' ')
else
    devices=$(nvidia-smi -L 2>/dev/null | awk '/^GPU/ { print n++ + 0 }')
fi
set -- $devices
first=$1 second=$2
[ "${GPUS:-2}" -ge 2 ] && [ "$device" != cpu ] || second=
begin=$(date +%s)

say() {
    echo "$(($(date +%s) - begin)) s: $*"
}
# A phase's seconds: its own, or what is left. The end needs some for itself.
limit() {
    left=$((TOTAL - 12 - ($(date +%s) - begin)))
    [ "$1" -le $left ] || set -- $left
    [ "$1" -ge 1 ] || set -- 1
    echo "$1"
}
run() { # NAME SECONDS arguments
    name=$1 seconds=$2
    shift 2
    timeout -k 5 $((seconds + 8)) "$python" "$here/run.py" --engine "$engines" --device "$device" \
        --deadline "$seconds" --out "$work/$name" --json "$work/$name.json" "$@" \
        >"$work/logs/$name.log" 2>&1
    say "$name: status $?, $(grep -c '"status": "RUN"' "$work/$name/records.jsonl") run"
}
on() { # GPU command; "": whichever
    gpu_of=$1
    shift
    (
        [ -z "$gpu_of" ] || export CUDA_VISIBLE_DEVICES="$gpu_of"
        "$@"
    )
}
pack_logs() {
    for phase in run time rest0 rest1; do
        [ ! -d "$work/$phase/logs" ] || {
            mkdir -p "$work/logs/$phase"
            cp -r "$work/$phase/logs/." "$work/logs/$phase"
        }
    done
    tar -C "$work" -cJf "$out/logs.tar.xz" logs
}

# Blocks of 12 MiB, so that all cores have some.
pack_observed() {
    "$python" "$here/pack.py" --skip cases --skip logs --skip records.jsonl "$work/run" - |
        xz -T0 -6 --block-size=12MiB | split -b 15M -d - "$out/observed.pack.xz."
}

for class in $("$moeref" gen --list | awk 'NR > 1 && $1 != "no-tokens" { print $1 }'); do
    "$moeref" gen "$class" -o "$work/gen" >/dev/null || say "FAILED: gen $class"
done
timed() { # NAME SECONDS CASE more
    name=$1 seconds=$2 case=$3
    shift 3
    [ "$seconds" -ge 1 ] || return 0
    run "$name" "$seconds" --time --first-type --rows "$timed_rows" --max-tokens 1 --names 1 \
        --logits-rows 0 --sorted-rows 0 --timeout "$timeout" --build-timeout "$build" \
        --case "$cases/$case.json" "$@"
}
rest() { # PART/PARTS END
    others=$("$python" "$here/served.py" "$work/run.json" deepseek-v3-shape --not glm-5.3-flash --part "$1")
    [ -z "$others" ] || timed "rest${1%/*}" $(($2 - $(date +%s))) deepseek-v3-shape --kernel "$others"
}
# Both times of the same kernels on the same GPU.
crosscheck() {
    [ -x "$gpu" ] || return 0
    timeout -k 2 "$CROSS" "$python" -u "$here/crosscheck_timing.py" --gpu "$gpu" --seconds $((CROSS - 10)) \
        --case "$cases/glm-5.3-flash.json" --json "$out/crosscheck.json" >"$out/crosscheck.txt" 2>&1
    say "crosscheck: status $?"
}

set --
for c in glm-5.3-flash deepseek-v3-shape kimi-k2-shape; do set -- "$@" --case "$cases/$c.json"; done
set -- "$@" --then --rows "$suspect_rows" --max-tokens 4096
for c in "$cases"/suspects/*.json; do set -- "$@" --case "$c"; done
set -- "$@" --rows "$edge_rows"
for c in "$work"/gen/*.json; do set -- "$@" --case "$c"; done
set -- "$@" --then --rows "$axis" --max-tokens "$tokens"
for c in kimi-k3-shape qwen3-235b-shape; do set -- "$@" --case "$cases/$c.json"; done
set -- "$@" --layers 1,5
for c in glm4moe-tiny qwen3moe-tiny; do set -- "$@" --case "$cases/$c.json"; done
seconds=$(limit "$RUN")
timing=
if [ -n "$second" ]; then
    # Compilers are slow when others compile.
    timeout=40 build=100
    on "$second" timed time "$seconds" glm-5.3-flash &
    timing=$!
fi
on "$first" run run "$seconds" --rows "$axis" --max-tokens "$tokens" "$@" --names "$names" --jobs "$jobs" \
    --logits-rows 8 --sorted-rows 17 --timeout 40 --build-timeout 100
"$python" "$here/served.py" --join "$work/run.json" | xz -T0 >"$out/records.json.xz"
pack() {
    pack_observed
    pack_logs
    say "recordings: $(cat "$out"/observed.pack.xz.* | wc -c) bytes"
}

[ -x "$gpu" ] || CROSS=0
if [ "$device" = cpu ]; then
    pack
elif [ -n "$second" ]; then
    wait "$timing"
    end=$(($(date +%s) + $(limit "$TIME")))
    on "$first" rest 0/2 "$end" &
    one=$!
    { on "$second" rest 1/2 $((end - CROSS)); on "$second" crosscheck; } &
    two=$!
    pack
    wait "$one" "$two"
    busy="run.py --jobs $jobs on another GPU meanwhile" both="the same on another GPU meanwhile"
else
    pack
    timeout=20 build=60
    seconds=$(limit "$TIME")
    end=$(($(date +%s) + seconds))
    on "$first" timed time $(((seconds - CROSS) * 3 / 4)) glm-5.3-flash
    on "$first" rest 0/1 $((end - CROSS))
    on "$first" crosscheck
    busy=alone both=alone
fi
[ "$device" = cpu ] || {
    "$python" "$here/served.py" --join --machine "$busy" "$work/time.json" \
        --machine "$both" "$work/rest0.json" "$work/rest1.json" >"$out/times.json"
    "$python" "$here/times.py" "$out/times.json" >"$out/times.txt" 2>&1
    pack_logs
}

end=$(($(date +%s) + $(limit "$SUSPECTS")))
for s in "$here"/suspects_*.py; do
    left=$((end - $(date +%s)))
    [ $left -ge 1 ] || left=1
    echo "== $(basename "$s")"
    timeout -k 2 $left "$python" "$s" 2>&1
    echo "status $?"
done >"$out/suspects.txt"
pack_logs
ls -l "$out"
say "done"
