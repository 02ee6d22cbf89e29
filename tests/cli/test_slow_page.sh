#!/bin/sh
# The page of slow tests: a pass is recorded with its commit, and stays if the test is later
# skipped, not run, or fails.
. "$(dirname "$0")/lib.sh"

# page COMMIT CASES: content of the page after a run with these results.
page() {
    printf '<testsuite name="t">%s</testsuite>' "$2" >"$scratch/run.xml"
    printf '%s' '{"tests": [{"name": "one"}, {"name": "two"}, {"name": "three"}]}' |
        /usr/bin/python3 "$SOURCE/docs/results/slow.py" "$scratch/page.md" "$scratch/run.xml" "$1" >"$scratch/out" 2>"$scratch/err" && pass || fail "no page"
    cp "$scratch/out" "$scratch/page.md"
}
passed_in() { printf '<testcase name="%s" time="%s" status="run"><system-out>said</system-out></testcase>' "$1" "$2"; }
today=$(date +%Y-%m-%d)

page aaa "$(passed_in one 61.7)$(passed_in gone 1)"
expect_output "| one | aaa | $today | 62 |  |" "| two | - | - | - |  |" "| three | - | - | - |  |"
if grep -q gone "$scratch/out"; then fail "a test that is no more is on the page"; else pass; fi
page bbb "$(passed_in two 3)<testcase name=\"one\" time=\"5\" status=\"fail\"><failure message=\"Timeout\"/></testcase>"
expect_output "| one | aaa | $today | 62 | failed at bbb on $today: Timeout |" "| two | bbb | $today | 3 |  |" "| three | - | - | - |  |"
page ccc '<testcase name="two" time="0" status="notrun"><skipped message="code"/><system-out>0 passed: skipped, no such | machine
</system-out></testcase><testcase name="three" time="0" status="run"><system-out>skipped: no root
</system-out></testcase>'
expect_output "| one | aaa | $today | 62 | failed at bbb on $today: Timeout |" "| two | bbb | $today | 3 | skipped at ccc on $today: no such / machine |" \
    "| three | - | - | - | skipped at ccc on $today: no root |"
page ddd "$(passed_in one 4)"
expect_output "| one | ddd | $today | 4 |  |" "| three | - | - | - | skipped at ccc on $today: no root |"
finish
