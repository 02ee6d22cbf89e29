/* Runs (`trainyard.run/2`): the worker's output. */
#include "ty_run.h"

#include "json_parts.h"
#include "run_parts.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_plan.h"

#include <math.h>
#include <string.h>

#define RUN_SCHEMA "trainyard.run/2"

const ty_evaluation *ty_run_reached(const ty_run *run)
{
    for (uint32_t i = 0; i < run->evaluation_count; i++)
        if (ty_target_is_met(&run->until, run->evaluations[i].accuracy, run->evaluations[i].loss))
            return &run->evaluations[i];
    return NULL;
}

/* ---- Members of a run's file --------------------------------------------------------------- */

static bool is_played(const void *run)
{
    return strcmp(((const ty_run *)run)->backend, TY_REPLAY) == 0;
}

/* One per step; none in a replay, which has the number of steps. */
static ty_status read_losses(const ty_json *object, const json_field *field, void *record,
                             const void *context, ty_error *error)
{
    ty_run *run = record;
    const ty_json *array;
    ty_status status = ty_json_array(object, field->key, is_played(run) ? 0 : 1,
                                     is_played(run) ? 0 : TY_MAX_STEPS, &array, error);

    (void)context;
    if (status != TY_OK || is_played(run))
        return status;
    run->losses = ty_alloc(ty_json_size(array), sizeof *run->losses);
    TY_TRY(ty_check_memory(run->losses != NULL, error));
    run->step_count = (uint32_t)ty_json_size(array);
    for (uint32_t i = 0; i < run->step_count && status == TY_OK; i++)
        status = ty_json_as_number(ty_json_at(array, i), field->minimum, field->maximum,
                                   &run->losses[i], error);
    return status;
}

static void write_losses(const json_field *field, const void *record, const void *context,
                         ty_json_writer *writer)
{
    const ty_run *run = record;

    (void)context;
    ty_json_open_flat(writer, field->key, '[');
    for (uint32_t i = 0; run->losses != NULL && i < run->step_count; i++)
        ty_json_put_number(writer, NULL, run->losses[i]);
    ty_json_close(writer, ']');
}

/* One per stage replica. */
static ty_status read_memory(const ty_json *object, const json_field *field, void *record,
                             const void *context, ty_error *error)
{
    ty_run *run = record;
    const ty_json *array;
    ty_status status = ty_json_array(object, field->key, run->stage_replica_count,
                                     run->stage_replica_count, &array, error);

    (void)context;
    if (status != TY_OK)
        return status;
    run->peak_memory_bytes = ty_alloc(run->stage_replica_count, sizeof *run->peak_memory_bytes);
    TY_TRY(ty_check_memory(run->peak_memory_bytes != NULL, error));
    for (uint32_t i = 0; i < run->stage_replica_count && status == TY_OK; i++)
        status = ty_json_as_uint64(ty_json_at(array, i), 0, TY_JSON_MAX_INTEGER,
                                   &run->peak_memory_bytes[i], error);
    return status;
}

static void write_memory(const json_field *field, const void *record, const void *context,
                         ty_json_writer *writer)
{
    const ty_run *run = record;

    (void)context;
    ty_json_open_flat(writer, field->key, '[');
    for (uint32_t i = 0; i < run->stage_replica_count; i++)
        ty_json_put_uint(writer, NULL, run->peak_memory_bytes[i]);
    ty_json_close(writer, ']');
}

static bool has_noise_scale(const void *run)
{
    return ((const ty_run *)run)->noise.square > 0;
}

/* For display: derived from the two before it. */
static ty_status read_scale(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    double scale;

    (void)record, (void)context;
    return ty_json_number(object, field->key, field->minimum, field->maximum, &scale, error);
}

static void write_scale(const json_field *field, const void *record, const void *context,
                        ty_json_writer *writer)
{
    const ty_gradient_noise *noise = &((const ty_run *)record)->noise;

    (void)context;
    ty_json_put_number(writer, field->key, noise->variance / noise->square);
}

static const json_field noise_sample_fields[] = {
    {"step", JSON_UINT32, JSON_AT(ty_noise_sample, step), 0, TY_MAX_STEPS},
    {"square", JSON_NUMBER, JSON_AT(ty_noise_sample, square), -DBL_MAX, DBL_MAX},
    {"variance", JSON_NUMBER, JSON_AT(ty_noise_sample, variance), -DBL_MAX, DBL_MAX},
};
static const json_record noise_sample_record = JSON_RECORD(ty_noise_sample, noise_sample_fields);

static const json_field noise_fields[] = {
    {"steps", JSON_UINT32, JSON_AT(ty_run, noise.steps), 1, TY_MAX_STEPS},
    {"square", JSON_NUMBER, JSON_AT(ty_run, noise.square), -DBL_MAX, DBL_MAX},
    {"variance", JSON_NUMBER, JSON_AT(ty_run, noise.variance), -DBL_MAX, DBL_MAX},
    {"scale_samples", JSON_NUMBER, .minimum = -DBL_MAX, .maximum = DBL_MAX, .is_optional = true,
     .is_said = has_noise_scale, .read = read_scale, .write = write_scale,
     .about = "variance over square, where that is above 0"},
    {"history", JSON_TUPLES, JSON_AT(ty_run, noise_samples), 0, TY_MAX_STEPS, .is_optional = true,
     JSON_SAID(ty_run, noise.steps), .of = &noise_sample_record,
     .count_at = offsetof(ty_run, noise_sample_count)},
};
static const json_record noise_record = JSON_FLAT_RECORD(ty_run, noise_fields);

static const json_field distortion_fields[] = {
    {"steps", JSON_UINT32, JSON_AT(ty_run, distortion_steps), 1, TY_MAX_STEPS},
    {"share", JSON_NUMBER, JSON_AT(ty_run, distortion), 0, DBL_MAX},
};
static const json_record distortion_record = JSON_FLAT_RECORD(ty_run, distortion_fields);

/* At most the number of steps. */
static ty_status read_disturbed(const ty_json *object, const json_field *field, void *record,
                                const void *context, ty_error *error)
{
    ty_disturbance *d = record;

    (void)context;
    return ty_json_uint32(object, field->key, 0, d->steps, &d->disturbed_steps, error);
}

/* Ascending. */
static ty_status read_timeline_steps(const ty_json *object, const json_field *field, void *record,
                                     const void *context, ty_error *error)
{
    ty_disturbance *d = record;
    const ty_json *array;
    ty_status status = ty_json_array(object, field->key, 0, TY_MAX_STEPS, &array, error);

    (void)context;
    if (status != TY_OK)
        return status;
    d->timeline_steps = ty_alloc(ty_json_size(array), sizeof *d->timeline_steps);
    TY_TRY(ty_check_memory(d->timeline_steps != NULL, error));
    for (size_t i = 0; i < ty_json_size(array) && status == TY_OK; i++) {
        const uint32_t least = i > 0 ? d->timeline_steps[i - 1] + 1 : 0;
        status = ty_json_as_uint32(ty_json_at(array, i), least, TY_MAX_STEPS, &d->timeline_steps[i],
                                   error);
        d->timeline_step_count += status == TY_OK;
    }
    return status;
}

static const json_field disturbance_fields[] = {
    {"steps", JSON_UINT32, JSON_AT(ty_disturbance, steps), 1, TY_MAX_STEPS},
    {"disturbed_steps", JSON_UINT32, JSON_AT(ty_disturbance, disturbed_steps), 0, TY_MAX_STEPS,
     .read = read_disturbed},
    {"switches", JSON_NUMBER, JSON_AT(ty_disturbance, switches), 0, DBL_MAX},
    {"others_share", JSON_NUMBER, JSON_AT(ty_disturbance, others_share), 0, 1},
    {"steal_share", JSON_NUMBER, JSON_AT(ty_disturbance, steal_share), 0, 1},
    {"load", JSON_NUMBER, JSON_AT(ty_disturbance, load), 0, DBL_MAX},
    {"timeline_steps", JSON_UINTS, JSON_AT(ty_disturbance, timeline_steps), 0, TY_MAX_STEPS,
     .count_at = offsetof(ty_disturbance, timeline_step_count), .read = read_timeline_steps},
};
static const json_record disturbance_record = JSON_FLAT_RECORD(ty_disturbance, disturbance_fields);

static bool has_variant(const void *run)
{
    return ((const ty_run *)run)->variant.bits > 0;
}

static ty_status read_variant(const ty_json *object, const json_field *field, void *record,
                              const void *context, ty_error *error)
{
    (void)context;
    return ty_variant_from_json(object, field->key, &((ty_run *)record)->variant, error);
}

static void write_variant(const json_field *field, const void *record, const void *context,
                          ty_json_writer *writer)
{
    char text[TY_VARIANT_TEXT_SIZE];

    (void)context;
    ty_variant_text(&((const ty_run *)record)->variant, text);
    ty_json_put_string(writer, field->key, text);
}

static const json_field evaluation_fields[] = {
    {"step", JSON_UINT32, JSON_AT(ty_evaluation, step), 0, TY_MAX_STEPS},
    {"seconds", JSON_NUMBER, JSON_AT(ty_evaluation, seconds), 0, DBL_MAX},
    {"accuracy", JSON_NUMBER, JSON_AT(ty_evaluation, accuracy), 0, 1},
    {"loss", JSON_NUMBER, JSON_AT(ty_evaluation, loss), -DBL_MAX, DBL_MAX},
    {"variant_accuracy", JSON_NUMBER, JSON_AT(ty_evaluation, variant_accuracy), 0, 1,
     .applies_in = has_variant},
    {"variant_loss", JSON_NUMBER, JSON_AT(ty_evaluation, variant_loss), -DBL_MAX, DBL_MAX,
     .applies_in = has_variant},
};
static const json_record evaluation_record = JSON_FLAT_RECORD(ty_evaluation, evaluation_fields);

/* Of the same plan, with the same number of stage replicas. */
static ty_status read_timeline(const ty_json *object, const json_field *field, void *record,
                               const void *context, ty_error *error)
{
    ty_run *run = record;
    const ty_json *value;
    char place[TY_JSON_PLACE_SIZE];

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    TY_TRY(ty_timeline_from_json(value, &run->timeline, error));
    ty_json_place(value, place);
    if (run->timeline->stage_replica_count != run->stage_replica_count)
        return ty_fail(error, TY_EPARSE, "%s/stage_replica_count: found %u, expected the run's %u",
                       place, run->timeline->stage_replica_count, run->stage_replica_count);
    if (strcmp(run->timeline->plan_digest.hex, run->plan_digest.hex) != 0)
        return ty_fail(error, TY_EPARSE,
                       "%s/plan_digest: this timeline is of another plan (digest %.12s...), "
                       "expected the run's, %.12s...",
                       place, run->timeline->plan_digest.hex, run->plan_digest.hex);
    return TY_OK;
}

static void write_timeline(const json_field *field, const void *record, const void *context,
                           ty_json_writer *writer)
{
    (void)context;
    ty_timeline_to_json(((const ty_run *)record)->timeline, writer, field->key);
}

static const json_field run_fields[] = {
    {"plan_digest", JSON_DIGEST, JSON_AT(ty_run, plan_digest)},
    {"backend", JSON_TEXT, JSON_AT(ty_run, backend)},
    {"machine", JSON_TEXT, JSON_AT(ty_run, machine)},
    {"versions", JSON_TEXT, JSON_AT(ty_run, versions)},
    {"date", JSON_TEXT, JSON_AT(ty_run, date)},
    {"stage_replica_count", JSON_UINT32, JSON_AT(ty_run, stage_replica_count), 1, TY_MAX_RANKS,
     .was = "rank_count"},
    {"wall_s", JSON_NUMBER, JSON_AT(ty_run, wall_s), 0, DBL_MAX},
    {"summary", JSON_STRUCT, JSON_AT(ty_run, summary), .of = &ty_step_summary_record,
     .schema = "step-summary.json"},
    {"step_count", JSON_UINT32, JSON_AT(ty_run, step_count), 1, TY_MAX_STEPS, .applies = is_played,
     .about = "of a run that only played its plan"},
    {"losses", JSON_NUMBERS, JSON_AT(ty_run, losses), -DBL_MAX, DBL_MAX, .read = read_losses,
     .write = write_losses},
    {"peak_memory_bytes", JSON_UINTS, JSON_AT(ty_run, peak_memory_bytes), 0, TY_JSON_MAX_INTEGER,
     .read = read_memory, .write = write_memory, .about = "of each stage replica"},
    {NULL, JSON_MEMBERS, JSON_AT(ty_run, until), .of = &ty_until_record},
    {"gradient_noise", JSON_STRUCT, .is_optional = true, JSON_SAID(ty_run, noise.steps),
     .of = &noise_record},
    {"compression_distortion", JSON_STRUCT, .is_optional = true,
     JSON_SAID(ty_run, distortion_steps), .of = &distortion_record},
    {"disturbance", JSON_STRUCT, JSON_AT(ty_run, disturbance), .is_optional = true,
     JSON_SAID(ty_run, disturbance.steps), .of = &disturbance_record,
     .about = "by others on the machine, while the run was under way"},
    {"variant", JSON_TEXT, .is_optional = true, .is_said = has_variant, .read = read_variant,
     .write = write_variant,
     .about = "as which the plan deploys the network; evaluations then have figures of it"},
    {"evaluations", JSON_ROWS, JSON_AT(ty_run, evaluations), 0, TY_MAX_STEPS,
     .of = &evaluation_record, .count_at = offsetof(ty_run, evaluation_count)},
    {"timeline", JSON_OTHER, .is_optional = true, JSON_SAID(ty_run, timeline),
     .read = read_timeline, .write = write_timeline, .schema = "timeline.json"},
};
/* The context is the run. */
const json_record ty_run_record = JSON_RECORD(ty_run, run_fields);

/* ---- Documents ----------------------------------------------------------------------------- */

ty_status ty_run_from_json(const ty_json *object, ty_run **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_run *run = ty_alloc(1, sizeof *run);

    TY_TRY(ty_check_memory(run != NULL, error));
    TY_CHECK(ty_json_schema(object, RUN_SCHEMA, error), status, cleanup);
    TY_CHECK(ty_record_read_all(object, &ty_run_record, run, run, error), status, cleanup);
    *out = run;
    run = NULL;

cleanup:
    ty_run_free(run);
    return status;
}

JSON_LOAD(ty_run_load, ty_run, ty_run_from_json)

/* JSON has no NaN, and a run with one has diverged: report that instead of writing it. */
static ty_status check_run(const ty_run *run, const char *path, ty_error *error)
{
    if (run->backend == NULL || run->machine == NULL || run->versions == NULL || run->date == NULL)
        return ty_fail(error, TY_EINVAL, "%s: a run needs its backend, machine, versions and date",
                       path);
    if (run->stage_replica_count == 0 || run->peak_memory_bytes == NULL || run->step_count == 0 ||
        (run->losses == NULL) != (strcmp(run->backend, TY_REPLAY) == 0))
        return ty_fail(error, TY_EINVAL,
                       "%s: a run needs ranks and steps, and losses unless it only played its plan",
                       path);
    for (uint32_t i = 0; run->losses != NULL && i < run->step_count; i++)
        if (!isfinite(run->losses[i]))
            return ty_fail(error, TY_ELIMIT, "%s: the loss of step %u is %g: training diverged",
                           path, i, run->losses[i]);
    for (uint32_t i = 0; i < run->evaluation_count; i++)
        if (!isfinite(run->evaluations[i].loss) || !isfinite(run->evaluations[i].variant_loss))
            return ty_fail(error, TY_ELIMIT,
                           "%s: the test loss after step %u is %g, of the variant %g: training "
                           "diverged",
                           path, run->evaluations[i].step, run->evaluations[i].loss,
                           run->evaluations[i].variant_loss);
    return TY_OK;
}

ty_status ty_run_save(const ty_run *run, const char *path, ty_error *error)
{
    TY_TRY(check_run(run, path, error));
    return ty_record_save(RUN_SCHEMA, &ty_run_record, run, run, path, error);
}

void ty_run_free(ty_run *run)
{
    if (run == NULL)
        return;
    ty_timeline_free(run->timeline);
    ty_record_clear(&ty_run_record, run);
    ty_free(run);
}
