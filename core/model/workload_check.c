/* Invariants of a workload, from any source. */
#include "json_scan.h"
#include "layer_kind.h"
#include "ty_base.h"
#include "workload_layers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checker {
    const ty_workload *workload;
    const char *place;
    ty_error *error;
    bool is_of_layer; /* `place` is the layer's */
} checker;

/* "<place>/layers/3<pointer>: <message>"; TY_NO_LAYER for the workload itself. */
static ty_status TY_PRINTF(4, 5)
    bad(const checker *c, uint32_t layer, const char *pointer, const char *format, ...)
{
    char message[256], index[24] = "";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (layer != TY_NO_LAYER && !c->is_of_layer)
        snprintf(index, sizeof index, "/layers/%u", layer);
    return ty_fail(c->error, TY_EPARSE, "%.200s%s%s: %s", c->place, index, pointer, message);
}

static ty_status check_shape_rule(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];
    ty_shape shape;
    ty_error detail = {0};
    char found[TY_SHAPE_TEXT_SIZE], expected[TY_SHAPE_TEXT_SIZE];

    if (ty_layer_shape(c->workload, index, &shape, &detail) != TY_OK)
        return bad(c, index, "", "%s", detail.message);
    if (!ty_layer_shapes_equal(&shape, &layer->output)) {
        ty_shape_text(&layer->output, found);
        ty_shape_text(&shape, expected);
        return bad(c, index, "/output_shape", "found %s, expected %s", found, expected);
    }
    return TY_OK;
}

static ty_status check_shape(const checker *c, uint32_t layer, const char *pointer,
                             const ty_shape *shape)
{
    double elements = 1.0;
    char found[TY_SHAPE_TEXT_SIZE];

    if (shape->dimension_count < 1 || shape->dimension_count > TY_MAX_DIMENSIONS)
        return bad(c, layer, pointer, "found %u dimensions, expected 1 to %d",
                   shape->dimension_count, TY_MAX_DIMENSIONS);
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        elements *= (double)shape->dimensions[i];
    if (!(elements >= 1.0 && elements < 0x1p53)) {
        ty_shape_text(shape, found);
        return bad(c, layer, pointer, "found %s, expected dimensions >= 1 and a product below 2^53",
                   found);
    }
    return TY_OK;
}

/* ---- one layer ---- */

static ty_status check_inputs(const checker *c, uint32_t index, bool *is_used)
{
    const ty_layer *layer = &c->workload->layers[index];
    const ty_layer_row *row = ty_layer_row_of(layer);
    const uint32_t least = row->least_inputs, most = row->most_inputs > 0 ? row->most_inputs : 1;
    char pointer[32];

    if (layer->input_count < least || layer->input_count > most)
        return bad(c, index, "/inputs", "found %u, expected %s%u for %s", layer->input_count,
                   least == most                ? ""
                   : layer->input_count < least ? "at least "
                                                : "at most ",
                   layer->input_count < least ? least : most, row->name);
    for (uint32_t i = 0; i < layer->input_count; i++) {
        uint32_t low = i == 0 ? 0 : layer->inputs[i - 1] + 1;
        if (layer->inputs[i] < low || layer->inputs[i] >= index) {
            snprintf(pointer, sizeof pointer, "/inputs/%u", i);
            return bad(c, index, pointer,
                       "found %u, expected an earlier layer, from %u up to but not including %u",
                       layer->inputs[i], low, index);
        }
        if (is_used != NULL)
            is_used[layer->inputs[i]] = true;
    }
    if (layer->input_count == 0 && c->workload->input_kind == TY_INPUT_TOKEN && !row->reads_tokens)
        return bad(c, index, "/inputs", "found none, expected one: only an embedding reads tokens");
    return TY_OK;
}

static ty_status check_attributes(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];

    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        ty_attribute_use use = ty_layer_attribute_use(layer->kind, a);
        bool is_used = use != TY_ATTRIBUTE_UNUSED;
        uint64_t minimum = use == TY_ATTRIBUTE_REQUIRED && ty_attribute_is_size(a) ? 1 : 0;
        uint64_t maximum = !is_used ? 0 : ty_attribute_is_flag(a) ? 1 : TY_MAX_ATTRIBUTE;
        char pointer[64];
        if (layer->attributes[a] >= minimum && layer->attributes[a] <= maximum)
            continue;
        snprintf(pointer, sizeof pointer, "/attributes/%s", ty_attribute_name(a));
        return bad(c, index, pointer, "found %llu, expected %llu to %llu for %s",
                   (unsigned long long)layer->attributes[a], (unsigned long long)minimum,
                   (unsigned long long)maximum, ty_layer_kind_name(layer->kind));
    }
    return TY_OK;
}

ty_status ty_layer_derive_shape(ty_workload *workload, uint32_t layer, ty_error *error)
{
    ty_layer *l = &workload->layers[layer];
    const checker c = {workload, l->name, error, true};
    ty_error detail = {0};

    TY_TRY(check_inputs(&c, layer, NULL));
    TY_TRY(check_attributes(&c, layer));
    if (ty_layer_shape(workload, layer, &l->output, &detail) != TY_OK)
        return bad(&c, layer, "", "%s", detail.message);
    return check_shape(&c, layer, "/output_shape", &l->output);
}

static ty_status check_tie(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index], *owner;
    uint64_t rows, columns, owner_rows, owner_columns;

    if (layer->tied_to == TY_NO_LAYER)
        return TY_OK;
    if (layer->tied_to >= index)
        return bad(c, index, "/tied_to", "found %u, expected an earlier layer", layer->tied_to);
    owner = &c->workload->layers[layer->tied_to];
    if (owner->tied_to != TY_NO_LAYER)
        return bad(c, index, "/tied_to", "found layer %u, which is tied itself, expected layer %u",
                   layer->tied_to, owner->tied_to);
    if (!ty_layer_tied_matrix(layer, &rows, &columns) ||
        !ty_layer_tied_matrix(owner, &owner_rows, &owner_columns))
        return bad(c, index, "/tied_to", "found %s tied to %s, expected linear or embedding layers",
                   ty_layer_kind_name(layer->kind), ty_layer_kind_name(owner->kind));
    if (rows != owner_rows || columns != owner_columns)
        return bad(c, index, "/tied_to",
                   "found a matrix of %llu x %llu, expected %llu x %llu as in this layer",
                   (unsigned long long)owner_rows, (unsigned long long)owner_columns,
                   (unsigned long long)rows, (unsigned long long)columns);
    return TY_OK;
}

static ty_status check_quantities(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];
    const struct {
        const char *pointer;
        uint64_t bytes;
    } sizes[] = {{"/parameter_bytes", layer->parameter_bytes},
                 {"/output_bytes", layer->output_bytes},
                 {"/stash_bytes", layer->stash_bytes},
                 {"/traffic_bytes", layer->traffic_bytes}};
    const double measured_limit = ty_layer_row_of(layer)->is_opaque ? HUGE_VAL : 0.0;
    const struct {
        const char *pointer;
        double value, maximum;
    } numbers[] = {{"/forward_flop", layer->forward_flop, HUGE_VAL},
                   {"/backward_flop", layer->backward_flop, HUGE_VAL},
                   {"/measured_forward_s", layer->measured_forward_s, measured_limit},
                   {"/measured_backward_s", layer->measured_backward_s, measured_limit}};

    for (size_t i = 0; i < 4; i++) {
        if (sizes[i].bytes > TY_MAX_QUANTITY)
            return bad(c, index, sizes[i].pointer, "found %llu, expected less than 2^53",
                       (unsigned long long)sizes[i].bytes);
        if (!isfinite(numbers[i].value) || numbers[i].value < 0.0 ||
            numbers[i].value > numbers[i].maximum)
            return bad(c, index, numbers[i].pointer, "found %g, expected %s", numbers[i].value,
                       numbers[i].maximum > 0.0 ? "a number >= 0" : "none: not an opaque layer");
    }
    return TY_OK;
}

static ty_status check_layer(const checker *c, uint32_t index, bool *is_used)
{
    const ty_layer *layer = &c->workload->layers[index];

    if (layer->name == NULL || layer->name[0] == '\0')
        return bad(c, index, "/name", "found nothing, expected a name");
    if (!ty_is_printable(layer->name))
        return bad(c, index, "/name", "found bytes that are no UTF-8 or that cannot be seen");
    if ((unsigned)layer->kind >= TY_LAYER_KIND_COUNT)
        return bad(c, index, "/kind", "found number %d, expected a kind of layer",
                   (int)layer->kind);
    if (ty_layer_row_of(layer)->is_loss && index + 1 < c->workload->layer_count)
        return bad(c, index, "/kind", "found a loss, expected it as the last layer only");
    TY_TRY(check_inputs(c, index, is_used));
    TY_TRY(check_attributes(c, index));
    TY_TRY(check_shape(c, index, "/output_shape", &layer->output));
    TY_TRY(check_shape_rule(c, index));
    TY_TRY(check_tie(c, index));
    return check_quantities(c, index);
}

/* ---- workloads ---- */

static ty_status check_optimizer(const checker *c)
{
    const ty_optimizer *o = &c->workload->optimizer;
    const ty_optimizer_row *row = ty_optimizer_row_of(o->kind);
    const struct {
        const char *pointer;
        double value, limit; /* 0 <= value < limit */
    } numbers[] = {{"/optimizer/learning_rate", o->learning_rate, HUGE_VAL},
                   {"/optimizer/weight_decay", o->weight_decay, HUGE_VAL},
                   {"/optimizer/momentum", row->has_momentum ? o->momentum : 0.0, 1.0},
                   {"/optimizer/beta1", row->has_betas ? o->beta1 : 0.0, 1.0},
                   {"/optimizer/beta2", row->has_betas ? o->beta2 : 0.0, 1.0},
                   {"/optimizer/epsilon", row->has_betas ? o->epsilon : 0.0, HUGE_VAL}};

    if ((unsigned)o->kind >= TY_OPTIMIZER_COUNT)
        return bad(c, TY_NO_LAYER, "/optimizer/kind", "found number %d, expected an optimizer",
                   (int)o->kind);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!(numbers[i].value >= 0.0 && numbers[i].value < numbers[i].limit))
            return bad(c, TY_NO_LAYER, numbers[i].pointer, "found %g, expected a number >= 0%s",
                       numbers[i].value, numbers[i].limit <= 1.0 ? " and < 1" : "");
    }
    return TY_OK;
}

static ty_status check_scenario(const checker *c)
{
    const ty_workload *w = c->workload;

    if ((unsigned)w->learning >= TY_LEARNING_COUNT)
        return bad(c, TY_NO_LAYER, "/learning",
                   "found number %d, expected gradient, evolution or reinforcement",
                   (int)w->learning);
    if (w->local_steps > TY_MAX_LOCAL_STEPS)
        return bad(c, TY_NO_LAYER, "/local_steps", "found %u, expected at most %d", w->local_steps,
                   TY_MAX_LOCAL_STEPS);
    if (w->local_steps > 1 && w->learning == TY_LEARNING_EVOLUTION)
        return bad(c, TY_NO_LAYER, "/local_steps",
                   "found %u, expected none: in evolution every step exchanges scores",
                   w->local_steps);
    if (!(w->input_s_per_sample >= 0.0 && w->input_s_per_sample <= TY_MAX_INPUT_S))
        return bad(c, TY_NO_LAYER, "/input_s_per_sample",
                   "found %g, expected a number from 0 to %g", w->input_s_per_sample,
                   TY_MAX_INPUT_S);
    if (!(w->deviation >= 0.0 && w->deviation <= TY_MAX_DEVIATION))
        return bad(c, TY_NO_LAYER, "/deviation", "found %g, expected a number from 0 to %g",
                   w->deviation, TY_MAX_DEVIATION);
    if (w->deviation > 0 && w->learning != TY_LEARNING_EVOLUTION)
        return bad(c, TY_NO_LAYER, "/deviation", "found %g, expected none without evolution",
                   w->deviation);
    return TY_OK;
}

/* An episode is a sample: an observation per step, and for each a loss of scores of actions. */
static ty_status check_reinforcement(const checker *c)
{
    const ty_workload *w = c->workload;
    const uint32_t last = w->layer_count - 1;
    const char *why = NULL;
    const ty_shape *scores;

    if (w->learning != TY_LEARNING_REINFORCEMENT)
        return TY_OK;
    if (ty_layer_row_of(&w->layers[last])->is_loss) {
        scores = ty_layer_input_shape(w, last, 0);
        if (scores->dimension_count != 2 || scores->dimensions[0] != w->input.dimensions[0] ||
            scores->dimensions[1] < 2)
            why = "the loss is not of two actions or more in each step of an episode";
    } else {
        why = "the last layer is no softmax_cross_entropy of the actions";
    }
    if (w->input_kind != TY_INPUT_REAL || w->input.dimension_count != 2)
        why = "the input is not an episode, so many steps of so many numbers";
    else if (w->local_steps > 1)
        why = "replicas take local steps";
    else if (ty_workload_has_teacher(w))
        why = "there is a teacher";
    else if (w->input_s_per_sample > 0)
        why = "samples have a source with a pace of its own, and episodes are played";
    for (uint32_t l = 0; l < w->layer_count && why == NULL; l++)
        if (w->layers[l].is_frozen || w->layers[l].tied_to != TY_NO_LAYER)
            why = "there are frozen or tied layers";
    if (why != NULL)
        return bad(c, TY_NO_LAYER, "/learning", "found reinforcement, expected another: %s", why);
    return TY_OK;
}

/* Teacher and student are copies of one model, each with its own view and its own scores. */
static ty_status check_pupils(const checker *c)
{
    const ty_workload *w = c->workload;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *own = &w->layers[l], *other;
        uint32_t at;

        if (own->tied_to != TY_NO_LAYER)
            return bad(c, l, "/tied_to", "found %u, expected none beside a teacher", own->tied_to);
        if (own->parameter_bytes == 0)
            continue;
        at = own->is_frozen ? ty_layer_leader(w, l) : ty_layer_follower(w, l);
        other = at == TY_NO_LAYER ? NULL : &w->layers[at];
        if (other == NULL || other->kind != own->kind ||
            memcmp(other->attributes, own->attributes, sizeof own->attributes) != 0)
            return bad(c, l, "", "found %s \"%.60s\", expected a %s layer like it",
                       own->is_frozen ? "the teacher's" : "the student's", own->name,
                       own->is_frozen ? "trained" : "frozen");
    }
    return TY_OK;
}

static ty_status check_teacher(const checker *c)
{
    const ty_workload *w = c->workload;
    const ty_teacher *t = &w->teacher;
    const ty_layer *loss = &w->layers[w->layer_count - 1];
    const char *why = NULL;

    if (!ty_workload_has_teacher(w))
        return TY_OK;
    if (t->every == 0 || t->every > TY_MAX_TEACHER_EVERY)
        return bad(c, TY_NO_LAYER, "/teacher/every", "found %u, expected 1 to %d", t->every,
                   TY_MAX_TEACHER_EVERY);
    if (!(t->decay >= 0.0 && t->decay < 1.0))
        return bad(c, TY_NO_LAYER, "/teacher/decay", "found %g, expected a number >= 0 and < 1",
                   t->decay);
    if (!(t->consistency >= 0.0 && t->consistency <= TY_MAX_CONSISTENCY))
        return bad(c, TY_NO_LAYER, "/teacher/consistency",
                   "found %g, expected a number from 0 to %g", t->consistency, TY_MAX_CONSISTENCY);
    if (t->shift > 0 && (w->input.dimension_count != 3 || t->shift >= w->input.dimensions[1] ||
                         t->shift >= w->input.dimensions[2]))
        return bad(c, TY_NO_LAYER, "/teacher/shift",
                   "found %u, expected less than the sides of images, which samples are", t->shift);
    if (w->learning == TY_LEARNING_EVOLUTION)
        why = "a population has no gradients";
    else if (w->local_steps > 1)
        why = "replicas take local steps, and their teachers would differ";
    else if (w->input_kind != TY_INPUT_REAL || w->input.dimensions[0] % 2 != 0)
        why = "the input is not two views, one behind the other along its first dimension";
    else if (!ty_layer_row_of(loss)->is_loss || loss->attributes[TY_CLASSES] % 2 != 0 ||
             ty_layer_input_shape(w, w->layer_count - 1, 0)->dimension_count != 1)
        why = "the last layer is no loss of a teacher's and as many of a student's scores";
    if (why != NULL)
        return bad(c, TY_NO_LAYER, "/teacher", "found one, expected none: %s", why);
    return check_pupils(c);
}

static ty_status check_whole(const checker *c)
{
    const ty_workload *w = c->workload;
    const struct {
        const char *pointer, *text;
    } texts[] = {{"/name", w->name}, {"/source", w->source}, {"/dataset", w->dataset}};
    const struct {
        const char *pointer;
        uint64_t value, minimum, maximum;
    } numbers[] = {{"/element_bytes", w->element_bytes, 1, 8},
                   {"/sample_bytes", w->sample_bytes, 0, TY_MAX_QUANTITY},
                   {"/tokens_per_sample", w->tokens_per_sample, 0, TY_MAX_QUANTITY},
                   {"/global_batch", w->global_batch, 1, UINT32_MAX},
                   {"/layers", w->layer_count, 1, UINT32_MAX - 1}};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].text == NULL || texts[i].text[0] == '\0')
            return bad(c, TY_NO_LAYER, texts[i].pointer, "found nothing, expected a text");
        if (!ty_is_printable(texts[i].text))
            return bad(c, TY_NO_LAYER, texts[i].pointer,
                       "found bytes that are no UTF-8 or that cannot be seen");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value < numbers[i].minimum || numbers[i].value > numbers[i].maximum)
            return bad(c, TY_NO_LAYER, numbers[i].pointer, "found %llu, expected %llu to %llu",
                       (unsigned long long)numbers[i].value, (unsigned long long)numbers[i].minimum,
                       (unsigned long long)numbers[i].maximum);
    }
    if ((unsigned)w->precision >= TY_PRECISION_COUNT)
        return bad(c, TY_NO_LAYER, "/precision", "found number %d, expected " TY_PRECISION_NAMES,
                   (int)w->precision);
    if (w->precision != TY_PRECISION_FP32 && w->element_bytes != ty_precision_bytes(w->precision))
        return bad(c, TY_NO_LAYER, "/precision", "found %s with numbers of %u bytes, expected %u",
                   ty_precision_name(w->precision), w->element_bytes,
                   ty_precision_bytes(w->precision));
    if ((unsigned)w->input_kind > TY_INPUT_TOKEN)
        return bad(c, TY_NO_LAYER, "/input_kind", "found number %d, expected real or token",
                   (int)w->input_kind);
    if (w->input_kind == TY_INPUT_TOKEN && w->input.dimension_count != 1)
        return bad(c, TY_NO_LAYER, "/input_shape", "found %u dimensions, expected 1 for tokens",
                   w->input.dimension_count);
    return check_shape(c, TY_NO_LAYER, "/input_shape", &w->input);
}

static int compare_names(const void *a, const void *b)
{
    const ty_layer *const *left = a, *const *right = b;
    int order = strcmp((*left)->name, (*right)->name);
    if (order != 0)
        return order;
    return *left < *right ? -1 : *left > *right;
}

static ty_status check_names(const checker *c)
{
    const ty_workload *w = c->workload;
    const ty_layer **sorted = ty_alloc(w->layer_count, sizeof *sorted);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(sorted != NULL, c->error));
    for (uint32_t i = 0; i < w->layer_count; i++)
        sorted[i] = &w->layers[i];
    qsort(sorted, w->layer_count, sizeof *sorted, compare_names);
    for (uint32_t i = 1; i < w->layer_count && status == TY_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = bad(c, (uint32_t)(sorted[i] - w->layers), "/name",
                         "found \"%.60s\" as in layer %u, expected a name of its own",
                         sorted[i]->name, (unsigned)(sorted[i - 1] - w->layers));
    }
    ty_free(sorted);
    return status;
}

ty_status ty_workload_check_at(const ty_workload *workload, const char *place, ty_error *error)
{
    const checker c = {workload, place, error, false};
    ty_status status = TY_OK;
    bool *is_used = NULL;

    TY_CHECK(check_whole(&c), status, cleanup);
    TY_CHECK(check_optimizer(&c), status, cleanup);
    TY_CHECK(check_scenario(&c), status, cleanup);
    is_used = ty_alloc(workload->layer_count, sizeof *is_used);
    TY_CHECK(ty_check_memory(is_used != NULL, error), status, cleanup);
    for (uint32_t i = 0; i < workload->layer_count; i++)
        TY_CHECK(check_layer(&c, i, is_used), status, cleanup);
    for (uint32_t i = 0; i + 1 < workload->layer_count; i++) {
        if (!is_used[i]) {
            status =
                bad(&c, i, "",
                    "found no reader of \"%.60s\", expected every layer but the last to have one",
                    workload->layers[i].name);
            goto cleanup;
        }
    }
    TY_CHECK(check_names(&c), status, cleanup);
    TY_CHECK(check_teacher(&c), status, cleanup);
    TY_CHECK(check_reinforcement(&c), status, cleanup);

cleanup:
    ty_free(is_used);
    return status;
}

ty_status ty_workload_check(const ty_workload *workload, const char *name, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];
    snprintf(place, sizeof place, "%.200s:", name);
    return ty_workload_check_at(workload, place, error);
}
