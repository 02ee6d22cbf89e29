#!/bin/sh
# The report in headless Chromium: no console message, no network request, both timelines drawn.
. "$(dirname "$0")/lib.sh"
if ! command -v chromium >/dev/null; then
    echo "skipped: chromium is not installed"
    echo "1 passed, 0 failed, 1 skipped"
    exit 0
fi
mkdir "$scratch/made"
plan=$scratch/made/plan.json
run=$scratch/made/run.json
page=$scratch/made/report.html

# chrome PAGE WIDTH: the page from disk; leaves dom, err and, in urls, the requested addresses.
chrome() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --disable-extensions \
        --disable-features=NetworkTimeServiceQuerying,OptimizationHints --user-data-dir="$scratch/chromium" \
        --enable-logging=stderr --log-net-log="$scratch/net.json" --window-size="$2",2000 \
        --virtual-time-budget=3000 --dump-dom "file://$1" >"$scratch/dom" 2>"$scratch/err"
    grep -oE '"url":"(https?|wss?)://[^"/?]*' "$scratch/net.json" | sort -u >"$scratch/urls"
}

# browse NAME WIDTH: the report must load without console messages and without requests.
browse() {
    chrome "$page" "$2"
    if [ -s "$scratch/dom" ]; then pass; else fail "$1: chromium printed no document"; fi
    if grep -q 'CONSOLE' "$scratch/err"; then fail "$1: console: $(grep CONSOLE "$scratch/err")"; else pass; fi
    # Chromium sometimes sends requests of its own to its vendor, whatever the page; no page names
    # these addresses.
    others=$(comm -13 "$scratch/own_urls" "$scratch/urls" | while read -r url; do
        name=${url##*/}
        case $name in *.google.com | *.googleapis.com | *.gvt1.com) grep -qF "$name" "$page" || continue ;; esac
        echo "$url"
    done)
    if [ -z "$others" ]; then pass; else fail "$1: network: $others"; fi
}

# The browser's own requests, with an empty page.
echo '<!doctype html><title>nothing</title>' >"$scratch/nothing.html"
chrome "$scratch/nothing.html" 800
cp "$scratch/urls" "$scratch/own_urls"

expect 0 plan -w mlp -c local:2 --fix pp=2 -q -o "$plan"
expect 0 run "$plan" --steps 12 -q -o "$run"
expect 0 report "$plan" "$run" -o "$page"
browse measured 1280
report_holds "$page" 'd["timeline"]["is_measured"] and any(i[1] for i in d["timeline"]["items"]) and not all(i[1] for i in d["timeline"]["items"])'
drawn=$(grep -o '<div class="plot' "$scratch/dom" | wc -l)
if [ "$drawn" -ge 6 ] && [ "$(grep -o 'viewBox="0 0' "$scratch/dom" | wc -l)" -ge "$drawn" ]; then pass; else fail "$drawn charts are drawn"; fi
if grep -q 'class="over undrawn"' "$scratch/dom"; then fail "a chart is not drawn: $(grep -o 'class="over undrawn">[^<]*' "$scratch/dom")"; else pass; fi
# A chart or section that cannot be drawn shows a message, and the others are drawn.
sed 's/"matrix": *\[/"matrix":null,"was":[/; s/"critical_path": *\[/"critical_path":null,"gone":[/' "$page" >"$scratch/made/broken.html"
if cmp -s "$page" "$scratch/made/broken.html"; then fail "no chart was broken"; else pass; fi
chrome "$scratch/made/broken.html" 1280
if [ "$(grep -o 'class="over undrawn">[^<]* could not be drawn' "$scratch/dom" | wc -l)" -eq 2 ]; then pass; else fail "a section that is not drawn says nothing"; fi
if [ "$(grep -o '<div class="plot' "$scratch/dom" | wc -l)" -ge 4 ]; then pass; else fail "one chart kept others from being drawn"; fi

# Documents without a plan: the content of their sections, lines and bars, and names as plain text.
cat >"$scratch/made/asked.json" <<'JSON'
{"schema": "trainyard.whatif/1", "question": {"workload": "w</script><b>\"'&", "cluster": "c"}, "vary": [{"key": "cluster", "values": ["a", "b", "c"]}, {"key": "hosts", "values": ["1", "2"]}], "rows": [
{"values": {"cluster": "a", "hosts": "2"}, "reason": "too large"},
{"values": {"cluster": "b", "hosts": "1"}, "devices": 8, "step_time_s": 0.5, "samples_per_s": 64, "estimated_step_time_s": 0.4, "limited_by": "compute", "plan": "dp <8>"},
{"values": {"cluster": "b", "hosts": "2"}, "devices": 16, "step_time_s": 0.25, "samples_per_s": 128}]}
JSON
printf '%s\n' '{"schema": "trainyard.whatif/1", "vary": [{"key": "schedule", "values": ["1f1b", "gpipe"]}], "rows": [{"values": {"schedule": "gpipe"}, "devices": 8, "step_time_s": 1, "samples_per_s": 2}]}' >"$scratch/made/named.json"
printf '%s\n' '{"schema": "trainyard.validation/1", "sources": [{"source": "s", "rows": 3, "median_error": 0.125, "p90_error": null}]}' >"$scratch/made/validation.json"
printf '%s\n' '{"schema": "trainyard.score/1", "price_usd_per_hour": 7.2, "time_to_target_s": {"low": 60, "expected": 90, "high": 100}, "convergence_provenance": "prior", "notes": ["money: by the <hour>"]}' >"$scratch/made/score.json"
printf '%s\n' '{"schema": "trainyard.launch/1", "targets": [{"target": "slurm", "next": "sbatch job.sh", "files": [{"name": "job.sh", "bytes": 90000, "text": "#!/bin/sh\nsrun <x>"}]}, {"target": "horovod", "reason": "Bubbles of 16 micro-batches and a reduce-scatter; spineless, astep"}]}' >"$scratch/made/launch.json"
printf '%s\n' '{"schema": "trainyard.compression/1", "bandwidths_bytes_per_s": [1e9, 1e10], "ring_bandwidth_bytes_per_s": 3e9, "curves": [{"compression": "fp16", "seconds": [0.25, 0.125]}]}' >"$scratch/made/compression.json"
set --
for name in asked named validation score launch compression; do set -- "$@" "$scratch/made/$name.json"; done
expect 0 report "$@" -o "$scratch/made/documents.html"
page=$scratch/made/documents.html
browse documents 1280
page_says "$page" "w</script><b>\"'& on c, each combination" "Of 6 combinations 2 have a plan, 1 has none, 3 are not done. Fastest: 128 samples/s with cluster=b, hosts=2, 2 times as fast as the slowest, cluster=b, hosts=1." \
    "cluster=a, hosts=2|too large|" "|500 ms|" "dp <8>|" "64 to 80|" "12.5 %|" "|60 s|90 s|100 s|" "Convergence: prior." "money: by the <hour>" "To start: sbatch job.sh" "srun <x>" \
    "90 kB; trainyard export writes it in full." "horovod|Bubbles of 16" "10 GB/s|125 ms|" "narrowest ring of this cluster: 3 GB/s" "efficiency" "bubble|" "micro-batch|" "all-reduce, reduce-scatter, all-gather|" "Sections without data"
for word in "leaf, spine|" "server|" "Pareto front|"; do
    if grep -qF "$word" "$scratch/seen"; then fail "the glossary explains $word which is not used"; else pass; fi
done
for kind in 'data-chart="whatif-0"[^>]*aria-label="Lines of samples' 'data-chart="whatif-1"[^>]*aria-label="Bars of samples' 'data-chart="scaling-0"'; do
    if grep -q "$kind" "$scratch/dom"; then pass; else fail "not drawn: $kind"; fi
done
page=$scratch/made/report.html

# Clicks on everything, at both widths, in light and dark, in print and without script:
# browser/browse.js drives Chromium with playwright-core and queries axe-core, which npm downloads
# into the build folder once. Without TY_ALL this covers the report of a run; the other pages are
# clicked through at phone width.
browser=$TY_TEST_CACHE/browser
mkdir -p "$browser"
cp "$SOURCE"/tests/cli/browser/package*.json "$browser/"
export NODE_PATH="$browser/node_modules"
if ! command -v npm >/dev/null; then
    echo "skipped: npm is not installed, nothing was clicked"
    finish
    exit
fi
if ! node -e 'require("playwright-core"), require("axe-core")' 2>/dev/null &&
    ! (cd "$browser" && timeout 120 npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries=1 >log 2>&1); then
    echo "skipped: npm cannot fetch playwright-core and axe-core ($(grep -m 1 'npm err' "$browser/log")), nothing was clicked"
    finish
    exit
fi
pages=$scratch/pages
mkdir "$pages"
expect 0 report "$plan" "$run" -o "$pages/run.html"
expect 4 plan -w gpt3-175b -c "1x dgx-a100" --fix pp=1,tp=1 -q --json
cp "$scratch/out" "$scratch/failed.json"
expect 0 report "$scratch/failed.json" -o "$pages/failed.html"
expect 0 plan -w megatron-18.4b -c "leaf:8 host:8 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2" --fix tp=8,pp=8 -q -o "$scratch/large.json"
expect 0 report "$scratch/large.json" -o "$pages/devices-512.html"
size=$(wc -c <"$pages/devices-512.html")
if [ "$size" -lt 4000000 ]; then pass; else fail "the report of 512 devices has $size bytes"; fi
expect 0 whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2,4 --vary bandwidth.all=x0.5,x1 -o "$scratch/whatif.json"
expect 0 plan -w vgg16 -c "4x p100-server" -q -o "$scratch/vgg16.json"
expect 0 report "$scratch/vgg16.json" "$scratch/whatif.json" -o "$pages/whatif.html"
expect 0 report "$scratch/vgg16.json" "$plan" -o "$pages/two-plans.html"
others=$(ls "$pages"/*.html | grep -v '/run\.html$')
quick=--quick
[ -z "${TY_ALL:-}" ] || quick=
# shellcheck disable=SC2086 # several pages, or no word
if node "$(dirname "$0")/browser/browse.js" "$(command -v chromium)" $quick "$pages/run.html" $others >"$scratch/clicked"; then
    pass
else
    fail "$(grep '^fault' "$scratch/clicked" | head -n 20)"
fi
cat "$scratch/clicked"
if grep -qE '^run.html: ([7-9]|1[0-9]) charts' "$scratch/clicked"; then pass; else fail "the report of a run has few charts"; fi
finish
