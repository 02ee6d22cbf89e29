/* Profiles: names, and look-ups in measurements. */
#include "ty_profile.h"

#include "profile_curve.h"
#include "profile_names.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_program.h"

#include <math.h>
#include <string.h>

const char *const ty_algorithm_names[TY_ALGORITHM_COUNT] = {
    "ring", "tree", "automatic", "hierarchical", "parameter-server", "block-manager"};

const char *ty_provenance_name(ty_provenance provenance)
{
    static const char *const names[] = {"measured", "calibrated", "datasheet"};
    return (unsigned)provenance < 3 ? names[provenance] : "unknown";
}

const char *ty_algorithm_name(ty_algorithm algorithm)
{
    return (unsigned)algorithm < TY_ALGORITHM_COUNT ? ty_algorithm_names[algorithm] : "unknown";
}

ty_status ty_profile_scale(ty_profile *profile, const char *measured_on, double scale,
                           ty_error *error)
{
    ty_text text = {0};

    ty_text_addf(&text, "%s by %.3g", measured_on, scale);
    ty_free(profile->scaled);
    profile->scaled = NULL;
    TY_TRY(ty_text_take(&text, &profile->scaled, error));
    for (uint32_t i = 0; i < profile->layer_time_count; i++) {
        ty_layer_time *t = &profile->layer_times[i];
        t->forward_s *= scale;
        t->backward_s *= scale;
        t->input_s *= scale;
        t->weight_s *= scale;
    }
    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        ty_codec_cost *c = &profile->codec_times[i].cost;
        for (int phase = 0; phase < TY_MOST_PHASES; phase++)
            c->encode_s[phase] *= scale;
        c->decode_s *= scale;
    }
    for (uint32_t i = 0; i < profile->update_time_count; i++)
        profile->update_times[i].seconds *= scale;
    return TY_OK;
}

/* An empty curve for the requested size. */
static ty_curve curve_at(const ty_profile *profile, double size)
{
    return (ty_curve){.size = size, .outside = profile->outside};
}

/* ---- input, layers, transfers, updates ---- */

double ty_profile_input(const ty_profile *profile, const ty_workload *workload, uint32_t samples,
                        uint64_t bytes)
{
    if (profile->input_source != NULL && strcmp(profile->input_source, workload->name) == 0)
        return samples * profile->input_s_per_sample;
    return (double)bytes * profile->load_s_per_byte;
}

bool ty_profile_layer(const ty_profile *profile, const char *signature, uint32_t samples,
                      double *forward_s, double *backward_s)
{
    ty_curve forward = curve_at(profile, samples), backward = forward;

    for (uint32_t i = 0; i < profile->layer_time_count; i++) {
        const ty_layer_time *row = &profile->layer_times[i];
        if (strcmp(row->signature, signature) != 0)
            continue;
        ty_curve_add(&forward, row->micro_batch, row->forward_s);
        ty_curve_add(&backward, row->micro_batch, row->backward_s);
    }
    return ty_curve_seconds(&forward, forward_s) && ty_curve_seconds(&backward, backward_s);
}

bool ty_profile_micro_batches(const ty_profile *profile, uint32_t *smallest, uint32_t *largest)
{
    uint32_t least = UINT32_MAX, most = 0;

    for (uint32_t i = 0; i < profile->layer_time_count; i++) {
        const uint32_t samples = profile->layer_times[i].micro_batch;
        least = samples < least ? samples : least;
        most = samples > most ? samples : most;
    }
    if (most == 0)
        return false;
    *smallest = least;
    *largest = most;
    return true;
}

static bool has_parts(const ty_layer_time *row)
{
    return row->input_s + row->weight_s > 0;
}

bool ty_profile_has_parts(const ty_profile *profile)
{
    for (uint32_t i = 0; i < profile->layer_time_count; i++)
        if (has_parts(&profile->layer_times[i]))
            return true;
    return false;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

bool ty_profile_weight_share(const ty_profile *profile, const char *signature, uint32_t samples,
                             double *share)
{
    const ty_layer_time *nearest = NULL;

    for (uint32_t i = 0; i < profile->layer_time_count; i++) {
        const ty_layer_time *row = &profile->layer_times[i];
        if (!has_parts(row) || strcmp(row->signature, signature) != 0)
            continue;
        if (nearest == NULL ||
            distance(row->micro_batch, samples) < distance(nearest->micro_batch, samples))
            nearest = row;
    }
    if (nearest != NULL)
        *share = nearest->weight_s / (nearest->input_s + nearest->weight_s);
    return nearest != NULL;
}

bool ty_profile_transfer(const ty_profile *profile, uint64_t bytes, double *seconds)
{
    ty_curve curve = curve_at(profile, (double)bytes);

    for (uint32_t i = 0; i < profile->transfer_time_count; i++)
        ty_curve_add(&curve, (double)profile->transfer_times[i].bytes,
                     profile->transfer_times[i].seconds);
    return ty_curve_seconds(&curve, seconds);
}

double ty_profile_busy_share(const ty_profile *profile, uint64_t bytes)
{
    ty_curve all = {.size = (double)bytes}, busy = {.size = (double)bytes};
    double seconds, busy_s;

    for (uint32_t i = 0; i < profile->transfer_time_count; i++) {
        const ty_transfer_time *row = &profile->transfer_times[i];
        if (row->cpu_s <= 0)
            continue;
        ty_curve_add(&all, (double)row->bytes, row->seconds);
        ty_curve_add(&busy, (double)row->bytes, row->cpu_s);
    }
    if (!ty_curve_seconds(&all, &seconds) || !ty_curve_seconds(&busy, &busy_s) || busy_s >= seconds)
        return 1;
    return busy_s / seconds;
}

bool ty_profile_update(const ty_profile *profile, ty_optimizer_kind kind, uint64_t elements,
                       double *seconds)
{
    ty_curve curve = curve_at(profile, (double)elements);

    for (uint32_t i = 0; i < profile->update_time_count; i++) {
        const ty_update_time *row = &profile->update_times[i];
        if (row->kind == kind)
            ty_curve_add(&curve, (double)row->elements, row->seconds);
    }
    return ty_curve_seconds(&curve, seconds);
}

/* ---- rank counts ---- */

/* The measured count to use for `ranks`: the largest not above it, else the smallest. */
static uint32_t nearest_ranks(uint32_t best, uint32_t candidate, uint32_t ranks)
{
    if (best == 0)
        return candidate;
    if (best <= ranks)
        return candidate <= ranks && candidate > best ? candidate : best;
    return candidate < best ? candidate : best;
}

/* ---- collectives ---- */

static bool is_collective(const ty_collective_time *row, ty_collective_kind kind,
                          ty_algorithm algorithm)
{
    return row->kind == kind && row->algorithm == algorithm;
}

bool ty_profile_collective(const ty_profile *profile, ty_collective_kind kind,
                           ty_algorithm algorithm, uint32_t ranks, uint64_t bytes, double *seconds)
{
    ty_curve curve = curve_at(profile, (double)bytes);
    uint32_t measured = 0;
    double alone;

    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm))
            measured = nearest_ranks(measured, row->ranks, ranks);
    }
    if (measured == 0)
        return false;
    /* Equal bytes per step, so each step takes the measured time. */
    const ty_collective_terms asked = ty_collective_terms_of(kind, algorithm, ranks);
    const ty_collective_terms known = ty_collective_terms_of(kind, algorithm, measured);
    if (asked.steps > 0 && known.steps > 0)
        curve.size *= asked.edge_share / asked.steps / (known.edge_share / known.steps);
    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm) && row->ranks == measured)
            ty_curve_add(&curve, (double)row->bytes, row->seconds);
    }
    if (!ty_curve_seconds(&curve, &alone))
        return false;
    if (ranks != measured)
        alone *= asked.steps / known.steps;
    *seconds = alone;
    return true;
}

bool ty_profile_placed_collective(const ty_profile *profile, ty_collective_kind kind,
                                  ty_algorithm algorithm, uint32_t ranks, uint32_t hosts,
                                  uint64_t bytes, double *seconds)
{
    ty_curve curve = curve_at(profile, (double)bytes);

    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm) && row->ranks == ranks && row->hosts == hosts)
            ty_curve_add(&curve, (double)row->bytes, row->seconds);
    }
    return ty_curve_seconds(&curve, seconds);
}

/* ---- codecs ---- */

/* The parameter that distinguishes rows of one kind. */
static double parameter(const ty_compression *c)
{
    return ty_compression_has_rank(c->kind) ? c->rank : c->ratio;
}

static bool is_codec(const ty_codec_time *row, const ty_compression *measured)
{
    return row->compression.kind == measured->kind &&
           parameter(&row->compression) == parameter(measured);
}

/* The closest measured compressor of the same kind; of two equally close ones, that with the
 * smaller parameter. */
static bool nearest_codec(const ty_profile *profile, const ty_compression *wanted,
                          ty_compression *out)
{
    bool is_found = false;

    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_compression *row = &profile->codec_times[i].compression;
        double gain =
            fabs(parameter(out) - parameter(wanted)) - fabs(parameter(row) - parameter(wanted));
        if (row->kind != wanted->kind)
            continue;
        if (!is_found || gain > 0.0 || (gain == 0.0 && parameter(row) < parameter(out)))
            *out = *row;
        is_found = true;
    }
    return is_found;
}

/* Times at `elements` with the rows of one rank count. */
static bool codec_at(const ty_profile *profile, const ty_compression *measured, uint32_t ranks,
                     uint64_t elements, ty_codec_cost *cost)
{
    ty_curve decode = curve_at(profile, (double)elements), encodes[TY_MOST_PHASES];

    for (int phase = 0; phase < TY_MOST_PHASES; phase++)
        encodes[phase] = decode;
    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_codec_time *row = &profile->codec_times[i];
        if (!is_codec(row, measured) || row->ranks != ranks)
            continue;
        ty_curve_add(&decode, (double)row->elements, row->cost.decode_s);
        for (int phase = 0; phase < TY_MOST_PHASES; phase++)
            ty_curve_add(&encodes[phase], (double)row->elements, row->cost.encode_s[phase]);
    }
    return ty_curve_seconds(&decode, &cost->decode_s) &&
           ty_curve_seconds(&encodes[0], &cost->encode_s[0]) &&
           ty_curve_seconds(&encodes[1], &cost->encode_s[1]);
}

/* Whether the row is the first of its compressor and rank count. */
static bool is_first_of_ranks(const ty_profile *profile, uint32_t row)
{
    const ty_codec_time *rows = profile->codec_times;

    for (uint32_t i = 0; i < row; i++)
        if (is_codec(&rows[i], &rows[row].compression) && rows[i].ranks == rows[row].ranks)
            return false;
    return true;
}

/* Decoding of gathered payloads takes longer with more ranks. */
static bool decode_by_ranks(const ty_profile *profile, const ty_compression *measured,
                            uint32_t ranks, uint64_t elements, double *decode_s)
{
    ty_curve curve = curve_at(profile, ranks);

    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_codec_time *row = &profile->codec_times[i];
        ty_codec_cost at;
        if (is_codec(row, measured) && is_first_of_ranks(profile, i) &&
            codec_at(profile, measured, row->ranks, elements, &at))
            ty_curve_add(&curve, row->ranks, at.decode_s);
    }
    return ty_curve_seconds(&curve, decode_s);
}

bool ty_profile_codec(const ty_profile *profile, const ty_compression *compression, uint32_t ranks,
                      uint64_t elements, ty_codec_cost *cost)
{
    ty_compression nearest = {0};
    ty_codec_cost found;
    uint32_t measured = 0;

    if (compression->kind == TY_COMPRESSION_NONE) {
        *cost = (ty_codec_cost){0};
        return true;
    }
    if (!nearest_codec(profile, compression, &nearest))
        return false;
    for (uint32_t i = 0; i < profile->codec_time_count; i++)
        if (is_codec(&profile->codec_times[i], &nearest))
            measured = nearest_ranks(measured, profile->codec_times[i].ranks, ranks);
    if (measured == 0 || !codec_at(profile, &nearest, measured, elements, &found))
        return false;
    if (ty_compression_collective(compression, 0) == TY_ALL_GATHER &&
        !decode_by_ranks(profile, &nearest, ranks, elements, &found.decode_s))
        return false;
    *cost = found;
    return true;
}
