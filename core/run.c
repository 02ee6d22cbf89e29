/* Jobs (`trainyard.job/1`) and runs (`trainyard.run/1`): what goes to the worker and what comes
   back. */
#include "ty_run.h"

#include "json_parts.h"
#include "program_check.h"
#include "ty_file.h"
#include "ty_memory.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define JOB_SCHEMA "trainyard.job/1"
#define RUN_SCHEMA "trainyard.run/1"

enum { MAX_STEPS = 1000000000, MAX_SIZES = 1000 };
static const char replay[] = "replay";
#define MAX_INSTRUCTION_S 1e6 /* 12 days: a unit is wrong */

/* ---- Targets -------------------------------------------------------------------------------- */

bool ty_target_is_set(const ty_target *target)
{
    return target->accuracy > 0 || target->loss > 0;
}

ty_status ty_target_parse(const char *text, ty_target *out, ty_error *error)
{
    double value;
    char after;

    if (sscanf(text, "accuracy=%lf%c", &value, &after) == 1 && value > 0 && value <= 1)
        *out = (ty_target){.accuracy = value};
    else if (sscanf(text, "loss=%lf%c", &value, &after) == 1 && value > 0 && isfinite(value))
        *out = (ty_target){.loss = value};
    else
        return ty_fail(error, TY_EINVAL,
                       "found '%s', expected accuracy=X with X above 0 and up to 1, or loss=X with "
                       "X above 0, both of the test set",
                       text);
    return TY_OK;
}

void ty_target_text(const ty_target *target, ty_text *text)
{
    if (target->accuracy > 0)
        ty_text_addf(text, "accuracy=%g", target->accuracy);
    else if (target->loss > 0)
        ty_text_addf(text, "loss=%g", target->loss);
    else
        ty_text_add(text, "none");
}

bool ty_target_is_met(const ty_target *target, double accuracy, double loss)
{
    return target->accuracy > 0 ? accuracy >= target->accuracy
                                : target->loss > 0 && loss <= target->loss;
}

const ty_evaluation *ty_run_reached(const ty_run *run)
{
    for (uint32_t i = 0; i < run->evaluation_count; i++)
        if (ty_target_is_met(&run->until, run->evaluations[i].accuracy, run->evaluations[i].loss))
            return &run->evaluations[i];
    return NULL;
}

static ty_status read_target(const ty_json *root, ty_target *target, ty_error *error)
{
    const ty_json *value;
    ty_status status = TY_OK;

    if (!ty_json_has(root, "until"))
        return TY_OK;
    TY_CHECK(ty_json_object(root, "until", &value, error), status, done);
    if (ty_json_has(value, "loss"))
        TY_CHECK(ty_json_number(value, "loss", DBL_MIN, DBL_MAX, &target->loss, error), status,
                 done);
    else
        TY_CHECK(ty_json_number(value, "accuracy", DBL_MIN, 1, &target->accuracy, error), status,
                 done);
    status = ty_json_end(value, error);
done:
    return status;
}

/* Only where it is set. */
static void write_target(const ty_target *target, ty_json_writer *writer)
{
    if (!ty_target_is_set(target))
        return;
    ty_json_open_flat(writer, "until", '{');
    if (target->accuracy > 0)
        ty_json_put_number(writer, "accuracy", target->accuracy);
    else
        ty_json_put_number(writer, "loss", target->loss);
    ty_json_close(writer, '}');
}

/* ---- Jobs: checking ------------------------------------------------------------------------- */

static const char *const job_kinds[] = {[TY_JOB_TRAIN] = "train", [TY_JOB_PROFILE] = "profile"};

static ty_status check_train(const ty_job *job, const char *place, ty_error *error)
{
    const uint32_t room = job->steps - job->warmup_steps;

    if (job->steps == 0 || job->steps > MAX_STEPS)
        return ty_fail(error, TY_EPARSE, "%s/steps: found %u, expected 1 to %d", place, job->steps,
                       MAX_STEPS);
    if (job->warmup_steps > job->steps)
        return ty_fail(error, TY_EPARSE, "%s/warmup_steps: found %u, expected at most steps, %u",
                       place, job->warmup_steps, job->steps);
    if (job->timeline_steps > room)
        return ty_fail(error, TY_EPARSE,
                       "%s/timeline_steps: found %u, expected at most steps - warmup_steps, %u",
                       place, job->timeline_steps, room);
    if (!(job->until.accuracy >= 0 && job->until.accuracy <= 1 && job->until.loss >= 0) ||
        isinf(job->until.loss) || (job->until.accuracy > 0 && job->until.loss > 0))
        return ty_fail(error, TY_EPARSE,
                       "%s/until: found accuracy %g and loss %g, expected one of them, accuracy a "
                       "share from 0 to 1",
                       place, job->until.accuracy, job->until.loss);
    if (ty_target_is_set(&job->until) && job->evaluate_every == 0)
        return ty_fail(error, TY_EPARSE,
                       "%s/evaluate_every: found 0, expected at least 1 with until", place);
    if (job->checkpoint == NULL && (job->checkpoint_every > 0 || job->resume))
        return ty_fail(error, TY_EPARSE, "%s/checkpoint: found none, expected a folder with %s",
                       place, job->resume ? "resume" : "checkpoint_every");
    if (job->program == NULL)
        return ty_fail(error, TY_EPARSE, "%s/program: found none, expected one to train with",
                       place);
    if ((strcmp(job->backend, replay) == 0) != (job->instruction_s != NULL))
        return ty_fail(error, TY_EPARSE,
                       "%s/instruction_s: found %s, expected them with backend \"replay\" alone",
                       place, job->instruction_s != NULL ? "times" : "none");
    return TY_OK;
}

static ty_status check_job(const ty_job *job, const char *place, ty_error *error)
{
    if (job->plan == NULL)
        return ty_fail(error, TY_EPARSE, "%s/plan: found none, expected one", place);
    if (job->backend == NULL || job->output == NULL)
        return ty_fail(error, TY_EPARSE, "%s/%s: found none, expected a name", place,
                       job->backend == NULL ? "backend" : "output");
    if (job->kind == TY_JOB_TRAIN)
        return check_train(job, place, error);
    if (job->kind != TY_JOB_PROFILE)
        return ty_fail(error, TY_EPARSE, "%s/kind: found %d, expected a kind of job", place,
                       (int)job->kind);
    if (job->micro_batch_count == 0 || job->micro_batches == NULL)
        return ty_fail(error, TY_EPARSE, "%s/micro_batches: found none, expected sizes to time",
                       place);
    for (uint32_t i = 0; i < job->micro_batch_count; i++)
        if (job->micro_batches[i] == 0)
            return ty_fail(error, TY_EPARSE, "%s/micro_batches/%u: found 0, expected at least 1",
                           place, i);
    return TY_OK;
}

/* ---- Jobs: file ----------------------------------------------------------------------------- */

double **ty_job_times(const ty_program *program)
{
    const size_t pointers = program->stage_count * sizeof(double *);
    size_t count = 0;
    double **rows, *times;

    for (uint32_t p = 0; p < program->stage_count; p++)
        count += program->stages[p].instruction_count;
    rows = ty_alloc(1, pointers + count * sizeof(double));
    if (rows == NULL)
        return NULL;
    times = (double *)(void *)(rows + program->stage_count);
    for (uint32_t p = 0; p < program->stage_count; p++) {
        rows[p] = times;
        times += program->stages[p].instruction_count;
    }
    return rows;
}

/* As many times of each position as its program has instructions. */
static ty_status read_times(const ty_json *root, ty_job *job, ty_error *error)
{
    const uint32_t positions = job->program->stage_count;
    const ty_json *rows;
    ty_status status;

    TY_CHECK(ty_json_array(root, "instruction_s", positions, positions, &rows, error), status,
             done);
    job->instruction_s = ty_job_times(job->program);
    if (job->instruction_s == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t p = 0; p < positions; p++) {
        const ty_json *row = ty_json_at(rows, p);
        const uint32_t count = job->program->stages[p].instruction_count;

        if (!ty_json_is_array(row) || ty_json_size(row) != count)
            return ty_json_fail(row, error, "an array of %u times, one of each instruction", count);
        for (uint32_t i = 0; i < count; i++)
            TY_CHECK(ty_json_as_number(ty_json_at(row, i), 0, MAX_INSTRUCTION_S,
                                       &job->instruction_s[p][i], error),
                     status, done);
    }
done:
    return status;
}

static void write_times(const ty_job *job, ty_json_writer *writer)
{
    ty_json_open(writer, "instruction_s", '[');
    for (uint32_t p = 0; p < job->program->stage_count; p++) {
        ty_json_open_flat(writer, NULL, '[');
        for (uint32_t i = 0; i < job->program->stages[p].instruction_count; i++)
            ty_json_put_number(writer, NULL, job->instruction_s[p][i]);
        ty_json_close(writer, ']');
    }
    ty_json_close(writer, ']');
}

static ty_status read_train(const ty_json *root, ty_job *job, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    char place[TY_JSON_PLACE_SIZE];

    TY_CHECK(ty_json_uint32(root, "steps", 1, MAX_STEPS, &job->steps, error), status, done);
    TY_CHECK(ty_json_uint32(root, "warmup_steps", 0, MAX_STEPS, &job->warmup_steps, error), status,
             done);
    TY_CHECK(ty_json_uint32(root, "timeline_steps", 0, MAX_STEPS, &job->timeline_steps, error),
             status, done);
    TY_CHECK(read_target(root, &job->until, error), status, done);
    TY_CHECK(ty_json_uint32(root, "evaluate_every", 0, MAX_STEPS, &job->evaluate_every, error),
             status, done);
    TY_CHECK(ty_json_string_copy_if(root, "gradients", &job->gradients, error), status, done);
    TY_CHECK(ty_json_string_copy_if(root, "checkpoint", &job->checkpoint, error), status, done);
    if (ty_json_has(root, "checkpoint_every"))
        TY_CHECK(
            ty_json_uint32(root, "checkpoint_every", 0, MAX_STEPS, &job->checkpoint_every, error),
            status, done);
    if (ty_json_has(root, "resume"))
        TY_CHECK(ty_json_bool(root, "resume", &job->resume, error), status, done);
    if (ty_json_has(root, "measure_distortion"))
        TY_CHECK(ty_json_bool(root, "measure_distortion", &job->measure_distortion, error), status,
                 done);
    TY_CHECK(ty_json_object(root, "program", &value, error), status, done);
    TY_CHECK(ty_program_from_json(value, &job->program, error), status, done);
    ty_json_place(value, place);
    TY_CHECK(ty_program_check_at(job->plan, job->program, place, error), status, done);
    if (ty_json_has(root, "instruction_s"))
        status = read_times(root, job, error);

done:
    return status;
}

static ty_status read_job(const ty_json *root, ty_job *job, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    char place[TY_JSON_PLACE_SIZE];
    int kind;

    TY_CHECK(ty_json_schema(root, JOB_SCHEMA, error), status, done);
    TY_CHECK(ty_json_enum(root, "kind", job_kinds, 2, &kind, error), status, done);
    job->kind = (ty_job_kind)kind;
    TY_CHECK(ty_json_string_copy(root, "backend", &job->backend, error), status, done);
    TY_CHECK(ty_json_string_copy_if(root, "precision", &job->precision, error), status, done);
    TY_CHECK(ty_json_string_copy_if(root, "data", &job->data, error), status, done);
    TY_CHECK(ty_json_string_copy(root, "output", &job->output, error), status, done);
    TY_CHECK(ty_json_object(root, "plan", &value, error), status, done);
    TY_CHECK(ty_plan_from_json(value, &job->plan, error), status, done);
    if (job->kind == TY_JOB_TRAIN)
        TY_CHECK(read_train(root, job, error), status, done);
    else
        TY_CHECK(ty_json_uint32_array(root, "micro_batches", 1, MAX_SIZES, 1, UINT32_MAX - 1,
                                      &job->micro_batches, &job->micro_batch_count, error),
                 status, done);
    TY_CHECK(ty_json_end(root, error), status, done);
    ty_json_place(root, place);
    status = check_job(job, place, error);

done:
    return status;
}

ty_status ty_job_from_json(const ty_json *object, ty_job **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_job *job = ty_alloc(1, sizeof *job);

    if (job == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(read_job(object, job, error), status, cleanup);
    *out = job;
    job = NULL;

cleanup:
    ty_job_free(job);
    return status;
}

ty_status ty_job_load(const char *path, ty_job **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    status = ty_job_from_json(ty_json_root(document), out, error);

cleanup:
    ty_json_free(document);
    return status;
}

static void write_job(const ty_job *job, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "schema", JOB_SCHEMA);
    ty_json_put_string(writer, "kind", job_kinds[job->kind]);
    ty_json_put_string(writer, "backend", job->backend);
    ty_json_put_string_if(writer, "precision", job->precision);
    ty_json_put_string_if(writer, "data", job->data);
    ty_json_put_string(writer, "output", job->output);
    if (job->kind == TY_JOB_TRAIN) {
        ty_json_put_uint(writer, "steps", job->steps);
        ty_json_put_uint(writer, "warmup_steps", job->warmup_steps);
        ty_json_put_uint(writer, "timeline_steps", job->timeline_steps);
        write_target(&job->until, writer);
        ty_json_put_uint(writer, "evaluate_every", job->evaluate_every);
        ty_json_put_string_if(writer, "gradients", job->gradients);
        ty_json_put_string_if(writer, "checkpoint", job->checkpoint);
        if (job->checkpoint != NULL) {
            ty_json_put_uint(writer, "checkpoint_every", job->checkpoint_every);
            ty_json_put_bool(writer, "resume", job->resume);
        }
        if (job->measure_distortion)
            ty_json_put_bool(writer, "measure_distortion", true);
        ty_program_to_json(job->program, writer, "program");
        if (job->instruction_s != NULL)
            write_times(job, writer);
    } else {
        ty_json_put_uint32_array(writer, "micro_batches", job->micro_batches,
                                 job->micro_batch_count);
    }
    ty_plan_to_json(job->plan, writer, "plan");
    ty_json_close(writer, '}');
}

/* Hands a finished text to a file. */
static ty_status save_text(ty_text *text, const char *path, ty_error *error)
{
    char *json = NULL;
    ty_status status;

    ty_text_add(text, "\n");
    status = ty_text_take(text, &json, error);
    if (status == TY_OK)
        status = ty_file_write(path, json, strlen(json), error);
    ty_free(json);
    return status;
}

ty_status ty_job_to_text(const ty_job *job, const char *name, ty_text *text, ty_error *error)
{
    ty_status status = TY_OK;
    char place[TY_JSON_PLACE_SIZE];
    ty_json_writer writer = ty_json_writer_on(text);

    snprintf(place, sizeof place, "%s:", name);
    TY_CHECK(check_job(job, place, error), status, done);
    TY_CHECK(ty_plan_check(job->plan, name, error), status, done);
    if (job->kind == TY_JOB_TRAIN)
        TY_CHECK(ty_program_check(job->plan, job->program, name, error), status, done);
    write_job(job, &writer);
done:
    return status;
}

ty_status ty_job_save(const ty_job *job, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_status status = ty_job_to_text(job, path, &text, error);

    if (status == TY_OK)
        status = save_text(&text, path, error);
    ty_text_clear(&text);
    return status;
}

void ty_job_free(ty_job *job)
{
    if (job == NULL)
        return;
    ty_free(job->instruction_s);
    ty_plan_free(job->plan);
    ty_program_free(job->program);
    ty_free(job->backend);
    ty_free(job->precision);
    ty_free(job->data);
    ty_free(job->output);
    ty_free(job->gradients);
    ty_free(job->checkpoint);
    ty_free(job->micro_batches);
    ty_free(job);
}

/* ---- Runs ----------------------------------------------------------------------------------- */

/* A run that only played its plan says how many steps, and has no losses. */
static ty_status read_losses(const ty_json *root, ty_run *run, ty_error *error)
{
    const bool is_played = strcmp(run->backend, replay) == 0;
    const ty_json *array;
    ty_status status =
        ty_json_array(root, "losses", is_played ? 0 : 1, is_played ? 0 : MAX_STEPS, &array, error);

    if (status != TY_OK)
        return status;
    if (is_played)
        return ty_json_uint32(root, "step_count", 1, MAX_STEPS, &run->step_count, error);
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

static ty_status read_evaluation(const ty_json *object, ty_evaluation *evaluation, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_uint32(object, "step", 0, MAX_STEPS, &evaluation->step, error), status, done);
    TY_CHECK(ty_json_number(object, "seconds", 0, DBL_MAX, &evaluation->seconds, error), status,
             done);
    TY_CHECK(ty_json_number(object, "accuracy", 0, 1, &evaluation->accuracy, error), status, done);
    TY_CHECK(ty_json_number(object, "loss", -DBL_MAX, DBL_MAX, &evaluation->loss, error), status,
             done);
    status = ty_json_end(object, error);

done:
    return status;
}

static ty_status read_evaluations(const ty_json *root, ty_run *run, ty_error *error)
{
    const ty_json *array;
    ty_status status = ty_json_array(root, "evaluations", 0, MAX_STEPS, &array, error);

    if (status != TY_OK)
        return status;
    run->evaluations = ty_alloc(ty_json_size(array), sizeof *run->evaluations);
    if (run->evaluations == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    run->evaluation_count = (uint32_t)ty_json_size(array);
    for (uint32_t i = 0; i < run->evaluation_count && status == TY_OK; i++)
        status = read_evaluation(ty_json_at(array, i), &run->evaluations[i], error);
    return status;
}

/* Rows of [step, square, variance]. */
static ty_status read_noise_history(const ty_json *object, ty_run *run, ty_error *error)
{
    const ty_json *array;
    ty_status status = ty_json_array(object, "history", 0, MAX_STEPS, &array, error);

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
        TY_CHECK(ty_json_as_uint64(ty_json_at(row, 0), 0, MAX_STEPS, &step, error), status, done);
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
    TY_CHECK(ty_json_uint32(value, "steps", 1, MAX_STEPS, &noise->steps, error), status, done);
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
    TY_CHECK(ty_json_uint32(value, "steps", 1, MAX_STEPS, &run->distortion_steps, error), status,
             done);
    TY_CHECK(ty_json_number(value, "share", 0, DBL_MAX, &run->distortion, error), status, done);
    status = ty_json_end(value, error);
done:
    return status;
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
    TY_CHECK(read_evaluations(root, run, error), status, done);
    TY_CHECK(read_target(root, &run->until, error), status, done);
    if (ty_json_has(root, "gradient_noise"))
        TY_CHECK(read_noise(root, run, error), status, done);
    if (ty_json_has(root, "compression_distortion"))
        TY_CHECK(read_distortion(root, run, error), status, done);
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
    write_target(&run->until, writer);
    if (run->noise.steps > 0)
        write_noise(run, writer);
    if (run->distortion_steps > 0) {
        ty_json_open_flat(writer, "compression_distortion", '{');
        ty_json_put_uint(writer, "steps", run->distortion_steps);
        ty_json_put_number(writer, "share", run->distortion);
        ty_json_close(writer, '}');
    }
    ty_json_open(writer, "evaluations", '[');
    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        ty_json_open_flat(writer, NULL, '{');
        ty_json_put_uint(writer, "step", run->evaluations[i].step);
        ty_json_put_number(writer, "seconds", run->evaluations[i].seconds);
        ty_json_put_number(writer, "accuracy", run->evaluations[i].accuracy);
        ty_json_put_number(writer, "loss", run->evaluations[i].loss);
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
        (run->losses == NULL) != (strcmp(run->backend, replay) == 0))
        return ty_fail(error, TY_EINVAL,
                       "%s: a run needs ranks and steps, and losses unless it only played its plan",
                       path);
    for (uint32_t i = 0; run->losses != NULL && i < run->step_count; i++)
        if (!isfinite(run->losses[i]))
            return ty_fail(error, TY_EINVAL, "%s: the loss of step %u is %g: training diverged",
                           path, i, run->losses[i]);
    for (uint32_t i = 0; i < run->evaluation_count; i++)
        if (!isfinite(run->evaluations[i].loss))
            return ty_fail(error, TY_EINVAL,
                           "%s: the test loss after step %u is %g: training diverged", path,
                           run->evaluations[i].step, run->evaluations[i].loss);
    return TY_OK;
}

ty_status ty_run_save(const ty_run *run, const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    TY_CHECK(check_run(run, path, error), status, cleanup);
    write_run(run, &writer);
    status = save_text(&text, path, error);

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
    ty_timeline_free(run->timeline);
    ty_free(run);
}
