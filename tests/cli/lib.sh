# What the command line's tests share. Sourced with $TRAINYARD and $WORKER set to the programs.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="${TY_TEST_CACHE:-$scratch/cache}"
export TRAINYARD_CONFIG=/dev/null # no defaults of this machine's users
export TRAINYARD_PROFILE_HASTE=20 # any profile will do
passed=0
failed=0

pass() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$*"
    [ ! -s "$scratch/err" ] || sed 's/^/    stderr: /' "$scratch/err" | head -n 5
}

# expect CODE WORDS...: runs trainyard; the exit code must be CODE. Output is in $scratch/out and err.
expect() {
    wanted=$1
    shift
    "$TRAINYARD" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    got=$?
    if [ $got -eq "$wanted" ]; then pass; else fail "exit code $got instead of $wanted: trainyard $*"; fi
}

# The last command's error output must be one line that has all the given texts. That others were
# busy while something was measured, and that it is measured again, may be said besides: tests run side by
# side. So may, where nothing fits, the change that does; and the launcher of Open MPI 5, which cannot be silenced, how a rank ended,
# between two rules.
expect_error_line() {
    lines=$(awk '/^--------*$/ { rules++; if (rules % 2 == 0 && !(block ~ /prterun (detected|noticed)/)) printf "%s", block; block = ""; next }
        rules % 2 { block = block $0 "\n"; next } { print } END { printf "%s", block }' "$scratch/err" |
        grep -vcE 'others took [0-9]* %|^measuring: |^measured this machine; kept in |^trainyard: try:')
    [ "$lines" -eq 1 ] || fail "$lines lines on stderr instead of 1"
    for text in "$@"; do
        if grep -qF -- "$text" "$scratch/err"; then pass; else fail "stderr lacks '$text'"; fi
    done
}

expect_output() {
    for text in "$@"; do
        if grep -qF -- "$text" "$scratch/out"; then pass; else fail "stdout lacks '$text'"; fi
    done
}

# Nothing but the named files may lie in $scratch/made.
expect_only() {
    there=$(cd "$scratch/made" && ls -A | sort | tr '\n' ' ')
    if [ "$there" = "${*:+$* }" ]; then pass; else fail "files left behind: '$there' instead of '$*'"; fi
}

# needs WHAT COMMAND...: what a test cannot do without; where the command ends with 77, the test does.
needs() {
    what=$1
    shift
    "$@" >"$scratch/out" 2>&1
    case $? in
    77) cat "$scratch/out"; exit 77 ;;
    0) pass ;;
    *) fail "$what: $(cat "$scratch/out")" ;;
    esac
}

finish() {
    printf '%s passed, %s failed\n' $passed $failed
    [ $failed -eq 0 ]
}
