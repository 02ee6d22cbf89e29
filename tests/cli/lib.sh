# Shared by the tests of the command line. Sourced with $TRAINYARD and $WORKER set to the programs.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="${TY_TEST_CACHE:-$scratch/cache}"
export TRAINYARD_CONFIG=/dev/null # no defaults of this host's users
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

# The last command's error output must be one line that has all the given texts. Other lines may be
# there, too: that others were busy during a measurement, and that it is repeated, since tests run
# concurrently; if nothing fits, the change that does; how a rank ended, between two rules, from the
# launcher of Open MPI 5; and its warning that a remote shell started before its process group was
# set. Neither can be silenced.
expect_error_line() {
    lines=$(awk '/^--------*$/ { rules++; if (rules % 2 == 0 && !(block ~ /prterun (detected|noticed)/)) printf "%s", block; block = ""; next }
        rules % 2 { block = block $0 "\n"; next } { print } END { printf "%s", block }' "$scratch/err" |
        grep -vcE 'others took [0-9]* %|^measuring: |^measured this machine; kept in |^trainyard: try:|plm:rsh: Warning: setpgid')
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

# report_holds PAGE CONDITION: of Python, on the JSON document d of a report; docs are its documents by their nouns.
report_holds() {
    /usr/bin/python3 - "$1" "$2" <<'PYTHON' && pass || fail "the report $1 does not hold: $2"
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
d = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
docs = {x["schema"][len("trainyard."):-len("/1")]: x["content"] for x in d["documents"]}
sys.exit(not eval(sys.argv[2]))
PYTHON
}

# page_says PAGE TEXT...: texts that a reader of the report sees, as Chromium draws them; does
# nothing without Chromium.
page_says() {
    command -v chromium >/dev/null || return 0
    drawn=$1
    shift
    timeout 60 chromium --headless --no-sandbox --disable-gpu --no-first-run --user-data-dir="$scratch/chromium" --virtual-time-budget=3000 \
        --dump-dom "file://$(realpath "$drawn")" 2>/dev/null | /usr/bin/python3 -c '
import html, re, sys
body = re.sub(r"<(script|style|title)\b.*?</\1>", "", sys.stdin.read(), flags=re.S)
print(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(td|th|li|span)>", "|", body))))' >"$scratch/seen"
    for text in "$@"; do
        if grep -qF -- "$text" "$scratch/seen"; then pass; else fail "$drawn, drawn, lacks '$text'"; fi
    done
}

# Only the named files may be in $scratch/made.
expect_only() {
    there=$(cd "$scratch/made" && ls -A | sort | tr '\n' ' ')
    if [ "$there" = "${*:+$* }" ]; then pass; else fail "files left behind: '$there' instead of '$*'"; fi
}

# needs WHAT COMMAND...: a requirement of the test; if the command ends with 77, so does the test.
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
