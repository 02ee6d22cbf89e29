#!/bin/sh
# A request for fuzz targets builds them or gives an error with the reason; never a build without
# them. $SOURCE: the sources.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# configure CODE TEXT OPTIONS...: cmake ends with success (0) or without (1), and prints TEXT.
configure() {
    wanted=$1
    text=$2
    shift 2
    rm -rf "$scratch/build"
    cmake -S "$SOURCE" -B "$scratch/build" -G Ninja -DTY_BUILD_FUZZERS=ON -DTY_WITH_CUDA=OFF "$@" >"$scratch/out" 2>&1
    got=$?
    if [ $((got != 0)) -ne "$wanted" ] || ! tr '\n' ' ' <"$scratch/out" | tr -s ' ' | grep -qF "$text"; then
        echo "FAILED: $*: exit code $got"
        tail -n 5 "$scratch/out"
        failed=1
    fi
}

configure 1 "libFuzzer needs clang" -DCMAKE_C_COMPILER=gcc
if ! command -v clang >/dev/null 2>&1; then
    echo "skipped: the rest needs clang"
    [ $failed -eq 0 ] && exit 77
    exit 1
fi
configure 1 "BUILD_TESTING is OFF" -DCMAKE_C_COMPILER=clang -DBUILD_TESTING=OFF
configure 1 "need every part" -DCMAKE_C_COMPILER=clang -DTY_WITH_EXECUTE=OFF
# Criterion, which no fuzz target needs, is absent.
cat >"$scratch/pkg-config" <<'SHELL'
#!/bin/sh
case " $* " in *" criterion "*) exit 1 ;; esac
exec pkg-config "$@"
SHELL
chmod +x "$scratch/pkg-config"
configure 0 "NOTHING ELSE IS TESTED" -DCMAKE_C_COMPILER=clang -DPKG_CONFIG_EXECUTABLE="$scratch/pkg-config"
for target in json plan cluster consumers; do
    if ! cmake --build "$scratch/build" --target help 2>/dev/null | grep -q "fuzz_$target: phony"; then
        echo "FAILED: without Criterion there is no fuzz_$target"
        failed=1
    fi
done
exit $failed
