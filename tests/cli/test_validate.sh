#!/bin/sh
# Measurements of others: scored, skipped with reasons, refused with a pointer.
. "$(dirname "$0")/lib.sh"

made="$scratch/made"
mkdir "$made"
cat >"$made/law.json" <<'EOF'
{"schema": 1, "family": "law", "count": 4, "records": [
 {"id": "law/a", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 100}, "measured": {"metric": "median_to_converge", "value": 1100, "unit": "samples"}},
 {"id": "law/b", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 500}, "measured": {"metric": "median_to_converge", "value": 1500, "unit": "samples"}},
 {"id": "law/c", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 2000}, "measured": {"metric": "median_to_converge", "value": 3000, "unit": "samples"}},
 {"id": "law/d", "kind": "accuracy", "source": {"work": "made"}, "confidence": "recalled", "note of mine": 1, "measured": {"metric": "top1", "value": 76, "unit": "%"}}]}
EOF
expect 0 validate "$made/law.json"
expect_output law "noise-scale-law" "skipped 1: no predictor for accuracy"
expect 0 validate "$made/law.json" --json
expect_output '"schema": "trainyard.validation/1"' '"source": "law"' '"rows": 4' '"fitted_rows": 2' \
    '"skipped_rows": 1' '"predicted_rows": 1' '"mean_error"' '"median_error"' '"p90_error"' '"pair_order"' \
    '"mean_regret"'
expect 0 validate "$made"
expect_output law
expect_only law.json

sed 's/"value": 1500/"value": "1500"/' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "bad.json:/records/1/measured/value" '"1500"'
sed 's/"count": 4/"count": 5/' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "bad.json:/records" "5"
sed 's,law/b,law/a,' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "law/a"
head -c 300 "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect 3 validate "$scratch/nothing.json"
expect_error_line nothing.json
mkdir "$scratch/empty"
expect 3 validate "$scratch/empty"
expect_error_line "no file whose name ends in .json"
expect 2 validate
finish
