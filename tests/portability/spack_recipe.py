#!/usr/bin/python3
"""packaging/spack/package.py against CMakeLists.txt, without Spack: the recipe runs with a stand-in for
Spack's directives, and must request the dependencies of CMake.

    spack_recipe.py SOURCE
"""
import pathlib
import re
import sys
import types

# CMake's requirement, by its name in Spack.
SPACK = {"libcjson": "cjson", "libmd": "libmd", "igraph": "igraph", "libxml-2.0": "libxml2", "yaml-0.1": "libyaml",
         "zlib": "zlib-api", "simgrid": "simgrid", "ompi-c": "openmpi", "libsodium": "libsodium", "dnnl": "onednn",
         "libjpeg": "jpeg", "libpng": "libpng", "CUDAToolkit": "cuda"}
NOT_USED = {"openblas"}  # only a benchmark uses it, for comparison
TOOLS = {"c", "cmake", "ninja", "pkgconfig"}
BESIDE_CUDA = {"cudnn", "nccl"}  # found without CMake's packages

source = pathlib.Path(sys.argv[1])
cmake = (source / "CMakeLists.txt").read_text(encoding="utf-8")
recipe = (source / "packaging/spack/package.py").read_text(encoding="utf-8")
said = {"depends_on": {}, "variant": {}, "version": {}, "license": {}, "generator": {}}


def word(name):
    return lambda first, *_, **more: said[name].__setitem__(first, more)


class CMakePackage:
    """The parts of the base class that a recipe uses."""

    def __init__(self, on):
        self.spec = types.SimpleNamespace(satisfies=lambda text: text.removeprefix("+") in on)
        self.on = on

    @staticmethod
    def define(name, value):
        return f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}"

    def define_from_variant(self, name, variant):
        assert variant in said["variant"], f"{variant}: found no such variant"
        return self.define(name, variant in self.on)


names = {"CMakePackage": CMakePackage, **{name: word(name) for name in said}}
exec(compile(recipe.replace("from spack.package import *", ""), "package.py", "exec"), names)

problems = []
asked = set(re.findall(r"pkg_check_modules\(\w+ (?:REQUIRED )?IMPORTED_TARGET ([^)\s]+)\)", cmake))
asked |= set(re.findall(r"find_library\(DNNL_LIBRARY (\w+)", cmake)) | set(re.findall(r"find_package\((CUDAToolkit)", cmake))
asked -= {"criterion"} | NOT_USED
unknown = asked - set(SPACK)
if unknown or len(asked) < 10:
    problems.append(f"CMake asks for {sorted(unknown)}, of which nothing is known here; {len(asked)} in all")
depends = {re.match(r"[\w-]+", text)[0]: text for text in said["depends_on"]}
wanted = {SPACK[name] for name in asked if name in SPACK} | TOOLS | BESIDE_CUDA
if wanted != set(depends):
    problems.append(f"lacks {sorted(wanted - set(depends))}, has {sorted(set(depends) - wanted)} that CMake does not ask for")
least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", cmake)[1]
if depends.get("cmake") != f"cmake@{least}:":
    problems.append(f"{depends.get('cmake')}: expected cmake@{least}:")
version = re.search(r"project\(\w+\s+VERSION ([\d.]+)", cmake)[1]
if list(said["version"]) != [version]:
    problems.append(f"version: found {list(said['version'])}, expected {version}")
if list(said["license"]) != re.findall(r"^(MIT) License", (source / "LICENSE").read_text(encoding="utf-8"), re.M):
    problems.append(f"license: found {list(said['license'])}, expected that of LICENSE")
known = "".join(path.read_text(encoding="utf-8") for path in source.glob("**/CMakeLists.txt") if "build" not in path.parts)
for on in (set(), {"execute"}, {"simulate"}, {"execute", "simulate", "cuda"}):
    given = dict(text.removeprefix("-D").split("=") for text in names["Trainyard"](on).cmake_args())
    for name in set(given) - {"BUILD_TESTING"}:
        if not re.search(rf"(option|set)\({name}\b", known):
            problems.append(f"{name}: found no such option of CMake")
    for name, variant in (("TY_WITH_EXECUTE", "execute"), ("TY_WITH_SIMULATE", "simulate"), ("TY_WITH_CUDA", "cuda")):
        if given.get(name) != ("ON" if variant in on else "OFF"):
            problems.append(f"{name}={given.get(name)} with {sorted(on)}")
for problem in dict.fromkeys(problems):
    print("FAILED:", problem)
print(f"{0 if problems else 1} passed, {len(problems)} failed")
sys.exit(bool(problems))
