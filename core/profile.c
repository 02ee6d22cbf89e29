/* Profiles: names, and answers from what was measured. */
#include "ty_profile.h"

#include "profile_curve.h"
#include "profile_names.h"
#include "ty_memory.h"

#include <math.h>
#include <string.h>

const char *const ty_collective_names[TY_COLLECTIVE_COUNT] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast",
    "reduce",     "all_to_all", "send_receive"};
const char *const ty_algorithm_names[TY_ALGORITHM_COUNT] = {
    "ring", "tree", "automatic", "hierarchical", "parameter-server", "block-manager"};
const char *const ty_compression_names[TY_COMPRESSION_COUNT] = {"none", "fp16", "top-k"};

const char *ty_provenance_name(ty_provenance provenance)
{
    static const char *const names[] = {"measured", "calibrated", "datasheet"};
    return (unsigned)provenance < 3 ? names[provenance] : "unknown";
}

const char *ty_collective_name(ty_collective_kind kind)
{
    return (unsigned)kind < TY_COLLECTIVE_COUNT ? ty_collective_names[kind] : "unknown";
}

const char *ty_algorithm_name(ty_algorithm algorithm)
{
    return (unsigned)algorithm < TY_ALGORITHM_COUNT ? ty_algorithm_names[algorithm] : "unknown";
}

bool ty_algorithm_is_built_in(ty_algorithm algorithm)
{
    return algorithm == TY_RING || algorithm == TY_TREE || algorithm == TY_AUTOMATIC;
}

const char *ty_compression_name(ty_compression_kind kind)
{
    return (unsigned)kind < TY_COMPRESSION_COUNT ? ty_compression_names[kind] : "unknown";
}

void ty_profile_free(ty_profile *profile)
{
    if (profile == NULL)
        return;
    for (uint32_t i = 0; i < profile->layer_time_count; i++)
        ty_free(profile->layer_times[i].signature);
    ty_free(profile->layer_times);
    ty_free(profile->collective_times);
    ty_free(profile->transfer_times);
    ty_free(profile->codec_times);
    ty_free(profile->update_times);
    ty_free(profile->machine);
    ty_free(profile->backend);
    ty_free(profile->date);
    ty_free(profile->versions);
    ty_free(profile);
}

/* ---- layers, transfers, updates ---- */

bool ty_profile_layer(const ty_profile *profile, const char *signature, uint32_t samples,
                      double *forward_s, double *backward_s)
{
    ty_curve forward = {.size = samples}, backward = {.size = samples};

    for (uint32_t i = 0; i < profile->layer_time_count; i++) {
        const ty_layer_time *row = &profile->layer_times[i];
        if (strcmp(row->signature, signature) != 0)
            continue;
        ty_curve_add(&forward, row->micro_batch, row->forward_s);
        ty_curve_add(&backward, row->micro_batch, row->backward_s);
    }
    return ty_curve_seconds(&forward, forward_s) && ty_curve_seconds(&backward, backward_s);
}

bool ty_profile_transfer(const ty_profile *profile, uint64_t bytes, double *seconds)
{
    ty_curve curve = {.size = (double)bytes};

    for (uint32_t i = 0; i < profile->transfer_time_count; i++)
        ty_curve_add(&curve, (double)profile->transfer_times[i].bytes,
                     profile->transfer_times[i].seconds);
    return ty_curve_seconds(&curve, seconds);
}

bool ty_profile_update(const ty_profile *profile, ty_optimizer_kind kind, uint64_t elements,
                       double *seconds)
{
    ty_curve curve = {.size = (double)elements};

    for (uint32_t i = 0; i < profile->update_time_count; i++) {
        const ty_update_time *row = &profile->update_times[i];
        if (row->kind == kind)
            ty_curve_add(&curve, (double)row->elements, row->seconds);
    }
    return ty_curve_seconds(&curve, seconds);
}

/* ---- rank counts ---- */

/* The measured count that stands for `ranks`: the largest not above it, else the smallest. */
static uint32_t nearest_ranks(uint32_t best, uint32_t candidate, uint32_t ranks)
{
    if (best == 0)
        return candidate;
    if (best <= ranks)
        return candidate <= ranks && candidate > best ? candidate : best;
    return candidate < best ? candidate : best;
}

/* ---- collectives ---- */

/* Messages that follow one another. Thakur, Rabenseifner, Gropp, "Optimization of Collective
 * Communication Operations in MPICH", 2005, section 3. */
static double step_count(ty_collective_kind kind, ty_algorithm algorithm, uint32_t ranks)
{
    double once = algorithm == TY_TREE ? ceil(log2((double)ranks)) : (double)ranks - 1.0;
    return kind == TY_ALL_REDUCE ? 2.0 * once : once;
}

/* Whether a step moves the n-th part of the payload rather than all of it. */
static bool is_divided(ty_collective_kind kind, ty_algorithm algorithm)
{
    return algorithm == TY_RING && (kind == TY_ALL_REDUCE || kind == TY_REDUCE_SCATTER);
}

static bool is_collective(const ty_collective_time *row, ty_collective_kind kind,
                          ty_algorithm algorithm)
{
    return row->kind == kind && row->algorithm == algorithm;
}

bool ty_profile_collective(const ty_profile *profile, ty_collective_kind kind,
                           ty_algorithm algorithm, uint32_t ranks, uint64_t bytes, double *seconds)
{
    ty_curve curve = {0};
    uint32_t measured = 0;
    double alone;

    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm))
            measured = nearest_ranks(measured, row->ranks, ranks);
    }
    if (measured == 0)
        return false;
    /* Equal bytes per step, so that each step takes as long as it did when measured. */
    curve.size = (double)bytes;
    if (is_divided(kind, algorithm) && ranks > 0)
        curve.size *= (double)measured / (double)ranks;
    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm) && row->ranks == measured)
            ty_curve_add(&curve, (double)row->bytes, row->seconds);
    }
    if (!ty_curve_seconds(&curve, &alone))
        return false;
    if (ranks != measured)
        alone *= ranks < 2
                     ? 0.0
                     : step_count(kind, algorithm, ranks) / step_count(kind, algorithm, measured);
    *seconds = alone;
    return true;
}

bool ty_profile_placed_collective(const ty_profile *profile, ty_collective_kind kind,
                                  ty_algorithm algorithm, uint32_t ranks, uint32_t hosts,
                                  uint64_t bytes, double *seconds)
{
    ty_curve curve = {.size = (double)bytes};

    for (uint32_t i = 0; i < profile->collective_time_count; i++) {
        const ty_collective_time *row = &profile->collective_times[i];
        if (is_collective(row, kind, algorithm) && row->ranks == ranks && row->hosts == hosts)
            ty_curve_add(&curve, (double)row->bytes, row->seconds);
    }
    return ty_curve_seconds(&curve, seconds);
}

/* ---- codecs ---- */

static bool is_codec(const ty_codec_time *row, ty_compression_kind kind, double ratio)
{
    return row->kind == kind && row->ratio == ratio;
}

/* The measured ratio closest to `ratio`, -1 if there is none; of two as close the smaller. */
static double nearest_ratio(const ty_profile *profile, ty_compression_kind kind, double ratio)
{
    double best = -1.0;

    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_codec_time *row = &profile->codec_times[i];
        double gain = fabs(best - ratio) - fabs(row->ratio - ratio);
        if (row->kind == kind && (best < 0.0 || gain > 0.0 || (gain == 0.0 && row->ratio < best)))
            best = row->ratio;
    }
    return best;
}

/* Times at `elements` with the rows of one rank count. */
static bool codec_at(const ty_profile *profile, ty_compression_kind kind, double ratio,
                     uint32_t ranks, uint64_t elements, double *encode_s, double *decode_s)
{
    ty_curve encode = {.size = (double)elements}, decode = {.size = (double)elements};

    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_codec_time *row = &profile->codec_times[i];
        if (!is_codec(row, kind, ratio) || row->ranks != ranks)
            continue;
        ty_curve_add(&encode, (double)row->elements, row->encode_s);
        ty_curve_add(&decode, (double)row->elements, row->decode_s);
    }
    return ty_curve_seconds(&encode, encode_s) && ty_curve_seconds(&decode, decode_s);
}

/* What every rank gathers from all others takes longer to decode the more there are. */
static bool decode_by_ranks(const ty_profile *profile, ty_compression_kind kind, double ratio,
                            uint32_t ranks, uint64_t elements, double *decode_s)
{
    ty_curve curve = {.size = ranks};

    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        const ty_codec_time *row = &profile->codec_times[i];
        bool is_first = is_codec(row, kind, ratio);
        double encode, decode;
        for (uint32_t k = 0; k < i && is_first; k++)
            is_first = !is_codec(&profile->codec_times[k], kind, ratio) ||
                       profile->codec_times[k].ranks != row->ranks;
        if (is_first && codec_at(profile, kind, ratio, row->ranks, elements, &encode, &decode))
            ty_curve_add(&curve, row->ranks, decode);
    }
    return ty_curve_seconds(&curve, decode_s);
}

bool ty_profile_codec(const ty_profile *profile, ty_compression_kind kind, double ratio,
                      uint32_t ranks, uint64_t elements, double *encode_s, double *decode_s)
{
    double measured_ratio = nearest_ratio(profile, kind, ratio), encode, decode;
    uint32_t measured = 0;

    if (kind == TY_COMPRESSION_NONE) {
        *encode_s = *decode_s = 0.0;
        return true;
    }
    for (uint32_t i = 0; i < profile->codec_time_count; i++) {
        if (is_codec(&profile->codec_times[i], kind, measured_ratio))
            measured = nearest_ranks(measured, profile->codec_times[i].ranks, ranks);
    }
    if (measured == 0 ||
        !codec_at(profile, kind, measured_ratio, measured, elements, &encode, &decode))
        return false;
    if (kind == TY_COMPRESSION_TOP_K &&
        !decode_by_ranks(profile, kind, measured_ratio, ranks, elements, &decode))
        return false;
    *encode_s = encode;
    *decode_s = decode;
    return true;
}
