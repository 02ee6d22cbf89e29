/* Compressors in plans: names, parameters, sizes and collectives. */
#include "ty_profile.h"

#include "json_parts.h"
#include "profile_names.h"
#include "ty_json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELEMENT_BYTES = 4, /* uncompressed */
    HALF_BYTES = 2,
    PAIR_BYTES = 8, /* index and value */
    INDEX_BYTES = 4,
    SCALE_BYTES = 4,
    TERNARY_PER_BYTE = 4,
    WORD_BITS = 32,
    MAX_WARMUP_STEPS = 1000000000
};

/* DDP's PowerSGD hook sends a matrix uncompressed unless factors are this much smaller:
 * min_compression_rate in torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py. */
static const uint64_t least_powersgd_gain = 2;

/* Deep gradient compression starts by sending a quarter: sparsity 75 % (Lin et al., ICLR 2018,
   section 3.3). */
static const double first_warmup_ratio = 0.25;

/* ---- Sizes --------------------------------------------------------------------------------- */

static uint64_t kept(double ratio, uint64_t elements)
{
    uint64_t count = (uint64_t)(ratio * (double)elements);

    if (count > elements)
        count = elements;
    return count > 0 ? count : 1;
}

static uint64_t groups_of(uint64_t elements, uint64_t group)
{
    return elements / group + (elements % group != 0);
}

uint64_t ty_one_bit_part(uint64_t elements, uint32_t members)
{
    return groups_of(groups_of(elements, members), WORD_BITS) * WORD_BITS;
}

static uint64_t one_bit_part_bytes(uint64_t elements, uint32_t members)
{
    uint64_t part = ty_one_bit_part(elements, members);
    return groups_of(part, TY_COMPRESSION_SIGN_GROUP) * SCALE_BYTES + part / 8;
}

uint64_t ty_compression_row_bytes(const ty_gradient_extent *extent)
{
    return extent->row_room * (INDEX_BYTES + extent->row_elements * ELEMENT_BYTES);
}

#define WIRE(function)                                                                             \
    static uint64_t function(const ty_compression *c, const ty_gradient_extent *e,                 \
                             uint32_t members, uint32_t phase)
#define UNUSED_WIRE ((void)c, (void)members, (void)phase)

WIRE(floats_wire)
{
    UNUSED_WIRE;
    return e->elements * ELEMENT_BYTES;
}

WIRE(halves_wire)
{
    UNUSED_WIRE;
    return e->elements * HALF_BYTES;
}

WIRE(rows_wire)
{
    UNUSED_WIRE;
    return ty_compression_row_bytes(e) + e->dense_elements * ELEMENT_BYTES;
}

static uint64_t scales(const ty_gradient_extent *e)
{
    return groups_of(e->elements, TY_COMPRESSION_GROUP) * SCALE_BYTES;
}

WIRE(bytes_wire)
{
    UNUSED_WIRE;
    return scales(e) + e->elements;
}

WIRE(ternary_wire)
{
    UNUSED_WIRE;
    return scales(e) + groups_of(e->elements, TERNARY_PER_BYTE);
}

WIRE(one_bit_wire)
{
    (void)c;
    return one_bit_part_bytes(e->elements, members) * (phase == 0 ? members : 1);
}

WIRE(pairs_wire)
{
    UNUSED_WIRE;
    return kept(c->ratio, e->elements) * PAIR_BYTES;
}

WIRE(drawn_wire)
{
    UNUSED_WIRE;
    return kept(c->ratio, e->elements) * ELEMENT_BYTES;
}

/* Elements outside factored matrices are sent with the first factors. */
WIRE(factors_wire)
{
    UNUSED_WIRE;
    return (phase == 0 ? e->p_elements + e->dense_elements : e->q_elements) * ELEMENT_BYTES;
}

/* Bytes of all parts with their padding, and of the sum of the own part. */
static uint64_t one_bit_array(const ty_gradient_extent *e, uint32_t members, uint32_t index)
{
    return ty_one_bit_part(e->elements, members) * (index == 0 ? members : 1);
}

/* The dense elements have no residual. */
static uint64_t factors_array(const ty_gradient_extent *e, uint32_t members, uint32_t index)
{
    (void)members, (void)index;
    return e->elements - e->dense_elements;
}

/* ---- The table ----------------------------------------------------------------------------- */

/*
 * Passes: reads and writes of a fused kernel, counted from the loops of execute/codec_*.c.
 * Selecting the k largest exactly takes longer: a sampled threshold took 7.3 times as long as the
 * cast to fp16 (PyTorch 1.13 on one Zen 5 core, 4 Mi elements). Likewise, PowerSGD took a sixth of
 * a pass more per additional rank. Gathered payloads are decoded per member.
 */
#define NAME(kind, symbol, name) [TY_COMPRESSION_##kind] = (name),
static const char *const names[TY_COMPRESSION_COUNT] = {"none", TY_COMPRESSIONS(NAME)};
#undef NAME

/* One byte per number. */
#define A_BYTE                                                                                     \
    {                                                                                              \
        .phases = 1, .collectives = {TY_ALL_GATHER}, .is_lossy = true, .wire_bytes = bytes_wire,   \
        .encode_passes = {1.25}, .decode_passes = 1, .member_passes = 0.25                         \
    }

static const ty_compression_row kinds[TY_COMPRESSION_COUNT] = {
    [TY_COMPRESSION_NONE] = {.phases = 1, .is_elementwise = true, .wire_bytes = floats_wire},
    [TY_COMPRESSION_ROWS] = {.phases = 1,
                             .collectives = {TY_ALL_GATHER},
                             .sends_rows = true,
                             .wire_bytes = rows_wire,
                             .encode_passes = {1},
                             .decode_passes = 1,
                             .measured = {0.01, 0.1, 0.5}},
    [TY_COMPRESSION_FP16] = {.phases = 1,
                             .summed = TY_PRECISION_FP16,
                             .is_elementwise = true,
                             .wire_bytes = halves_wire,
                             .encode_passes = {1.5},
                             .decode_passes = 1.5},
    [TY_COMPRESSION_BF16] = {.phases = 1,
                             .summed = TY_PRECISION_BF16,
                             .is_elementwise = true,
                             .wire_bytes = halves_wire,
                             .encode_passes = {1.5},
                             .decode_passes = 1.5},
    [TY_COMPRESSION_FP8_E4M3] = A_BYTE,
    [TY_COMPRESSION_FP8_E5M2] = A_BYTE,
    [TY_COMPRESSION_INT8] = A_BYTE, /* QSGD with 127 levels, stochastic rounding */
    /* TernGrad. */
    [TY_COMPRESSION_TERNARY] = {.phases = 1,
                                .collectives = {TY_ALL_GATHER},
                                .is_lossy = true,
                                .wire_bytes = ternary_wire,
                                .encode_passes = {1.0625},
                                .decode_passes = 1,
                                .member_passes = 0.0625},
    /* Signs and mean magnitudes, error feedback in both phases. */
    [TY_COMPRESSION_ONE_BIT] = {.phases = 2,
                                .collectives = {TY_ALL_TO_ALL, TY_ALL_GATHER},
                                .is_lossy = true,
                                .has_feedback = true,
                                .wire_bytes = one_bit_wire,
                                .array_elements = one_bit_array,
                                .arrays = 2,
                                .encode_passes = {3.03, 0.06},
                                .decode_passes = 1.03},
    [TY_COMPRESSION_TOP_K] = {.phases = 1,
                              .collectives = {TY_ALL_GATHER},
                              .has_ratio = true,
                              .is_lossy = true,
                              .has_feedback = true,
                              .wire_bytes = pairs_wire,
                              .arrays = 1,
                              .selects = true,
                              .encode_passes = {11},
                              .decode_passes = 1,
                              .measured = {0.001, 0.01, 0.1}},
    /* Elements above a threshold estimated from a sample. */
    [TY_COMPRESSION_TOP_K_SAMPLED] = {.phases = 1,
                                      .collectives = {TY_ALL_GATHER},
                                      .has_ratio = true,
                                      .is_lossy = true,
                                      .has_feedback = true,
                                      .wire_bytes = pairs_wire,
                                      .arrays = 1,
                                      .selects = true,
                                      .encode_passes = {5},
                                      .decode_passes = 1,
                                      .measured = {0.001, 0.01, 0.1}},
    /* Random elements, the same ones on all members. */
    [TY_COMPRESSION_RANDOM_K] = {.phases = 1,
                                 .has_ratio = true,
                                 .is_lossy = true,
                                 .has_feedback = true,
                                 .needs_whole_strata = true,
                                 .wire_bytes = drawn_wire,
                                 .arrays = 1,
                                 .encode_passes = {3},
                                 .decode_passes = 1,
                                 .measured = {0.01, 0.1}},
    /* Deep gradient compression: sampled top-k of the velocity. */
    [TY_COMPRESSION_DGC] = {.phases = 1,
                            .collectives = {TY_ALL_GATHER},
                            .has_ratio = true,
                            .has_warmup = true,
                            .is_lossy = true,
                            .has_feedback = true,
                            .has_momentum = true,
                            .wire_bytes = pairs_wire,
                            .arrays = 2,
                            .selects = true,
                            .encode_passes = {7},
                            .decode_passes = 1,
                            .measured = {0.001, 0.01}},
    /* Factors of rank r. */
    [TY_COMPRESSION_POWERSGD] = {.phases = 2,
                                 .collectives = {TY_ALL_REDUCE, TY_ALL_REDUCE},
                                 .has_rank = true,
                                 .is_lossy = true,
                                 .has_feedback = true,
                                 .wire_bytes = factors_wire,
                                 .array_elements = factors_array,
                                 .arrays = 1,
                                 .keeps_payload = true,
                                 .encode_passes = {4, 1},
                                 .decode_passes = 3,
                                 .rank_passes = 0.06,
                                 .measured = {1, 2, 4, 16}},
};

const ty_compression_row *ty_compression_at(ty_compression_kind kind)
{
    return &kinds[(unsigned)kind < TY_COMPRESSION_COUNT ? kind : TY_COMPRESSION_NONE];
}

const char *const ty_collective_names[TY_COLLECTIVE_COUNT] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast",
    "reduce",     "all_to_all", "send_receive"};
const char *ty_collective_name(ty_collective_kind kind)
{
    return (unsigned)kind < TY_COLLECTIVE_COUNT ? ty_collective_names[kind] : "unknown";
}

const char *ty_compression_name(ty_compression_kind kind)
{
    return (unsigned)kind < TY_COMPRESSION_COUNT ? names[kind] : "unknown";
}

bool ty_compression_has_ratio(ty_compression_kind kind)
{
    return (unsigned)kind < TY_COMPRESSION_COUNT && kinds[kind].has_ratio;
}

bool ty_compression_has_rank(ty_compression_kind kind)
{
    return (unsigned)kind < TY_COMPRESSION_COUNT && kinds[kind].has_rank;
}

/* ---- Parameters ---------------------------------------------------------------------------- */

bool ty_compression_equals(const ty_compression *a, const ty_compression *b)
{
    return a->kind == b->kind && a->ratio == b->ratio && a->rank == b->rank &&
           a->warmup_steps == b->warmup_steps && a->clip_norm == b->clip_norm;
}

ty_status ty_compression_check(const ty_compression *c, ty_error *error)
{
    const bool is_dgc = ty_compression_at(c->kind)->has_warmup;

    if ((unsigned)c->kind >= TY_COMPRESSION_COUNT)
        return ty_fail(error, TY_EINVAL, "found compression %d, expected one of the %d kinds",
                       (int)c->kind, TY_COMPRESSION_COUNT);
    if (kinds[c->kind].has_ratio ? !(c->ratio > 0 && c->ratio <= 1) : c->ratio != 0)
        return ty_fail(error, TY_EINVAL, "found ratio %g for %s, expected %s", c->ratio,
                       ty_compression_name(c->kind),
                       kinds[c->kind].has_ratio ? "more than 0 and at most 1" : "none");
    if (kinds[c->kind].has_rank ? c->rank == 0 || c->rank > TY_LARGEST_RANK : c->rank != 0)
        return ty_fail(error, TY_EINVAL, "found rank %u for %s, expected %s", c->rank,
                       ty_compression_name(c->kind), kinds[c->kind].has_rank ? "1 to 64" : "none");
    if (is_dgc ? c->warmup_steps > MAX_WARMUP_STEPS : c->warmup_steps != 0)
        return ty_fail(error, TY_EINVAL, "found %u warm-up steps for %s, expected %s",
                       c->warmup_steps, ty_compression_name(c->kind),
                       is_dgc ? "at most 1000000000" : "none");
    if (is_dgc ? !(c->clip_norm >= 0 && c->clip_norm <= (double)FLT_MAX) : c->clip_norm != 0)
        return ty_fail(error, TY_EINVAL, "found clipping norm %g for %s, expected %s", c->clip_norm,
                       ty_compression_name(c->kind), is_dgc ? "a number from 0 to 3e38" : "none");
    return TY_OK;
}

/* The kind with the longest name at the start of `text`, and the text after it. */
static bool find_kind(const char *text, ty_compression_kind *kind, const char **rest)
{
    size_t longest = 0;

    for (int k = 0; k < TY_COMPRESSION_COUNT; k++) {
        size_t length = strlen(names[k]);
        if (strncmp(text, names[k], length) != 0 || length <= longest)
            continue;
        longest = length;
        *kind = (ty_compression_kind)k;
    }
    *rest = text + longest;
    return longest > 0;
}

/* A number after `separator`; `text` moves past it. */
static bool take_number(const char **text, char separator, double *out)
{
    char *end;

    if (**text != separator || !((*text)[1] == '.' || ((*text)[1] >= '0' && (*text)[1] <= '9')))
        return false;
    *out = strtod(*text + 1, &end);
    *text = end;
    return true;
}

/* An integer likewise; `text` does not move if there is none. */
static bool take_whole(const char **text, char separator, uint32_t maximum, uint32_t *out)
{
    const char *rest = *text;
    double number;

    if (!take_number(&rest, separator, &number) || number > maximum || number != floor(number))
        return false;
    *out = (uint32_t)number;
    *text = rest;
    return true;
}

/* The parameters after a kind's name. */
static bool parse_parameters(const char *rest, ty_compression *c)
{
    if (kinds[c->kind].has_ratio && !take_number(&rest, ':', &c->ratio))
        return false;
    if (kinds[c->kind].has_rank && !take_whole(&rest, '-', UINT32_MAX, &c->rank))
        return false;
    if (kinds[c->kind].has_warmup && take_whole(&rest, ':', MAX_WARMUP_STEPS, &c->warmup_steps))
        take_number(&rest, ':', &c->clip_norm);
    return *rest == '\0';
}

ty_status ty_compression_parse(const char *text, ty_compression *out, ty_error *error)
{
    ty_compression c = {0};
    const char *rest;

    if (!find_kind(text, &c.kind, &rest))
        return ty_fail(
            error, TY_EINVAL,
            "found '%s', expected none, rows, fp16, bf16, fp8-e4m3, fp8-e5m2, int8, "
            "ternary, one-bit, top-k:SHARE, top-k-sampled:SHARE, random-k:SHARE, dgc:SHARE or "
            "powersgd-RANK",
            text);
    if (!parse_parameters(rest, &c))
        return ty_fail(error, TY_EINVAL, "found '%s', expected %s%s", text,
                       ty_compression_name(c.kind),
                       kinds[c.kind].has_ratio  ? ":SHARE, as in top-k:0.01"
                       : kinds[c.kind].has_rank ? "-RANK, as in powersgd-2"
                                                : " alone");
    TY_TRY(ty_compression_check(&c, error));
    *out = c;
    return TY_OK;
}

void ty_compression_text(const ty_compression *c, ty_text *text)
{
    ty_text_add(text, ty_compression_name(c->kind));
    if (ty_compression_has_ratio(c->kind))
        ty_text_addf(text, ":%.9g", c->ratio);
    if (ty_compression_has_rank(c->kind))
        ty_text_addf(text, "-%u", c->rank);
    if (c->warmup_steps > 0 || c->clip_norm > 0)
        ty_text_addf(text, ":%u", c->warmup_steps);
    if (c->clip_norm > 0)
        ty_text_addf(text, ":%.9g", c->clip_norm);
}

static bool has_ratio(const void *compression)
{
    return ty_compression_has_ratio(((const ty_compression *)compression)->kind);
}

static bool has_rank(const void *compression)
{
    return ty_compression_has_rank(((const ty_compression *)compression)->kind);
}

static bool is_dgc(const void *compression)
{
    return kinds[((const ty_compression *)compression)->kind].has_warmup;
}

static const json_field compression_fields[] = {
    {"ratio", JSON_NUMBER, JSON_AT(ty_compression, ratio), DBL_MIN, 1, .applies = has_ratio},
    {"rank", JSON_UINT32, JSON_AT(ty_compression, rank), 1, TY_LARGEST_RANK, .applies = has_rank},
    {"warmup_steps", JSON_UINT32, JSON_AT(ty_compression, warmup_steps), 1, MAX_WARMUP_STEPS,
     .applies = is_dgc, .is_optional = true},
    {"clip_norm", JSON_NUMBER, JSON_AT(ty_compression, clip_norm), DBL_MIN, (double)FLT_MAX,
     .applies = is_dgc, .is_optional = true},
};
const json_record ty_compression_record = JSON_RECORD(ty_compression, compression_fields);

JSON_NAMES(name_at, ty_compression_kind, ty_compression_name)

void ty_compression_write(const ty_compression *c, ty_json_writer *writer, const char *key)
{
    ty_json_put_string(writer, key, ty_compression_name(c->kind));
    ty_record_put(&ty_compression_record, c, NULL, writer);
}

ty_status ty_compression_read(const ty_json *object, const char *key, ty_compression *out,
                              ty_error *error)
{
    ty_compression c = {0};
    int kind = 0;

    TY_TRY(ty_json_name(object, key, name_at, TY_COMPRESSION_COUNT, &kind, error));
    c.kind = (ty_compression_kind)kind;
    TY_TRY(ty_record_read(object, &ty_compression_record, &c, NULL, error));
    *out = c;
    return TY_OK;
}

/* ---- Bytes and collectives ----------------------------------------------------------------- */

uint32_t ty_compression_phases(const ty_compression *c)
{
    return kinds[c->kind].phases;
}

ty_collective_kind ty_compression_collective(const ty_compression *c, uint32_t phase)
{
    assert(phase < kinds[c->kind].phases);
    return kinds[c->kind].collectives[phase];
}

uint64_t ty_compression_kept(const ty_compression *c, uint64_t elements)
{
    return kept(c->ratio, elements);
}

bool ty_compression_shards(const ty_compression *compression)
{
    return ty_compression_phases(compression) == 1 &&
           ty_compression_collective(compression, 0) == TY_ALL_REDUCE;
}

ty_gradient_extent ty_rows_extent(uint64_t elements, uint64_t rows, uint64_t columns, uint64_t room)
{
    assert(rows * columns <= elements && room <= rows);
    return (ty_gradient_extent){.elements = elements,
                                .dense_elements = elements - rows * columns,
                                .row_room = room,
                                .row_elements = columns};
}

ty_compression ty_compression_measured(const ty_compression *c, const ty_gradient_extent *extent)
{
    const uint64_t matrix = extent->elements - extent->dense_elements;
    ty_compression measured = *c;

    if (kinds[c->kind].sends_rows && matrix > 0)
        measured.ratio = (double)(extent->row_room * extent->row_elements) / (double)matrix;
    return measured;
}

uint64_t ty_compression_wire_bytes(const ty_compression *c, const ty_gradient_extent *extent,
                                   uint32_t members, uint32_t phase)
{
    return kinds[c->kind].wire_bytes(c, extent, members, phase);
}

static double warmup_ratio(const ty_compression *c, uint32_t step)
{
    if (step >= c->warmup_steps || c->ratio >= first_warmup_ratio)
        return c->ratio;
    return first_warmup_ratio *
           pow(c->ratio / first_warmup_ratio, (double)step / (double)c->warmup_steps);
}

uint64_t ty_compression_warmup_bytes(const ty_compression *c, const ty_gradient_extent *extent,
                                     uint32_t members, uint32_t step)
{
    if (!kinds[c->kind].has_warmup)
        return ty_compression_wire_bytes(c, extent, members, 0);
    return kept(warmup_ratio(c, step), extent->elements) * PAIR_BYTES;
}

uint64_t ty_compression_array(const ty_compression *c, const ty_gradient_extent *extent,
                              uint32_t members, uint32_t index)
{
    const ty_compression_row *row = &kinds[c->kind];

    return row->array_elements == NULL ? extent->elements
                                       : row->array_elements(extent, members, index);
}

uint64_t ty_compression_state_bytes(const ty_compression *c, const ty_gradient_extent *extent,
                                    uint32_t members)
{
    uint64_t elements = kinds[c->kind].selects ? extent->elements : 0;

    for (uint32_t i = 0; i < kinds[c->kind].arrays; i++)
        elements += ty_compression_array(c, extent, members, i);
    return elements * ELEMENT_BYTES;
}

uint64_t ty_compression_payload_bytes(const ty_compression *c, const ty_gradient_extent *extent,
                                      uint32_t members)
{
    uint64_t bytes = 0;

    if (c->kind == TY_COMPRESSION_NONE)
        return 0;
    for (uint32_t phase = 0; phase < kinds[c->kind].phases; phase++) {
        uint64_t own = ty_compression_wire_bytes(c, extent, members, phase);
        if (c->warmup_steps > 0)
            own = ty_compression_warmup_bytes(c, extent, members, 0);
        bytes += own * (kinds[c->kind].collectives[phase] == TY_ALL_GATHER ? members : 1);
    }
    return bytes;
}

bool ty_compression_is_lossy(const ty_compression *c)
{
    return kinds[c->kind].is_lossy;
}

bool ty_compression_has_feedback(const ty_compression *c)
{
    return kinds[c->kind].has_feedback;
}

bool ty_compression_has_momentum(const ty_compression *c)
{
    return kinds[c->kind].has_momentum;
}

bool ty_powersgd_factors(const ty_compression *c, uint64_t rows, uint64_t columns)
{
    return rows > c->rank && columns > c->rank &&
           rows * columns > least_powersgd_gain * c->rank * (rows + columns);
}

void ty_powersgd_count(const ty_compression *c, uint64_t rows, uint64_t columns,
                       ty_gradient_extent *extent)
{
    if (!ty_powersgd_factors(c, rows, columns))
        return;
    extent->dense_elements -= rows * columns;
    extent->p_elements += c->rank * rows;
    extent->q_elements += c->rank * columns;
}

/* ---- When it pays -------------------------------------------------------------------------- */

double ty_compression_crossover(ty_exchange_terms plain, ty_exchange_terms compressed)
{
    double saved_bytes = plain.edge_bytes - compressed.edge_bytes;
    double added_s = compressed.fixed_s - plain.fixed_s;

    if (!(saved_bytes > 0))
        return 0;
    return added_s > 0 ? saved_bytes / added_s : HUGE_VAL;
}
