#!/bin/sh
# Megatron-LM can run every plan for it: random queries, each planned, exported, and checked against
# its rules.
. "$(dirname "$0")/lib.sh"

if /usr/bin/python3 "$SOURCE/tests/launch/random_megatron.py" "$TRAINYARD" "$scratch" "${TY_ALL:+4}50"; then
    pass
else
    fail "a plan for Megatron that is not exported, or not by its rules"
fi
finish
