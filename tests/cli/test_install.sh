#!/bin/sh
# An installed copy: complete, usable without the source tree, and usable as a library.
. "$(dirname "$0")/lib.sh"
prefix=$scratch/prefix
build=$(dirname "$TRAINYARD")
if cmake --install "$build" --prefix "$prefix" >"$scratch/out" 2>&1; then pass; else
    fail "cmake --install"
    tail -n 5 "$scratch/out"
    finish
    exit 1
fi
for file in bin/trainyard bin/trainyard-worker share/man/man1/trainyard.1 share/man/man1/trainyard-plan.1 \
    share/bash-completion/completions/trainyard share/zsh/vendor-completions/_trainyard \
    share/fish/vendor_completions.d/trainyard.fish share/trainyard/workloads/zoo/lenet.json \
    share/trainyard/topologies/catalogue/hosts.json share/trainyard/planner/stacks/trainyard.json share/trainyard/schemas/plan.json \
    include/trainyard/ty_planner.h include/trainyard/ty_study.h \
    include/trainyard/ty_convergence.h share/trainyard/study/catalogue/economics.json include/trainyard/ty_reports.h; do
    if [ -s "$prefix/$file" ]; then pass; else fail "$file is not installed"; fi
done
# The worker finds the plugin for GPUs, if it is built.
if [ -e "$build/libtrainyard-cuda.so" ] && [ ! -e /dev/nvidiactl ]; then
    [ -e "$prefix/lib/trainyard/worker/libtrainyard-cuda.so" ] && pass || fail "the plugin is not installed"
    TRAINYARD_WORKER=$prefix/bin/trainyard-worker expect 1 profile -w mlp --backend cuda -q -o "$scratch/none.json"
    if grep -q 'cannot be loaded' "$scratch/err"; then fail "the worker does not find the plugin"; else pass; fi
fi
internal=$(find "$prefix/include" -name '*.h' ! -name 'ty_*')
[ -z "$internal" ] && pass || fail "internal headers are installed: $internal"

# The program finds its data relative to itself: an entry that only the copy has.
sed 's/"name": "lenet"/"name": "only-here"/' "$SOURCE/workloads/zoo/lenet.json" >"$prefix/share/trainyard/workloads/zoo/only-here.json"
TRAINYARD=$prefix/bin/trainyard
expect 0 plan -w only-here -c "1x p100-server" --fix pp=1 --no-simulate
expect 0 plan -w mlp -c local:2 --fix pp=1 -q -o "$scratch/plan.json"
expect 0 run "$scratch/plan.json" --steps 4 -q

# Another program: by find_package, and by pkg-config.
export TRAINYARD_DATA="$prefix/share/trainyard"
flags=
[ -z "${TY_SANITIZE:-}" ] || flags="-fsanitize=$TY_SANITIZE"
cp -r "$SOURCE/docs/examples" "$scratch/example"
if cmake -S "$scratch/example" -B "$scratch/example/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$flags" >"$scratch/out" 2>&1 &&
    cmake --build "$scratch/example/build" >>"$scratch/out" 2>&1; then pass; else
    fail "find_package(Trainyard)"
    tail -n 20 "$scratch/out"
fi
"$scratch/example/build/plan" only-here "1x p100-server" >"$scratch/out" 2>"$scratch/err" && pass || fail "the example does not plan"
expect_output "DP 2" "s per step, limited by" "Throughput"
"$scratch/example/build/plan" lenett "1x p100-server" >"$scratch/out" 2>"$scratch/err" && fail "an unknown workload is planned" || pass
expect_error_line "did you mean 'lenet'"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$prefix/lib/$(gcc -print-multiarch)/pkgconfig"
if cc -std=c11 $flags -o "$scratch/by-pkg-config" "$SOURCE/docs/examples/plan.c" $(pkg-config --cflags --libs trainyard) >"$scratch/out" 2>&1; then pass; else
    fail "pkg-config"
    tail -n 20 "$scratch/out"
fi
"$scratch/by-pkg-config" lenet "2x p100-server" >"$scratch/out" 2>"$scratch/err" && pass || fail "the example by pkg-config does not plan"
expect_output "data parallel"
version=$(pkg-config --modversion trainyard)
"$TRAINYARD" --version | grep -qF "$version" && pass || fail "pkg-config says version $version"
finish
