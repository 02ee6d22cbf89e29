/* --fix: what is asked for of a plan, read from the words of the command line, and what asks for a
 * candidate, written in them. One table has both, so that whatever is written can be read. */
#include "candidate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_MICRO_BATCH (1u << 30)
#define LONGEST_CYCLE_S 10.0

/* Words that stand for a size of buckets. */
#define ONE_BUCKET "one"
#define FITTED_BUCKETS "fitted"

typedef struct target {
    ty_plan_options *options;
    ty_fix_texts *texts;
    uint32_t devices;
} target;

typedef struct source {
    const search_question *q;
    const candidate *c;
} source;

void ty_fix_texts_clear(ty_fix_texts *texts)
{
    ty_text_clear(&texts->replicas);
    ty_text_clear(&texts->layers);
    ty_text_clear(&texts->devices);
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static ty_status read_count(const char *value, uint64_t most, uint32_t *out, ty_error *error)
{
    uint64_t number;
    ty_status status = ty_parse_uint(value, 1, most, &number, error);

    if (status == TY_OK)
        *out = (uint32_t)number;
    return status;
}

/* A number among the dimensions. */
static ty_status read_dimension(target *t, ty_pin pin, const char *value, uint64_t least,
                                uint64_t most, uint32_t *out, ty_error *error)
{
    uint64_t number;
    ty_status status = ty_parse_uint(value, least, most, &number, error);

    if (status == TY_OK) {
        *out = (uint32_t)number;
        t->options->pinned |= pin;
    }
    return status;
}

static uint32_t at_least_one(uint32_t number)
{
    return number > 1 ? number : 1;
}

/* "2+1" and "4x8+2" become "2,1" and "8,8,8,8,2", which the planner checks. */
static ty_status read_list(const char *value, ty_text *out, ty_error *error)
{
    const char *at = value;
    uint32_t listed = 0;

    for (;;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10), times = 1;
        bool is_good = *at >= '0' && *at <= '9';
        if (is_good && *end == 'x') {
            times = number;
            at = end + 1;
            number = strtoul(at, &end, 10);
            is_good = *at >= '0' && *at <= '9' && times > 0;
        }
        if (!is_good || number < 1 || number > UINT32_MAX || (*end != '+' && *end != '\0'))
            return ty_fail(error, TY_EINVAL,
                           "found '%s', expected a number for each stage, as in 2+1, or 4x8+2 for "
                           "four times 8 and 2",
                           value);
        if (times > TY_MAX_STAGES || listed + times > TY_MAX_STAGES)
            return ty_fail(error, TY_EINVAL, "found '%s', expected at most %d stages", value,
                           TY_MAX_STAGES);
        for (listed += (uint32_t)times; times > 0; times--)
            ty_text_addf(out, "%s%lu", out->length > 0 ? "," : "", number);
        if (*end == '\0')
            return ty_text_check(out, error);
        at = end + 1;
    }
}

/* The reverse. */
static void put_list(const uint32_t *numbers, uint32_t count, ty_text *out)
{
    uint32_t run;

    for (uint32_t i = 0; i < count; i += run) {
        for (run = 1; i + run < count && numbers[i + run] == numbers[i]; run++)
            continue;
        ty_text_add(out, i > 0 ? "+" : "");
        if (run > 1)
            ty_text_addf(out, "%ux", run);
        ty_text_addf(out, "%u", numbers[i]);
    }
}

/* ---- How devices and layers are divided --------------------------------------------------- */

static uint32_t positions_of(const candidate *c)
{
    return c->division->stage_count / at_least_one(c->dimensions.interleave);
}

static bool has_equal_replicas(const candidate *c)
{
    for (uint32_t s = 1; s < c->division->stage_count; s++)
        if (c->division->replicas[s] != c->division->replicas[0])
            return false;
    return true;
}

void ty_division_layers(const search_question *q, const division *d, ty_text *out)
{
    uint32_t layers[TY_MAX_STAGES];

    for (uint32_t s = 0; s < d->stage_count; s++)
        layers[s] = ty_division_end(q, d, s) - d->first_layers[s];
    put_list(layers, d->stage_count, out);
}

static ty_status read_stages(target *t, const char *value, ty_error *error)
{
    return read_count(value, t->devices, &t->options->pipeline_stages, error);
}

static ty_status put_stages(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_text_addf(out, "%u", positions_of(s->c));
    return TY_OK;
}

static ty_status read_data_parallel(target *t, const char *value, ty_error *error)
{
    return read_count(value, t->devices, &t->options->data_parallel, error);
}

static ty_status put_data_parallel(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (has_equal_replicas(s->c))
        ty_text_addf(out, "%u", s->c->division->replicas[0]);
    return TY_OK;
}

static ty_status read_replicas(target *t, const char *value, ty_error *error)
{
    const ty_status status = read_list(value, &t->texts->replicas, error);

    t->options->replicas = t->texts->replicas.data;
    return status;
}

static ty_status put_replicas(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (!has_equal_replicas(s->c))
        put_list(s->c->division->replicas, s->c->division->stage_count, out);
    return TY_OK;
}

static ty_status read_layers(target *t, const char *value, ty_error *error)
{
    const ty_status status = read_list(value, &t->texts->layers, error);

    t->options->layers = t->texts->layers.data;
    return status;
}

static ty_status put_layers(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_division_layers(s->q, s->c->division, out);
    return TY_OK;
}

static ty_status read_interleave(target *t, const char *value, ty_error *error)
{
    return read_dimension(t, TY_PIN_INTERLEAVE, value, 1, TY_MAX_STAGES_OF_A_PLAN,
                          &t->options->dimensions.interleave, error);
}

static ty_status put_interleave(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (positions_of(s->c) > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.interleave));
    return TY_OK;
}

static ty_status read_tensor(target *t, const char *value, ty_error *error)
{
    return read_dimension(t, TY_PIN_TENSOR, value, 1, t->devices,
                          &t->options->dimensions.tensor_parallel, error);
}

/* Lanes are left out where the workload has no others than one. */
static bool may_divide_tensors(const search_question *q)
{
    return ty_tensor_check(q->workload, 2, 1, NULL) == TY_OK;
}

static ty_status put_tensor(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (may_divide_tensors(s->q) || s->c->dimensions.tensor_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.tensor_parallel));
    return TY_OK;
}

static ty_status read_context(target *t, const char *value, ty_error *error)
{
    return read_dimension(t, TY_PIN_CONTEXT, value, 1, t->devices,
                          &t->options->dimensions.context_parallel, error);
}

static ty_status put_context(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (ty_context_check(s->q->workload, 2, NULL) == TY_OK || s->c->dimensions.context_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.context_parallel));
    return TY_OK;
}

static ty_status read_expert(target *t, const char *value, ty_error *error)
{
    return read_dimension(t, TY_PIN_EXPERT, value, 1, t->devices,
                          &t->options->dimensions.expert_parallel, error);
}

static bool may_divide_tables(const source *s)
{
    return ty_expert_check(s->q->workload, 2, TY_TABLES_ROW, NULL) == TY_OK;
}

static ty_status put_expert(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (ty_expert_check(s->q->workload, 2, TY_TABLES_WHOLE, NULL) == TY_OK ||
        may_divide_tables(s) || s->c->dimensions.expert_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.expert_parallel));
    return TY_OK;
}

static ty_status read_tables(target *t, const char *value, ty_error *error)
{
    for (int s = 0; s < TY_TABLE_SHARD_COUNT; s++)
        if (strcmp(value, ty_table_shard_name((ty_table_shard)s)) == 0) {
            t->options->dimensions.table_shard = (ty_table_shard)s;
            t->options->pinned |= TY_PIN_TABLES;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL, "found '%s', expected whole, row, column or table", value);
}

static ty_status put_tables(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (may_divide_tables(s) && s->c->dimensions.expert_parallel > 1)
        ty_text_add(out, ty_table_shard_name(s->c->dimensions.table_shard));
    return TY_OK;
}

static ty_status read_sequence(target *t, const char *value, ty_error *error)
{
    uint32_t number = 0;
    ty_status status = read_dimension(t, TY_PIN_SEQUENCE, value, 0, 1, &number, error);

    t->options->dimensions.sequence_parallel = number == 1;
    return status;
}

static ty_status put_sequence(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (may_divide_tensors(s->q) || s->c->dimensions.sequence_parallel)
        ty_text_add(out, s->c->dimensions.sequence_parallel ? "1" : "0");
    return TY_OK;
}

static ty_status read_zero(target *t, const char *value, ty_error *error)
{
    return read_dimension(t, TY_PIN_ZERO, value, 0, 3, &t->options->dimensions.zero, error);
}

static ty_status put_zero(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_text_addf(out, "%u", s->c->dimensions.zero);
    return TY_OK;
}

/* A number of devices, or which: "0-7+16-23". */
static ty_status read_devices(target *t, const char *value, ty_error *error)
{
    ty_text *list = &t->texts->devices;
    uint64_t count = 0, behind = 0;

    if (strchr(value, '-') == NULL && strchr(value, '+') == NULL)
        return read_count(value, t->devices, &t->options->devices, error);
    for (const char *at = value;; at++) {
        char *end;
        const unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        bool is_good = *at >= '0' && *at <= '9';
        if (is_good && *end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            is_good = *at >= '0' && *at <= '9';
        }
        if (!is_good || first < behind || last < first || last >= t->devices ||
            (*end != '+' && *end != '\0'))
            return ty_fail(error, TY_EINVAL,
                           "found '%s', expected how many, or devices of 0 to %u in ascending "
                           "order, as in 0-7+16-23",
                           value, t->devices - 1);
        ty_text_addf(list, "%s%lu-%lu", list->length > 0 ? "," : "", first, last);
        count += last - first + 1;
        behind = last + 1;
        at = end;
        if (*end == '\0')
            break;
    }
    t->options->devices = (uint32_t)count;
    t->options->device_list = list->data;
    return ty_text_check(list, error);
}

/* Which devices, where their number alone asks for others; nothing where all train. */
static ty_status name_devices(const search_question *q, const device_set *set, ty_text *out,
                              ty_error *error)
{
    ty_plan_options by_number = ty_plan_options_default();
    device_set *sets = NULL;
    uint32_t count = 0;
    ty_status status;

    by_number.servers = q->options->servers;
    by_number.actors = q->options->actors;
    if (set->count == ty_cluster_device_count(q->cluster))
        return TY_OK;
    status = ty_device_sets_propose(q->cluster, &by_number, q->servers, q->global_batch, &sets,
                                    &count, error);
    if (status != TY_OK)
        return status;
    if (sets[0].count == set->count) { /* all that there are beside servers and actors */
        ty_device_sets_free(sets, count);
        return TY_OK;
    }
    ty_device_sets_free(sets, count);
    by_number.devices = set->count;
    status = ty_device_sets_propose(q->cluster, &by_number, q->servers, q->global_batch, &sets,
                                    &count, NULL);
    if (status == TY_ENOMEM)
        return ty_fail(error, status, "out of memory");
    if (status == TY_OK && sets[0].count == set->count &&
        memcmp(sets[0].devices, set->devices, set->count * sizeof *set->devices) == 0) {
        ty_text_addf(out, "%u", set->count);
    } else {
        uint32_t run;
        for (uint32_t i = 0; i < set->count; i += run) {
            for (run = 1; i + run < set->count && set->devices[i + run] == set->devices[i] + run;
                 run++)
                continue;
            ty_text_addf(out, "%s%u-%u", i > 0 ? "+" : "", set->devices[i],
                         set->devices[i] + run - 1);
        }
    }
    if (status == TY_OK)
        ty_device_sets_free(sets, count);
    return TY_OK;
}

/* A set is named once: thousands of candidates share it, and each question of which devices a
 * number asks for looks at all of the cluster. */
static ty_status put_devices(const source *s, ty_text *out, ty_error *error)
{
    device_set *set = &s->q->sets[s->c->set != NULL ? s->c->set - s->q->sets : 0];

    if (set->name == NULL) {
        ty_text name = {0};
        ty_status status = name_devices(s->q, set, &name, error);
        if (status == TY_OK)
            status = ty_text_take(&name, &set->name, error);
        if (status != TY_OK) {
            ty_text_clear(&name);
            return status;
        }
    }
    ty_text_add(out, set->name);
    return TY_OK;
}

/* ---- The order of the work, and what is kept ----------------------------------------------- */

static ty_status read_schedule(target *t, const char *value, ty_error *error)
{
    for (int s = 0; s < TY_SCHEDULE_COUNT; s++) {
        if (strcmp(value, ty_schedule_name((ty_schedule)s)) == 0) {
            t->options->fix_schedule = true;
            t->options->schedule = (ty_schedule)s;
            return TY_OK;
        }
    }
    return ty_fail(error, TY_EINVAL,
                   "found '%s', expected gpipe, 1f1b, interleaved, zb-h1, zb-2p, pipedream or "
                   "pipedream-2bw",
                   value);
}

/* One stage is 1F1B unless something else was asked for. */
static ty_status put_schedule(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->c->division->stage_count > 1 || s->c->schedule != ty_schedule_default(false))
        ty_text_add(out, ty_schedule_name(s->c->schedule));
    return TY_OK;
}

static ty_status read_micro_batch(target *t, const char *value, ty_error *error)
{
    return read_count(value, MOST_MICRO_BATCH, &t->options->micro_batch_size, error);
}

static ty_status put_micro_batch(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_text_addf(out, "%u", s->q->global_batch / s->c->micro_batches);
    return TY_OK;
}

static ty_status read_recompute(target *t, const char *value, ty_error *error)
{
    ty_plan_dimensions *d = &t->options->dimensions;
    const ty_status status = ty_recompute_parse(value, &d->recompute, &d->recompute_blocks, error);

    if (status == TY_OK)
        t->options->pinned |= TY_PIN_RECOMPUTE;
    return status;
}

static ty_status put_recompute(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_recompute_text(s->c->dimensions.recompute, s->c->dimensions.recompute_blocks, out);
    return TY_OK;
}

static ty_status read_staleness(target *t, const char *value, ty_error *error)
{
    uint64_t steps;
    ty_status status = ty_parse_uint(value, 0, TY_MAX_STALENESS, &steps, error);

    if (status == TY_OK) {
        t->options->staleness = (uint32_t)steps;
        t->options->fix_staleness = true;
    }
    return status;
}

static ty_status put_staleness(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->options->staleness > 0)
        ty_text_addf(out, "%u", s->q->options->staleness);
    return TY_OK;
}

/* ---- Gradients ----------------------------------------------------------------------------- */

static ty_status read_compression(target *t, const char *value, ty_error *error)
{
    ty_status status = ty_compression_parse(value, &t->options->compression, error);

    t->options->fix_compression = status == TY_OK;
    return status;
}

static ty_status put_compression(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    ty_compression_text(&s->c->compression, out);
    return TY_OK;
}

static ty_status read_compress(target *t, const char *value, ty_error *error)
{
    if (strcmp(value, "all") != 0 && strcmp(value, "shorter") != 0)
        return ty_fail(error, TY_EINVAL,
                       "found '%s', expected all, or shorter for the buckets whose exchange is "
                       "predicted to be",
                       value);
    t->options->compress = strcmp(value, "all") == 0 ? TY_COMPRESS_ALL : TY_COMPRESS_SHORTER;
    return TY_OK;
}

static ty_status put_compress(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->c->compression.kind != TY_COMPRESSION_NONE &&
        !ty_compression_at(s->c->compression.kind)->sends_rows &&
        ty_chooses_compressed(s->q->options))
        ty_text_add(out, "shorter");
    return TY_OK;
}

static ty_status read_embeddings(target *t, const char *value, ty_error *error)
{
    if (strcmp(value, "dense") != 0 && strcmp(value, "shorter") != 0)
        return ty_fail(error, TY_EINVAL,
                       "found '%s', expected dense, or shorter for rows where their exchange is "
                       "predicted to be",
                       value);
    t->options->embeddings =
        strcmp(value, "dense") == 0 ? TY_EMBEDDINGS_DENSE : TY_EMBEDDINGS_SHORTER;
    return TY_OK;
}

/* Without the word, a compression that is asked for leaves embeddings dense. */
static ty_status put_embeddings(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->c->has_dense_embeddings)
        ty_text_add(out, "dense");
    else if (!ty_compression_at(s->c->compression.kind)->sends_rows &&
             ty_may_have_rows(s->q->options) && (s->c->has_rows || !s->c->is_judged) &&
             ty_stack_has(s->q->stack->plans.compressions, TY_COMPRESSION_ROWS) &&
             ty_rows_possible(s->q, NULL) == TY_OK)
        ty_text_add(out, "shorter");
    return TY_OK;
}

/* A number alone could be meant in any unit: nobody's buckets are of 25 bytes. */
static ty_status read_bucket(target *t, const char *value, ty_error *error)
{
    const size_t length = strlen(value);
    uint64_t bytes;

    t->options->fit_buckets = strcmp(value, FITTED_BUCKETS) == 0;
    if (t->options->fit_buckets)
        return TY_OK;
    if (strcmp(value, ONE_BUCKET) == 0) {
        t->options->bucket_bytes = UINT64_MAX;
        return TY_OK;
    }
    if (length == 0 || isdigit((unsigned char)value[length - 1]) ||
        ty_parse_bytes(value, &bytes, NULL) != TY_OK)
        return ty_fail(error, TY_EINVAL,
                       "found \"%.60s\", expected a size below 2^53 bytes with its unit, such as "
                       "25MB or 64MiB; or one (a stage), or fitted",
                       value);
    t->options->bucket_bytes = bytes;
    return TY_OK;
}

static ty_status put_bucket(const source *s, ty_text *out, ty_error *error)
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } units[] = {{(uint64_t)1 << 30, "GiB"},
                 {(uint64_t)1 << 20, "MiB"},
                 {(uint64_t)1 << 10, "KiB"},
                 {1, "B"}};
    const uint64_t bytes = s->c->bucket_bytes;

    (void)error;
    if (s->c->has_fitted_buckets || bytes == UINT64_MAX) {
        ty_text_add(out, s->c->has_fitted_buckets ? FITTED_BUCKETS : ONE_BUCKET);
        return TY_OK;
    }
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        if (bytes % units[u].bytes == 0) {
            ty_text_addf(out, "%llu%s", (unsigned long long)(bytes / units[u].bytes),
                         units[u].name);
            break;
        }
    return TY_OK;
}

static ty_status read_cycle(target *t, const char *value, ty_error *error)
{
    double seconds;
    ty_status status = ty_parse_seconds(value, &seconds, error);

    if (status == TY_OK && !(seconds > 0 && seconds <= LONGEST_CYCLE_S))
        status = ty_fail(error, TY_EINVAL, "found '%s', expected a time above 0 and up to %g s",
                         value, LONGEST_CYCLE_S);
    if (status == TY_OK)
        t->options->cycle_s = seconds;
    return status;
}

static ty_status put_cycle(const source *s, ty_text *out, ty_error *error)
{
    char seconds[32];

    (void)error;
    if (s->q->options->cycle_s > 0) {
        ty_format_number(s->q->options->cycle_s, seconds);
        ty_text_addf(out, "%ss", seconds);
    }
    return TY_OK;
}

static ty_status read_priority(target *t, const char *value, ty_error *error)
{
    for (int r = 0; r < TY_PRIORITY_RULE_COUNT; r++)
        if (strcmp(value, ty_priority_rule_name((ty_priority_rule)r)) == 0) {
            t->options->priority = (ty_priority_rule)r;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL,
                   "found '%s', expected 0, 1 for buckets of the front layers first, or shorter "
                   "for that where the step is predicted to be",
                   value);
}

/* One replica exchanges nothing, and is asked for without an order of it. */
static ty_status put_priority(const source *s, ty_text *out, ty_error *error)
{
    const bool is_alone = s->c->division->stage_count == 1 && s->c->division->replicas[0] == 1;

    (void)error;
    if (s->q->options->priority != TY_PRIORITY_NONE && !is_alone)
        ty_text_add(out, ty_priority_rule_name(s->q->options->priority));
    return TY_OK;
}

static ty_status read_algorithm(target *t, const char *value, ty_error *error)
{
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++)
        if (strcmp(value, ty_algorithm_name((ty_algorithm)a)) == 0) {
            t->options->fix_algorithm = true;
            t->options->algorithm = (ty_algorithm)a;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL,
                   "found '%s', expected ring, tree, automatic, hierarchical, parameter-server or "
                   "block-manager",
                   value);
}

/* Where nobody asked, each bucket's follows from its own costs. */
static ty_status put_algorithm(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->options->fix_algorithm)
        ty_text_add(out, ty_algorithm_name(s->q->options->algorithm));
    return TY_OK;
}

/* Of their own; 0 are those beside the workers. */
static ty_status read_servers(target *t, const char *value, ty_error *error)
{
    uint64_t servers;
    ty_status status = ty_parse_uint(value, 0, t->devices, &servers, error);

    if (status == TY_OK) {
        t->options->servers = (uint32_t)servers;
        t->options->fix_servers = true;
    }
    return status;
}

static ty_status put_servers(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->options->servers > 0)
        ty_text_addf(out, "%u", s->q->options->servers);
    return TY_OK;
}

static ty_status read_actors(target *t, const char *value, ty_error *error)
{
    uint64_t actors;
    ty_status status = ty_parse_uint(value, 0, t->devices - 1, &actors, error);

    if (status == TY_OK)
        t->options->actors = (uint32_t)actors;
    t->options->fix_actors = true;
    return status;
}

static ty_status put_actors(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->workload->learning == TY_LEARNING_REINFORCEMENT)
        ty_text_addf(out, "%u", s->q->options->actors);
    return TY_OK;
}

static ty_status read_lag(target *t, const char *value, ty_error *error)
{
    uint64_t lag;
    ty_status status = ty_parse_uint(value, 0, TY_MAX_LAG, &lag, error);

    if (status == TY_OK)
        t->options->lag = (uint32_t)lag;
    return status;
}

static ty_status put_lag(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->options->actors > 0)
        ty_text_addf(out, "%u", s->q->options->lag);
    return TY_OK;
}

static ty_status read_shard(target *t, const char *value, ty_error *error)
{
    for (int s = 0; s < TY_SERVER_SHARD_COUNT; s++)
        if (strcmp(value, ty_server_shard_name((ty_server_shard)s)) == 0) {
            t->options->fix_shard = true;
            t->options->shard = (ty_server_shard)s;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL, "found '%s', expected size or tensor", value);
}

static ty_status put_shard(const source *s, ty_text *out, ty_error *error)
{
    (void)error;
    if (s->q->options->servers > 0 && s->q->options->fix_shard)
        ty_text_add(out, ty_server_shard_name(s->q->options->shard));
    return TY_OK;
}

/* ---- All keys ------------------------------------------------------------------------------ */

/* `put` adds nothing where the word need not be said. */
static const struct fix_key {
    const char *name;
    ty_status (*read)(target *t, const char *value, ty_error *error);
    ty_status (*put)(const source *s, ty_text *out, ty_error *error);
    const char *values; /* as ty_fix_values_at has them */
} keys[] = {
    {"pp", read_stages, put_stages, "1 2 4 8"},
    {"dp", read_data_parallel, put_data_parallel, "1 2 4 8"},
    {"replicas", read_replicas, put_replicas, "2+1"},
    {"layers", read_layers, put_layers, "8x4"},
    {"schedule", read_schedule, put_schedule,
     "gpipe 1f1b interleaved zb-h1 zb-2p pipedream pipedream-2bw"},
    {"interleave", read_interleave, put_interleave, "1 2 4"},
    {"micro_batch", read_micro_batch, put_micro_batch, "1 2 4 8 16 32"},
    {"tp", read_tensor, put_tensor, "1 2 4 8"},
    {"cp", read_context, put_context, "1 2 4"},
    {"ep", read_expert, put_expert, "1 2 4 8"},
    {"tables", read_tables, put_tables, "whole row column table"},
    {"sp", read_sequence, put_sequence, "0 1"},
    {"zero", read_zero, put_zero, "0 1 2 3"},
    {"recompute", read_recompute, put_recompute, "none selective elementwise operator full stage"},
    {"compression", read_compression, put_compression,
     "none rows fp16 bf16 fp8-e4m3 fp8-e5m2 int8 ternary one-bit powersgd-2"},
    {"compress", read_compress, put_compress, "all shorter"},
    {"embeddings", read_embeddings, put_embeddings, "dense shorter"},
    {"bucket", read_bucket, put_bucket, "25MiB 250MiB one fitted"},
    {"cycle", read_cycle, put_cycle, "5ms"},
    {"priority", read_priority, put_priority, "0 1 shorter"},
    {"algorithm", read_algorithm, put_algorithm,
     "ring tree automatic hierarchical parameter-server block-manager"},
    {"servers", read_servers, put_servers, "0 1 2"},
    {"shard", read_shard, put_shard, "size tensor"},
    {"staleness", read_staleness, put_staleness, "0 1"},
    {"actors", read_actors, put_actors, "0 1 2"},
    {"lag", read_lag, put_lag, "0 1"},
    {"devices", read_devices, put_devices, "2 8 0-3+8-11"},
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

const char *ty_fix_key_at(uint32_t index)
{
    return index < KEY_COUNT ? keys[index].name : NULL;
}

const char *ty_fix_values_at(uint32_t index)
{
    return index < KEY_COUNT ? keys[index].values : NULL;
}

bool ty_fix_key_is_known(const char *key)
{
    for (size_t k = 0; k < KEY_COUNT; k++)
        if (strcmp(key, keys[k].name) == 0)
            return true;
    return false;
}

/* A word without the blanks around it. */
static char *trim(char *word)
{
    size_t length;

    word += strspn(word, " \t");
    for (length = strlen(word); length > 0 && strchr(" \t", word[length - 1]) != NULL; length--)
        continue;
    word[length] = '\0';
    return word;
}

/* How launch files begin what a key is. */
static const struct {
    const char *start, *key;
} said_elsewhere[] = {
    {"tensor", "tp"},
    {"pipeline", "pp"},
    {"data", "dp"},
    {"context", "cp"},
    {"expert", "ep"},
    {"sequence", "sp"},
    {"virtual", "interleave"},
    {"vpp", "interleave"},
    {"micro", "micro_batch"},
    {"mbs", "micro_batch"},
    {"activation", "recompute"},
    {"checkpoint", "recompute"},
    {"fsdp", "zero"},
    {"distributed", "zero"},
};

/* The key that was meant by an unknown word; NULL: none. */
static const char *key_near(const char *item)
{
    for (size_t i = 0; i < sizeof said_elsewhere / sizeof said_elsewhere[0]; i++)
        if (strncasecmp(item, said_elsewhere[i].start, strlen(said_elsewhere[i].start)) == 0)
            return said_elsewhere[i].key;
    return ty_suggest(item, keys, KEY_COUNT, sizeof keys[0]);
}

static ty_status read_one(target *t, char *item, const char *said[KEY_COUNT], ty_error *error)
{
    char *equals = strchr(item, '='), *value;
    const char *close;
    ty_text known = {0};
    ty_error detail = {0};
    ty_status status;

    if (equals == NULL)
        return ty_fail(error, TY_EINVAL, "--fix: found '%s', expected KEY=VALUE", item);
    *equals = '\0';
    item = trim(item);
    value = trim(equals + 1);
    for (size_t k = 0; k < KEY_COUNT; k++) {
        const char *key = keys[k].name;
        if (strcasecmp(item, key) != 0)
            continue;
        if (said[k] != NULL && strcmp(said[k], value) != 0)
            return ty_fail(error, TY_EINVAL, "--fix: found %s=%s and %s=%s, expected one of them",
                           key, said[k], key, value);
        if (said[k] != NULL)
            return TY_OK;
        said[k] = value;
        if (keys[k].read(t, value, &detail) != TY_OK)
            return ty_fail(error, detail.status, "--fix %s: %s", key, detail.message);
        return TY_OK;
    }
    close = key_near(item);
    if (close != NULL)
        return ty_fail(error, TY_EINVAL, "--fix: unknown key '%s'; did you mean %s", item, close);
    for (size_t k = 0; k < KEY_COUNT; k++)
        ty_text_addf(&known, "%s%s", k == 0 ? "" : k + 1 < KEY_COUNT ? ", " : " or ", keys[k].name);
    status = ty_fail(error, TY_EINVAL, "--fix: unknown key '%s', expected %s", item,
                     known.data != NULL ? known.data : "another");
    ty_text_clear(&known);
    return status;
}

ty_status ty_fix_read(const char *text, uint32_t devices, ty_fix_texts *texts,
                      ty_plan_options *options, ty_error *error)
{
    target t = {.options = options, .texts = texts, .devices = devices};
    ty_status status = TY_OK;
    char *copy = ty_strdup(text);
    char *rest = copy;
    char *item;
    const char *said[KEY_COUNT] = {NULL};

    if (copy == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    while (status == TY_OK && (item = strtok_r(rest, ",", &rest)) != NULL)
        status = read_one(&t, item, said, error);
    ty_free(copy);
    return status;
}

ty_status ty_candidate_fix(const search_question *q, const candidate *c, char **out,
                           ty_error *error)
{
    const source s = {q, c};
    ty_text text = {0};
    ty_status status = TY_OK;

    for (size_t k = 0; k < KEY_COUNT && status == TY_OK; k++) {
        ty_text value = {0};
        status = keys[k].put(&s, &value, error);
        if (value.length > 0)
            ty_text_addf(&text, "%s%s=%s", text.length > 0 ? "," : "", keys[k].name, value.data);
        if (status == TY_OK)
            status = ty_text_check(&value, error);
        ty_text_clear(&value);
    }
    if (status == TY_OK)
        return ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}
