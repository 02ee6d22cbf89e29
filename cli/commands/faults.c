/* Faults of trainyard simulate: slow links and failures. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FAULTS = 1000, WORD_SIZE = 256 };

/* Reads the next word of a list, up to a comma; false at the end or if a word is too long. */
static bool next_word(const char **list, char word[WORD_SIZE])
{
    const size_t length = strcspn(*list, ",");

    if (length == 0 || length >= WORD_SIZE)
        return false;
    memcpy(word, *list, length);
    word[length] = '\0';
    *list += length + ((*list)[length] == ',');
    return true;
}

/* Splits "A:B" in place; NULL if there is no colon. */
static char *second_of(char *word)
{
    char *colon = strchr(word, ':');
    if (colon == NULL)
        return NULL;
    *colon = '\0';
    return colon + 1;
}

/* ---- Slow links ---------------------------------------------------------------------------- */

static ty_status read_slow_link(char *word, const ty_cluster *cluster, double *factors,
                                ty_error *error)
{
    char *equals = strrchr(word, '='), *end = NULL, *other;
    uint32_t link = 0;
    ty_status status;
    const double factor = equals != NULL ? strtod(equals + 1, &end) : 0.0;

    if (equals == NULL || end == equals + 1 || *end != '\0' || !(factor >= 1e-6 && factor <= 1.0))
        return ty_fail(error, TY_EINVAL,
                       "--slow-link: found '%.80s', expected A:B=F with F from 0.000001 to 1",
                       word);
    *equals = '\0';
    if ((other = second_of(word)) == NULL)
        return ty_fail(error, TY_EINVAL, "--slow-link: found '%.80s', expected A:B=F", word);
    status = ty_cluster_find_link(cluster, word, other, &link, error);
    if (status == TY_OK)
        factors[link] = factor;
    return status;
}

ty_status faults_slow_links(const char *text, ty_plan_inputs *inputs, ty_error *error)
{
    ty_status status = TY_OK;
    char word[WORD_SIZE];
    ty_cluster *impaired = NULL;
    double *factors = ty_alloc(ty_cluster_link_count(inputs->cluster), sizeof *factors);

    TY_TRY(ty_check_memory(factors != NULL, error));
    for (uint32_t l = 0; l < ty_cluster_link_count(inputs->cluster); l++)
        factors[l] = 1.0;
    while (status == TY_OK && next_word(&text, word))
        status = read_slow_link(word, inputs->cluster, factors, error);
    if (status == TY_OK && *text != '\0')
        status = ty_fail(error, TY_EINVAL, "--slow-link: found '%.40s', expected A:B=F", text);
    if (status == TY_OK)
        status = ty_cluster_impaired(inputs->cluster, factors, &impaired, error);
    ty_free(factors);
    if (status != TY_OK)
        return status;
    ty_cluster_free(inputs->cluster);
    inputs->cluster = impaired;
    return TY_OK;
}

/* ---- Failures ------------------------------------------------------------------------------ */

/* Parses "device:3", "host:1" or "link:A:B". */
static ty_status read_part(const ty_cluster *cluster, char *word, ty_fault *fault, ty_error *error)
{
    char *which = second_of(word), *other;
    const bool is_host = strcmp(word, "host") == 0;
    const uint32_t count =
        is_host ? ty_cluster_host_count(cluster) : ty_cluster_device_count(cluster);
    uint64_t index = 0;

    if (which != NULL && strcmp(word, "link") == 0) {
        fault->kind = TY_FAULT_LINK;
        if ((other = second_of(which)) == NULL)
            return ty_fail(error, TY_EINVAL, "--fail: found link '%.80s', expected link:A:B",
                           which);
        return ty_cluster_find_link(cluster, which, other, &fault->index, error);
    }
    if (which == NULL || (!is_host && strcmp(word, "device") != 0))
        return ty_fail(error, TY_EINVAL,
                       "--fail: found '%.80s', expected device:N, host:N, link:A:B or random",
                       word);
    fault->kind = is_host ? TY_FAULT_HOST : TY_FAULT_DEVICE;
    if (ty_parse_uint(which, 0, UINT32_MAX, &index, NULL) != TY_OK || index >= count)
        return ty_fail(error, TY_EINVAL, "--fail: found %s '%.40s', expected one below %u", word,
                       which, count);
    fault->index = (uint32_t)index;
    return TY_OK;
}

static ty_status read_fault(const ty_cluster *cluster, ty_arena *names, char *word,
                            ty_fault *faults, ty_forecast_question *out, ty_error *error)
{
    ty_fault *fault = &faults[out->fault_count];
    char *at = strrchr(word, '@');

    if (strcmp(word, "random") == 0) {
        out->is_random = true;
        return TY_OK;
    }
    if (at == NULL)
        return ty_fail(error, TY_EINVAL,
                       "--fail: found '%.80s', expected WHAT@TIME, as in device:3@2h, or random",
                       word);
    if (out->fault_count == MOST_FAULTS)
        return ty_fail(error, TY_EINVAL, "--fail: found more than %d failures", MOST_FAULTS);
    TY_TRY(ty_check_memory((fault->name = ty_arena_strdup(names, word)) != NULL, error));
    *at = '\0';
    TY_TRY(ty_parse_seconds(at + 1, &fault->time_s, error));
    TY_TRY(read_part(cluster, word, fault, error));
    if (out->fault_count > 0 && fault->time_s < fault[-1].time_s)
        return ty_fail(error, TY_EINVAL, "--fail: found %s after %s, expected them in order",
                       fault->name, fault[-1].name);
    out->fault_count++;
    return TY_OK;
}

static ty_status read_time(const char *name, const char *text, double *seconds, ty_error *error)
{
    ty_error why = {0};

    if (text == NULL || ty_parse_seconds(text, seconds, &why) == TY_OK)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "--%s: %s", name, why.message);
}

ty_status faults_read(const cli_options *options, const ty_cluster *cluster, ty_arena *texts,
                      ty_forecast_question *out, ty_error *error)
{
    const char *list = options->failures;
    char word[WORD_SIZE];
    ty_fault *faults = ty_arena_alloc(texts, MOST_FAULTS + 1, sizeof *faults);

    *out = ty_forecast_question_default();
    out->is_elastic = options->elastic;
    out->seeds = (uint32_t)options->seeds;
    out->seed = options->seed;
    out->faults = faults;
    TY_TRY(ty_check_memory(faults != NULL, error));
    while (next_word(&list, word))
        TY_TRY(read_fault(cluster, texts, word, faults, out, error));
    if (*list != '\0')
        return ty_fail(error, TY_EINVAL, "--fail: found '%.40s', expected WHAT@TIME", list);
    TY_TRY(read_time("checkpoint-interval", options->checkpoint_interval,
                     &out->checkpoint_interval_s, error));
    TY_TRY(read_time("horizon", options->horizon, &out->horizon_s, error));
    TY_TRY(read_time("repair", options->repair, &out->repair_s, error));
    TY_TRY(read_time("restart", options->restart, &out->restart_s, error));
    return TY_OK;
}

/* ---- Showing ------------------------------------------------------------------------------- */

void forecast_print(const ty_forecast *o, ty_text *text)
{
    const ty_endurance *e = &o->endurance;
    const double percent = 100.0 / o->question.horizon_s;
    char horizon[32], interval[32];

    ty_format_seconds(o->question.horizon_s, horizon);
    ty_format_seconds(o->question.checkpoint_interval_s, interval);
    ty_text_addf(text,
                 "goodput     %.1f %% of %s with %u failures, a checkpoint every %s: written %.1f "
                 "%%,\n            lost %.1f %%, down %.1f %%, fewer devices %.1f %%\n",
                 100.0 * e->goodput, horizon, e->failures, interval, e->checkpoint_s * percent,
                 e->lost_s * percent, e->down_s * percent, e->degraded_s * percent);
    if (o->seeds > 1)
        ty_text_addf(text, "            of %u seeds: half reach %.1f %%, 19 of 20 %.1f %%\n",
                     o->seeds, 100.0 * o->p50_goodput, 100.0 * o->p5_goodput);
}
