#!/bin/sh
# All commands give the same step time for one query.
. "$(dirname "$0")/lib.sh"

if python3 "$SOURCE/tests/cli/one_answer.py" "$TRAINYARD" "$scratch" >"$scratch/out" 2>&1; then
    pass
else
    fail "commands differ: $(cat "$scratch/out")"
fi
tail -n 1 "$scratch/out"
finish
