#!/bin/sh
# Exports of the libraries: every external begins with ty_, so that names of a program that links
# them cannot clash; and the planner's program does not depend on MPI. Two folders have short names
# shared by their own files: topologies/ and execute/; no other program links the latter.
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
