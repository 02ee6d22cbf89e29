/* Common code of all cuDNN graphs. */
#include "cuda_dnn.h"

#include <stdio.h>
#include <string.h>

/* Headers before 9.11 have no device descriptors. */
#if CUDNN_VERSION < 91100
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#endif

enum { MOST_CONFIGURATIONS = 64, ALIGNMENT = 16 /* bytes, for tensors */ };

typedef cudnnBackendDescriptor_t descriptor;

static void failed(cuda_dnn_graph *g, const char *what, cudnnStatus_t code)
{
    g->status = cuda_dnn_fail(&g->reason, what, code);
    if (CUDNN_STATUS_CATEGORY((int)code) == CUDNN_STATUS_NOT_SUPPORTED)
        g->status = ty_fail(&g->reason, TY_EUNSUPPORTED, "cuDNN does not support it: %s: status %d",
                            what, (int)code);
}

descriptor cuda_dnn_make(cuda_dnn_graph *g, cudnnBackendDescriptorType_t kind)
{
    descriptor made = NULL;
    cudnnStatus_t code;

    if (g->status != TY_OK)
        return NULL;
    if (g->made_count == CUDA_DNN_MOST_DESCRIPTORS) {
        g->status = ty_fail(&g->reason, TY_ELIMIT, "a graph of more than %d descriptors",
                            CUDA_DNN_MOST_DESCRIPTORS);
        return NULL;
    }
    code = g->target->dnn->cudnnBackendCreateDescriptor(kind, &made);
    if (code != CUDNN_STATUS_SUCCESS)
        failed(g, "cudnnBackendCreateDescriptor", code);
    else
        g->made[g->made_count++] = made;
    return made;
}

void cuda_dnn_set(cuda_dnn_graph *g, descriptor of, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    cudnnStatus_t code;

    if (g->status != TY_OK)
        return;
    code = g->target->dnn->cudnnBackendSetAttribute(of, name, type, count, values);
    if (code != CUDNN_STATUS_SUCCESS)
        failed(g, "cudnnBackendSetAttribute", code);
}

void cuda_dnn_link(cuda_dnn_graph *g, descriptor of, cudnnBackendAttributeName_t name,
                   descriptor value)
{
    cuda_dnn_set(g, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void cuda_dnn_set_type(cuda_dnn_graph *g, descriptor of, cudnnBackendAttributeName_t name,
                       cudnnDataType_t type)
{
    cuda_dnn_set(g, of, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

void cuda_dnn_finalize(cuda_dnn_graph *g, descriptor of)
{
    cudnnStatus_t code;

    if (g->status != TY_OK)
        return;
    code = g->target->dnn->cudnnBackendFinalize(of);
    if (code != CUDNN_STATUS_SUCCESS)
        failed(g, "cudnnBackendFinalize", code);
}

/* Destroys the descriptors after the first `count`. */
static void graph_clear(cuda_dnn_graph *g, uint32_t count)
{
    while (g->made_count > count)
        g->target->dnn->cudnnBackendDestroyDescriptor(g->made[--g->made_count]);
}

descriptor cuda_dnn_tensor(cuda_dnn_graph *g, int64_t number, cudnnDataType_t type,
                           const cuda_dnn_layout *at, cuda_dnn_sort sort)
{
    const descriptor made = cuda_dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = ALIGNMENT;
    const bool is_virtual = sort == CUDA_DNN_VIRTUAL, is_by_value = sort == CUDA_DNN_VALUE;

    cuda_dnn_set_type(g, made, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, CUDA_DNN_AXES, at->sizes);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, CUDA_DNN_AXES, at->strides);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    cuda_dnn_set(g, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    cuda_dnn_finalize(g, made);
    return made;
}

void cuda_dnn_operation(cuda_dnn_graph *g, descriptor made)
{
    cuda_dnn_finalize(g, made);
    if (g->status == TY_OK && g->operation_count == CUDA_DNN_MOST_OPERATIONS)
        g->status = ty_fail(&g->reason, TY_ELIMIT, "a graph of more than %d operations",
                            CUDA_DNN_MOST_OPERATIONS);
    if (g->status == TY_OK)
        g->operations[g->operation_count++] = made;
}

/* ---- Plans ---- */

static descriptor graph_make(cuda_dnn_graph *g)
{
    const descriptor graph = cuda_dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    cuda_dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 g->operation_count, g->operations);
    if (g->target->handle != NULL)
        cuda_dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                     &g->target->handle);
    cuda_dnn_finalize(g, graph);
    return graph;
}

/* Sets the handle, or without one the described device. */
static void target_set(cuda_dnn_graph *g, descriptor of, cudnnBackendAttributeName_t name)
{
    if (g->target->handle == NULL)
        cuda_dnn_link(g, of, name, g->target->properties);
}

/* cuDNN's choices, best first. @return their number */
static uint32_t configurations_find(cuda_dnn_graph *g, descriptor graph,
                                    cudnnBackendHeurMode_t mode,
                                    descriptor out[MOST_CONFIGURATIONS])
{
    const descriptor guesses = cuda_dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count = 0;
    cudnnStatus_t code;

    cuda_dnn_link(g, guesses, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cuda_dnn_set(g, guesses, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    target_set(g, guesses, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    cuda_dnn_finalize(g, guesses);
    for (uint32_t i = 0; i < MOST_CONFIGURATIONS; i++)
        out[i] = cuda_dnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status != TY_OK)
        return 0;
    code = g->target->dnn->cudnnBackendGetAttribute(guesses, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                    MOST_CONFIGURATIONS, &count, out);
    if (code != CUDNN_STATUS_SUCCESS)
        failed(g, "cudnnBackendGetAttribute", code);
    return g->status != TY_OK            ? 0
           : count > MOST_CONFIGURATIONS ? MOST_CONFIGURATIONS
                                         : (uint32_t)count;
}

/* Whether an engine meets the terms, by its own notes. */
static bool has_terms(cuda_dnn_graph *g, descriptor configuration, const cuda_dnn_terms *terms)
{
    const cuda_dnn *dnn = g->target->dnn;
    const uint32_t before = g->made_count;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    descriptor engine = cuda_dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    bool has = g->status == TY_OK &&
               dnn->cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                             &engine) == CUDNN_STATUS_SUCCESS &&
               dnn->cudnnBackendGetAttribute(
                   engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS;

    for (int64_t i = 0; has && i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        has = (terms->refused_notes & CUDA_DNN_NOTE(notes[i])) == 0;
    graph_clear(g, before);
    return has;
}

/* Creates a plan of one of cuDNN's choices. After a refusal, only the reason remains. */
static bool plan_try(cuda_dnn_graph *g, descriptor configuration, const cuda_dnn_terms *terms,
                     cuda_dnn_plan *out)
{
    const uint32_t before = g->made_count;
    const descriptor made = cuda_dnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0, bytes = 0;
    cudnnStatus_t code;
    bool is_made;

    cuda_dnn_link(g, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (g->target->handle != NULL)
        cuda_dnn_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                     &g->target->handle);
    target_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    cuda_dnn_finalize(g, made);
    if (g->status == TY_OK) {
        code = g->target->dnn->cudnnBackendGetAttribute(
            made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
        if (code != CUDNN_STATUS_SUCCESS)
            failed(g, "cudnnBackendGetAttribute", code);
        else if ((uint64_t)bytes > terms->workspace_bytes)
            g->status = ty_fail(&g->reason, TY_EUNSUPPORTED,
                                "cuDNN would work in %.0f MB of memory, more than %.0f",
                                (double)bytes / 1e6, (double)terms->workspace_bytes / 1e6);
    }
    is_made = g->status == TY_OK;
    if (is_made) {
        g->made_count--; /* the plan owns it */
        *out = (cuda_dnn_plan){.descriptor = made, .workspace_bytes = (uint64_t)bytes};
    }
    graph_clear(g, before);
    g->status = TY_OK;
    return is_made;
}

/* Creates plans of cuDNN's first choices that meet the terms, or of the wanted one; else keeps the
 * reason of the last refusal. @return their number */
static uint32_t plans_choose(cuda_dnn_graph *g, descriptor graph, const cuda_dnn_terms *terms,
                             uint32_t wanted, uint32_t most, cuda_dnn_plan *out)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const uint32_t before = g->made_count;
    descriptor found[MOST_CONFIGURATIONS];
    uint32_t made = 0, place = 0;

    for (size_t m = 0; m < sizeof modes / sizeof *modes && g->status == TY_OK && made < most; m++) {
        const uint32_t count = configurations_find(g, graph, modes[m], found);

        for (uint32_t i = 0; i < count && made < most; i++, place++) {
            if ((wanted != CUDA_DNN_ANY_CHOICE && wanted != place) ||
                !has_terms(g, found[i], terms) || !plan_try(g, found[i], terms, &out[made]))
                continue;
            out[made++].choice = place;
        }
        graph_clear(g, before);
        if (g->status == TY_EUNSUPPORTED) /* the other list may have one */
            g->status = TY_OK;
    }
    return made;
}

ty_status cuda_dnn_plans_make(cuda_dnn_graph *g, const cuda_dnn_terms *terms, uint32_t wanted,
                              uint32_t most, cuda_dnn_plan *out, uint32_t *count, ty_error *error)
{
    const descriptor graph = graph_make(g);
    uint32_t made = 0;

    if (g->status == TY_OK) {
        snprintf(g->reason.message, sizeof g->reason.message,
                 "cuDNN has no kernel for it that repeats and keeps the precision");
        if (wanted != CUDA_DNN_ANY_CHOICE)
            made = plans_choose(g, graph, terms, wanted, 1, out);
        if (made == 0)
            made = plans_choose(g, graph, terms, CUDA_DNN_ANY_CHOICE, most, out);
        if (made == 0 && g->status == TY_OK)
            g->status = TY_EUNSUPPORTED;
    }
    graph_clear(g, 0);
    if (made == 0)
        return ty_fail(error, g->status, "%s", g->reason.message);
    *count = made;
    return TY_OK;
}

ty_status cuda_dnn_plan_make(cuda_dnn_graph *g, const cuda_dnn_terms *terms, cuda_dnn_plan *out,
                             ty_error *error)
{
    uint32_t count;

    return cuda_dnn_plans_make(g, terms, CUDA_DNN_ANY_CHOICE, 1, out, &count, error);
}

void cuda_dnn_pack_add(cuda_dnn_pack *pack, int64_t number, const void *at)
{
    pack->numbers[pack->count] = number;
    memcpy(&pack->pointers[pack->count++], &at, sizeof at); /* cuDNN's interface has no const */
}

ty_status cuda_dnn_plan_run(const cuda_dnn *dnn, cudnnHandle_t handle, const cuda_dnn_plan *plan,
                            const cuda_dnn_pack *pack, void *workspace, ty_error *error)
{
    descriptor made = NULL;
    ty_status status = TY_OK;

    CUDA_DNN_CHECK(dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made),
                   status, done);
    CUDA_DNN_CHECK(dnn->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                 CUDNN_TYPE_INT64, pack->count, pack->numbers),
                   status, done);
    CUDA_DNN_CHECK(dnn->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                 CUDNN_TYPE_VOID_PTR, pack->count, pack->pointers),
                   status, done);
    CUDA_DNN_CHECK(dnn->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                 CUDNN_TYPE_VOID_PTR, 1, &workspace),
                   status, done);
    CUDA_DNN_CHECK(dnn->cudnnBackendFinalize(made), status, done);
    CUDA_DNN_CHECK(dnn->cudnnBackendExecute(handle, plan->descriptor, made), status, done);
done:
    if (made != NULL)
        dnn->cudnnBackendDestroyDescriptor(made);
    return status;
}
