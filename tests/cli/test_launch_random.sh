#!/bin/sh
# Plans for Megatron-LM are such as it can run: random questions, each planned, exported, and held against its rules.
. "$(dirname "$0")/lib.sh"

if /usr/bin/python3 "$SOURCE/tests/launch/random_megatron.py" "$TRAINYARD" "$scratch" "${TY_ALL:+4}50"; then
    pass
else
    fail "a plan for Megatron that is not exported, or not by its rules"
fi
finish
