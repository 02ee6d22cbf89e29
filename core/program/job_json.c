/* Jobs (`trainyard.job/1`): the worker's input. */
#include "json_parts.h"
#include "program_check.h"
#include "run_parts.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define JOB_SCHEMA "trainyard.job/1"

enum { MAX_SIZES = 1000 };
#define MAX_INSTRUCTION_S 1e6 /* 12 days: a unit is wrong */

/* ---- Checking ------------------------------------------------------------------------------- */

static ty_status check_train(const ty_job *job, const char *place, ty_error *error)
{
    const uint32_t room = job->steps - job->warmup_steps;

    if (job->steps == 0 || job->steps > TY_MAX_STEPS)
        return ty_fail(error, TY_EPARSE, "%s/steps: found %u, expected 1 to %d", place, job->steps,
                       TY_MAX_STEPS);
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
    if (job->checkpoint == NULL &&
        (job->checkpoint_every > 0 || job->checkpoint_every_s > 0 || job->keep > 0 || job->resume))
        return ty_fail(error, TY_EPARSE, "%s/checkpoint: found none, expected a folder with %s",
                       place,
                       job->resume     ? "resume"
                       : job->keep > 0 ? "keep"
                                       : "checkpoint_every");
    if (job->init != NULL && job->resume)
        return ty_fail(error, TY_EPARSE,
                       "%s/init: found weights to start from with resume, expected one of them",
                       place);
    if (job->program == NULL)
        return ty_fail(error, TY_EPARSE, "%s/program: found none, expected one to train with",
                       place);
    if ((strcmp(job->backend, TY_REPLAY) == 0) != (job->instruction_s != NULL))
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
    if (job->kind != TY_JOB_SAMPLES && strcmp(job->backend, TY_REPLAY) != 0)
        TY_TRY(ty_optimizer_check_executed(
            job->kind == TY_JOB_PROFILE ? &job->plan->workload->optimizer : &job->plan->optimizer,
            error));
    if (job->kind == TY_JOB_TRAIN)
        return check_train(job, place, error);
    if (job->kind == TY_JOB_SAMPLES && job->data == NULL)
        return ty_fail(error, TY_EPARSE, "%s/data: found none, expected samples to read", place);
    if (job->kind == TY_JOB_SAMPLES)
        return TY_OK;
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

/* ---- File ----------------------------------------------------------------------------------- */

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

/* One time per instruction of each pipeline rank's program. */
static ty_status read_times(const ty_json *root, ty_job *job, ty_error *error)
{
    const uint32_t pipeline_size = job->program->stage_count;
    const ty_json *rows;

    TY_TRY(ty_json_array(root, "instruction_s", pipeline_size, pipeline_size, &rows, error));
    job->instruction_s = ty_job_times(job->program);
    TY_TRY(ty_check_memory(job->instruction_s != NULL, error));
    for (uint32_t p = 0; p < pipeline_size; p++) {
        const ty_json *row = ty_json_at(rows, p);
        const uint32_t count = job->program->stages[p].instruction_count;

        if (!ty_json_is_array(row) || ty_json_size(row) != count)
            return ty_json_fail(row, error, "an array of %u times, one of each instruction", count);
        for (uint32_t i = 0; i < count; i++)
            TY_TRY(ty_json_as_number(ty_json_at(row, i), 0, MAX_INSTRUCTION_S,
                                     &job->instruction_s[p][i], error));
    }
    return TY_OK;
}

static void write_times(const json_field *field, const void *in, const void *context,
                        ty_json_writer *writer)
{
    const ty_job *job = in;

    (void)context;
    ty_json_open(writer, field->key, '[');
    for (uint32_t p = 0; p < job->program->stage_count; p++) {
        ty_json_open_flat(writer, NULL, '[');
        for (uint32_t i = 0; i < job->program->stages[p].instruction_count; i++)
            ty_json_put_number(writer, NULL, job->instruction_s[p][i]);
        ty_json_close(writer, ']');
    }
    ty_json_close(writer, ']');
}

static ty_status read_plan(const ty_json *object, const json_field *field, void *out,
                           const void *context, ty_error *error)
{
    ty_job *job = out;
    const ty_json *value;

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    return ty_plan_from_json(value, &job->plan, error);
}

static void write_plan(const json_field *field, const void *job, const void *context,
                       ty_json_writer *writer)
{
    (void)context;
    ty_plan_to_json(((const ty_job *)job)->plan, writer, field->key);
}

static void write_program(const json_field *field, const void *job, const void *context,
                          ty_json_writer *writer)
{
    (void)context;
    ty_program_to_json(((const ty_job *)job)->program, writer, field->key);
}

static const char *kind_name(int i)
{
    static const char *const names[TY_JOB_COUNT] = {
        [TY_JOB_TRAIN] = "train", [TY_JOB_PROFILE] = "profile", [TY_JOB_SAMPLES] = "samples"};
    return names[i];
}

static bool trains(const void *job)
{
    return ((const ty_job *)job)->kind == TY_JOB_TRAIN;
}

static bool profiles(const void *job)
{
    return ((const ty_job *)job)->kind == TY_JOB_PROFILE;
}

static bool reads_samples(const void *job)
{
    return !profiles(job);
}

#define STEPS(member, least)                                                                       \
    {                                                                                              \
#member, JSON_UINT32, JSON_AT(ty_job, member), least, TY_MAX_STEPS, .applies = trains      \
    }
#define TEXT(member) #member, JSON_TEXT, JSON_AT(ty_job, member)

/* The program comes after its plan, which is last. */
static const json_field fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_job, kind), .name = kind_name, .name_count = TY_JOB_COUNT},
    {TEXT(backend)},
    {TEXT(precision), .is_optional = true},
    {TEXT(data), .is_optional = true},
    {TEXT(output)},
    {"bad_samples", JSON_UINT32, JSON_AT(ty_job, bad_samples), 0, TY_MAX_STEPS, .is_optional = true,
     .applies = reads_samples},
    STEPS(steps, 1),
    STEPS(warmup_steps, 0),
    STEPS(timeline_steps, 0),
    {NULL, JSON_MEMBERS, JSON_AT(ty_job, until), .of = &ty_until_record, .applies = trains},
    STEPS(evaluate_every, 0),
    {TEXT(gradients), .is_optional = true, .applies = trains},
    {TEXT(checkpoint), .is_optional = true, .applies = trains},
    {"checkpoint_every", JSON_UINT32, JSON_AT(ty_job, checkpoint_every), 0, TY_MAX_STEPS,
     .is_optional = true, JSON_SAID(ty_job, checkpoint), .applies = trains},
    {"checkpoint_every_s", JSON_NUMBER, JSON_AT(ty_job, checkpoint_every_s), 0, 1e9,
     .is_optional = true, JSON_SAID(ty_job, checkpoint_every_s), .applies = trains},
    {"keep", JSON_UINT32, JSON_AT(ty_job, keep), 0, TY_MAX_STEPS, .is_optional = true,
     JSON_SAID(ty_job, keep), .applies = trains},
    {"resume", JSON_BOOL, JSON_AT(ty_job, resume), .is_optional = true,
     JSON_SAID(ty_job, checkpoint), .applies = trains},
    {TEXT(init), .is_optional = true, .applies = trains},
    {TEXT(save_weights), .is_optional = true, .applies = trains},
    {"deterministic", JSON_BOOL, JSON_AT(ty_job, deterministic), .is_optional = true,
     .applies = trains},
    {"measure_distortion", JSON_BOOL, JSON_AT(ty_job, measure_distortion), .is_optional = true,
     .applies = trains},
    {"program", JSON_OTHER, .read = ty_record_pass_by, .write = write_program, .applies = trains,
     .schema = "program.json"},
    {"instruction_s", JSON_OTHER, .read = ty_record_pass_by, .write = write_times,
     .is_optional = true, JSON_SAID(ty_job, instruction_s), .applies = trains,
     .about = "arrays of seconds, of each pipeline rank one of each instruction"},
    {"micro_batches", JSON_UINTS, JSON_AT(ty_job, micro_batches), 1, UINT32_MAX - 1,
     .applies = profiles, .count_at = offsetof(ty_job, micro_batch_count), .least_count = 1,
     .most_count = MAX_SIZES},
    {"plan", JSON_OTHER, .read = read_plan, .write = write_plan, .schema = "plan.json"},
};
const json_record ty_job_record = JSON_RECORD(ty_job, fields);

static ty_status read_program(const ty_json *root, ty_job *job, ty_error *error)
{
    const ty_json *value;
    char place[TY_JSON_PLACE_SIZE];

    TY_TRY(ty_json_object(root, "program", &value, error));
    TY_TRY(ty_program_from_json(value, &job->program, error));
    ty_json_place(value, place);
    TY_TRY(ty_program_check_at(job->plan, job->program, place, error));
    return ty_json_has(root, "instruction_s") ? read_times(root, job, error) : TY_OK;
}

static ty_status read_job(const ty_json *root, ty_job *job, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];

    TY_TRY(ty_json_schema(root, JOB_SCHEMA, error));
    TY_TRY(ty_record_read(root, &ty_job_record, job, NULL, error));
    if (job->kind == TY_JOB_TRAIN)
        TY_TRY(read_program(root, job, error));
    TY_TRY(ty_json_end(root, error));
    ty_json_place(root, place);
    return check_job(job, place, error);
}

ty_status ty_job_from_json(const ty_json *object, ty_job **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_job *job = ty_alloc(1, sizeof *job);

    TY_TRY(ty_check_memory(job != NULL, error));
    TY_CHECK(read_job(object, job, error), status, cleanup);
    *out = job;
    job = NULL;

cleanup:
    ty_job_free(job);
    return status;
}

JSON_LOAD(ty_job_load, ty_job, ty_job_from_json)

ty_status ty_job_to_text(const ty_job *job, const char *name, ty_text *text, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];
    ty_json_writer writer = ty_json_writer_on(text);

    snprintf(place, sizeof place, "%s:", name);
    TY_TRY(check_job(job, place, error));
    TY_TRY(ty_plan_check(job->plan, name, error));
    if (job->kind == TY_JOB_TRAIN)
        TY_TRY(ty_program_check(job->plan, job->program, name, error));
    ty_record_write_document(JOB_SCHEMA, &ty_job_record, job, NULL, &writer, NULL);
    return TY_OK;
}

ty_status ty_job_save(const ty_job *job, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_status status = ty_job_to_text(job, path, &text, error);

    ty_text_add(&text, "\n");
    if (status == TY_OK)
        status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    return status;
}

ty_status ty_job_precision(const ty_job *job, ty_precision *out, ty_error *error)
{
    const bool is_narrow = ty_precision_is_narrow(job->plan->workload->precision);
    ty_precision precision = job->plan->workload->precision;
    ty_error detail;

    if (job->precision != NULL && ty_precision_find(job->precision, &precision, &detail) != TY_OK)
        return ty_fail(error, TY_EPARSE, "job:/precision: %s", detail.message);
    if (is_narrow || ty_precision_is_narrow(precision))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "precision: found %s, which is planned and not run here; expected fp32, "
                       "tf32, bf16 or fp16",
                       ty_precision_name(is_narrow ? job->plan->workload->precision : precision));
    *out = precision;
    return TY_OK;
}

bool ty_job_evaluates(const ty_job *job)
{
    return strcmp(job->backend, TY_REPLAY) != 0 &&
           (ty_target_is_set(&job->until) || job->plan->deployment.variant.bits > 0);
}

void ty_job_free(ty_job *job)
{
    if (job == NULL)
        return;
    ty_free(job->instruction_s);
    ty_plan_free(job->plan);
    ty_program_free(job->program);
    ty_record_clear(&ty_job_record, job);
    ty_free(job);
}
