#!/bin/sh
# Runs fuzz targets with libFuzzer and keeps what reaches new code.
#
#   tests/fuzz/run.sh [SECONDS] [TARGET...]      600 seconds of CPU time each, all targets
#
# Builds with the preset "fuzz" (clang, AddressSanitizer, UndefinedBehaviorSanitizer). One line of
# JSON per target goes to standard output: seconds on the clock, CPU seconds, executions, files and
# bytes of the corpus as it is then kept, crashes. A crash is written to
# build/fuzz/found/TARGET and the run continues; the exit code is then 1. Everything found stays in build/fuzz/corpus/TARGET, for the next run; the
# files that reach an edge no other reaches are added to tests/fuzz/corpus/TARGET.
#
# TY_FUZZ_BUILT=1: everything is built (the campaign does that once for all).
# Limits per input: TY_FUZZ_MEMORY MiB (1024), TY_FUZZ_TIMEOUT s (60: it is wall time, and machines
# are shared), TY_FUZZ_LENGTH bytes (4096).
set -eu
cd "$(dirname "$0")/../.."

seconds=600
case "${1:-}" in
'' | *[!0-9]*) ;;
*)
    seconds=$1
    shift
    ;;
esac
memory=${TY_FUZZ_MEMORY:-1024}
timeout=${TY_FUZZ_TIMEOUT:-60}
length=${TY_FUZZ_LENGTH:-4096}
build=build/fuzz
most_crashes=20
export TRAINYARD_DATA="$PWD"
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}"

is_built=${TY_FUZZ_BUILT:-0}
if [ "$is_built" -eq 0 ]; then
    [ -f $build/build.ninja ] || cmake --preset fuzz >&2
    cmake --build $build --target rebuild_cache >/dev/null
fi
# shellcheck disable=SC2046 # names without blanks
[ $# -gt 0 ] || set -- $(cut -d ' ' -f 1 $build/tests/fuzz_targets)

# The value of one of libFuzzer's final statistics, summed over the log's runs.
statistic() {
    awk -v key="stat::$2:" '$1 == key { sum += $2 } END { print sum + 0 }' "$1"
}

# Sets $cpu to the CPU seconds of all commands run so far; not in a subshell, which has its own.
count_cpu() {
    times >"$build/log/times"
    cpu=$(awk 'NR == 2 { split($1, user, /[ms]/); split($2, kernel, /[ms]/)
        print int(60 * (user[1] + kernel[1]) + user[2] + kernel[2]) }' "$build/log/times")
}

# Copies inputs that reach new edges to the repository's corpus.
keep() {
    mkdir -p "tests/fuzz/corpus/$1"
    "$build/tests/fuzz_$1" -merge=1 -use_counters=0 -max_len="$length" -timeout="$timeout" \
        -rss_limit_mb="$memory" "tests/fuzz/corpus/$1" "$build/corpus/$1" >"$build/log/$1.merge" 2>&1
}

run() {
    target=$1
    dictionary=$(awk -v name="$target" '$1 == name { print $2 }' $build/tests/fuzz_targets)
    if [ -z "$dictionary" ]; then
        echo "run.sh: no target '$target'; see $build/tests/fuzz_targets" >&2
        exit 2
    fi
    [ "$is_built" -ne 0 ] || cmake --build $build --target "fuzz_$target" >"$build/log/$target.build" 2>&1 || {
        cat "$build/log/$target.build" >&2
        exit 1
    }
    mkdir -p "$build/corpus/$target" "$build/found/$target"
    log=$build/log/$target
    : >"$log"
    crashes=0
    left=$seconds
    begun=$(date +%s)
    count_cpu
    first=$cpu
    # libFuzzer counts wall time, and gets less CPU time than that on a busy host: continue with the
    # rest.
    while [ $((20 * left)) -gt "$seconds" ] && [ "$crashes" -lt "$most_crashes" ]; do
        "$build/tests/fuzz_$target" -max_total_time="$left" -max_len="$length" -timeout="$timeout" \
            -rss_limit_mb="$memory" -malloc_limit_mb="$memory" -dict="$dictionary" \
            -print_final_stats=1 -artifact_prefix="$build/found/$target/" \
            "$build/corpus/$target" "tests/fuzz/corpus/$target" >>"$log" 2>&1 || {
            crashes=$((crashes + 1))
            failed=1
        }
        count_cpu
        used=$((cpu - first))
        left=$((seconds - used))
    done
    ran=$(($(date +%s) - begun))
    keep "$target" || echo "run.sh: $target: could not merge, see $build/log/$target.merge" >&2
    printf '{"target":"%s","seconds":%d,"cpu_seconds":%d,"executions":%d,"corpus_files":%d,"corpus_bytes":%d,"crashes":%d}\n' \
        "$target" "$ran" "$used" "$(statistic "$log" number_of_executed_units)" \
        "$(find "tests/fuzz/corpus/$target" -type f | wc -l)" \
        "$(cat tests/fuzz/corpus/"$target"/* | wc -c)" "$crashes"
}

mkdir -p $build/log
failed=0
for name in "$@"; do
    run "$name"
done
exit $failed
