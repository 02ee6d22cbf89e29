/* Deployment variants of a model, their needs on a device, and the first that fits a budget. */
#include "ty_plan.h"

#include "json_parts.h"
#include "option_words.h"
#include "ty_base.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ELEMENT_BYTES 4 /* activations, vectors and scales: fp32 */
#define MOST_BYTES 1e15
#define MOST_SECONDS 1e6
#define MOST_RATE 1e21

/* ---- Variants ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    uint32_t bits;
} formats[] = {{"fp32", 32}, {"fp16", 16}, {"int8", 8}, {"int4", 4}};
#define FORMAT_COUNT (sizeof formats / sizeof formats[0])

static const uint32_t pruned_shares[] = {0, 50, 75, 90};

_Static_assert(FORMAT_COUNT *(sizeof pruned_shares / sizeof pruned_shares[0]) == TY_VARIANT_COUNT,
               "each format with each share");

ty_variant ty_variant_at(uint32_t index)
{
    return (ty_variant){formats[index % FORMAT_COUNT].bits, pruned_shares[index / FORMAT_COUNT]};
}

bool ty_variant_changes(const ty_variant *variant)
{
    return variant->bits > 0 && (variant->bits < 32 || variant->pruned_percent > 0);
}

void ty_variant_text(const ty_variant *variant, char out[TY_VARIANT_TEXT_SIZE])
{
    const char *name = "any";

    for (size_t f = 0; f < FORMAT_COUNT; f++)
        if (formats[f].bits == variant->bits)
            name = formats[f].name;
    if (variant->pruned_percent == 0)
        snprintf(out, TY_VARIANT_TEXT_SIZE, "%s", name);
    else
        snprintf(out, TY_VARIANT_TEXT_SIZE, "%s-pruned-%u", name, variant->pruned_percent);
}

ty_status ty_variant_parse(const char *text, ty_variant *out, ty_error *error)
{
    for (uint32_t i = 0; i < TY_VARIANT_COUNT; i++) {
        const ty_variant variant = ty_variant_at(i);
        char name[TY_VARIANT_TEXT_SIZE];
        ty_variant_text(&variant, name);
        if (strcmp(text, name) == 0) {
            *out = variant;
            return TY_OK;
        }
    }
    return ty_fail(error, TY_EINVAL,
                   "found '%.60s', expected fp32, fp16, int8 or int4, or one of them pruned by 50, "
                   "75 or 90 %%, as int8-pruned-50",
                   text);
}

/* ---- Bytes --------------------------------------------------------------------------------- */

uint64_t ty_variant_pruned(const ty_variant *variant, uint64_t elements)
{
    const uint64_t whole = 100; /* avoids elements * percent, which may wrap */

    return elements / whole * variant->pruned_percent +
           elements % whole * variant->pruned_percent / whole;
}

static uint64_t bytes_of_bits(uint64_t count, uint64_t bits)
{
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

static uint64_t matrix_bytes(const ty_variant *v, uint64_t rows, uint64_t columns)
{
    const uint64_t elements = rows * columns;

    return bytes_of_bits(elements - ty_variant_pruned(v, elements), v->bits) +
           (v->bits < 16 ? rows * ELEMENT_BYTES : 0) +
           (v->pruned_percent > 0 ? bytes_of_bits(elements, 1) : 0);
}

/* Elements of a layer's own parameters and statistics. @param first [out] those of its first
 * matrix */
static uint64_t layer_bytes(const ty_workload *w, uint32_t layer, const ty_variant *variant,
                            uint64_t *first)
{
    const ty_layer *l = &w->layers[layer];
    ty_bucket_matrix matrices[TY_MOST_MATRICES];
    const uint32_t count = ty_layer_matrices(w, layer, matrices);
    uint64_t others = l->parameter_bytes / w->element_bytes, bytes = 0;

    *first = 0;
    for (uint32_t m = 0; m < count; m++) {
        const uint64_t here = matrix_bytes(variant, matrices[m].rows, matrices[m].columns);
        *first = m == 0 ? here : *first;
        bytes += here;
        others -= matrices[m].rows * matrices[m].columns;
    }
    if (ty_layer_row_of(l)->has_statistics)
        others += 2 * l->attributes[TY_FEATURES];
    return bytes + others * ELEMENT_BYTES;
}

uint64_t ty_variant_weight_bytes(const ty_workload *workload, const ty_variant *variant)
{
    uint64_t bytes = 0, first;

    for (uint32_t l = 0; l < workload->layer_count; l++)
        bytes += layer_bytes(workload, l, variant, &first);
    return bytes;
}

/* Elements of the layer's weights that a sample's pass reads. */
static double read_bytes(const ty_workload *w, uint32_t layer, const ty_variant *variant)
{
    const ty_layer *l = &w->layers[layer];
    uint64_t first, of_owner = 0;
    double bytes = (double)layer_bytes(w, layer, variant, &first);

    if (l->tied_to != TY_NO_LAYER)
        (void)layer_bytes(w, l->tied_to, variant, &of_owner);
    if (ty_layer_has_table(l)) {
        const double looked_up = (double)ty_shape_elements(ty_layer_input_shape(w, layer, 0));
        bytes -= (double)first * (1 - fmin(1, looked_up / (double)l->attributes[TY_VOCABULARY]));
    }
    return bytes + (double)of_owner;
}

/* Peak bytes of live activations during a layer. @param last [layer_count + 1] workspace; the
 * sample's is after the layers' */
static uint64_t live_bytes(const ty_workload *w, uint32_t *last, uint32_t *owner)
{
    const uint32_t sample = w->layer_count;
    uint64_t alive = ty_shape_elements(&w->input), most = alive;

    /* The owner of the memory of a layer's output, and the last layer that reads it. */
    last[sample] = 0;
    owner[sample] = sample;
    for (uint32_t i = 0; i < w->layer_count; i++) {
        const ty_layer *l = &w->layers[i];
        const bool is_in_place = l->stash_bytes == 0 && l->input_count == 1;
        owner[i] = is_in_place ? owner[l->inputs[0]] : i;
        last[i] = i;
        if (l->input_count == 0)
            last[sample] = i;
        for (uint32_t k = 0; k < l->input_count; k++)
            last[owner[l->inputs[k]]] = i;
        if (is_in_place)
            last[owner[i]] = i;
    }
    for (uint32_t i = 0; i < w->layer_count && !ty_layer_row_of(&w->layers[i])->is_loss; i++) {
        const ty_layer *l = &w->layers[i];
        if (owner[i] == i)
            alive += ty_shape_elements(&l->output);
        most = alive > most ? alive : most;
        /* Free each buffer after its last reader, exactly once. */
        for (uint32_t k = 0; k < l->input_count; k++) {
            const uint32_t read = owner[l->inputs[k]];
            bool is_first = true;
            for (uint32_t j = 0; j < k; j++)
                is_first = is_first && owner[l->inputs[j]] != read;
            if (is_first && last[read] == i && owner[i] != read)
                alive -= ty_shape_elements(&w->layers[read].output);
        }
        if (last[sample] == i && l->input_count == 0)
            alive -= ty_shape_elements(&w->input);
    }
    return most * ELEMENT_BYTES;
}

static ty_status check_network(const ty_workload *w, ty_error *error)
{
    if (ty_workload_has_teacher(w))
        return ty_fail(error, TY_EINVAL,
                       "--budget: found %.80s, a student with its teacher, expected one network",
                       w->name);
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (ty_layer_row_of(&w->layers[l])->is_opaque)
            return ty_fail(error, TY_EINVAL,
                           "--budget: %.80s: layer %.60s is opaque, so its numbers and its flop "
                           "are not known",
                           w->name, w->layers[l].name);
    return TY_OK;
}

ty_status ty_variant_needs(const ty_workload *w, const ty_variant *variant, const ty_budget *budget,
                           ty_variant_need *out, ty_error *error)
{
    const double per_flop = budget->flop_per_s > 0 ? 1 / budget->flop_per_s : 0;
    const double per_byte =
        budget->bandwidth_bytes_per_s > 0 ? 1 / budget->bandwidth_bytes_per_s : 0;
    ty_variant_need need = {.weight_bytes = ty_variant_weight_bytes(w, variant)};
    uint32_t *last = ty_alloc(2 * ((size_t)w->layer_count + 1), sizeof *last);
    ty_status status;

    TY_TRY(ty_check_memory(last != NULL, error));
    TY_CHECK(check_network(w, error), status, done);
    need.activation_bytes = live_bytes(w, last, last + w->layer_count + 1);
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (!ty_layer_row_of(&w->layers[l])->is_loss)
            need.time_s += fmax(w->layers[l].forward_flop * per_flop,
                                per_byte > 0 ? read_bytes(w, l, variant) * per_byte : 0);
    *out = need;
done:
    ty_free(last);
    return status;
}

/* ---- Budgets ------------------------------------------------------------------------------- */

/* A figure of the user's own, instead of a named budget. */
static ty_status take(const char *value, double figure, double least, double most,
                      const char *expected, ty_budget *budget, double *member, ty_error *error)
{
    if (!(figure >= least) || figure > most)
        return ty_fail(error, TY_EINVAL, "found '%.60s', expected %s", value, expected);
    *member = figure;
    budget->name[0] = '\0';
    return TY_OK;
}

static ty_status read_memory(const char *value, void *out, ty_error *error)
{
    ty_budget *b = out;
    uint64_t bytes;

    TY_TRY(ty_parse_bytes(value, &bytes, error));
    return take(value, (double)bytes, 1, MOST_BYTES, "a size such as 100KB", b, &b->memory_bytes,
                error);
}

static ty_status read_time(const char *value, void *out, ty_error *error)
{
    ty_budget *b = out;
    double seconds;

    TY_TRY(ty_parse_seconds(value, &seconds, error));
    return take(value, seconds, DBL_MIN, MOST_SECONDS, "a time such as 100ms", b, &b->time_s,
                error);
}

static ty_status read_rate(const char *value, void *out, ty_error *error)
{
    ty_budget *b = out;
    double rate;

    TY_TRY(ty_parse_flop_rate(value, &rate, error));
    return take(value, rate, 1, MOST_RATE, "a rate such as 1TFLOPS", b, &b->flop_per_s, error);
}

static ty_status read_bandwidth(const char *value, void *out, ty_error *error)
{
    ty_budget *b = out;
    double rate;

    TY_TRY(ty_parse_bandwidth(value, &rate, error));
    return take(value, rate, 1, MOST_RATE, "a bandwidth such as 10GB/s", b,
                &b->bandwidth_bytes_per_s, error);
}

static ty_status read_variant(const char *value, void *out, ty_error *error)
{
    ty_budget *budget = out;
    return ty_variant_parse(value, &budget->variant, error);
}

static const option_key keys[] = {{"memory", read_memory},
                                  {"time", read_time},
                                  {"rate", read_rate},
                                  {"bandwidth", read_bandwidth},
                                  {"variant", read_variant}};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

ty_status ty_budget_read(const char *text, ty_budget *budget, ty_error *error)
{
    ty_budget result = *budget;

    TY_TRY(ty_option_words_read("--budget", text, keys, KEY_COUNT, &result, error));
    *budget = result;
    return TY_OK;
}

ty_status ty_budget_check(const ty_budget *budget, ty_error *error)
{
    if (!(budget->memory_bytes > 0) && !(budget->time_s > 0))
        return ty_fail(error, TY_EINVAL, "--budget: found no limit, expected memory= or time=");
    if (budget->time_s > 0 && !(budget->flop_per_s > 0) && !(budget->bandwidth_bytes_per_s > 0))
        return ty_fail(error, TY_EINVAL,
                       "--budget: found time= and nothing by which to tell it, expected rate= or "
                       "bandwidth= beside it");
    return TY_OK;
}

void ty_budget_words(const ty_budget *budget, ty_text *text)
{
    const double figures[] = {budget->memory_bytes, budget->time_s, budget->flop_per_s,
                              budget->bandwidth_bytes_per_s};
    const char *comma = "";
    char word[32];

    if (budget->name[0] != '\0') {
        ty_text_add(text, budget->name);
        comma = ",";
    }
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && budget->name[0] == '\0'; i++) {
        if (!(figures[i] > 0))
            continue;
        ty_format_number(figures[i], word);
        ty_text_addf(text, "%s%s=%s", comma, keys[i].name, word);
        comma = ",";
    }
    if (budget->variant.bits > 0) {
        ty_variant_text(&budget->variant, word);
        ty_text_addf(text, "%svariant=%s", comma, word);
    }
}

/* ---- Choice of the variant ----------------------------------------------------------------- */

/* Need over limit of a variant, for memory or time, whichever is worse. */
static double used_share(const ty_budget *budget, const ty_variant_need *need)
{
    const double memory =
        budget->memory_bytes > 0
            ? ((double)need->weight_bytes + (double)need->activation_bytes) / budget->memory_bytes
            : 0;
    const double time = budget->time_s > 0 ? need->time_s / budget->time_s : 0;

    return fmax(memory, time);
}

bool ty_budget_is_kept(const ty_budget *budget, const ty_variant_need *need)
{
    return used_share(budget, need) <= 1;
}

static bool is_candidate(const ty_budget *budget, const ty_variant *variant)
{
    return budget->variant.bits == 0 || (budget->variant.bits == variant->bits &&
                                         budget->variant.pruned_percent == variant->pruned_percent);
}

static ty_status fail_nearest(const ty_workload *w, const ty_deployment *nearest, ty_error *error)
{
    const ty_budget *b = &nearest->budget;
    const double bytes =
        (double)nearest->need.weight_bytes + (double)nearest->need.activation_bytes;
    char name[TY_VARIANT_TEXT_SIZE], limit[32], need[32];
    ty_text has = {0}, needs = {0};

    if (b->memory_bytes > 0) {
        ty_format_bytes(b->memory_bytes, limit);
        ty_text_add(&has, limit);
        ty_format_bytes(bytes, need);
        ty_text_add(&needs, need);
        ty_format_bytes((double)nearest->need.activation_bytes, need);
        ty_text_addf(&needs, " (%s of activations)", need);
    }
    if (b->time_s > 0) {
        ty_format_seconds(b->time_s, limit);
        ty_text_addf(&has, "%s%s", has.length > 0 ? " and " : "", limit);
        ty_format_seconds(nearest->need.time_s, need);
        ty_text_addf(&needs, "%s%s", needs.length > 0 ? " and " : "", need);
    }
    ty_variant_text(&nearest->variant, name);
    const ty_status status =
        ty_fail(error, TY_EINFEASIBLE,
                "--budget%s%s: no variant of %.60s keeps %s: the nearest, %s, needs %s",
                b->name[0] != '\0' ? " " : "", b->name, w->name, has.data, name, needs.data);
    ty_text_clear(&has);
    ty_text_clear(&needs);
    return status;
}

ty_status ty_deploy(const ty_workload *w, const ty_budget *budget, ty_deployment *out,
                    ty_error *error)
{
    ty_deployment nearest = {0};
    ty_status status = ty_budget_check(budget, error);

    for (uint32_t i = 0; i < TY_VARIANT_COUNT && status == TY_OK; i++) {
        ty_deployment made = {.budget = *budget, .variant = ty_variant_at(i)};
        if (!is_candidate(budget, &made.variant))
            continue;
        TY_TRY(ty_variant_needs(w, &made.variant, budget, &made.need, error));
        if (ty_budget_is_kept(budget, &made.need)) {
            *out = made;
            return TY_OK;
        }
        if (nearest.variant.bits == 0 ||
            used_share(budget, &made.need) < used_share(budget, &nearest.need))
            nearest = made;
    }
    if (status == TY_OK)
        status = fail_nearest(w, &nearest, error);
    return status;
}

/* ---- Documents ----------------------------------------------------------------------------- */

static void write_need(const ty_variant *variant, const ty_variant_need *need,
                       ty_json_writer *writer)
{
    char name[TY_VARIANT_TEXT_SIZE];

    ty_variant_text(variant, name);
    ty_json_put_string(writer, "variant", name);
    ty_json_put_uint(writer, "weight_bytes", need->weight_bytes);
    ty_json_put_uint(writer, "activation_bytes", need->activation_bytes);
    ty_json_put_number(writer, "time_s", need->time_s);
}

void ty_deployment_to_json(const ty_deployment *d, const ty_workload *workload,
                           ty_json_writer *writer, const char *key)
{
    char name[TY_VARIANT_TEXT_SIZE];

    if (d->variant.bits == 0)
        return;
    ty_json_open(writer, key, '{');
    ty_json_open(writer, "budget", '{');
    if (d->budget.name[0] != '\0')
        ty_json_put_string(writer, "name", d->budget.name);
    ty_json_put_number(writer, "memory_bytes", d->budget.memory_bytes);
    ty_json_put_number(writer, "time_s", d->budget.time_s);
    ty_json_put_number(writer, "flop_per_s", d->budget.flop_per_s);
    ty_json_put_number(writer, "bandwidth_bytes_per_s", d->budget.bandwidth_bytes_per_s);
    if (d->budget.variant.bits > 0) {
        ty_variant_text(&d->budget.variant, name);
        ty_json_put_string(writer, "variant", name);
    }
    ty_json_close(writer, '}');
    write_need(&d->variant, &d->need, writer);
    ty_json_open(writer, "variants", '[');
    for (uint32_t i = 0; i < TY_VARIANT_COUNT; i++) {
        const ty_variant variant = ty_variant_at(i);
        ty_variant_need need;
        if (ty_variant_needs(workload, &variant, &d->budget, &need, NULL) != TY_OK) {
            writer->text->failed = TY_ENOMEM;
            break;
        }
        ty_json_open_flat(writer, NULL, '{');
        write_need(&variant, &need, writer);
        ty_json_put_bool(writer, "is_kept", ty_budget_is_kept(&d->budget, &need));
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

ty_status ty_variant_from_json(const ty_json *object, const char *key, ty_variant *out,
                               ty_error *error)
{
    const char *text;
    char place[TY_JSON_PLACE_SIZE];
    ty_error detail = {0};
    ty_status status = ty_json_string(object, key, &text, error);

    if (status != TY_OK || ty_variant_parse(text, out, &detail) == TY_OK)
        return status;
    ty_json_place(object, place);
    return ty_fail(error, TY_EPARSE, "%s/%s: %s", place, key, detail.message);
}

static ty_status budget_from_json(const ty_json *object, ty_budget *out, ty_error *error)
{
    ty_budget budget = {0};
    const ty_json *value;
    const char *name;
    char place[TY_JSON_PLACE_SIZE];
    ty_error detail = {0};

    TY_TRY(ty_json_object(object, "budget", &value, error));
    if (ty_json_has(value, "name")) {
        TY_TRY(ty_json_string(value, "name", &name, error));
        snprintf(budget.name, sizeof budget.name, "%s", name);
    }
    TY_TRY(ty_json_number(value, "memory_bytes", 0, MOST_BYTES, &budget.memory_bytes, error));
    TY_TRY(ty_json_number(value, "time_s", 0, MOST_SECONDS, &budget.time_s, error));
    TY_TRY(ty_json_number(value, "flop_per_s", 0, MOST_RATE, &budget.flop_per_s, error));
    TY_TRY(ty_json_number(value, "bandwidth_bytes_per_s", 0, MOST_RATE,
                          &budget.bandwidth_bytes_per_s, error));
    if (ty_json_has(value, "variant"))
        TY_TRY(ty_variant_from_json(value, "variant", &budget.variant, error));
    TY_TRY(ty_json_end(value, error));
    if (ty_budget_check(&budget, &detail) != TY_OK) {
        ty_json_place(value, place);
        return ty_fail(error, TY_EPARSE, "%s: %s", place, detail.message);
    }
    *out = budget;
    return TY_OK;
}

/* A row of figures, computed from the model and the budget. */
static ty_status need_from_json(const ty_json *object, const ty_workload *workload,
                                const ty_budget *budget, ty_deployment *out, ty_error *error)
{
    const double tolerance = 1e-9; /* between compilers */
    ty_deployment made = {.budget = *budget};
    uint64_t weights, activations;
    double seconds;
    char place[TY_JSON_PLACE_SIZE];

    TY_TRY(ty_variant_from_json(object, "variant", &made.variant, error));
    TY_TRY(ty_json_uint64(object, "weight_bytes", 0, TY_JSON_MAX_INTEGER, &weights, error));
    TY_TRY(ty_json_uint64(object, "activation_bytes", 0, TY_JSON_MAX_INTEGER, &activations, error));
    TY_TRY(ty_json_number(object, "time_s", 0, HUGE_VAL, &seconds, error));
    TY_TRY(ty_variant_needs(workload, &made.variant, budget, &made.need, error));
    if (weights != made.need.weight_bytes || activations != made.need.activation_bytes ||
        fabs(seconds - made.need.time_s) > tolerance * made.need.time_s) {
        ty_json_place(object, place);
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu bytes of weights, %llu of activations and %g s, expected "
                       "what the network needs, %llu, %llu and %g",
                       place, (unsigned long long)weights, (unsigned long long)activations, seconds,
                       (unsigned long long)made.need.weight_bytes,
                       (unsigned long long)made.need.activation_bytes, made.need.time_s);
    }
    *out = made;
    return TY_OK;
}

ty_status ty_deployment_from_json(const ty_json *object, const char *key,
                                  const ty_workload *workload, ty_deployment *out, ty_error *error)
{
    ty_deployment made, row;
    const ty_json *value, *rows;
    ty_budget budget;
    bool is_kept;

    TY_TRY(ty_json_object(object, key, &value, error));
    TY_TRY(budget_from_json(value, &budget, error));
    TY_TRY(need_from_json(value, workload, &budget, &made, error));
    TY_TRY(ty_json_array(value, "variants", 0, TY_VARIANT_COUNT, &rows, error));
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        const ty_json *item = ty_json_at(rows, i);
        TY_TRY(need_from_json(item, workload, &budget, &row, error));
        TY_TRY(ty_json_bool(item, "is_kept", &is_kept, error));
        TY_TRY(ty_json_end(item, error));
    }
    TY_TRY(ty_json_end(value, error));
    *out = made;
    return TY_OK;
}
