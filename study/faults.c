/* Faults for trainyard simulate: slow links, failures at times that are given or by chance. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_HORIZON_S (30.0 * 86400.0)
#define DEFAULT_REPAIR_S 86400.0
enum { MOST_FAULTS = 1000, MOST_LOST = 8, WORD_SIZE = 256 };

/* The next word of a list, up to a comma; false at its end or where a word is too long. */
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

/* Splits "A:B" in place; NULL where there is no colon. */
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

static double *factors_of(const ty_cluster *cluster)
{
    double *factors = ty_alloc(ty_cluster_link_count(cluster), sizeof *factors);

    for (uint32_t l = 0; factors != NULL && l < ty_cluster_link_count(cluster); l++)
        factors[l] = 1.0;
    return factors;
}

ty_status faults_slow_links(const char *text, plan_inputs *inputs, ty_error *error)
{
    ty_status status = TY_OK;
    char word[WORD_SIZE];
    ty_cluster *impaired = NULL;
    double *factors = factors_of(inputs->cluster);

    if (factors == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
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

/* ---- What a fault costs -------------------------------------------------------------------- */

typedef struct faults {
    const cli_options *options;
    const plan_inputs *inputs;
    const ty_simulate_options *how;
    double step_time_s;
    bool *is_lost; /* [replica] */
    uint32_t lost_count;
    bool is_random;
    fault_outlook *out;
} faults;

/* Seconds of a step of other inputs; slowdowns are of the ranks of the plan as it was. */
static ty_status simulate_other(const faults *f, const plan_inputs *inputs, bool has_all_ranks,
                                double *step_time_s, ty_error *error)
{
    ty_simulate_options how = *f->how;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_status status;

    if (!has_all_ranks)
        how.slowdowns = NULL;
    TY_CHECK(ty_simulate(inputs->plan, inputs->program, inputs->costs, inputs->cluster, &how,
                         &timeline, error),
             status, done);
    TY_CHECK(ty_timeline_summarize(inputs->plan, inputs->program, timeline, &summary, error),
             status, done);
    *step_time_s = summary.step_time_s;
done:
    ty_timeline_free(timeline);
    return status;
}

/* How fast work goes on over what other ways there are. */
static ty_status rate_without_link(const faults *f, uint32_t link, double *rate, ty_error *error)
{
    plan_inputs inputs = *f->inputs;
    double step_time_s = 0.0;
    double *factors = factors_of(inputs.cluster);

    if (factors == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    factors[link] = 0.0;
    ty_status status = ty_cluster_impaired(f->inputs->cluster, factors, &inputs.cluster, error);
    ty_free(factors);
    *rate = 0.0;
    if (status != TY_OK)
        return status == TY_EINFEASIBLE ? TY_OK : status; /* cut off: nothing goes on */
    status = simulate_other(f, &inputs, true, &step_time_s, error);
    if (status == TY_OK)
        *rate = fmin(1.0, f->step_time_s / step_time_s);
    ty_cluster_free(inputs.cluster);
    return status;
}

static uint32_t replica_of(const ty_plan *plan, uint32_t rank)
{
    return rank - ty_plan_first_rank(plan, ty_plan_stage_of_rank(plan, rank));
}

/* Marks the replicas that lose a device. @return how many are new */
static uint32_t lose_replicas(faults *f, bool is_host, uint32_t index)
{
    const ty_plan *plan = f->inputs->plan;
    uint32_t count = 0;

    for (uint32_t r = 0; r < ty_plan_rank_count(plan); r++)
        for (uint32_t lane = 0; lane < ty_plan_width(plan); lane++) {
            const uint32_t device = ty_plan_device_of_lane(plan, r, lane);
            const uint32_t found =
                is_host ? ty_cluster_device_host(f->inputs->cluster, device) : device;
            if (found != index || f->is_lost[replica_of(plan, r)])
                continue;
            f->is_lost[replica_of(plan, r)] = true;
            count++;
        }
    f->lost_count += count;
    return count;
}

/* Steps of ever smaller plans. Which replicas are gone hardly matters: the last ones. */
static ty_status measure_shrinking(const faults *f, uint32_t lost, ty_error *error)
{
    ty_plan *plan = NULL;
    ty_status status = ty_plan_copy(f->inputs->plan, &plan, error);

    f->out->rates[0] = 1.0;
    f->out->question.rate_count = 1;
    for (uint32_t k = 1; status == TY_OK && k <= lost; k++) {
        ty_plan *smaller = NULL;
        plan_inputs inputs = {0};
        double step_time_s = 0.0;
        status = ty_plan_without_replica(plan, plan->stages[0].replicas - 1, &smaller, error);
        ty_plan_free(plan);
        plan = NULL;
        if (status == TY_OK)
            status = ty_plan_copy(smaller, &plan, error);
        if (status == TY_OK)
            status = plan_inputs_from(smaller, &inputs, error);
        else
            ty_plan_free(smaller);
        if (status == TY_OK)
            status = simulate_other(f, &inputs, false, &step_time_s, error);
        if (status == TY_OK)
            f->out->rates[f->out->question.rate_count++] =
                fmin(1.0, (double)inputs.plan->global_batch / step_time_s /
                              ((double)f->inputs->plan->global_batch / f->step_time_s));
        plan_inputs_clear(&inputs);
    }
    ty_plan_free(plan);
    return status;
}

/* ---- What was asked for -------------------------------------------------------------------- */

static ty_status read_index(const char *text, const char *what, uint32_t count, uint32_t *index,
                            ty_error *error)
{
    uint64_t number = 0;

    if (ty_parse_uint(text, 0, UINT32_MAX, &number, NULL) != TY_OK || number >= count)
        return ty_fail(error, TY_EINVAL, "--fail: found %s '%.40s', expected one below %u", what,
                       text, count);
    *index = (uint32_t)number;
    return TY_OK;
}

/* "device:3", "host:1" or "link:A:B". */
static ty_status read_part(faults *f, char *word, ty_known_fault *fault, ty_error *error)
{
    const ty_cluster *cluster = f->inputs->cluster;
    char *which = second_of(word), *other;
    const bool is_host = strcmp(word, "host") == 0;
    uint32_t index = 0;
    ty_status status;

    if (which != NULL && strcmp(word, "link") == 0) {
        if ((other = second_of(which)) == NULL)
            return ty_fail(error, TY_EINVAL, "--fail: found link '%.80s', expected link:A:B",
                           which);
        status = ty_cluster_find_link(cluster, which, other, &index, error);
        return status == TY_OK ? rate_without_link(f, index, &fault->rate, error) : status;
    }
    if (which == NULL || (!is_host && strcmp(word, "device") != 0))
        return ty_fail(error, TY_EINVAL,
                       "--fail: found '%.80s', expected device:N, host:N, link:A:B or random",
                       word);
    status = read_index(which, word,
                        is_host ? ty_cluster_host_count(cluster) : ty_cluster_device_count(cluster),
                        &index, error);
    if (status == TY_OK && f->options->elastic)
        fault->replicas = lose_replicas(f, is_host, index);
    return status;
}

static ty_status read_fault(faults *f, char *word, ty_error *error)
{
    fault_outlook *out = f->out;
    char *at = strrchr(word, '@');
    ty_known_fault fault = {.rate = 1.0};
    ty_status status;

    if (strcmp(word, "random") == 0) {
        f->is_random = true;
        return TY_OK;
    }
    if (at == NULL)
        return ty_fail(error, TY_EINVAL,
                       "--fail: found '%.80s', expected WHAT@TIME, as in device:3@2h, or random",
                       word);
    if (out->question.known_count == MOST_FAULTS)
        return ty_fail(error, TY_EINVAL, "--fail: found more than %d failures", MOST_FAULTS);
    if ((out->names[out->question.known_count] = ty_strdup(word)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    *at = '\0';
    TY_CHECK(ty_parse_seconds(at + 1, &fault.time_s, error), status, done);
    TY_CHECK(read_part(f, word, &fault, error), status, done);
    out->known[out->question.known_count++] = fault;
    return TY_OK;
done:
    ty_free(out->names[out->question.known_count]);
    out->names[out->question.known_count] = NULL;
    return status;
}

static ty_status read_faults(faults *f, const char *list, ty_error *error)
{
    fault_outlook *out = f->out;
    char word[WORD_SIZE];
    ty_status status = TY_OK;

    while (status == TY_OK && next_word(&list, word))
        status = read_fault(f, word, error);
    if (status == TY_OK && *list != '\0')
        status = ty_fail(error, TY_EINVAL, "--fail: found '%.40s', expected WHAT@TIME", list);
    for (uint32_t i = 1; status == TY_OK && i < out->question.known_count; i++)
        if (out->known[i].time_s < out->known[i - 1].time_s)
            status = ty_fail(error, TY_EINVAL, "--fail: found %s after %s, expected them in order",
                             out->names[i], out->names[i - 1]);
    return status;
}

static ty_status read_time(const char *name, const char *text, double *seconds, ty_error *error)
{
    ty_error why = {0};

    if (text == NULL || ty_parse_seconds(text, seconds, &why) == TY_OK)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "--%s: %s", name, why.message);
}

/* Rates and durations: as asked for, else the usual ones. */
static ty_status read_times(const faults *f, ty_error *error)
{
    ty_endurance_question *q = &f->out->question;
    ty_score_question usual = ty_score_question_default();
    ty_failure_question failures;
    ty_failure_outlook outlook;
    ty_status status;

    TY_CHECK(read_time("checkpoint-interval", f->options->checkpoint_interval,
                       &usual.checkpoint_interval_s, error),
             status, done);
    TY_CHECK(ty_failure_question_of(f->inputs->plan, f->inputs->cluster, &usual, &failures, error),
             status, done);
    q->horizon_s = DEFAULT_HORIZON_S;
    q->repair_s = DEFAULT_REPAIR_S;
    TY_CHECK(read_time("horizon", f->options->horizon, &q->horizon_s, error), status, done);
    TY_CHECK(read_time("repair", f->options->repair, &q->repair_s, error), status, done);
    TY_CHECK(read_time("restart", f->options->restart, &failures.restart_s, error), status, done);
    TY_CHECK(ty_failures(&failures, &outlook, error), status, done);
    q->checkpoint_interval_s = outlook.checkpoint_interval_s;
    q->checkpoint_write_s = failures.checkpoint_write_s;
    q->restart_s = failures.restart_s;
    q->failure_rate_per_s = f->is_random ? 1.0 / outlook.system_mtbf_s : 0.0;
    q->seed = f->options->seed;
    q->known = f->out->known;
    q->rates = f->out->rates;
done:
    return status;
}

/* ---- The run ------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static ty_status endure_seeds(fault_outlook *out, uint32_t seeds, ty_error *error)
{
    ty_status status = TY_OK;
    double *goodputs = ty_alloc(seeds, sizeof *goodputs);

    if (goodputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; status == TY_OK && i < seeds; i++) {
        ty_endurance_question question = out->question;
        ty_endurance endurance;
        question.seed += i;
        status = ty_endure(&question, &endurance, error);
        if (status != TY_OK)
            break;
        if (i == 0)
            out->endurance = endurance;
        goodputs[i] = endurance.goodput;
    }
    if (status == TY_OK) {
        qsort(goodputs, seeds, sizeof *goodputs, compare_numbers);
        out->seeds = seeds;
        out->p50_goodput = goodputs[seeds - (uint32_t)ceil(0.5 * seeds)];
        out->p5_goodput = goodputs[seeds - (uint32_t)ceil(0.95 * seeds)];
    }
    ty_free(goodputs);
    return status;
}

static ty_status endure(faults *f, ty_error *error)
{
    fault_outlook *out = f->out;
    const uint32_t replicas = f->inputs->plan->stages[0].replicas;
    uint32_t lost;
    ty_status status;

    TY_CHECK(read_faults(f, f->options->failures, error), status, done);
    TY_CHECK(read_times(f, error), status, done);
    lost = f->lost_count + (f->is_random ? MOST_LOST / 2 : 0);
    lost = lost < MOST_LOST ? lost : MOST_LOST;
    if (f->options->elastic)
        TY_CHECK(measure_shrinking(f, lost < replicas || replicas < 2 ? lost : replicas - 1, error),
                 status, done);
    status = endure_seeds(out, f->options->seeds > 0 ? (uint32_t)f->options->seeds : 1, error);
done:
    return status;
}

ty_status faults_endure(const cli_options *options, const plan_inputs *inputs,
                        const ty_simulate_options *how, double step_time_s, fault_outlook *out,
                        ty_error *error)
{
    faults f = {
        .options = options, .inputs = inputs, .how = how, .step_time_s = step_time_s, .out = out};
    ty_status status;

    out->known = ty_alloc(MOST_FAULTS, sizeof *out->known);
    out->names = ty_alloc(MOST_FAULTS, sizeof *out->names);
    out->rates = ty_alloc(MOST_LOST + 1, sizeof *out->rates);
    f.is_lost = ty_alloc(ty_plan_rank_count(inputs->plan), sizeof *f.is_lost);
    if (out->known == NULL || out->names == NULL || out->rates == NULL || f.is_lost == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    else
        status = endure(&f, error);
    ty_free(f.is_lost);
    return status;
}

void fault_outlook_clear(fault_outlook *outlook)
{
    for (uint32_t i = 0; outlook->names != NULL && i < outlook->question.known_count; i++)
        ty_free(outlook->names[i]);
    ty_free(outlook->names);
    ty_free(outlook->known);
    ty_free(outlook->rates);
    *outlook = (fault_outlook){0};
}

/* ---- Showing ------------------------------------------------------------------------------- */

static void write_json(const fault_outlook *o, ty_json_writer *w)
{
    const ty_endurance_question *q = &o->question;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"horizon_s", q->horizon_s},
        {"failure_rate_per_s", q->failure_rate_per_s},
        {"checkpoint_interval_s", q->checkpoint_interval_s},
        {"checkpoint_write_s", q->checkpoint_write_s},
        {"restart_s", q->restart_s},
        {"repair_s", q->repair_s},
        {"goodput", o->endurance.goodput},
        {"p50_goodput", o->p50_goodput},
        {"p5_goodput", o->p5_goodput},
        {"work_s", o->endurance.work_s},
        {"degraded_s", o->endurance.degraded_s},
        {"lost_s", o->endurance.lost_s},
        {"checkpoint_s", o->endurance.checkpoint_s},
        {"down_s", o->endurance.down_s},
    };

    ty_json_open(w, "endurance", '{');
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        ty_json_put_number(w, figures[i].name, figures[i].value);
    ty_json_put_uint(w, "failures", o->endurance.failures);
    ty_json_put_uint(w, "checkpoints", o->endurance.checkpoints);
    ty_json_open(w, "faults", '[');
    for (uint32_t i = 0; i < q->known_count; i++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "name", o->names[i]);
        ty_json_put_number(w, "time_s", o->known[i].time_s);
        ty_json_put_number(w, "rate", o->known[i].rate);
        ty_json_put_uint(w, "replicas", o->known[i].replicas);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "shrunken_rates", '[');
    for (uint32_t k = 0; k < q->rate_count; k++)
        ty_json_put_number(w, NULL, o->rates[k]);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

void fault_outlook_show(const fault_outlook *o, ty_json_writer *writer, ty_text *text)
{
    const ty_endurance *e = &o->endurance;
    const double percent = 100.0 / o->question.horizon_s;
    char horizon[32], interval[32];

    if (writer != NULL) {
        write_json(o, writer);
        return;
    }
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
