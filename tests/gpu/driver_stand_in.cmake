# Writes the source of a stand-in for the CUDA driver, libcuda.so.1: the functions that cuDNN looks up, by the
# names that its library has in it. With it cuDNN makes plans for devices that are described to it. A
# kernel that is loaded is there, everything else fails with CUDA_ERROR_STUB_LIBRARY (34).
#
#     cmake -DLIBRARY=libcudnn_graph.so.9 -DOUTPUT=driver.c -P driver_stand_in.cmake
cmake_minimum_required(VERSION 3.22)
file(STRINGS ${LIBRARY} strings REGEX "^cu[A-Z][A-Za-z0-9_]+$")
list(REMOVE_DUPLICATES strings)
set(loading cuLibraryLoadData cuLibraryGetKernel)
set(texts cuGetErrorString cuGetErrorName)
set(tables cuGetProcAddress cuGetProcAddress_v2)
set(source "/* Made by driver_stand_in.cmake. */\nstatic int loaded;\nint trainyard_stand_in = 1;\n")
foreach(name ${strings})
    if(name IN_LIST loading)
        set(body "*(void **)a = &loaded; return 0;")
    elseif(name IN_LIST texts)
        set(body "*(const char **)b = \"the stand-in for the driver\"; return 0;")
    elseif(name IN_LIST tables)
        set(body "*(void **)b = (void *)0; return 34;")
    else()
        set(body "return 34;")
    endif()
    string(APPEND source "int ${name}(void *a, void *b);\nint ${name}(void *a, void *b) { (void)a, (void)b; ${body} }\n")
endforeach()
file(WRITE ${OUTPUT} "${source}")
