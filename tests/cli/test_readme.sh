#!/bin/sh
# Links between pages are valid. Every command of the sh blocks of README and docs runs and ends
# with 0, and so does every indented one of README and the first pages. `./bootstrap demo` stands
# for a short demo of the programs under test; `./bootstrap test` is what runs this.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made" "$scratch/bin"
ln -s "$TRAINYARD" "$scratch/bin/trainyard"
export TRAINYARD_WORKER="$WORKER"
# A launcher may be root here, and have more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # as Open MPI 4 and 5 have it
unset TRAINYARD_CONFIG # a tutorial has a trainyard.conf
export XDG_CONFIG_HOME="$scratch/xdg"
PATH="$scratch/bin:$PATH"
cd "$scratch/made" || exit 1
cp "$SOURCE"/docs/examples/encoder.* .
cp "$SOURCE/tests/workloads/data/torchtitan.toml" pretrain.toml # the configuration that the README asks about

if python3 "$SOURCE/tests/cli/links.py" "$SOURCE" >"$scratch/out"; then pass; else fail "$(cat "$scratch/out")"; fi

for page in "$SOURCE/README.md" "$SOURCE"/docs/*.md "$SOURCE"/docs/*/*.md; do
    # In the README and in the first pages, indented commands too.
    awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside
        FILENAME ~ /README|get-started/ && /^    trainyard / { print }' "$page" >"$scratch/commands"
    while IFS= read -r line; do
        case $line in
        '' | '#'* | './bootstrap test' | './bootstrap build --planner-only') continue ;; # tested elsewhere
        './bootstrap demo') line='trainyard demo --steps 40 --quiet' ;;
        esac
        line=$(printf '%s\n' "$line" | sed 's|build/release/trainyard|trainyard|g')
        if sh -c "$line" >"$scratch/out" 2>"$scratch/err" </dev/null; then
            pass
        else
            fail "$(basename "$page"): $line"
        fi
    done <"$scratch/commands"
done
[ $passed -gt 3 ] || fail "the README has hardly any commands"

# The output on the pages is what is printed: the same words, and figures within a tenth, which
# change with the models.
shown() { # PAGE: its first block that is not a command's
    awk '/^```/ { if (plain) exit; inside = !inside; plain = inside && $0 == "```"; next } plain' "$1" >"$scratch/shown"
    [ -s "$scratch/shown" ] || fail "$1 shows nothing"
}
same_content() { # WHAT FILE
    if /usr/bin/python3 - "$scratch/shown" "$2" <<'END'; then pass; else fail "$1 shows something else"; fi
import re, sys
shown, printed = (open(path).read().split() for path in sys.argv[1:])
number = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
for a, b in zip(shown, printed):
    if number.sub("N", a) != number.sub("N", b):
        sys.exit(f"shown '{a}', printed '{b}', in '{' '.join(shown[:40])} ...'")
    for x, y in zip(number.findall(a), number.findall(b)):
        x, y = float(x), float(y)
        if abs(x - y) > 0.1 * max(abs(x), abs(y)) + 0.1:
            sys.exit(f"shown {a}, printed {b}")
if len(shown) != len(printed):
    sys.exit(f"shown {len(shown)} words, printed {len(printed)}")
END
}
shown "$SOURCE/README.md"
trainyard plan -w llama-3-70b -c "8x dgx-h100" --tokens 1T --price h100=2.00 -q >"$scratch/out" 2>"$scratch/err"
same_content README "$scratch/out"
# Accuracy figures, as on the page of results.
/usr/bin/python3 - "$SOURCE" >"$scratch/out" 2>&1 <<'END' && pass || fail "README: $(tail -n 1 "$scratch/out")"
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
row = re.search(r"\| \*\*all\*\* \|(.*)", (root / "docs/results/defaults.md").read_text()).group(1)
rows, refused, mean, median = [float(cell.strip(" %")) for cell in row.split("|")[:4]]
claim = f"median error {median:.1f} %, mean {mean:.0f} %, {refused:.1f} % of {rows:,.0f} rows refused"
assert claim in " ".join((root / "README.md").read_text().split()), claim
END
shown "$SOURCE/docs/get-started/plan-a-budget.md"
expect 4 memory -w llama-2-70b -c "1x dgx-h100" --global-batch 64 -q
grep -v '^trainyard: try:' "$scratch/err" >"$scratch/out"
same_content "for a capacity planner" "$scratch/out"
shown "$SOURCE/docs/get-started/check-your-config.md"
expect 0 plan -w lenet -c "1x p100-server" --fix pp=2 --no-simulate -q -o piped.json
expect 1 export piped.json --to horovod
same_content "for the engineer who launches" "$scratch/err"
finish
