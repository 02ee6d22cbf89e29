/* The stack of a question that names none: the first of default_stacks.json that can run it. */
#include "candidate.h"

#include "ty_base.h"
#include "ty_collective_model.h"

#include <string.h>

/* ---- The question -------------------------------------------------------------------------- */

/* Activation functions with gates, or experts: models of 2022 and later. */
static bool is_gated(const ty_workload *w)
{
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (ty_layer_row_of(&w->layers[l])->has_experts || w->layers[l].attributes[TY_IS_GATED] > 0)
            return true;
    return false;
}

/* "language", "images", or NULL: no default stack. */
static const char *kind_of(const ty_workload *w)
{
    if (w->local_steps > 1 || w->learning != TY_LEARNING_GRADIENT)
        return NULL;
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->tokens_per_sample > 0 ? ty_layer_has_heads(&w->layers[l])
                                     : ty_layer_row_of(&w->layers[l])->is_convolution)
            return w->tokens_per_sample > 0 ? "language" : "images";
    return NULL;
}

/* ---- default_stacks.json ------------------------------------------------------------------- */

static bool has_word(const ty_json *list, const char *word)
{
    for (size_t i = 0; word != NULL && i < ty_json_size(list); i++) {
        const char *text;
        if (ty_json_as_string(ty_json_at(list, i), &text, NULL) == TY_OK && strcmp(text, word) == 0)
            return true;
    }
    return false;
}

/* Whether all devices are of the generations of a row; NULL: any with TF32 units. */
static bool has_generations(const ty_json *generations, const ty_cluster *cluster)
{
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++) {
        const ty_device_type *type = ty_cluster_device_type(cluster, d);
        if (generations == NULL ? !(type->peak_tf32_flop_per_s > 0)
                                : !has_word(generations, type->generation))
            return false;
    }
    return true;
}

/* Whether a row applies to the question; its stacks into *stacks. */
static ty_status read_row(const ty_json *row, const ty_workload *workload,
                          const ty_cluster *cluster, bool *is_about, const ty_json **stacks,
                          ty_error *error)
{
    const ty_json *generations = NULL;
    const char *kind, *models = NULL;

    TY_TRY(ty_json_string(row, "kind", &kind, error));
    if (ty_json_has(row, "generations"))
        TY_TRY(ty_json_array(row, "generations", 1, 100, &generations, error));
    if (ty_json_has(row, "models"))
        TY_TRY(ty_json_string(row, "models", &models, error));
    TY_TRY(ty_json_array(row, "stacks", 1, 100, stacks, error));
    TY_TRY(ty_json_end(row, error));
    *is_about = strcmp(kind, kind_of(workload)) == 0 && has_generations(generations, cluster) &&
                (models == NULL || (strcmp(models, "gated") == 0) == is_gated(workload));
    return TY_OK;
}

/* The first stack of a row that can run the question; NULL: none. @param why [out] the reason of
 * the first that cannot, if none could before */
static ty_status first_of(const ty_json *stacks, const ty_workload *workload, const ty_pins *pins,
                          ty_stack **out, ty_error *why, ty_error *error)
{
    for (size_t i = 0; i < ty_json_size(stacks); i++) {
        const char *name;
        ty_stack *stack = NULL;
        ty_error refusal = {0};
        TY_TRY(ty_json_as_string(ty_json_at(stacks, i), &name, error));
        TY_TRY(ty_stack_open(name, &stack, error));
        if (pins == NULL ||
            ty_stack_check(stack, pins, workload, workload->precision == TY_PRECISION_FP16,
                           &refusal) == TY_OK) {
            *out = stack;
            break;
        }
        if (why->status == TY_OK)
            *why = refusal;
        ty_stack_free(stack);
    }
    return TY_OK;
}

static ty_status look_up(const ty_workload *workload, const ty_cluster *cluster,
                         const ty_pins *pins, ty_stack **out, ty_error *why, ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *rows, *stacks, *root;
    const char *source;
    char *path = NULL;
    ty_status status;

    TY_CHECK(ty_data_path("planner", "default_stacks.json", &path, error), status, done);
    TY_CHECK(ty_json_load(path, &document, error), status, done);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, "trainyard.default_stacks/1", error), status, done);
    TY_CHECK(ty_json_string(root, "source", &source, error), status, done);
    TY_CHECK(ty_json_array(root, "defaults", 1, 1000, &rows, error), status, done);
    for (size_t r = 0; r < ty_json_size(rows) && *out == NULL; r++) {
        bool is_about = false;
        TY_CHECK(read_row(ty_json_at(rows, r), workload, cluster, &is_about, &stacks, error),
                 status, done);
        if (is_about)
            TY_CHECK(first_of(stacks, workload, pins, out, why, error), status, done);
    }
    status = ty_json_end(root, error);
done:
    ty_json_free(document);
    ty_free(path);
    return status;
}

/* ---- The stack ---------------------------------------------------------------------- */

bool ty_trains_in_fp16(const ty_workload *workload, const ty_cluster *cluster, uint32_t device)
{
    ty_communicator communicator;

    if (workload->precision == TY_PRECISION_FP16 || workload->element_bytes != 2)
        return workload->precision == TY_PRECISION_FP16;
    return cluster != NULL &&
           ty_communicator_of(cluster, &device, 1, &communicator, NULL) == TY_OK &&
           communicator.generation == TY_VOLTA;
}

/* Why only the worker can run it; NULL: others can. */
static const char *reason_for_worker(const ty_profile *profile, const ty_plan_options *o)
{
    if (profile != NULL)
        return "the profile measured it";
    if (o == NULL)
        return NULL;
    return o->allow_lossy                               ? "lossy compressors are allowed"
           : ty_is_pinned(&o->pins, TY_AXIS(ALGORITHM)) ? "an algorithm is asked for"
           : o->pins.servers > 0                        ? "servers of gradients are asked for"
                                                        : NULL;
}

ty_status ty_stack_open_default(const ty_workload *workload, const ty_cluster *cluster,
                                const ty_profile *profile, const ty_plan_options *options,
                                ty_stack **out, ty_error *error)
{
    const char *reason = reason_for_worker(profile, options);
    ty_stack *stack = NULL;
    ty_error why = {0};
    ty_status status = TY_OK;

    if (kind_of(workload) == NULL)
        reason = NULL;
    else if (reason == NULL)
        status = look_up(workload, cluster, options != NULL ? &options->pins : NULL, &stack, &why,
                         error);
    if (status == TY_OK && stack == NULL)
        status = ty_stack_open(TY_WORKER_STACK, &stack, error);
    if (status == TY_OK && why.status != TY_OK)
        reason = why.message;
    if (status == TY_OK && reason != NULL && (stack->why = ty_strdup(reason)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    if (status == TY_OK)
        *out = stack;
    else
        ty_stack_free(stack);
    return status;
}
