/* --fix: reads options from the text of the command line, and writes the text that fixes a
 * candidate. One table has both, so that all written text can be read. */
#include "candidate.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_MICRO_BATCH (1u << 30)
#define LONGEST_CYCLE_S 10.0

/* Words for bucket sizes. */
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
    ty_error *error;
    ty_status status; /* of the words so far */
} source;

/* A key of --fix. `put` adds nothing if the key can be omitted. */
typedef struct fix_key fix_key;
struct fix_key {
    const char *name;
    ty_status (*read)(const fix_key *key, target *t, const char *value, ty_error *error);
    void (*put)(source *s, ty_text *out);
    const char *values; /* as returned by ty_fix_values_at */
    /* Of a number or a word: */
    size_t at;            /* the member that it sets, of 32 bits */
    ty_pin pin;           /* the pin that it sets */
    size_t flag;          /* the bool that records it; 0: none */
    uint32_t least, most; /* most 0: the devices, less `spared`; for a word, one more than it */
    uint32_t spared;
    const char *(*word)(uint32_t number);
    const char *expected; /* of a word; NULL: all words */
};
_Static_assert(sizeof(ty_schedule) == sizeof(uint32_t), "enumerations are numbers of 32 bits");
#define AT(member) offsetof(ty_plan_options, member)

void ty_fix_texts_clear(ty_fix_texts *texts)
{
    ty_text_clear(&texts->replicas);
    ty_text_clear(&texts->layers);
    ty_text_clear(&texts->devices);
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static void set(const fix_key *key, ty_plan_options *options, uint32_t value)
{
    memcpy((char *)options + key->at, &value, sizeof value);
    options->pinned |= key->pin;
    if (key->flag > 0)
        *(bool *)((char *)options + key->flag) = true;
}

static ty_status read_number(const fix_key *key, target *t, const char *value, ty_error *error)
{
    uint64_t number;
    const ty_status status = ty_parse_uint(
        value, key->least, key->most > 0 ? key->most : t->devices - key->spared, &number, error);

    if (status == TY_OK)
        set(key, t->options, (uint32_t)number);
    return status;
}

static ty_status read_word(const fix_key *key, target *t, const char *value, ty_error *error)
{
    ty_text known = {0};
    ty_status status;

    for (uint32_t i = key->least; i < key->most; i++) {
        const char *before = i == key->least ? "" : i + 1 < key->most ? ", " : " or ";
        if (strcmp(value, key->word(i)) == 0) {
            set(key, t->options, i);
            ty_text_clear(&known);
            return TY_OK;
        }
        ty_text_addf(&known, "%s%s", before, key->word(i));
    }
    status = ty_fail(error, TY_EINVAL, "found '%s', expected %s", value,
                     key->expected != NULL ? key->expected
                     : known.data != NULL  ? known.data
                                           : "another");
    ty_text_clear(&known);
    return status;
}

static const char *compress_word(ty_compress_rule rule)
{
    return rule == TY_COMPRESS_ALL ? "all" : "shorter";
}

static const char *embeddings_word(ty_embedding_rule rule)
{
    return rule == TY_EMBEDDINGS_DENSE ? "dense" : "shorter";
}

/* "2+1" and "4x8+2" become "2,1" and "8,8,8,8,2", which the planner checks. */
static ty_status read_list(const fix_key *key, target *t, const char *value, ty_error *error)
{
    const bool are_replicas = key->at == AT(replicas);
    ty_text *out = are_replicas ? &t->texts->replicas : &t->texts->layers;
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
            break;
        at = end + 1;
    }
    *(are_replicas ? &t->options->replicas : &t->options->layers) = out->data;
    return ty_text_check(out, error);
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

/* ---- Parallelism and partition ----------------------------------------------------------- */

static uint32_t pipeline_size_of(const candidate *c)
{
    return c->division->stage_count / at_least_one(c->dimensions.virtual_stages);
}

void ty_division_layers(const search_question *q, const division *d, ty_text *out)
{
    uint32_t layers[TY_MAX_STAGES];

    for (uint32_t s = 0; s < d->stage_count; s++)
        layers[s] = ty_division_end(q, d, s) - d->first_layers[s];
    put_list(layers, d->stage_count, out);
}

static void put_stages(source *s, ty_text *out)
{
    ty_text_addf(out, "%u", pipeline_size_of(s->c));
}

static void put_data_parallel(source *s, ty_text *out)
{
    if (has_equal_replicas(s->c->division))
        ty_text_addf(out, "%u", s->c->division->replicas[0]);
}

static void put_replicas(source *s, ty_text *out)
{
    if (!has_equal_replicas(s->c->division))
        put_list(s->c->division->replicas, s->c->division->stage_count, out);
}

static void put_layers(source *s, ty_text *out)
{
    ty_division_layers(s->q, s->c->division, out);
}

static void put_virtual_stages(source *s, ty_text *out)
{
    if (pipeline_size_of(s->c) > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.virtual_stages));
}

/* Parallel sizes are omitted if the workload allows only 1. */
static bool may_divide_tensors(const search_question *q)
{
    return ty_tensor_check(q->workload, 2, 1, NULL) == TY_OK;
}

static void put_tensor(source *s, ty_text *out)
{
    if (may_divide_tensors(s->q) || s->c->dimensions.tensor_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.tensor_parallel));
}

static void put_context(source *s, ty_text *out)
{
    if (ty_context_check(s->q->workload, 2, NULL) == TY_OK || s->c->dimensions.context_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.context_parallel));
}

static bool may_divide_tables(const source *s)
{
    return ty_expert_check(s->q->workload, 2, TY_TABLES_ROW, NULL) == TY_OK;
}

static void put_expert(source *s, ty_text *out)
{
    if (ty_expert_check(s->q->workload, 2, TY_TABLES_WHOLE, NULL) == TY_OK ||
        may_divide_tables(s) || s->c->dimensions.expert_parallel > 1)
        ty_text_addf(out, "%u", at_least_one(s->c->dimensions.expert_parallel));
}

static void put_tables(source *s, ty_text *out)
{
    if (may_divide_tables(s) && s->c->dimensions.expert_parallel > 1)
        ty_text_add(out, ty_table_shard_name(s->c->dimensions.table_shard));
}

static ty_status read_sequence(const fix_key *key, target *t, const char *value, ty_error *error)
{
    uint64_t number = 0;
    const ty_status status = ty_parse_uint(value, 0, 1, &number, error);

    t->options->dimensions.sequence_parallel = number == 1;
    if (status == TY_OK)
        t->options->pinned |= key->pin;
    return status;
}

static void put_sequence(source *s, ty_text *out)
{
    if (may_divide_tensors(s->q) || s->c->dimensions.sequence_parallel)
        ty_text_add(out, s->c->dimensions.sequence_parallel ? "1" : "0");
}

static void put_zero(source *s, ty_text *out)
{
    ty_text_addf(out, "%u", s->c->dimensions.zero);
}

/* A number of devices, or a list: "0-7+16-23". */
static ty_status read_devices(const fix_key *key, target *t, const char *value, ty_error *error)
{
    ty_text *list = &t->texts->devices;
    uint64_t count = 0, behind = 0;

    if (strchr(value, '-') == NULL && strchr(value, '+') == NULL)
        return read_number(key, t, value, error);
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

/* A list of devices if their number alone would select others; nothing if all train. */
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
    TY_TRY(ty_device_sets_propose(q->cluster, &by_number, q->servers, q->global_batch, &sets,
                                  &count, error));
    if (sets[0].count == set->count) { /* all except servers and actors */
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

/* A set is named once: thousands of candidates share it, and finding the devices for a number scans
 * the cluster. */
static void put_devices(source *s, ty_text *out)
{
    device_set *set = &s->q->sets[s->c->set != NULL ? s->c->set - s->q->sets : 0];

    if (set->name == NULL) {
        ty_text name = {0};
        s->status = name_devices(s->q, set, &name, s->error);
        if (s->status == TY_OK)
            s->status = ty_text_take(&name, &set->name, s->error);
        if (s->status != TY_OK) {
            ty_text_clear(&name);
            return;
        }
    }
    ty_text_add(out, set->name);
}

/* ---- Schedule and recomputation ---------------------------------------------------------- */

/* One stage is 1F1B unless another schedule was requested. */
static void put_schedule(source *s, ty_text *out)
{
    if (s->c->division->stage_count > 1 || s->c->schedule != ty_schedule_default(false))
        ty_text_add(out, ty_schedule_name(s->c->schedule));
}

static void put_micro_batch(source *s, ty_text *out)
{
    ty_text_addf(out, "%u", s->q->global_batch / s->c->micro_batches);
}

static ty_status read_recompute(const fix_key *key, target *t, const char *value, ty_error *error)
{
    ty_plan_dimensions *d = &t->options->dimensions;
    const ty_status status = ty_recompute_parse(value, &d->recompute, &d->recompute_blocks, error);

    if (status == TY_OK)
        t->options->pinned |= key->pin;
    return status;
}

static void put_recompute(source *s, ty_text *out)
{
    ty_recompute_text(s->c->dimensions.recompute, s->c->dimensions.recompute_blocks, out);
}

static void put_staleness(source *s, ty_text *out)
{
    if (s->q->options->staleness > 0)
        ty_text_addf(out, "%u", s->q->options->staleness);
}

/* ---- Gradients ----------------------------------------------------------------------------- */

static ty_status read_compression(const fix_key *key, target *t, const char *value, ty_error *error)
{
    ty_status status = ty_compression_parse(value, &t->options->compression, error);

    (void)key;
    t->options->fix_compression = status == TY_OK;
    return status;
}

static void put_compression(source *s, ty_text *out)
{
    ty_compression_text(&s->c->compression, out);
}

static void put_compress(source *s, ty_text *out)
{
    if (s->c->compression.kind != TY_COMPRESSION_NONE &&
        !ty_compression_at(s->c->compression.kind)->sends_rows &&
        ty_chooses_compressed(s->q->options))
        ty_text_add(out, "shorter");
}

/* Without the key, a requested compression leaves embeddings dense. */
static void put_embeddings(source *s, ty_text *out)
{
    if (s->c->has_dense_embeddings)
        ty_text_add(out, "dense");
    else if (!ty_compression_at(s->c->compression.kind)->sends_rows &&
             ty_may_have_rows(s->q->options) && (s->c->has_rows || !s->c->is_judged) &&
             ty_stack_has(s->q->stack->plans.compressions, TY_COMPRESSION_ROWS) &&
             ty_rows_possible(s->q, NULL) == TY_OK)
        ty_text_add(out, "shorter");
}

/* A number without a unit is ambiguous: no framework has buckets of 25 bytes. */
static ty_status read_bucket(const fix_key *key, target *t, const char *value, ty_error *error)
{
    const size_t length = strlen(value);
    uint64_t bytes;

    (void)key;
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
                       "25MB or 64MiB; or one (per stage), or fitted",
                       value);
    t->options->bucket_bytes = bytes;
    return TY_OK;
}

static void put_bucket(source *s, ty_text *out)
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } units[] = {{(uint64_t)1 << 30, "GiB"},
                 {(uint64_t)1 << 20, "MiB"},
                 {(uint64_t)1 << 10, "KiB"},
                 {1, "B"}};
    const uint64_t bytes = s->c->bucket_bytes;

    if (s->c->has_fitted_buckets || bytes == UINT64_MAX) {
        ty_text_add(out, s->c->has_fitted_buckets ? FITTED_BUCKETS : ONE_BUCKET);
        return;
    }
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        if (bytes % units[u].bytes == 0) {
            ty_text_addf(out, "%llu%s", (unsigned long long)(bytes / units[u].bytes),
                         units[u].name);
            break;
        }
}

static ty_status read_cycle(const fix_key *key, target *t, const char *value, ty_error *error)
{
    double seconds;
    ty_status status = ty_parse_seconds(value, &seconds, error);

    (void)key;
    if (status == TY_OK && !(seconds > 0 && seconds <= LONGEST_CYCLE_S))
        status = ty_fail(error, TY_EINVAL, "found '%s', expected a time above 0 and up to %g s",
                         value, LONGEST_CYCLE_S);
    if (status == TY_OK)
        t->options->cycle_s = seconds;
    return status;
}

static void put_cycle(source *s, ty_text *out)
{
    char seconds[32];

    if (s->q->options->cycle_s > 0) {
        ty_format_number(s->q->options->cycle_s, seconds);
        ty_text_addf(out, "%ss", seconds);
    }
}

/* One replica has no gradient collectives, so no order is written. */
static void put_priority(source *s, ty_text *out)
{
    const bool is_alone = s->c->division->stage_count == 1 && s->c->division->replicas[0] == 1;

    if (s->q->options->priority != TY_PRIORITY_NONE && !is_alone)
        ty_text_add(out, ty_priority_rule_name(s->q->options->priority));
}

/* Without a request, each bucket's algorithm follows from its own costs. */
static void put_algorithm(source *s, ty_text *out)
{
    if (s->q->options->fix_algorithm)
        ty_text_add(out, ty_algorithm_name(s->q->options->algorithm));
}

static void put_servers(source *s, ty_text *out)
{
    if (s->q->options->servers > 0)
        ty_text_addf(out, "%u", s->q->options->servers);
}

static void put_actors(source *s, ty_text *out)
{
    if (s->q->workload->learning == TY_LEARNING_REINFORCEMENT)
        ty_text_addf(out, "%u", s->q->options->actors);
}

static void put_lag(source *s, ty_text *out)
{
    if (s->q->options->actors > 0)
        ty_text_addf(out, "%u", s->q->options->lag);
}

static void put_shard(source *s, ty_text *out)
{
    if (s->q->options->servers > 0 && s->q->options->fix_shard)
        ty_text_add(out, ty_server_shard_name(s->q->options->shard));
}

/* ---- All keys ------------------------------------------------------------------------------ */

static const fix_key keys[] = {
    {"pp", read_number, put_stages, "1 2 4 8", .at = AT(pipeline_stages), .least = 1},
    {"dp", read_number, put_data_parallel, "1 2 4 8", .at = AT(data_parallel), .least = 1},
    {"replicas", read_list, put_replicas, "2+1", .at = AT(replicas)},
    {"layers", read_list, put_layers, "8x4", .at = AT(layers)},
    {"schedule", read_word, put_schedule,
     "gpipe 1f1b interleaved zb-h1 zb-2p pipedream pipedream-2bw", .at = AT(schedule),
     .flag = AT(fix_schedule), .word = ty_schedule_name, .most = TY_SCHEDULE_COUNT},
    {"vpp", read_number, put_virtual_stages, "1 2 4", .at = AT(dimensions.virtual_stages),
     .pin = TY_PIN_VIRTUAL_STAGES, .least = 1, .most = TY_MAX_STAGES_OF_A_PLAN},
    {"micro_batch", read_number, put_micro_batch, "1 2 4 8 16 32", .at = AT(micro_batch_size),
     .least = 1, .most = MOST_MICRO_BATCH},
    {"tp", read_number, put_tensor, "1 2 4 8", .at = AT(dimensions.tensor_parallel),
     .pin = TY_PIN_TENSOR, .least = 1},
    {"cp", read_number, put_context, "1 2 4", .at = AT(dimensions.context_parallel),
     .pin = TY_PIN_CONTEXT, .least = 1},
    {"ep", read_number, put_expert, "1 2 4 8", .at = AT(dimensions.expert_parallel),
     .pin = TY_PIN_EXPERT, .least = 1},
    {"tables", read_word, put_tables, "whole row column table", .at = AT(dimensions.table_shard),
     .pin = TY_PIN_TABLES, .word = ty_table_shard_name, .most = TY_TABLE_SHARD_COUNT},
    {"sp", read_sequence, put_sequence, "0 1", .pin = TY_PIN_SEQUENCE},
    {"zero", read_number, put_zero, "0 1 2 3", .at = AT(dimensions.zero), .pin = TY_PIN_ZERO,
     .most = 3},
    {"recompute", read_recompute, put_recompute, "none selective elementwise operator full stage",
     .pin = TY_PIN_RECOMPUTE},
    {"compression", read_compression, put_compression,
     "none rows fp16 bf16 fp8-e4m3 fp8-e5m2 int8 ternary one-bit powersgd-2",
     .at = AT(compression)},
    {"compress", read_word, put_compress, "all shorter", .at = AT(compress),
     .least = TY_COMPRESS_ALL, .most = TY_COMPRESS_SHORTER + 1, .word = compress_word,
     .expected = "all, or shorter for the buckets whose exchange is predicted to be"},
    {"embeddings", read_word, put_embeddings, "dense shorter", .at = AT(embeddings),
     .least = TY_EMBEDDINGS_DENSE, .most = TY_EMBEDDINGS_SHORTER + 1, .word = embeddings_word,
     .expected = "dense, or shorter for rows where their exchange is predicted to be"},
    {"bucket", read_bucket, put_bucket, "25MiB 250MiB one fitted", .at = AT(bucket_bytes)},
    {"cycle", read_cycle, put_cycle, "5ms", .at = AT(cycle_s)},
    {"priority", read_word, put_priority, "0 1 shorter", .at = AT(priority),
     .word = ty_priority_rule_name, .most = TY_PRIORITY_RULE_COUNT,
     .expected = "0, 1 for buckets of the front layers first, or shorter for that where the step "
                 "is predicted to be"},
    {"algorithm", read_word, put_algorithm,
     "ring tree automatic hierarchical parameter-server block-manager", .at = AT(algorithm),
     .flag = AT(fix_algorithm), .word = ty_algorithm_name, .most = TY_ALGORITHM_COUNT},
    {"servers", read_number, put_servers, "0 1 2", .at = AT(servers), .flag = AT(fix_servers)},
    {"shard", read_word, put_shard, "size tensor", .at = AT(shard), .flag = AT(fix_shard),
     .word = ty_server_shard_name, .most = TY_SERVER_SHARD_COUNT},
    {"staleness", read_number, put_staleness, "0 1", .at = AT(staleness), .flag = AT(fix_staleness),
     .most = TY_MAX_STALENESS},
    {"actors", read_number, put_actors, "0 1 2", .at = AT(actors), .flag = AT(fix_actors),
     .spared = 1},
    {"lag", read_number, put_lag, "0 1", .at = AT(lag), .most = TY_MAX_LAG},
    {"devices", read_devices, put_devices, "2 8 0-3+8-11", .at = AT(devices), .least = 1},
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

/* The key of a word: that of an older synonym, else the word itself. */
static const char *key_now(const char *word)
{
    return strcasecmp(word, "interleave") == 0 ? "vpp" : word;
}

bool ty_fix_key_is_known(const char *key)
{
    for (size_t k = 0; k < KEY_COUNT; k++)
        if (strcmp(key_now(key), keys[k].name) == 0)
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

/* Prefixes of option names in launch files, and their keys. */
static const struct {
    const char *start, *key;
} said_elsewhere[] = {
    {"tensor", "tp"},
    {"pipeline", "pp"},
    {"data", "dp"},
    {"context", "cp"},
    {"expert", "ep"},
    {"sequence", "sp"},
    {"virtual", "vpp"},
    {"micro", "micro_batch"},
    {"mbs", "micro_batch"},
    {"activation", "recompute"},
    {"checkpoint", "recompute"},
    {"fsdp", "zero"},
    {"distributed", "zero"},
};

/* The closest key to an unknown word; NULL: none. */
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
        if (strcasecmp(key_now(item), key) != 0)
            continue;
        if (said[k] != NULL && strcmp(said[k], value) != 0)
            return ty_fail(error, TY_EINVAL, "--fix: found %s=%s and %s=%s, expected one of them",
                           key, said[k], key, value);
        if (said[k] != NULL)
            return TY_OK;
        said[k] = value;
        if (keys[k].read(&keys[k], t, value, &detail) != TY_OK)
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

    TY_TRY(ty_check_memory(copy != NULL, error));
    while (status == TY_OK && (item = strtok_r(rest, ",", &rest)) != NULL)
        status = read_one(&t, item, said, error);
    ty_free(copy);
    return status;
}

ty_status ty_candidate_fix(const search_question *q, const candidate *c, char **out,
                           ty_error *error)
{
    source s = {q, c, error, TY_OK};
    ty_text text = {0};

    for (size_t k = 0; k < KEY_COUNT && s.status == TY_OK; k++) {
        ty_text value = {0};
        keys[k].put(&s, &value);
        if (value.length > 0)
            ty_text_addf(&text, "%s%s=%s", text.length > 0 ? "," : "", keys[k].name, value.data);
        if (s.status == TY_OK)
            s.status = ty_text_check(&value, error);
        ty_text_clear(&value);
    }
    if (s.status == TY_OK)
        return ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return s.status;
}
