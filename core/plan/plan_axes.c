/* The table of axes: names, fields and values of every choice of a plan. Pins are read and printed
 * by the same rows, so that all printed text can be read. */
#include "ty_plan.h"

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

typedef struct axis_row axis_row;
struct axis_row {
    const char *name, *synonym;
    size_t at, first_size, size; /* the field; its first member; all members of the axis */
    ty_status (*read)(const axis_row *row, const char *value, uint32_t devices, ty_pins *pins,
                      ty_error *error);
    void (*print)(const axis_row *row, const ty_pins *pins, ty_text *out);
    const char *values; /* ty_axis_values; NULL: the words */
    /* Order in which a suggestion drops the pin; 0: never. */
    uint32_t opened;
    /* Of a number or a word: */
    uint32_t least, most; /* most 0: the devices, less `spared`; for a word, one more than it */
    uint32_t spared;
    const char *(*word)(uint32_t number); /* NULL: a number */
    const char *expected;                 /* of a word; NULL: all words */
    uint32_t kinds;                       /* of values that are no words; 0: one */
};
_Static_assert(sizeof(ty_schedule) == sizeof(uint32_t), "enumerations are numbers of 32 bits");

/* One member, or all from one to another. */
#define SIZE(member) sizeof(((ty_pins *)NULL)->member)
#define AT(member) .at = offsetof(ty_pins, member), .first_size = SIZE(member), .size = SIZE(member)
#define FROM(first, last)                                                                          \
    .at = offsetof(ty_pins, first), .first_size = SIZE(first),                                     \
    .size = offsetof(ty_pins, last) + SIZE(last) - offsetof(ty_pins, first)

/* ---- Numbers and words --------------------------------------------------------------------- */

static uint64_t number_at(const axis_row *row, const char *field)
{
    uint64_t wide;
    uint32_t narrow;

    if (row->first_size == sizeof(bool))
        return *(const bool *)field;
    if (row->first_size == sizeof wide)
        return memcpy(&wide, field, sizeof wide), wide;
    return memcpy(&narrow, field, sizeof narrow), narrow;
}

static uint64_t number_of(const axis_row *row, const ty_pins *pins)
{
    return number_at(row, (const char *)pins + row->at);
}

static void set_number(const axis_row *row, ty_pins *pins, uint64_t value)
{
    char *field = (char *)pins + row->at;
    const uint32_t narrow = (uint32_t)value;

    memset(field, 0, row->size);
    if (row->first_size == sizeof(bool))
        *(bool *)field = value > 0;
    else if (row->first_size == sizeof value)
        memcpy(field, &value, sizeof value);
    else
        memcpy(field, &narrow, sizeof narrow);
}

static ty_status read_number(const axis_row *row, const char *value, uint32_t devices,
                             ty_pins *pins, ty_error *error)
{
    uint64_t number;
    const ty_status status = ty_parse_uint(
        value, row->least, row->most > 0 ? row->most : devices - row->spared, &number, error);

    if (status == TY_OK)
        set_number(row, pins, number);
    return status;
}

static ty_status read_word(const axis_row *row, const char *value, uint32_t devices, ty_pins *pins,
                           ty_error *error)
{
    ty_text known = {0};
    ty_status status = TY_OK;
    uint32_t i = row->least;

    (void)devices;
    for (; i < row->most && strcmp(value, row->word(i)) != 0; i++)
        ty_text_addf(&known, "%s%s",
                     i == row->least     ? ""
                     : i + 1 < row->most ? ", "
                                         : " or ",
                     row->word(i));
    if (i < row->most)
        set_number(row, pins, i);
    else
        status = ty_fail(error, TY_EINVAL, "found '%s', expected %s", value,
                         row->expected != NULL ? row->expected
                         : known.data != NULL  ? known.data
                                               : "another");
    ty_text_clear(&known);
    return status;
}

static void print_number(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    const uint64_t number = number_of(row, pins);

    if (row->word != NULL)
        ty_text_add(out, row->word((uint32_t)number));
    else
        ty_text_addf(out, "%llu", (unsigned long long)number);
}

static const char *compress_word(uint32_t rule)
{
    return rule == TY_COMPRESS_ALL ? "all" : "shorter";
}

static const char *embeddings_word(uint32_t rule)
{
    return rule == TY_EMBEDDINGS_DENSE ? "dense" : "shorter";
}

static const char *priority_word(uint32_t rule)
{
    static const char *const words[TY_PRIORITY_RULE_COUNT] = {"0", "1", "shorter"};
    return words[rule];
}

/* ---- Stages, devices ----------------------------------------------------------------------- */

/* "2+1", "4x8+2". */
static ty_status read_list(const axis_row *row, const char *value, uint32_t devices, ty_pins *pins,
                           ty_error *error)
{
    ty_stage_list *list = (ty_stage_list *)(void *)((char *)pins + row->at);
    const char *at = value;

    (void)devices;
    list->count = 0;
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
        if (times > TY_MAX_STAGES || list->count + times > TY_MAX_STAGES)
            return ty_fail(error, TY_EINVAL, "found '%s', expected at most %d stages", value,
                           TY_MAX_STAGES);
        for (; times > 0; times--)
            list->numbers[list->count++] = (uint32_t)number;
        if (*end == '\0')
            return TY_OK;
        at = end + 1;
    }
}

void ty_stage_list_print(const uint32_t *numbers, uint32_t count, ty_text *out)
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

static void print_list(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    const ty_stage_list *list = (const ty_stage_list *)(const void *)((const char *)pins + row->at);

    ty_stage_list_print(list->numbers, list->count, out);
}

/* A number of devices, or a list: "0-7+16-23". */
static ty_status read_devices(const axis_row *row, const char *value, uint32_t devices,
                              ty_pins *pins, ty_error *error)
{
    uint64_t count = 0, behind = 0;

    if (strpbrk(value, "-+") == NULL)
        return read_number(row, value, devices, pins, error);
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
        if (!is_good || first < behind || last < first || last >= devices ||
            (*end != '+' && *end != '\0'))
            return ty_fail(error, TY_EINVAL,
                           "found '%s', expected how many, or devices of 0 to %u in ascending "
                           "order, as in 0-7+16-23",
                           value, devices - 1);
        count += last - first + 1;
        behind = last + 1;
        at = end;
        if (*end == '\0')
            break;
    }
    pins->devices = (uint32_t)count;
    pins->device_list = value;
    return TY_OK;
}

static void print_devices(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    const char *list = pins->device_list;

    if (list != NULL)
        ty_text_append(out, list, strspn(list, "0123456789+-"));
    else
        print_number(row, pins, out);
}

/* ---- Recomputation, gradients -------------------------------------------------------------- */

static ty_status read_recompute(const axis_row *row, const char *value, uint32_t devices,
                                ty_pins *pins, ty_error *error)
{
    ty_plan_dimensions *d = &pins->dimensions;

    (void)row, (void)devices;
    return ty_recompute_parse(value, &d->recompute, &d->recompute_blocks, error);
}

static void print_recompute(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    (void)row;
    ty_recompute_text(pins->dimensions.recompute, pins->dimensions.recompute_blocks, out);
}

static ty_status read_compression(const axis_row *row, const char *value, uint32_t devices,
                                  ty_pins *pins, ty_error *error)
{
    (void)row, (void)devices;
    return ty_compression_parse(value, &pins->compression, error);
}

static void print_compression(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    (void)row;
    ty_compression_text(&pins->compression, out);
}

/* A number without a unit is ambiguous: no framework has buckets of 25 bytes. */
static ty_status read_bucket(const axis_row *row, const char *value, uint32_t devices,
                             ty_pins *pins, ty_error *error)
{
    const size_t length = strlen(value);

    (void)row, (void)devices;
    pins->fit_buckets = strcmp(value, FITTED_BUCKETS) == 0;
    if (pins->fit_buckets || strcmp(value, ONE_BUCKET) == 0) {
        pins->bucket_bytes = pins->fit_buckets ? 0 : UINT64_MAX;
        return TY_OK;
    }
    if (length == 0 || isdigit((unsigned char)value[length - 1]) ||
        ty_parse_bytes(value, &pins->bucket_bytes, NULL) != TY_OK || pins->bucket_bytes == 0)
        return ty_fail(error, TY_EINVAL,
                       "found \"%.60s\", expected a size below 2^53 bytes with its unit, such as "
                       "25MB or 64MiB; or one (per stage), or fitted",
                       value);
    return TY_OK;
}

static void print_bucket(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    uint64_t bytes = pins->bucket_bytes;
    size_t unit = 0;

    (void)row;
    if (pins->fit_buckets || bytes == UINT64_MAX) {
        ty_text_add(out, pins->fit_buckets ? FITTED_BUCKETS : ONE_BUCKET);
        return;
    }
    for (; unit < 3 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    ty_text_addf(out, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static ty_status read_cycle(const axis_row *row, const char *value, uint32_t devices, ty_pins *pins,
                            ty_error *error)
{
    double seconds;

    (void)row, (void)devices;
    TY_TRY(ty_parse_seconds(value, &seconds, error));
    if (!(seconds > 0 && seconds <= LONGEST_CYCLE_S))
        return ty_fail(error, TY_EINVAL, "found '%s', expected a time above 0 and up to %g s",
                       value, LONGEST_CYCLE_S);
    pins->cycle_s = seconds;
    return TY_OK;
}

static void print_cycle(const axis_row *row, const ty_pins *pins, ty_text *out)
{
    char seconds[32];

    (void)row;
    ty_format_number(pins->cycle_s, seconds);
    ty_text_addf(out, "%ss", seconds);
}

/* ---- The table ----------------------------------------------------------------------------- */

#define NUMBER .read = read_number, .print = print_number
#define WORD(name, end)                                                                            \
    .read = read_word, .print = print_number, .word = (name), .most = (uint32_t)(end)

static const axis_row axes[TY_AXIS_COUNT] = {
    [TY_AXIS_PP] = {"pp", AT(pipeline_stages), NUMBER, .values = "1 2 4 8", .least = 1, .opened = 8,
                    .kinds = 2},
    [TY_AXIS_DP] = {"dp", AT(data_parallel), NUMBER, .values = "1 2 4 8", .least = 1, .opened = 11},
    [TY_AXIS_REPLICAS] = {"replicas", AT(replicas), read_list, print_list, "2+1", .opened = 10,
                          .kinds = 2},
    [TY_AXIS_LAYERS] = {"layers", AT(layers), read_list, print_list, "8x4", .opened = 9},
    [TY_AXIS_SCHEDULE] = {"schedule", AT(schedule), WORD(ty_schedule_name, TY_SCHEDULE_COUNT),
                          .opened = 6},
    [TY_AXIS_VPP] = {"vpp", "interleave", AT(dimensions.virtual_stages), NUMBER, .values = "1 2 4",
                     .least = 1, .most = TY_MAX_STAGES_OF_A_PLAN, .opened = 7},
    [TY_AXIS_MICRO_BATCH] = {"micro_batch", AT(micro_batch_size), NUMBER, .values = "1 2 4 8 16 32",
                             .least = 1, .most = MOST_MICRO_BATCH, .opened = 4},
    [TY_AXIS_TP] = {"tp", AT(dimensions.tensor_parallel), NUMBER, .values = "1 2 4 8", .least = 1,
                    .opened = 5, .kinds = 2},
    [TY_AXIS_CP] = {"cp", AT(dimensions.context_parallel), NUMBER, .values = "1 2 4", .least = 1,
                    .opened = 12, .kinds = 2},
    [TY_AXIS_EP] = {"ep", AT(dimensions.expert_parallel), NUMBER, .values = "1 2 4 8", .least = 1,
                    .opened = 13, .kinds = 2},
    [TY_AXIS_TABLES] = {"tables", AT(dimensions.table_shard),
                        WORD(ty_table_shard_name, TY_TABLE_SHARD_COUNT)},
    [TY_AXIS_SP] = {"sp", AT(dimensions.sequence_parallel), NUMBER, .values = "0 1", .most = 1,
                    .opened = 3, .kinds = 2},
    [TY_AXIS_ZERO] = {"zero", AT(dimensions.zero), NUMBER, .values = "0 1 2 3", .most = 3,
                      .opened = 2, .kinds = 4},
    [TY_AXIS_RECOMPUTE] = {"recompute", FROM(dimensions.recompute, dimensions.recompute_blocks),
                           read_recompute, print_recompute,
                           "none selective elementwise operator full stage", .opened = 1,
                           .word = ty_recompute_name, .most = TY_RECOMPUTE_COUNT},
    [TY_AXIS_COMPRESSION] = {"compression", FROM(compression.kind, compression.clip_norm),
                             read_compression, print_compression,
                             "none rows fp16 bf16 fp8-e4m3 fp8-e5m2 int8 ternary one-bit "
                             "powersgd-2",
                             .opened = 17, .word = ty_compression_name,
                             .most = TY_COMPRESSION_COUNT},
    [TY_AXIS_COMPRESS] = {"compress", AT(compress), WORD(compress_word, TY_COMPRESS_RULE_END),
                          .least = TY_COMPRESS_ALL, .opened = 18,
                          .expected = "all, or shorter for the buckets whose exchange is predicted "
                                      "to be"},
    [TY_AXIS_EMBEDDINGS] = {"embeddings", AT(embeddings),
                            WORD(embeddings_word, TY_EMBEDDING_RULE_END),
                            .least = TY_EMBEDDINGS_DENSE, .opened = 19,
                            .expected = "dense, or shorter for rows where their exchange is "
                                        "predicted to be"},
    [TY_AXIS_BUCKET] = {"bucket", FROM(bucket_bytes, fit_buckets), read_bucket, print_bucket,
                        "25MiB 250MiB one fitted", .opened = 16, .kinds = 2},
    [TY_AXIS_CYCLE] = {"cycle", AT(cycle_s), read_cycle, print_cycle, "5ms", .opened = 21},
    [TY_AXIS_PRIORITY] = {"priority", AT(priority), WORD(priority_word, TY_PRIORITY_RULE_COUNT),
                          .opened = 22,
                          .expected = "0, 1 for buckets of the first layers first, or shorter for "
                                      "that where the step is predicted to be"},
    [TY_AXIS_ALGORITHM] = {"algorithm", AT(algorithm), WORD(ty_algorithm_name, TY_ALGORITHM_COUNT),
                           .opened = 20},
    [TY_AXIS_SERVERS] = {"servers", AT(servers), NUMBER, .values = "0 1 2", .kinds = 2},
    [TY_AXIS_SHARD] = {"shard", AT(shard), WORD(ty_server_shard_name, TY_SERVER_SHARD_COUNT)},
    [TY_AXIS_STALENESS] = {"staleness", AT(staleness), NUMBER, .values = "0 1",
                           .most = TY_MAX_STALENESS, .opened = 15, .kinds = 2},
    [TY_AXIS_ACTORS] = {"actors", AT(actors), NUMBER, .values = "0 1 2", .spared = 1, .kinds = 2},
    [TY_AXIS_LAG] = {"lag", AT(lag), NUMBER, .values = "0 1", .most = TY_MAX_LAG, .kinds = 2},
    [TY_AXIS_DEVICES] = {"devices", FROM(devices, device_list), read_devices, print_devices,
                         "2 8 0-3+8-11", .least = 1, .opened = 14},
};
_Static_assert(TY_AXIS_COUNT <= 64, "a set of axes has 64 bits");

const char *ty_axis_name(uint32_t axis)
{
    return axis < TY_AXIS_COUNT ? axes[axis].name : NULL;
}

ty_axis ty_axis_find(const char *name)
{
    uint32_t a = 0;

    while (a < TY_AXIS_COUNT && strcasecmp(name, axes[a].name) != 0 &&
           (axes[a].synonym == NULL || strcasecmp(name, axes[a].synonym) != 0))
        a++;
    return (ty_axis)a;
}

void ty_axis_values(ty_axis axis, ty_text *out)
{
    const axis_row *row = &axes[axis];

    if (row->values != NULL)
        ty_text_add(out, row->values);
    for (uint32_t i = row->least; row->values == NULL && i < row->most; i++)
        ty_text_addf(out, "%s%s", i > row->least ? " " : "", row->word(i));
}

ty_axis ty_axis_to_open(uint32_t n)
{
    uint32_t a = 0;

    while (a < TY_AXIS_COUNT && axes[a].opened != n + 1)
        a++;
    return (ty_axis)a;
}

/* ---- Sets ---------------------------------------------------------------------------------- */

ty_axis_sets ty_axis_sets_all(void)
{
    ty_axis_sets all;

    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++) {
        const uint32_t kinds = axes[a].word != NULL ? axes[a].most : axes[a].kinds;
        all.of[a] = kinds > 0 ? (uint32_t)(((uint64_t)1 << kinds) - 1) : 1;
    }
    return all;
}

ty_axis_sets ty_axis_sets_plain(void)
{
    ty_axis_sets plain = ty_axis_sets_all();

    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        if (a != TY_AXIS_ALGORITHM)
            plain.of[a] = 1u << (axes[a].word != NULL ? axes[a].least : 0);
    for (uint32_t s = 0; s < TY_SCHEDULE_COUNT; s++)
        plain.of[TY_AXIS_SCHEDULE] |= (uint32_t)ty_schedule_is_plain((ty_schedule)s) << s;
    return plain;
}

uint32_t ty_axis_kind(ty_axis axis, const ty_pins *pins)
{
    const axis_row *row = &axes[axis];
    const ty_stage_list *replicas = &pins->replicas;
    uint64_t number;

    if (row->word != NULL)
        return (uint32_t)number_of(row, pins);
    for (uint32_t s = 1; axis == TY_AXIS_REPLICAS && s < replicas->count; s++)
        if (replicas->numbers[s] != replicas->numbers[0])
            return TY_KIND_UNEQUAL;
    if (row->kinds == 0 || axis == TY_AXIS_REPLICAS || axis == TY_AXIS_BUCKET)
        return axis == TY_AXIS_BUCKET && pins->fit_buckets;
    number = number_of(row, pins);
    number = number > row->least ? number - row->least : 0;
    return number < row->kinds ? (uint32_t)number : row->kinds - 1;
}

void ty_axis_kinds_print(ty_axis axis, uint32_t kinds, ty_text *out)
{
    static const char *const named[TY_AXIS_COUNT][2] = {
        [TY_AXIS_REPLICAS] = {"equal", "unequal"}, [TY_AXIS_BUCKET] = {"of some bytes", "fitted"}};
    const axis_row *row = &axes[axis];
    const char *between = "";

    for (uint32_t k = 0; k < 32; k++) {
        if ((kinds >> k & 1) == 0)
            continue;
        ty_text_add(out, between);
        between = ", ";
        if (row->word != NULL)
            ty_text_add(out, row->word(k));
        else if (k < 2 && named[axis][k] != NULL)
            ty_text_add(out, named[axis][k]);
        else
            ty_text_addf(out, "%u%s", row->least + k,
                         k + 1 < row->kinds || row->least + k == row->most ? "" : " and more");
    }
    if (kinds == 0)
        ty_text_add(out, "none");
}

uint32_t ty_pins_stages(const ty_pins *pins)
{
    const uint32_t virtual_stages =
        pins->dimensions.virtual_stages > 1 ? pins->dimensions.virtual_stages : 1;
    const uint32_t listed = pins->layers.count / virtual_stages;

    if (ty_is_pinned(pins, TY_AXIS(REPLICAS)))
        return pins->replicas.count;
    if (ty_is_pinned(pins, TY_AXIS(LAYERS)) && !ty_is_pinned(pins, TY_AXIS(PP)))
        return listed > 1 ? listed : 1;
    return pins->pipeline_stages;
}

ty_status ty_axis_sets_check(const ty_axis_sets *sets, const char *whose, const ty_pins *pins,
                             ty_error *error)
{
    ty_pins p = *pins;
    ty_text value = {0}, possible = {0};
    uint32_t stages = ty_pins_stages(pins);
    ty_status status;

    if (p.dimensions.virtual_stages > 1) { /* of several pipeline ranks */
        ty_pin(&p, TY_AXIS_SCHEDULE, ty_schedule_default(true));
        stages = stages > 1 ? stages : 2;
    }
    if (stages > 0)
        ty_pin(&p, TY_AXIS_PP, stages);
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++) {
        if (!ty_is_pinned(&p, (uint64_t)1 << a) ||
            ty_axis_may(sets, (ty_axis)a, ty_axis_kind((ty_axis)a, &p)))
            continue;
        axes[a].print(&axes[a], &p, &value);
        ty_axis_kinds_print((ty_axis)a, sets->of[a], &possible);
        status = ty_fail(error, TY_EINVAL, "%s has no %s=%s: its %s is %s", whose, axes[a].name,
                         value.data != NULL ? value.data : "", axes[a].name,
                         possible.data != NULL ? possible.data : "");
        ty_text_clear(&value);
        ty_text_clear(&possible);
        return status;
    }
    return TY_OK;
}

/* ---- Pins ---------------------------------------------------------------------------------- */

void ty_pin(ty_pins *pins, ty_axis axis, uint64_t value)
{
    set_number(&axes[axis], pins, value);
    pins->axes |= (uint64_t)1 << axis;
}

void ty_unpin(ty_pins *pins, ty_axis axis)
{
    memset((char *)pins + axes[axis].at, 0, axes[axis].size);
    pins->axes &= ~((uint64_t)1 << axis);
}

void ty_pins_take(ty_pins *pins, const ty_pins *from, ty_axis axis)
{
    memcpy((char *)pins + axes[axis].at, (const char *)from + axes[axis].at, axes[axis].size);
    pins->axes = (pins->axes & ~((uint64_t)1 << axis)) | (from->axes & (uint64_t)1 << axis);
}

bool ty_pins_suit(const ty_pins *pins, uint64_t set, const ty_plan_dimensions *d)
{
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++) {
        const axis_row *row = &axes[a];
        const char *pinned = (const char *)pins + row->at;
        const char *found = (const char *)d + (row->at - offsetof(ty_pins, dimensions));
        if ((pins->axes & set & (uint64_t)1 << a) == 0)
            continue;
        const uint64_t wanted = number_at(row, pinned), number = number_at(row, found);
        /* A size of 0 counts as 1. */
        if ((wanted > row->least ? wanted : row->least) !=
                (number > row->least ? number : row->least) ||
            memcmp(pinned + row->first_size, found + row->first_size,
                   row->size - row->first_size) != 0)
            return false;
    }
    return true;
}

/* Beginnings of option names in launch files, and their axes. */
static const struct {
    const char *start, *name;
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

static ty_status fail_unknown(const char *word, ty_error *error)
{
    const char *close = NULL;
    ty_text known = {0};
    ty_status status;

    for (size_t i = 0; i < sizeof said_elsewhere / sizeof *said_elsewhere && close == NULL; i++)
        if (strncasecmp(word, said_elsewhere[i].start, strlen(said_elsewhere[i].start)) == 0)
            close = said_elsewhere[i].name;
    if (close == NULL)
        close = ty_suggest(word, axes, TY_AXIS_COUNT, sizeof axes[0]);
    if (close != NULL)
        return ty_fail(error, TY_EINVAL, "--fix: unknown key '%s'; did you mean %s", word, close);
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        ty_text_addf(&known, "%s%s",
                     a == 0                  ? ""
                     : a + 1 < TY_AXIS_COUNT ? ", "
                                             : " or ",
                     axes[a].name);
    status = ty_fail(error, TY_EINVAL, "--fix: unknown key '%s', expected %s", word,
                     known.data != NULL ? known.data : "another");
    ty_text_clear(&known);
    return status;
}

/* The part of a text between blanks: its start, and its length. */
static const char *trim(const char *text, size_t *length)
{
    for (; *length > 0 && strchr(" \t", *text) != NULL; --*length)
        text++;
    while (*length > 0 && strchr(" \t", text[*length - 1]) != NULL)
        --*length;
    return text;
}

/* @param said [in, out] the values so far: [TY_AXIS_COUNT] */
static ty_status read_one(const char *item, size_t length, uint32_t devices, ty_pins *pins,
                          const char **said, ty_error *error)
{
    const char *equals = memchr(item, '=', length);
    const size_t before = equals != NULL ? (size_t)(equals - item) : 0;
    size_t name_length = before, value_length = equals != NULL ? length - before - 1 : 0;
    const char *name_at = trim(item, &name_length);
    const char *value_at = equals != NULL ? trim(equals + 1, &value_length) : NULL;
    char *name = ty_strndup(equals != NULL ? name_at : item, equals != NULL ? name_length : length);
    char *value = equals != NULL ? ty_strndup(value_at, value_length) : NULL;
    ty_error detail = {0};
    ty_status status = TY_OK;
    ty_axis axis;

    if (name == NULL || (equals != NULL && value == NULL)) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    if (value == NULL) {
        status = ty_fail(error, TY_EINVAL, "--fix: found '%s', expected KEY=VALUE", name);
        goto done;
    }
    axis = ty_axis_find(name);
    if (axis == TY_AXIS_COUNT) {
        status = fail_unknown(name, error);
        goto done;
    }
    if (said[axis] != NULL) {
        const size_t length_before = strcspn(said[axis], ", \t");
        if (length_before != value_length || strncmp(said[axis], value_at, value_length) != 0)
            status =
                ty_fail(error, TY_EINVAL, "--fix: found %s=%.*s and %s=%s, expected one of them",
                        axes[axis].name, (int)length_before, said[axis], axes[axis].name, value);
        goto done;
    }
    said[axis] = value_at;
    if (axes[axis].read(&axes[axis], value, devices, pins, &detail) != TY_OK) {
        status = ty_fail(error, detail.status, "--fix %s: %s", axes[axis].name, detail.message);
        goto done;
    }
    if (pins->device_list == value) /* outlives this copy */
        pins->device_list = value_at;
    pins->axes |= (uint64_t)1 << axis;
done:
    ty_free(name);
    ty_free(value);
    return status;
}

ty_status ty_pins_read(const char *text, uint32_t devices, ty_pins *pins, ty_error *error)
{
    const char *said[TY_AXIS_COUNT] = {NULL};

    for (const char *item = text; *item != '\0';) {
        const size_t length = strcspn(item, ",");
        if (length > 0)
            TY_TRY(read_one(item, length, devices, pins, said, error));
        item += length + (item[length] == ',');
    }
    return TY_OK;
}

ty_status ty_pins_print(const ty_pins *pins, ty_text *out, ty_error *error)
{
    const char *between = "";

    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        if (ty_is_pinned(pins, (uint64_t)1 << a)) {
            ty_text_addf(out, "%s%s=", between, axes[a].name);
            axes[a].print(&axes[a], pins, out);
            between = ",";
        }
    return ty_text_check(out, error);
}
