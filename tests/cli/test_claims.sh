#!/bin/sh
# docs/results/claims.md: every command on the page, run again, gives the figure on the page.
# 77: the published measurements are not here.
. "$(dirname "$0")/lib.sh"
results=$SOURCE/docs/results
measurements=$SOURCE/../shared/data/measurements

[ -d "$measurements" ] || exit 77
python3 "$results/claims.py" check "$TRAINYARD" "$measurements" "$results/claims.md" >"$scratch/out" &&
    pass || fail "the page is not what its commands answer: $(cat "$scratch/out")"
expect_output "checked"
finish
