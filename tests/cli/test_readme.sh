#!/bin/sh
# Links between pages lead somewhere. Every command of the sh blocks of README, docs and tutorials runs and ends with 0.
# `./bootstrap demo` stands for a short demo of
# the programs under test; `./bootstrap test` is what runs this.
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

if python3 "$SOURCE/tests/cli/links.py" "$SOURCE" >"$scratch/out"; then pass; else fail "$(cat "$scratch/out")"; fi

for page in "$SOURCE/README.md" "$SOURCE"/docs/*.md "$SOURCE"/docs/tutorials/*.md; do
    awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$scratch/commands"
    while IFS= read -r line; do
        case $line in
        '' | '#'* | './bootstrap test') continue ;;
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

# The README's plan has the lines of a real one. Figures move with the models; the answer's lines and labels do not.
labels() { # of the lines before the stages
    awk 'NF == 0 { exit } { print (NR == 1 ? $1 " " $2 : $1) }' "$1" | tr '\n' ' '
}
awk '/^```/ { if (plain) exit; inside = !inside; plain = inside && $0 == "```"; next } plain' "$SOURCE/README.md" >"$scratch/shown"
trainyard plan --workload gpt2 --cluster "2x dgx-a100" >"$scratch/out" 2>"$scratch/err"
if [ -s "$scratch/shown" ] && [ "$(labels "$scratch/shown")" = "$(labels "$scratch/out")" ]; then pass; else
    fail "the README shows a plan with $(labels "$scratch/shown") but it is $(labels "$scratch/out")"
fi
finish
