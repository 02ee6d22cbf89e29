/* Runs (`trainyard.run/1`): what comes back from the worker. */
#include "ty_run.h"

#include "json_parts.h"
#include "run_parts.h"
#include "ty_deploy.h"
#include "ty_file.h"
#include "ty_memory.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define RUN_SCHEMA "trainyard.run/1"

const ty_evaluation *ty_run_reached(const ty_run *run)
{
    for (uint32_t i = 0; i < run->evaluation_count; i++)
        if (ty_target_is_met(&run->until, run->evaluations[i].accuracy, run->evaluations[i].loss))
            return &run->evaluations[i];
    return NULL;
}

/* A run that only played its plan says how many steps, and has no losses. */
static ty_status read_losses(const ty_json *root, ty_run *run, ty_error *error)
{
    const bool is_played = strcmp(run->backend, TY_REPLAY) == 0;
    const ty_json *array;
    ty_status status = ty_json_array(root, "losses", is_played ? 0 : 1,
                                     is_played ? 0 : TY_MAX_STEPS, &array, error);

    if (status != TY_OK)
        return status;
    if (is_played)
        return ty_json_uint32(root, "step_count", 1, TY_MAX_STEPS, &run->step_count, error);
    run->losses = ty_alloc(ty_json_size(array), sizeof *run->losses);
    if (run->losses == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    run->step_count = (uint32_t)ty_json_size(array);
    for (uint32_t i = 0; i < run->step_count && status == TY_OK; i++)
        status = ty_json_as_number(ty_json_at(array, i), -DBL_MAX, DBL_MAX, &run->losses[i], error);
    return status;
}

static ty_status read_memory(const ty_json *root, ty_run *run, ty_error *error)
{
    const ty_json *array;
    ty_status status =
        ty_json_array(root, "peak_memory_bytes", run->rank_count, run->rank_count, &array, error);

    if (status != TY_OK)
        return status;
    run->peak_memory_bytes = ty_alloc(run->rank_count, sizeof *run->peak_memory_bytes);
    if (run->peak_memory_bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < run->rank_count && status == TY_OK; i++)
        status = ty_json_as_uint64(ty_json_at(array, i), 0, TY_JSON_MAX_INTEGER,
                                   &run->peak_memory_bytes[i], error);
    return status;
}

static ty_status read_evaluation(const ty_json *object, bool has_variant, ty_evaluation *evaluation,
                                 ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_uint32(object, "step", 0, TY_MAX_STEPS, &evaluation->step, error), status,
             done);
    TY_CHECK(ty_json_number(object, "seconds", 0, DBL_MAX, &evaluation->seconds, error), status,
             done);
    TY_CHECK(ty_json_number(object, "accuracy", 0, 1, &evaluation->accuracy, error), status, done);
    TY_CHECK(ty_json_number(object, "loss", -DBL_MAX, DBL_MAX, &evaluation->loss, error), status,
             done);
    if (has_variant) {
        TY_CHECK(
            ty_json_number(object, "variant_accuracy", 0, 1, &evaluation->variant_accuracy, error),
            status, done);
        TY_CHECK(ty_json_number(object, "variant_loss", -DBL_MAX, DBL_MAX,
                                &evaluation->variant_loss, error),
                 status, done);
    }
    status = ty_json_end(object, error);

done:
    return status;
}

static ty_status read_evaluations(const ty_json *root, ty_run *run, ty_error *error)
{
    const ty_json *array;
    ty_status status = ty_json_array(root, "evaluations", 0, TY_MAX_STEPS, &array, error);

    if (status != TY_OK)
        return status;
    run->evaluations = ty_alloc(ty_json_size(array), sizeof *run->evaluations);
    if (run->evaluations == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    run->evaluation_count = (uint32_t)ty_json_size(array);
    for (uint32_t i = 0; i < run->evaluation_count && status == TY_OK; i++)
        status = read_evaluation(ty_json_at(array, i), run->variant.bits > 0, &run->evaluations[i],
                                 error);
    return status;
}

/* Rows of [step, square, variance]. */
static ty_status read_noise_history(const ty_json *object, ty_run *run, ty_error *error)
{
    const ty_json *array;
    ty_status status = ty_json_array(object, "history", 0, TY_MAX_STEPS, &array, error);

    if (status != TY_OK)
        return status;
    run->noise_samples = ty_alloc(ty_json_size(array), sizeof *run->noise_samples);
    if (run->noise_samples == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    run->noise_sample_count = (uint32_t)ty_json_size(array);
    for (uint32_t i = 0; i < run->noise_sample_count && status == TY_OK; i++) {
        const ty_json *row = ty_json_at(array, i);
        ty_noise_sample *s = &run->noise_samples[i];
        uint64_t step = 0;
        if (ty_json_size(row) != 3)
            return ty_json_fail(row, error, "[step, square, variance]");
        TY_CHECK(ty_json_as_uint64(ty_json_at(row, 0), 0, TY_MAX_STEPS, &step, error), status,
                 done);
        s->step = (uint32_t)step;
        TY_CHECK(ty_json_as_number(ty_json_at(row, 1), -DBL_MAX, DBL_MAX, &s->square, error),
                 status, done);
        status = ty_json_as_number(ty_json_at(row, 2), -DBL_MAX, DBL_MAX, &s->variance, error);
    }
done:
    return status;
}

static ty_status read_noise(const ty_json *root, ty_run *run, ty_error *error)
{
    ty_gradient_noise *noise = &run->noise;
    const ty_json *value;
    double scale;
    ty_status status;

    TY_CHECK(ty_json_object(root, "gradient_noise", &value, error), status, done);
    TY_CHECK(ty_json_uint32(value, "steps", 1, TY_MAX_STEPS, &noise->steps, error), status, done);
    TY_CHECK(ty_json_number(value, "square", -DBL_MAX, DBL_MAX, &noise->square, error), status,
             done);
    TY_CHECK(ty_json_number(value, "variance", -DBL_MAX, DBL_MAX, &noise->variance, error), status,
             done);
    if (ty_json_has(value, "history"))
        TY_CHECK(read_noise_history(value, run, error), status, done);
    if (ty_json_has(value, "scale_samples")) /* for people; it follows from the two */
        TY_CHECK(ty_json_number(value, "scale_samples", -DBL_MAX, DBL_MAX, &scale, error), status,
                 done);
    status = ty_json_end(value, error);
done:
    return status;
}

static void write_noise(const ty_run *run, ty_json_writer *writer)
{
    const ty_gradient_noise *noise = &run->noise;

    ty_json_open_flat(writer, "gradient_noise", '{');
    ty_json_put_uint(writer, "steps", noise->steps);
    ty_json_put_number(writer, "square", noise->square);
    ty_json_put_number(writer, "variance", noise->variance);
    if (noise->square > 0)
        ty_json_put_number(writer, "scale_samples", noise->variance / noise->square);
    ty_json_open_flat(writer, "history", '[');
    for (uint32_t i = 0; i < run->noise_sample_count; i++) {
        ty_json_open_flat(writer, NULL, '[');
        ty_json_put_uint(writer, NULL, run->noise_samples[i].step);
        ty_json_put_number(writer, NULL, run->noise_samples[i].square);
        ty_json_put_number(writer, NULL, run->noise_samples[i].variance);
        ty_json_close(writer, ']');
    }
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

static ty_status read_distortion(const ty_json *root, ty_run *run, ty_error *error)
{
    const ty_json *value;
    ty_status status;

    TY_CHECK(ty_json_object(root, "compression_distortion", &value, error), status, done);
    TY_CHECK(ty_json_uint32(value, "steps", 1, TY_MAX_STEPS, &run->distortion_steps, error), status,
             done);
    TY_CHECK(ty_json_number(value, "share", 0, DBL_MAX, &run->distortion, error), status, done);
    status = ty_json_end(value, error);
done:
    return status;
}

static ty_status read_disturbance(const ty_json *root, ty_run *run, ty_error *error)
{
    ty_disturbance *d = &run->disturbance;
    const ty_json *value, *list;
    ty_status status;

    TY_CHECK(ty_json_object(root, "disturbance", &value, error), status, done);
    TY_CHECK(ty_json_uint32(value, "steps", 1, TY_MAX_STEPS, &d->steps, error), status, done);
    TY_CHECK(ty_json_uint32(value, "disturbed_steps", 0, d->steps, &d->disturbed_steps, error),
             status, done);
    TY_CHECK(ty_json_number(value, "switches", 0, DBL_MAX, &d->switches, error), status, done);
    TY_CHECK(ty_json_number(value, "others_share", 0, 1, &d->others_share, error), status, done);
    TY_CHECK(ty_json_number(value, "steal_share", 0, 1, &d->steal_share, error), status, done);
    TY_CHECK(ty_json_number(value, "load", 0, DBL_MAX, &d->load, error), status, done);
    TY_CHECK(ty_json_array(value, "timeline_steps", 0, TY_MAX_STEPS, &list, error), status, done);
    d->timeline_steps = ty_alloc(ty_json_size(list), sizeof *d->timeline_steps);
    if (d->timeline_steps == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (size_t i = 0; i < ty_json_size(list); i++) {
        uint64_t step = 0;
        const uint32_t least = i > 0 ? d->timeline_steps[i - 1] + 1 : 0;
        TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), least, TY_MAX_STEPS, &step, error), status,
                 done);
        d->timeline_steps[d->timeline_step_count++] = (uint32_t)step;
    }
    status = ty_json_end(value, error);
done:
    return status;
}

static void write_disturbance(const ty_disturbance *d, ty_json_writer *writer)
{
    ty_json_open_flat(writer, "disturbance", '{');
    ty_json_put_uint(writer, "steps", d->steps);
    ty_json_put_uint(writer, "disturbed_steps", d->disturbed_steps);
    ty_json_put_number(writer, "switches", d->switches);
    ty_json_put_number(writer, "others_share", d->others_share);
    ty_json_put_number(writer, "steal_share", d->steal_share);
    ty_json_put_number(writer, "load", d->load);
    ty_json_open_flat(writer, "timeline_steps", '[');
    for (uint32_t i = 0; i < d->timeline_step_count; i++)
        ty_json_put_uint(writer, NULL, d->timeline_steps[i]);
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

static ty_status read_run_timeline(const ty_json *root, ty_run *run, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    char place[TY_JSON_PLACE_SIZE];

    TY_CHECK(ty_json_object(root, "timeline", &value, error), status, done);
    TY_CHECK(ty_timeline_from_json(value, &run->timeline, error), status, done);
    ty_json_place(value, place);
    if (run->timeline->rank_count != run->rank_count)
        status = ty_fail(error, TY_EPARSE, "%s/rank_count: found %u, expected the run's %u", place,
                         run->timeline->rank_count, run->rank_count);
    else if (strcmp(run->timeline->plan_digest.hex, run->plan_digest.hex) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s/plan_digest: this timeline is of another plan (digest %.12s...), "
                         "expected the run's, %.12s...",
                         place, run->timeline->plan_digest.hex, run->plan_digest.hex);

done:
    return status;
}

static ty_status read_run(const ty_json *root, ty_run *run, ty_error *error)
{
    ty_status status;
    const ty_json *value;

    TY_CHECK(ty_json_schema(root, RUN_SCHEMA, error), status, done);
    TY_CHECK(ty_json_digest(root, "plan_digest", &run->plan_digest, error), status, done);
    TY_CHECK(ty_json_string_copy(root, "backend", &run->backend, error), status, done);
    TY_CHECK(ty_json_string_copy(root, "machine", &run->machine, error), status, done);
    TY_CHECK(ty_json_string_copy(root, "versions", &run->versions, error), status, done);
    TY_CHECK(ty_json_string_copy(root, "date", &run->date, error), status, done);
    TY_CHECK(ty_json_uint32(root, "rank_count", 1, TY_MAX_RANKS, &run->rank_count, error), status,
             done);
    TY_CHECK(ty_json_number(root, "wall_s", 0, DBL_MAX, &run->wall_s, error), status, done);
    TY_CHECK(ty_json_object(root, "summary", &value, error), status, done);
    TY_CHECK(ty_step_summary_from_json(value, &run->summary, error), status, done);
    TY_CHECK(read_losses(root, run, error), status, done);
    TY_CHECK(read_memory(root, run, error), status, done);
    if (ty_json_has(root, "variant"))
        TY_CHECK(ty_variant_from_json(root, "variant", &run->variant, error), status, done);
    TY_CHECK(read_evaluations(root, run, error), status, done);
    TY_CHECK(ty_target_read(root, &run->until, error), status, done);
    if (ty_json_has(root, "gradient_noise"))
        TY_CHECK(read_noise(root, run, error), status, done);
    if (ty_json_has(root, "compression_distortion"))
        TY_CHECK(read_distortion(root, run, error), status, done);
    if (ty_json_has(root, "disturbance"))
        TY_CHECK(read_disturbance(root, run, error), status, done);
    if (ty_json_has(root, "timeline"))
        TY_CHECK(read_run_timeline(root, run, error), status, done);
    status = ty_json_end(root, error);

done:
    return status;
}

ty_status ty_run_from_json(const ty_json *object, ty_run **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_run *run = ty_alloc(1, sizeof *run);

    if (run == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(read_run(object, run, error), status, cleanup);
    *out = run;
    run = NULL;

cleanup:
    ty_run_free(run);
    return status;
}

ty_status ty_run_load(const char *path, ty_run **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    status = ty_run_from_json(ty_json_root(document), out, error);

cleanup:
    ty_json_free(document);
    return status;
}

static void write_run(const ty_run *run, ty_json_writer *writer)
{
    char variant[TY_VARIANT_TEXT_SIZE];

    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "schema", RUN_SCHEMA);
    ty_json_put_string(writer, "plan_digest", run->plan_digest.hex);
    ty_json_put_string(writer, "backend", run->backend);
    ty_json_put_string(writer, "machine", run->machine);
    ty_json_put_string(writer, "versions", run->versions);
    ty_json_put_string(writer, "date", run->date);
    ty_json_put_uint(writer, "rank_count", run->rank_count);
    ty_json_put_number(writer, "wall_s", run->wall_s);
    ty_step_summary_to_json(&run->summary, writer, "summary");
    if (run->losses == NULL)
        ty_json_put_uint(writer, "step_count", run->step_count);
    ty_json_open_flat(writer, "losses", '[');
    for (uint32_t i = 0; run->losses != NULL && i < run->step_count; i++)
        ty_json_put_number(writer, NULL, run->losses[i]);
    ty_json_close(writer, ']');
    ty_json_open_flat(writer, "peak_memory_bytes", '[');
    for (uint32_t i = 0; i < run->rank_count; i++)
        ty_json_put_uint(writer, NULL, run->peak_memory_bytes[i]);
    ty_json_close(writer, ']');
    ty_target_write(&run->until, writer);
    if (run->noise.steps > 0)
        write_noise(run, writer);
    if (run->distortion_steps > 0) {
        ty_json_open_flat(writer, "compression_distortion", '{');
        ty_json_put_uint(writer, "steps", run->distortion_steps);
        ty_json_put_number(writer, "share", run->distortion);
        ty_json_close(writer, '}');
    }
    if (run->disturbance.steps > 0)
        write_disturbance(&run->disturbance, writer);
    if (run->variant.bits > 0) {
        ty_variant_text(&run->variant, variant);
        ty_json_put_string(writer, "variant", variant);
    }
    ty_json_open(writer, "evaluations", '[');
    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        ty_json_open_flat(writer, NULL, '{');
        ty_json_put_uint(writer, "step", run->evaluations[i].step);
        ty_json_put_number(writer, "seconds", run->evaluations[i].seconds);
        ty_json_put_number(writer, "accuracy", run->evaluations[i].accuracy);
        ty_json_put_number(writer, "loss", run->evaluations[i].loss);
        if (run->variant.bits > 0) {
            ty_json_put_number(writer, "variant_accuracy", run->evaluations[i].variant_accuracy);
            ty_json_put_number(writer, "variant_loss", run->evaluations[i].variant_loss);
        }
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    if (run->timeline != NULL)
        ty_timeline_to_json(run->timeline, writer, "timeline");
    ty_json_close(writer, '}');
}

/* JSON has no NaN, and a run that made one has a story to tell before it is filed. */
static ty_status check_run(const ty_run *run, const char *path, ty_error *error)
{
    if (run->backend == NULL || run->machine == NULL || run->versions == NULL || run->date == NULL)
        return ty_fail(error, TY_EINVAL, "%s: a run needs its backend, machine, versions and date",
                       path);
    if (run->rank_count == 0 || run->peak_memory_bytes == NULL || run->step_count == 0 ||
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
    ty_status status = TY_OK;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    TY_CHECK(check_run(run, path, error), status, cleanup);
    write_run(run, &writer);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);

cleanup:
    ty_text_clear(&text);
    return status;
}

void ty_run_free(ty_run *run)
{
    if (run == NULL)
        return;
    ty_free(run->backend);
    ty_free(run->machine);
    ty_free(run->versions);
    ty_free(run->date);
    ty_free(run->losses);
    ty_free(run->peak_memory_bytes);
    ty_free(run->evaluations);
    ty_free(run->noise_samples);
    ty_free(run->disturbance.timeline_steps);
    ty_timeline_free(run->timeline);
    ty_free(run);
}
