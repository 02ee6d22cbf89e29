#!/bin/sh
# docs/reference/devices.md against the measured kernels: every row of its table of large kernels
# equals the result of fit_rates with the current catalogue. 77: the measurements are not here.
. "$(dirname "$0")/lib.sh"
kernels=$SOURCE/../shared/data/kernels

[ -d "$kernels" ] || exit 77
if ./fit_rates "$kernels" --table >"$scratch/found" 2>"$scratch/err"; then pass; else fail "fit_rates"; fi
grep '^| .* inference | \|^| .* training | ' "$SOURCE/docs/reference/devices.md" >"$scratch/said"
grep '^| .* inference | .* | large | \|^| .* training | .* | large | ' "$scratch/found" >"$scratch/rows"
# Device, kernels, operation, size and number of shapes are the same, errors to the last digit.
awk -F' *[|] *' '
    NR == FNR { for (i = 7; i <= 9; i++) said[$2 "," $3 "," $4 "," $5 "," $6, i] = $i; next }
    {
        row = $2 "," $3 "," $4 "," $5 "," $6
        for (i = 7; i <= 9; i++) {
            off = said[row, i] - $i
            if (!((row, i) in said) || off > 0.015 || off < -0.015)
                print row ": said " said[row, i] ", found " $i
        }
    }' "$scratch/said" "$scratch/rows" >"$scratch/off"
if [ -s "$scratch/off" ]; then fail "$(cat "$scratch/off")"; else pass; fi
[ "$(wc -l <"$scratch/said")" -gt 30 ] && pass || fail "few rows on the page"
[ "$(wc -l <"$scratch/said")" -eq "$(wc -l <"$scratch/rows")" ] && pass || fail "rows that nothing makes"

./fit_rates "$kernels" >"$scratch/out" 2>"$scratch/err" && pass || fail "fit_rates"
expect_output '"schema": "trainyard.fit_rates/1"' '"device": "h100-sxm"' '"mean_log_error_apart"'
if /usr/bin/python3 -c 'import jsonschema' 2>/dev/null; then
    mv "$scratch/out" "$scratch/rates.json"
    if /usr/bin/python3 "$SOURCE/tests/cli/check_json.py" "$SOURCE/docs/schemas" "$scratch/rates.json"; then pass; else fail "document and schema differ"; fi
fi
./fit_rates "$scratch" >"$scratch/out" 2>"$scratch/err" && fail "kernels out of nothing" || pass
expect_error_line "gemm-a100-sxm4-80gb.csv"
finish
