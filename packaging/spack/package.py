from spack.package import *


class Trainyard(CMakePackage):
    """Plans, simulates and runs distributed training of neural networks."""

    homepage = "file:///"
    # There is no release to fetch: "spack dev-build trainyard@0.1.0" in a clone, or "spack develop".
    version("0.1.0")

    license("MIT")

    variant("execute", default=True, description="the worker, which trains for real")
    variant("simulate", default=True, description="SimGrid as an engine of the simulator")
    variant("cuda", default=False, when="+execute", description="the worker's plugin for GPUs")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cjson")
    depends_on("igraph@0.10.2:")
    depends_on("libxml2")
    depends_on("libyaml")
    depends_on("libmd")
    depends_on("zlib-api")
    depends_on("simgrid@3.32:", when="+simulate")
    depends_on("openmpi@4:5", when="+execute")
    depends_on("libsodium", when="+execute")
    depends_on("onednn@2:3", when="+execute")
    depends_on("jpeg", when="+execute")
    depends_on("libpng", when="+execute")
    depends_on("cuda", when="+cuda")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define_from_variant("TY_WITH_EXECUTE", "execute"),
            self.define_from_variant("TY_WITH_SIMULATE", "simulate"),
            self.define("TY_WITH_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("BUILD_TESTING", False),
        ]
