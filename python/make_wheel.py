"""Makes a wheel of the package, the shared library and the data, with Python's own modules only.

    python3 python/make_wheel.py LIBRARY FOLDER

The wheel does not contain the libraries that LIBRARY needs (igraph and others); install them on the target.
Without the same SimGrid release, the flow engine simulates. Prints the wheel's path. The same
files give the same wheel.
"""

import base64
import ctypes
import hashlib
import os
import sys
import sysconfig
import zipfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Data that the library looks up by name at run time, as in an installation.
DATA = ["workloads/aliases.json", "workloads/families", "workloads/training", "workloads/zoo", "topologies/catalogue", "study/catalogue", "study/evidence/rows.json", "planner/default_stacks.json", "planner/stacks"]


def files(library):
    package = os.path.join(SOURCE, "python", "trainyard")
    for name in sorted(os.listdir(package)):
        if name.endswith(".py"):
            yield "trainyard/" + name, os.path.join(package, name)
    yield "trainyard/libtrainyard.so", library
    for entry in DATA:
        if entry.endswith(".json"):
            yield "trainyard/data/" + entry, os.path.join(SOURCE, entry)
        for base, folders, names in os.walk(os.path.join(SOURCE, entry)):
            folders.sort()
            for name in sorted(names):
                if name != "CMakeLists.txt":
                    path = os.path.join(base, name)
                    yield "trainyard/data/" + os.path.relpath(path, SOURCE), path


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_wheel.py LIBRARY FOLDER")
    library, folder = sys.argv[1:]
    version_of = ctypes.CDLL(os.path.abspath(library)).ty_command_version
    version_of.restype = ctypes.c_char_p
    version = version_of().decode()
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    about = "trainyard-%s.dist-info/" % version
    metadata = (
        "Metadata-Version: 2.1\nName: trainyard\nVersion: %s\n"
        "Summary: Plans, simulates and explains distributed training of neural networks\n"
        "Requires-Python: >=3.9\nProvides-Extra: frames\nRequires-Dist: pandas; extra == 'frames'\n" % version
    )
    wheel = "Wheel-Version: 1.0\nGenerator: trainyard\nRoot-Is-Purelib: false\nTag: %s\n" % tag
    path = os.path.join(folder, "trainyard-%s-%s.whl" % (version, tag))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(SOURCE, "LICENSE"), "rb") as file:
        licence = file.read()
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append("%s,sha256=%s,%d" % (name, digest, len(content)))
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)

        for name, source in files(library):
            with open(source, "rb") as file:
                add(name, file.read())
        add(about + "METADATA", metadata.encode())
        add(about + "WHEEL", wheel.encode())
        add(about + "LICENSE", licence)
        record.append(about + "RECORD,,")
        archive.writestr(zipfile.ZipInfo(about + "RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")
    print(path)


if __name__ == "__main__":
    main()
