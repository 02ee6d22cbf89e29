#!/bin/sh
# Published rows without --stack: the median error and the share of refused rows are within the
# bounds of docs/results/defaults.py, and no worse than on its page. 77: the measurements are not
# here.
. "$(dirname "$0")/lib.sh"
rows=$SOURCE/../shared/data/measurements

[ -d "$rows" ] || exit 77
expect 0 validate "$rows" --json
if python3 "$SOURCE/docs/results/defaults.py" "$TRAINYARD" --check "$SOURCE/docs/results/defaults.md" <"$scratch/out" >"$scratch/table" 2>"$scratch/err"; then
    pass
else
    fail "$(cat "$scratch/err"): $(tail -1 "$scratch/table")"
fi
finish
