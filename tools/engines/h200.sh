#!/bin/sh
# Runs all engines on all cases, on a machine with a GPU, in under 10 minutes:
#
#     tools/engines/h200.sh OUT [CASES]
#
# OUT: folder for results. CASES: cases. Engines are those that Python finds; $MOEREF (build/moeref) writes
# the cases out, $PYTHON (python3) runs the rest. In the order of worth, each within a time of its own (in
# seconds, variables of the environment):
#
#     RUN       judged: three cases at all row counts, adversarial classes at four, the other cases at all
#     TIME      timed, alone on the GPU: glm-5.3-flash, and deepseek-v3-shape where a kernel serves only that
#     SUSPECTS  suspects_*.py: smallest inputs of faults that the sources made us suspect
#     TOTAL     for all: a phase gets no more than what is left of it
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
TOTAL=${TOTAL:-585} RUN=${RUN:-370} TIME=${TIME:-140} SUSPECTS=${SUSPECTS:-40}
jobs=${JOBS:-14}
engines=${ENGINES:-all}
tokens=${MAX_TOKENS:-32}
names=${NAMES:-1,6,16,96,513,1024,8192}
device=${DEVICE:-cuda}
axis=${ROWS:-axis}
edge_rows=${EDGE_ROWS:-1,6,17,513}
timed_rows=${TIMED_ROWS:-1,6,16,96,1024,8192}
here=$(dirname "$0")
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/run" "$work/time" "$work/rest" "$work/logs" "$work/gen"
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
pack_logs() {
    for phase in run time rest; do
        [ ! -d "$work/$phase/logs" ] || cp -r "$work/$phase/logs" "$work/logs/$phase"
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
set --
for c in glm-5.3-flash deepseek-v3-shape kimi-k2-shape; do set -- "$@" --case "$cases/$c.json"; done
set -- "$@" --then --rows "$edge_rows" --max-tokens 4096
for c in "$work"/gen/*.json; do set -- "$@" --case "$c"; done
set -- "$@" --then --rows "$axis" --max-tokens "$tokens"
for c in kimi-k3-shape qwen3-235b-shape; do set -- "$@" --case "$cases/$c.json"; done
set -- "$@" --layers 1,5
for c in glm4moe-tiny qwen3moe-tiny; do set -- "$@" --case "$cases/$c.json"; done
run run "$(limit "$RUN")" --rows "$axis" --max-tokens "$tokens" "$@" --names "$names" --jobs "$jobs" \
    --logits-rows 8 --sorted-rows 17 --timeout 40 --build-timeout 100
[ ! -e "$work/run.json" ] || xz -T0 -c "$work/run.json" >"$out/records.json.xz"
pack_observed
pack_logs
say "recordings: $(cat "$out"/observed.pack.xz.* | wc -c) bytes"

seconds=$(limit "$TIME")
timed() { # NAME SECONDS CASE more
    name=$1 seconds_of=$2 case=$3
    shift 3
    run "$name" "$seconds_of" --time --first-type --rows "$timed_rows" --max-tokens 1 --names 1 \
        --logits-rows 0 --sorted-rows 0 --timeout 20 --build-timeout 60 --case "$cases/$case.json" "$@"
}
[ "$device" = cpu ] || {
    end=$(($(date +%s) + seconds))
    timed time $((seconds * 3 / 4)) glm-5.3-flash
    others=$("$python" "$here/served.py" "$work/run.json" deepseek-v3-shape --not glm-5.3-flash)
    [ -z "$others" ] || timed rest $((end - $(date +%s))) deepseek-v3-shape --kernel "$others"
    "$python" "$here/served.py" --join "$work/time.json" "$work/rest.json" >"$out/times.json"
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
