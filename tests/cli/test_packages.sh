#!/bin/sh
# Packages: five of Debian's format without findings of its policy checker, an archive that works in
# any folder, and an installation that can be removed.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$TRAINYARD")
grep -q 'TARGET_FILE\|libtrainyard.so' "$build/build.ninja" || {
    echo "0 passed: skipped, this build has no shared library"
    exit 77
}
python=$(command -v python3)

# Uninstalled: only shared files are left.
prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >"$scratch/out" 2>"$scratch/err" && pass || fail "cmake --install"
mkdir -p "$prefix/share/man/man1" && touch "$prefix/share/man/man1/other.1"
cmake -DMANIFEST="$build/install_manifest.txt" -P "$SOURCE/cmake/uninstall.cmake" >"$scratch/out" 2>"$scratch/err" && pass || fail "uninstall"
left=$(cd "$prefix" && find . -type f | sort | tr '\n' ' ')
[ "$left" = "./share/man/man1/other.1 " ] && pass || fail "left behind: $left"
[ -e "$prefix/share/trainyard" ] && fail "a folder of ours is left" || pass

# The archive, unpacked in a folder unknown at build time.
DEBFULLNAME="A Packager" DEBEMAIL=packager@lists.debian.org cmake -S "$SOURCE" -B "$build" >"$scratch/out" 2>&1 || fail "configuring"
(cd "$build" && cpack -G TGZ -B "$scratch/archive") >"$scratch/out" 2>"$scratch/err" && pass || fail "cpack -G TGZ"
mkdir "$scratch/anywhere"
tar -xzf "$scratch"/archive/trainyard-*.tar.gz -C "$scratch/anywhere" --strip-components=1
root=$scratch/anywhere
[ -x "$root/bin/trainyard" ] || root=$scratch/anywhere/usr
(
    cd "$scratch" || exit 1
    sed 's/"name": "lenet"/"name": "only-here"/' "$SOURCE/workloads/zoo/lenet.json" >"$root/share/trainyard/workloads/zoo/only-here.json"
    "$root/bin/trainyard" plan -w only-here -c "2x p100-server" --no-simulate
) >"$scratch/out" 2>"$scratch/err" && pass || fail "the program of the archive does not plan"
if [ -n "$python" ]; then
    (cd "$scratch" && PYTHONPATH=$root/lib/python3/dist-packages "$python" -c '
import trainyard
print(trainyard.plan("only-here", "2x p100-server", no_simulate=True))') >"$scratch/out" 2>"$scratch/err" && pass || fail "the package of the archive does not plan"
    expect_output "only-here on 2x p100-server"
fi

# Debian's.
if command -v dpkg-shlibdeps >/dev/null 2>&1; then
    (cd "$build" && DEBFULLNAME="A Packager" DEBEMAIL=packager@lists.debian.org cpack -G DEB -B "$scratch/debs") >"$scratch/out" 2>"$scratch/err" && pass || fail "cpack -G DEB"
    for package in trainyard trainyard-worker libtrainyard-dev trainyard-doc python3-trainyard; do
        set -- "$scratch/debs/$package"_*.deb
        [ -f "$1" ] && pass || fail "$package is not made"
    done
    dpkg-deb -c "$scratch"/debs/trainyard_*.deb >"$scratch/out"
    expect_output "./usr/bin/trainyard" "./usr/share/trainyard/workloads/zoo/lenet.json" "./usr/share/man/man1/trainyard.1.gz"
    dpkg-deb -f "$scratch"/debs/trainyard_*.deb Depends >"$scratch/out"
    expect_output libigraph3 libcjson1
    dpkg-deb -f "$scratch"/debs/trainyard-worker_*.deb Recommends >>"$scratch/out"
    expect_output dataset-fashion-mnist
    if grep -q openmpi "$scratch/out"; then fail "the planner's package wants MPI"; else pass; fi
    if command -v lintian >/dev/null 2>&1; then
        # If the prefix is not /usr, pkg-config's file is in the folder for all architectures.
        lintian --allow-root --suppress-tags pkg-config-unavailable-for-cross-compilation "$scratch"/debs/*.deb >"$scratch/out" 2>/dev/null
        [ -s "$scratch/out" ] && fail "lintian: $(head -5 "$scratch/out")" || pass
    else
        echo "skipped: Debian's policy checker (lintian is not here)"
    fi
else
    echo "skipped: Debian's packages (dpkg-dev is not here)"
fi
finish
