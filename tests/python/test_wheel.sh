#!/bin/sh
# A wheel: installed by unpacking, as pip does, and usable without the source tree.
. "$(dirname "$0")/../cli/lib.sh"
unset PYTHONPATH
library=$TRAINYARD_LIBRARY
unset TRAINYARD_LIBRARY
PYTHON=$("$PYTHON" -c 'import sys; print(sys.executable)') # and no script that searches for it
if wheel=$("$PYTHON" "$SOURCE/python/make_wheel.py" "$library" "$scratch/a"); then pass; else fail "no wheel is made"; fi
again=$("$PYTHON" "$SOURCE/python/make_wheel.py" "$library" "$scratch/b")
cmp -s "$wheel" "$again" && pass || fail "two wheels of the same files differ"
mkdir "$scratch/site"
"$PYTHON" -m zipfile -e "$wheel" "$scratch/site" && pass || fail "the wheel is no archive"
if find "$scratch/site" -name '*igraph*' -o -name '*simgrid*' | grep -q .; then fail "others' libraries are inside"; else pass; fi
# Every line of RECORD has the digest of an existing file.
"$PYTHON" - "$scratch/site" <<'END' && pass || fail "RECORD is not true"
import base64, hashlib, pathlib, sys
site = pathlib.Path(sys.argv[1])
rows = next(site.glob("*.dist-info/RECORD")).read_text().splitlines()
named = {row.rsplit(",", 2)[0] for row in rows}
assert named == {str(p.relative_to(site)) for p in site.rglob("*") if p.is_file()}, "other files"
for row in rows:
    name, digest, _ = row.rsplit(",", 2)
    if digest:
        found = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).rstrip(b"=").decode()
        assert digest == "sha256=" + found, name
END
# Its own data, not that of the source tree: an entry that only the copy has.
sed 's/"name": "lenet"/"name": "only-here"/' "$SOURCE/workloads/zoo/lenet.json" >"$scratch/site/trainyard/data/workloads/zoo/only-here.json"
(cd "$scratch" && PYTHONPATH=$scratch/site "$PYTHON" -c '
import trainyard
assert trainyard.__file__.endswith("site/trainyard/__init__.py")
print(trainyard.plan("only-here", "2x p100-server", top=1))') >"$scratch/out" 2>"$scratch/err" && pass || fail "the wheel does not plan"
expect_output "only-here on 2x p100-server"
# With pip, in a new virtual environment; nothing is downloaded.
"$PYTHON" -m venv --without-pip "$scratch/venv" && pass || fail "no virtual environment"
if "$PYTHON" -m pip --version >/dev/null 2>&1; then
    "$PYTHON" -m pip --python "$scratch/venv/bin/python" install --no-index --quiet --disable-pip-version-check "$wheel" \
        >"$scratch/out" 2>"$scratch/err" && pass || fail "pip install: $(cat "$scratch/out" "$scratch/err")"
    (cd "$scratch" && env -u TRAINYARD_DATA venv/bin/python -c '
import trainyard
assert "/venv/" in trainyard.__file__
print(trainyard.plan("lenet", "2x p100-server", no_simulate=True).show())') >"$scratch/out" 2>"$scratch/err" && pass || fail "what pip installed does not plan"
    expect_output "lenet on 2x p100-server"
else
    echo "skipped: $PYTHON has no pip"
fi
# Files that cmake --install puts below a prefix are on the search path of its python3.
for python in "$PYTHON" /usr/bin/python3; do
    [ -x "$python" ] || continue
    for prefix in /usr /usr/local "$scratch/home/.local"; do
        folder=$(HOME=$scratch/home "$python" -c '
import site, sys
print(next((f for f in site.getsitepackages() + [site.getusersitepackages()] if f.startswith(sys.argv[1] + "/lib")), ""))' "$prefix")
        [ -n "$folder" ] || continue # it has none there
        rm -rf "$scratch/root"
        HOME=$scratch/home PATH=$(dirname "$python"):$PATH DESTDIR=$scratch/root cmake --install "$(dirname "$TRAINYARD")" \
            --prefix "$prefix" --component python >"$scratch/out" 2>&1 || fail "cmake --install --prefix $prefix"
        [ -s "$scratch/root$folder/trainyard/__init__.py" ] && pass || fail "the package is not in $folder"
    done
done
HOME=$scratch/home cmake --install "$(dirname "$TRAINYARD")" --prefix "$scratch/home/.local" --component python >"$scratch/out" 2>&1 || fail "cmake --install"
(cd "$scratch" && PATH=/usr/bin:/bin HOME=$scratch/home TRAINYARD_DATA=$SOURCE python3 -c '
import trainyard
assert "/home/.local/lib/" in trainyard.__file__
print(trainyard.plan("lenet", "2x p100-server", no_simulate=True).show())') >"$scratch/out" 2>"$scratch/err" && pass || fail "what was installed is not imported"
expect_output "lenet on 2x p100-server"
# If no library can be loaded, the message states the requirements.
cp -r "$scratch/site" "$scratch/empty"
rm "$scratch/empty/trainyard/libtrainyard.so"
(cd "$scratch" && PATH=/nowhere PYTHONPATH=$scratch/empty "$PYTHON" -c 'import trainyard; trainyard.version()') >"$scratch/out" 2>"$scratch/err" && fail "a library comes from nowhere" || pass
grep -q "libtrainyard is not found; it needs igraph" "$scratch/err" && pass || fail "the sentence about the library"
finish
