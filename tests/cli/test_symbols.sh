#!/bin/sh
# What the libraries export: every external begins with ty_, so that a program that links them meets
# no name of its own; and the planner's program knows nothing of MPI. Two folders have short names for
# what their own files share: topologies/ and execute/, the latter of which no other program links.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$TRAINYARD")
for module in core workloads planner simulate study reports; do
    archive=$build/$module/libtrainyard_$module.a
    names=$(nm -g --defined-only "$archive" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRC]/ { print $3 }')
    count=$(printf '%s\n' "$names" | grep -c '^ty_')
    if [ "$count" -gt 10 ]; then pass; else fail "$archive has $count externals"; fi
    others=$(printf '%s\n' "$names" | grep -v '^ty_\|^__\|^\.' | tr '\n' ' ')
    if [ -z "$others" ]; then pass; else fail "$module: externals without ty_: $others"; fi
done
if ldd "$TRAINYARD" | grep -qi "libmpi\|libopen-rte"; then fail "trainyard links MPI: $(ldd "$TRAINYARD" | grep -i mpi)"; else pass; fi
if ldd "$TRAINYARD" | grep -qi "libsimgrid"; then fail "trainyard links SimGrid, which takes longer to load than most answers take"; else pass; fi
if ldd "$WORKER" | grep -qi "libmpi"; then pass; else fail "the worker links no MPI"; fi
finish
