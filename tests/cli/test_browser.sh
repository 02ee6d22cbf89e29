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

# chrome PAGE WIDTH: the page from disk; leaves dom, err and, in urls, the addresses that were asked for.
chrome() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --disable-extensions \
        --disable-features=NetworkTimeServiceQuerying,OptimizationHints --user-data-dir="$scratch/chromium" \
        --enable-logging=stderr --log-net-log="$scratch/net.json" --window-size="$2",2000 \
        --virtual-time-budget=3000 --dump-dom "file://$1" >"$scratch/dom" 2>"$scratch/err"
    grep -oE '"url":"(https?|wss?)://[^"/?]*' "$scratch/net.json" | sort -u >"$scratch/urls"
}

# browse NAME WIDTH: the report must load without a word on the console or a request of its own.
browse() {
    chrome "$page" "$2"
    if [ -s "$scratch/dom" ]; then pass; else fail "$1: chromium printed no document"; fi
    if grep -q 'CONSOLE' "$scratch/err"; then fail "$1: console: $(grep CONSOLE "$scratch/err")"; else pass; fi
    # Chromium asks its maker for things of its own now and then, whatever the page; no page names those.
    others=$(comm -13 "$scratch/own_urls" "$scratch/urls" | while read -r url; do
        name=${url##*/}
        case $name in *.google.com | *.googleapis.com | *.gvt1.com) grep -qF "$name" "$page" || continue ;; esac
        echo "$url"
    done)
    if [ -z "$others" ]; then pass; else fail "$1: network: $others"; fi
}

# What the browser asks for by itself, with a page that has nothing in it.
echo '<!doctype html><title>nothing</title>' >"$scratch/nothing.html"
chrome "$scratch/nothing.html" 800
cp "$scratch/urls" "$scratch/own_urls"

expect 0 plan -w mlp -c local:2 --fix pp=2 -q -o "$plan"
expect 0 run "$plan" --steps 12 -q -o "$run"
expect 0 report "$plan" "$run" -o "$page"
browse measured 1280
for text in 'predicted: forward' 'measured: forward' 'predicted: backward' 'measured: backward'; do
    if grep -q "$text" "$scratch/dom"; then pass; else fail "the timeline lacks '$text'"; fi
done
# The script ran: it reveals the zoom buttons.
if grep -q '<div class="tools">' "$scratch/dom"; then pass; else fail "the page's script did not run"; fi
grep -q '<title>measured:' "$page" && pass || fail "the measured timeline is not in the page without its script"
if grep -q '<canvas' "$scratch/dom"; then
    # A chart that cannot be drawn says so, and the others are drawn.
    sed 's/"kind": "heat"/"kind": "unheard-of"/' "$page" >"$scratch/made/broken.html"
    if cmp -s "$page" "$scratch/made/broken.html"; then fail "no chart was broken"; else pass; fi
    chrome "$scratch/made/broken.html" 1280
    if [ "$(grep -o '<p class="over undrawn">This chart could not be drawn' "$scratch/dom" | wc -l)" -eq 1 ]; then pass; else fail "a chart that is not drawn is not missed"; fi
    if [ "$(grep -o '<canvas' "$scratch/dom" | wc -l)" -ge 6 ]; then pass; else fail "one chart kept others from being drawn"; fi
fi

expect 0 report "$plan" -o "$page" --title "A plan alone"
if grep -q '<title>measured:' "$page"; then fail "a plan alone shows a measurement"; else pass; fi

# Clicking everything, at both widths, in light and dark, in print and without script: browser/browse.js drives
# Chromium with playwright-core and asks axe-core, which npm fetches into the build folder once. Without TY_ALL that is
# done with the report of a run; the other pages are clicked through on a phone.
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
expect 0 report "$plan" "$run" --no-charts -o "$pages/plain.html"
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
if "$TRAINYARD" report "$plan" -o - | grep -q 'data-chart'; then
    if grep -q '^run.html: [5-9]' "$scratch/clicked"; then pass; else fail "the report of a run has few charts"; fi
fi
finish
