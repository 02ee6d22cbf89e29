/* trainyard simulate: runs a plan's program on a simulated cluster, quiet or disturbed. */
#include "cli.h"
#include "ty_phases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD "spread:"

typedef struct simulation {
    ty_plan_inputs inputs;
    ty_simulate_options how;
    ty_engine_kind engine; /* of the first simulation */
    double *slowdowns;     /* [stage replica][rank], or NULL */
    ty_timeline *timeline;
    ty_timeline *devices; /* --per-device; else NULL */
    double *busy;         /* [stage replica][rank] with --per-device */
    double step_time_s;
    uint32_t seeds; /* 0: no --seeds */
    double *step_times_s;
    simulation_details details;
    ty_plan_inputs other; /* of the other job; no plan: none */
    uint32_t other_device;
    double alone_s, other_s; /* step time of the plan alone, and with the other job */
    bool has_faults;
    ty_forecast faults;
} simulation;

static void simulation_clear(simulation *s)
{
    ty_free(s->slowdowns);
    ty_free(s->step_times_s);
    simulation_details_clear(&s->details);
    ty_timeline_free(s->timeline);
    ty_timeline_free(s->devices);
    ty_free(s->busy);
    ty_forecast_clear(&s->faults);
    ty_plan_inputs_clear(&s->inputs);
    ty_plan_inputs_clear(&s->other);
}

/* ---- Options ------------------------------------------------------------------------------- */

/* Reads one "REPLICA=FACTOR" or "REPLICA.RANK=FACTOR" of the list and moves `*text` after it. */
static ty_status read_straggler(simulation *s, const char **text, ty_error *error)
{
    const uint32_t stage_replicas = ty_plan_stage_replica_count(s->inputs.plan);
    const uint32_t width = ty_plan_replica_ranks(s->inputs.plan);
    char *end;
    const unsigned long stage_replica = strtoul(*text, &end, 10);
    const bool has_rank = end > *text && *end == '.' && end[1] >= '0' && end[1] <= '9';
    const unsigned long replica_rank = has_rank ? strtoul(end + 1, &end, 10) : 0;
    char *tail = end;
    const double factor = *end == '=' ? strtod(end + 1, &tail) : 0.0;

    if (end == *text || **text < '0' || **text > '9' || *end != '=' || tail == end + 1 ||
        (*tail != '\0' && *tail != ','))
        return ty_fail(error, TY_EINVAL,
                       "--straggler: found '%.40s', expected REPLICA=FACTOR, as in 3=1.5, or "
                       "REPLICA.RANK=FACTOR",
                       *text);
    if (stage_replica >= stage_replicas)
        return ty_fail(error, TY_EINVAL,
                       "--straggler: found stage replica %lu, expected one below %u", stage_replica,
                       stage_replicas);
    if (replica_rank >= width)
        return ty_fail(error, TY_EINVAL, "--straggler: found rank %lu, expected one below %u",
                       replica_rank, width);
    if (!(factor >= 0.01 && factor <= 1e6))
        return ty_fail(error, TY_EINVAL, "--straggler: found factor '%.*s', expected 0.01 to 1e6",
                       (int)(tail - end - 1 < 40 ? tail - end - 1 : 40), end + 1);
    for (uint32_t l = 0; l < width; l++)
        if (!has_rank || l == replica_rank)
            s->slowdowns[stage_replica * width + l] = factor;
    *text = *tail == ',' ? tail + 1 : tail;
    return TY_OK;
}

/* Reads "5%" or "5" as 0.05. */
static ty_status read_percent(const char *option, const char *text, double *share, ty_error *error)
{
    char *end;
    const double percent = strtod(text, &end);

    if (end == text || !(percent >= 0.0 && percent <= 100.0) ||
        (*end != '\0' && strcmp(end, "%") != 0))
        return ty_fail(error, TY_EINVAL, "--%s: found '%.40s', expected 0 %% to 100 %%", option,
                       text);
    *share = percent / 100.0;
    return TY_OK;
}

static ty_status read_stragglers(simulation *s, const char *text, ty_error *error)
{
    const uint32_t devices = ty_plan_rank_count(s->inputs.plan);
    ty_status status = TY_OK;

    if (strncmp(text, SPREAD, strlen(SPREAD)) == 0)
        return read_percent("straggler", text + strlen(SPREAD), &s->how.spread, error);
    s->slowdowns = ty_alloc(devices, sizeof *s->slowdowns);
    TY_TRY(ty_check_memory(s->slowdowns != NULL, error));
    for (uint32_t d = 0; d < devices; d++)
        s->slowdowns[d] = 1.0;
    s->how.slowdowns = s->slowdowns;
    if (strcmp(text, "law") == 0) {
        uint32_t members = 1; /* that wait for each other: hosts, at most the number of replicas */
        for (uint32_t i = 0; i < s->inputs.plan->stage_count; i++)
            if (s->inputs.plan->stages[i].replicas > members)
                members = s->inputs.plan->stages[i].replicas;
        if (members > ty_cluster_host_count(s->inputs.cluster))
            members = ty_cluster_host_count(s->inputs.cluster);
        for (uint32_t replica_rank = 0; replica_rank < ty_plan_replica_ranks(s->inputs.plan);
             replica_rank++)
            s->slowdowns[replica_rank] = ty_straggler_law(members);
        return TY_OK;
    }
    do
        status = read_straggler(s, &text, error);
    while (status == TY_OK && *text != '\0');
    return status;
}

static ty_status read_options(const cli_options *options, simulation *s, ty_error *error)
{
    ty_status status = TY_OK;

    s->how = ty_simulate_options_default();
    s->how.no_fold = options->no_fold;
    s->how.seed = options->seed;
    s->seeds = (uint32_t)options->seeds;
    if (options->resolution != NULL && strcmp(options->resolution, "chunk") == 0)
        s->how.resolution = TY_CHUNK;
    else if (options->resolution != NULL && strcmp(options->resolution, "flow") != 0)
        return ty_fail(error, TY_EINVAL, "--resolution: found '%.40s', expected flow or chunk",
                       options->resolution);
    if (options->engine != NULL && strcmp(options->engine, "flow") == 0)
        s->how.engine = TY_ENGINE_FLOW;
    else if (options->engine != NULL && strcmp(options->engine, "simgrid") == 0)
        s->how.engine = TY_ENGINE_SIMGRID;
    else if (options->engine != NULL)
        return ty_fail(error, TY_EINVAL, "--engine: found '%.40s', expected simgrid or flow",
                       options->engine);
    if (options->steps > 1000)
        return ty_fail(error, TY_EINVAL, "--steps: at most 1000 steps are simulated");
    if (options->steps > 0)
        s->how.steps = (uint32_t)options->steps;
    if (options->jitter != NULL)
        status = read_percent("jitter", options->jitter, &s->how.jitter, error);
    return status;
}

/* ---- Simulating ---------------------------------------------------------------------------- */

static ty_status step_time_of(const ty_plan_inputs *in, const ty_timeline *timeline,
                              double *step_time_s, ty_error *error)
{
    ty_step_summary summary;
    const ty_status status =
        ty_timeline_summarize(in->plan, in->program, timeline, &summary, error);

    if (status == TY_OK)
        *step_time_s = summary.step_time_s;
    return status;
}

/* Computes the utilization of each device. */
static ty_status find_busy(simulation *s, ty_error *error)
{
    const ty_plan_inputs *in = &s->inputs;
    double shares[TY_TIME_KIND_COUNT];
    ty_plan *view = NULL;
    ty_status status = TY_OK;

    TY_TRY(ty_plan_by_device(in->plan, &view, error));
    s->busy = ty_alloc(ty_plan_rank_count(in->plan), sizeof *s->busy);
    status = s->busy == NULL ? ty_fail(error, TY_ENOMEM, "out of memory")
                             : ty_timeline_breakdown(view, in->program, in->costs, s->devices,
                                                     shares, s->busy, error);
    ty_plan_view_free(view);
    return status;
}

/* Opens "PLAN" or "PLAN@DEVICE". */
static ty_status load_other(simulation *s, const char *text, const ty_watch *watch, ty_error *error)
{
    ty_text path = {0};
    const char *at = strrchr(text, '@');
    uint64_t device = 0;
    ty_status status = TY_OK;

    ty_text_append(&path, text, at != NULL ? (size_t)(at - text) : strlen(text));
    for (uint32_t r = 0; r < ty_plan_stage_replica_count(s->inputs.plan); r++)
        for (uint32_t replica_rank = 0; replica_rank < ty_plan_replica_ranks(s->inputs.plan);
             replica_rank++)
            if (device <= ty_plan_device_of_replica_rank(s->inputs.plan, r, replica_rank))
                device =
                    (uint64_t)ty_plan_device_of_replica_rank(s->inputs.plan, r, replica_rank) + 1;
    TY_CHECK(ty_text_check(&path, error), status, done);
    if (at != NULL)
        TY_CHECK(ty_parse_uint(at + 1, 0, UINT32_MAX, &device, error), status, done);
    s->other_device = (uint32_t)device;
    status = ty_plan_inputs_load(path.data, NULL, watch, &s->other, error);
done:
    ty_text_clear(&path);
    return status;
}

/* Simulates both jobs together; the step time of the plan alone is known. */
static ty_status simulate_beside(simulation *s, ty_error *error)
{
    const ty_plan_inputs *in = &s->inputs, *other = &s->other;
    const ty_tenant tenants[] = {{in->plan, in->program, in->costs, 0},
                                 {other->plan, other->program, other->costs, s->other_device}};
    ty_timeline *timelines[2] = {NULL, NULL};
    ty_simulate_options how = s->how;
    ty_status status;

    how.slowdowns = NULL; /* they belong to the first plan's stage replicas */
    if (s->how.slowdowns != NULL)
        return ty_fail(error, TY_EINVAL, "--straggler and --beside: expected one of them");
    TY_CHECK(ty_simulate_tenants(tenants, 2, in->cluster, &how, timelines, error), status, done);
    s->alone_s = s->step_time_s;
    ty_timeline_free(s->timeline);
    s->timeline = timelines[0];
    timelines[0] = NULL;
    TY_CHECK(step_time_of(in, s->timeline, &s->step_time_s, error), status, done);
    status = step_time_of(other, timelines[1], &s->other_s, error);
done:
    ty_timeline_free(timelines[0]);
    ty_timeline_free(timelines[1]);
    return status;
}

/* Smallest step time that at least this share of the seeds does not exceed. */
static double percentile(const simulation *s, double share)
{
    const uint32_t place = (uint32_t)ceil(share * s->seeds);
    return s->step_times_s[place > 0 ? place - 1 : 0];
}

/* ---- Showing ------------------------------------------------------------------------------- */

static void write_more(const simulation *s, ty_json_writer *writer)
{
    ty_json_put_string(writer, "engine", ty_engine_name(s->engine));
    if (s->busy != NULL) {
        ty_json_open_flat(writer, "device_utilisation", '[');
        for (uint32_t d = 0; d < ty_plan_rank_count(s->inputs.plan); d++)
            ty_json_put_number(writer, NULL, s->busy[d]);
        ty_json_close(writer, ']');
    }
    if (s->seeds > 0) {
        ty_json_put_uint(writer, "seeds", s->seeds);
        ty_json_put_number(writer, "p50_step_time_s", percentile(s, 0.5));
        ty_json_put_number(writer, "p95_step_time_s", percentile(s, 0.95));
    }
    if (s->has_faults)
        ty_forecast_to_json(&s->faults, writer);
    if (s->other.plan != NULL) {
        ty_json_open(writer, "beside", '{');
        ty_json_put_string(writer, "workload", s->other.plan->workload->name);
        ty_json_put_string(writer, "strategy", s->other.plan->strategy);
        ty_json_put_uint(writer, "first_device", s->other_device);
        ty_json_put_number(writer, "step_time_s", s->other_s);
        ty_json_put_number(writer, "alone_step_time_s", s->alone_s);
        ty_json_close(writer, '}');
    }
    simulation_details_show(&s->details, &s->inputs, writer, NULL);
}

static void show_disturbed(void *context, ty_json_writer *writer, ty_text *text)
{
    const simulation *s = context;

    if (writer != NULL) {
        write_more(s, writer);
        return;
    }
    ty_text_addf(text, "engine      %s\n", s->engine == TY_ENGINE_FLOW ? "flow" : "SimGrid");
    if (s->seeds > 0)
        ty_text_addf(text, "%u seeds%*sP50 %.4g s, P95 %.4g s\n", s->seeds,
                     s->seeds < 10 ? 5 : (s->seeds < 100 ? 4 : 3), "", percentile(s, 0.5),
                     percentile(s, 0.95));
    if (s->other.plan != NULL)
        ty_text_addf(text, "other job   %s, %.4g s per step; alone this job takes %.4g s\n",
                     s->other.plan->workload->name, s->other_s, s->alone_s);
    simulation_details_show(&s->details, &s->inputs, NULL, text);
    if (s->has_faults)
        forecast_print(&s->faults, text);
}

static ty_status endure(const cli_options *options, simulation *s, ty_error *error)
{
    ty_forecast_question question;
    ty_status status = TY_OK;
    ty_arena *texts = ty_arena_new();

    TY_TRY(ty_check_memory(texts != NULL, error));
    TY_CHECK(faults_read(options, s->inputs.cluster, texts, &question, error), status, done);
    status = ty_forecast_find(&s->inputs, &s->how, s->step_time_s, &question, &s->faults, error);
done:
    ty_arena_free(texts);
    return status;
}

static ty_status run(const cli_options *options, simulation *s, ty_text *text, ty_error *error)
{
    const ty_plan_inputs *in = &s->inputs;
    cli_options shown = *options;
    ty_simulate_options how;
    ty_cluster *larger = NULL;

    if (options->per_device && options->beside != NULL)
        return ty_fail(error, TY_EINVAL, "--per-device and --beside: expected one of them");
    if (options->steps == 0) /* warm-up and cool-down steps do not count */
        s->how.steps += 2 * ty_program_largest_lead(in->program);
    if (options->straggler != NULL)
        TY_TRY(read_stragglers(s, options->straggler, error));
    if (options->cluster != NULL) {
        /* A larger cluster, whose first devices are the plan's. */
        TY_TRY(ty_cluster_open(options->cluster, NULL, &larger, error));
        ty_cluster_free(s->inputs.cluster);
        s->inputs.cluster = larger;
    }
    if (options->slow_link != NULL)
        TY_TRY(faults_slow_links(options->slow_link, &s->inputs, error));
    how = s->how;
    how.engine_used = &s->engine;
    how.devices = options->per_device ? &s->devices : NULL;
    TY_TRY(ty_simulate(in->plan, in->program, in->costs, in->cluster, &how, &s->timeline, error));
    TY_TRY(step_time_of(in, s->timeline, &s->step_time_s, error));
    if (options->beside != NULL)
        TY_TRY(simulate_beside(s, error));
    if (s->seeds > 0) { /* the timeline of the first seed is shown */
        s->step_times_s = ty_alloc(s->seeds, sizeof *s->step_times_s);
        TY_TRY(ty_check_memory(s->step_times_s != NULL, error));
        TY_TRY(ty_simulate_seeds(in->plan, in->program, in->costs, in->cluster, &s->how, s->seeds,
                                 s->step_times_s, error));
        qsort(s->step_times_s, s->seeds, sizeof *s->step_times_s, ty_compare_numbers);
    }
    s->has_faults = options->failures != NULL;
    if (s->has_faults)
        TY_TRY(endure(options, s, error));
    TY_TRY(simulation_details_find(in, s->timeline, s->step_time_s, options->json, &s->details,
                                   error));
    if (options->per_device) {
        TY_TRY(find_busy(s, error));
        if (options->trace != NULL)
            TY_TRY(trace_save(in, s->devices, options->trace, error));
        shown.trace = NULL; /* no second trace of stage replicas */
    }
    return show_timeline(&shown, in, "trainyard.simulation/2", s->timeline, show_disturbed, s, text,
                         error);
}

exit_code cmd_simulate(const cli_options *options)
{
    exit_code code;
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    simulation s = {0};
    ty_text text = {0};

    if (ty_is_phased_plan(options->files[0]))
        return phased_predict("simulate", options);
    if (read_options(options, &s, &error) != TY_OK)
        return report_usage("simulate", "%s", error.message);
    if (ty_plan_inputs_load(options->files[0], options->stack, &watch, &s.inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (options->beside != NULL && load_other(&s, options->beside, &watch, &error) != TY_OK) {
        simulation_clear(&s);
        return report_bad_input(&error);
    }
    code = run(options, &s, &text, &error) == TY_OK ? print_text(&text) : report_failure(&error);
    ty_text_clear(&text);
    simulation_clear(&s);
    return code;
}
