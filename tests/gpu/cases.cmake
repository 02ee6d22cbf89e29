# gpu_cases: the tests and benchmarks for a host with a GPU. They need neither Criterion nor the
# simulator, so they can be built without these.
add_library(ty_emulated INTERFACE) # the emulator is built with the sanitizers, but not with our own warnings
if(TY_SANITIZE)
    target_compile_options(ty_emulated INTERFACE -fsanitize=${TY_SANITIZE}
        -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(ty_emulated INTERFACE -fsanitize=${TY_SANITIZE})
    target_compile_definitions(ty_emulated INTERFACE TY_SANITIZED)
endif()
set(ty_gpu_sources gpu/gpu_cases.c gpu/gpu_common.c gpu/gpu_attention.c gpu/gpu_passes.c gpu/gpu_parallel.c
    gpu/gpu_updates.c gpu/gpu_codecs.c gpu/gpu_plans.c gpu/gpu_schedules.c gpu/gpu_graphs.c gpu/gpu_bench.c
    gpu/gpu_links.c gpu/gpu_sweep.c gpu/gpu_counts.c execute/rank_threads.c execute/crowd.c execute/emulation.c
    execute/rank_hub.c execute/network.c execute/plans.c plan_shape.c)
list(TRANSFORM ty_gpu_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/../)
add_executable(gpu_cases EXCLUDE_FROM_ALL ${ty_gpu_sources})
target_link_libraries(gpu_cases PRIVATE ty_emulated trainyard::execute trainyard::planner
    Threads::Threads m ${CMAKE_DL_LIBS})
target_compile_definitions(gpu_cases PRIVATE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
set_target_properties(gpu_cases PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
