/* oneDNN 2.x behind the few calls the CPU backend needs. */
#include "dnnl_wrap.h"

#include <assert.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <stdatomic.h>
#include <string.h>

/* oneDNN threads through whichever OpenMP it was built with, if any; asking the running process for
 * the function spares us a build dependency on one of them. */
void cpu_single_thread(void)
{
    static _Atomic(void *) cached; /* a symbol's address: the same whoever looks it up */
    void *symbol = atomic_load_explicit(&cached, memory_order_relaxed);
    void (*set_threads)(int);

    if (symbol == NULL) {
        symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
        if (symbol == NULL)
            return;
        atomic_store_explicit(&cached, symbol, memory_order_relaxed);
    }
    memcpy(&set_threads, &symbol, sizeof set_threads);
    set_threads(1);
}

void cpu_gemm(bool is_a_transposed, bool is_b_transposed, uint64_t m, uint64_t n, uint64_t k,
              float alpha, const float *a, uint64_t a_stride, const float *b, uint64_t b_stride,
              float beta, float *c, uint64_t c_stride)
{
    /* It fails for bad arguments and when memory for packing runs out (a few MiB): neither is
     * something a training step can go on from. */
    dnnl_status_t done =
        dnnl_sgemm(is_a_transposed ? 'T' : 'N', is_b_transposed ? 'T' : 'N', (dnnl_dim_t)m,
                   (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a, (dnnl_dim_t)a_stride, b,
                   (dnnl_dim_t)b_stride, beta, c, (dnnl_dim_t)c_stride);
    assert(done == dnnl_success);
    (void)done;
}
