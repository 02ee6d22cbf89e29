/* Phases files, the plan of each phase, and documents of phased plans. */
#include "ty_phases.h"

#include "question.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PHASES_SCHEMA "trainyard.phases/1"
#define PLAN_SCHEMA "trainyard.phased-plan/1"
#define HEAD_BYTES 1024
#define MOST_STEPS 1000000000u
#define MOST_EPOCHS 1e6
#define MOST_SAMPLES (((uint64_t)1 << 53) - 1)
#define SMALLEST_RATE DBL_MIN
#define LARGEST_RATE 1e6                       /* as in plans */
#define LARGEST_MOMENTUM (1 - DBL_EPSILON / 2) /* the last number below 1 */

/* ---- Files of phases ------------------------------------------------------------------------- */

void ty_phases_free(ty_phases *phases)
{
    if (phases == NULL)
        return;
    for (uint32_t p = 0; phases->phases != NULL && p < phases->count; p++)
        ty_free(phases->phases[p].fix);
    ty_free(phases->phases);
    ty_free(phases);
}

/* Pixels: a size, or [height, width]. */
static ty_status read_image_size(const ty_json *object, const json_field *field, void *out,
                                 const void *context, ty_error *error)
{
    ty_phase *phase = out;
    const ty_json *size;
    uint32_t *const sides[] = {&phase->image_height, &phase->image_width};

    (void)context;
    TY_TRY(ty_json_member(object, field->key, &size, error));
    if (ty_json_is_array(size))
        TY_TRY(ty_json_array(object, field->key, 2, 2, &size, error));
    for (size_t i = 0; i < 2; i++)
        TY_TRY(ty_json_as_uint32(ty_json_is_array(size) ? ty_json_at(size, i) : size, 1,
                                 TY_MOST_PIXELS, sides[i], error));
    return TY_OK;
}

static const json_field phase_fields[] = {
    {"steps", JSON_UINT32, JSON_AT(ty_phase, steps), 1, MOST_STEPS, .is_optional = true,
     .about = "or epochs"},
    {"epochs", JSON_NUMBER, JSON_AT(ty_phase, epochs), 1e-9, MOST_EPOCHS, .is_optional = true,
     .about = "of the file's samples; in place of steps"},
    {"image_size", JSON_OTHER, .read = read_image_size, .is_optional = true,
     .about = "pixels; of one size, or height and width"},
    {"global_batch", JSON_UINT32, JSON_AT(ty_phase, global_batch), 1, 1u << 30,
     .is_optional = true},
    {"learning_rate", JSON_NUMBER, JSON_AT(ty_phase, learning_rate), SMALLEST_RATE, LARGEST_RATE,
     .is_optional = true},
    {"momentum", JSON_NUMBER, JSON_AT(ty_phase, momentum), 0, LARGEST_MOMENTUM, .absent = -1,
     .is_optional = true},
    {"fix", JSON_TEXT, JSON_AT(ty_phase, fix), .is_optional = true,
     .about = "pins of this phase, as --fix has them"},
};
static const json_record phase_record = JSON_RECORD(ty_phase, phase_fields);

static const json_field phases_fields[] = {
    {"samples", JSON_UINT64, JSON_AT(ty_phases, samples), 1, (double)MOST_SAMPLES,
     .is_optional = true, .about = "of an epoch"},
    {"phases", JSON_ROWS, JSON_AT(ty_phases, phases), 1, TY_MOST_TRAINING_PHASES,
     .of = &phase_record, .count_at = offsetof(ty_phases, count)},
};
const json_record ty_phases_record = JSON_RECORD(ty_phases, phases_fields);

ty_status ty_phases_load(const char *path, ty_phases **out, ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *root, *list;
    ty_phases *phases = ty_alloc(1, sizeof *phases);
    ty_status status;

    TY_TRY(ty_check_memory(phases != NULL, error));
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, PHASES_SCHEMA, error), status, cleanup);
    TY_CHECK(ty_record_read_all(root, &ty_phases_record, phases, NULL, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "phases", 1, TY_MOST_TRAINING_PHASES, &list, error), status,
             cleanup);
    for (uint32_t p = 0; p < phases->count; p++) {
        const ty_phase *phase = &phases->phases[p];
        if ((phase->steps > 0) == (phase->epochs > 0))
            status = ty_json_fail(ty_json_at(list, p), error, "either steps or epochs");
        else if (phase->epochs > 0 && phases->samples == 0)
            status = ty_json_fail(ty_json_at(list, p), error,
                                  "steps, or the file's samples beside epochs");
        TY_CHECK(status, status, cleanup);
    }
    *out = phases;
    phases = NULL; /* ownership moved */
cleanup:
    ty_phases_free(phases);
    ty_json_free(document);
    return status;
}

/* ---- Pins --------------------------------------------------------------------------------------
 */

/* Axes that assign state to ranks, whatever the batch. */
#define CARRIED                                                                                    \
    (TY_AXES_OF_RANKS | TY_AXIS(PP) | TY_AXIS(LAYERS) | TY_AXIS(VPP) | TY_AXIS(TABLES) |           \
     TY_AXIS(SP) | TY_AXIS(SCHEDULE) | TY_AXIS(ZERO) | TY_AXIS(COMPRESSION))

/* Pins of a phase after the first: its own, the question's, and the parts of the first plan that
 * must stay the same. */
static ty_status pins_of(const ty_question *question, const ty_phase *phase, const ty_plan *first,
                         uint32_t batch, uint32_t devices, ty_text *out, ty_error *error)
{
    const bool is_of_ranks = ty_plan_state_is_of_ranks(first);
    ty_pins pins = {0};

    if (first->fix != NULL)
        TY_TRY(ty_pins_read(first->fix, devices, &pins, error));
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        if (a == TY_AXIS_MICRO_BATCH || (!is_of_ranks && (CARRIED >> a & 1) == 0))
            ty_unpin(&pins, (ty_axis)a);
    if (question->fix != NULL)
        TY_TRY(ty_pins_read(question->fix, devices, &pins, error));
    if (phase->fix != NULL)
        TY_TRY(ty_pins_read(phase->fix, devices, &pins, error));
    if (is_of_ranks && !ty_is_pinned(&pins, TY_AXIS(MICRO_BATCH))) {
        if (batch % first->micro_batches != 0)
            return ty_fail(error, TY_EINVAL,
                           "found a batch of %u, expected a multiple of the first phase's %u "
                           "micro-batches, whose state belongs to ranks (ZeRO, a compressor or "
                           "a schedule without a flush)",
                           batch, first->micro_batches);
        ty_pin(&pins, TY_AXIS_MICRO_BATCH, batch / first->micro_batches);
    }
    return ty_pins_print(&pins, out, error);
}

/* ---- Plans -------------------------------------------------------------------------------------
 */

void ty_phased_plan_free(ty_phased_plan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t p = 0; plan->plans != NULL && p < plan->count; p++)
        ty_plan_free(plan->plans[p]);
    ty_free(plan->plans);
    ty_free(plan->steps);
    ty_free(plan);
}

static ty_status phased_new(uint32_t count, ty_phased_plan **out, ty_error *error)
{
    ty_phased_plan *plan = ty_alloc(1, sizeof *plan);

    TY_TRY(ty_check_memory(plan != NULL, error));
    plan->steps = ty_alloc(count, sizeof *plan->steps);
    plan->plans = ty_alloc(count, sizeof(ty_plan *));
    if (plan->steps == NULL || plan->plans == NULL) {
        ty_phased_plan_free(plan);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    plan->count = count;
    *out = plan;
    return TY_OK;
}

static ty_status set_momentum(const ty_phase *phase, ty_plan *plan, ty_error *error)
{
    ty_optimizer *o = &plan->optimizer;

    if (phase->momentum < 0)
        return TY_OK;
    if (!ty_optimizer_row_of(o->kind)->has_momentum)
        return ty_fail(error, TY_EINVAL, "momentum: found %g, expected none: %s has betas",
                       phase->momentum, ty_optimizer_name(o->kind));
    if ((phase->momentum > 0) != (o->momentum > 0))
        return ty_fail(error, TY_EINVAL,
                       "momentum: found %g, expected %s, as %s has it: its state is carried on",
                       phase->momentum, o->momentum > 0 ? "one above 0" : "0",
                       plan->workload->name);
    o->momentum = phase->momentum;
    return TY_OK;
}

/* Whether a phase can resume from the state of the first. */
static ty_status check_carried(const ty_plan *first, const ty_plan *plan, ty_error *error)
{
    ty_digest expected, found;
    ty_status status = TY_OK;

    TY_TRY(ty_plan_state_digest(first, &expected, error));
    TY_TRY(ty_plan_state_digest(plan, &found, error));
    if (strcmp(found.hex, expected.hex) != 0)
        status = ty_fail(
            error, TY_EINVAL,
            "a plan that continues from the state of the first phase, with its network, seed, "
            "stages and ranks%s",
            ty_plan_state_is_of_ranks(first) || ty_plan_state_is_of_ranks(plan)
                ? ", and with ZeRO, a compressor or a schedule without a flush its replicas, "
                  "buckets and number of micro-batches"
                : "");
    return status;
}

static ty_status plan_phase(const ty_question *question, const ty_phases *phases, uint32_t index,
                            const ty_watch *watch, ty_phased_plan *out, ty_error *error)
{
    const ty_phase *phase = &phases->phases[index];
    const ty_plan *first = out->plans[0]; /* NULL for the first phase itself */
    ty_question own = *question;
    ty_question_inputs inputs = {0};
    ty_text pins = {0};
    double steps;
    ty_error detail = {0};
    ty_status status = TY_OK;

    if (phase->global_batch > 0)
        own.global_batch = phase->global_batch;
    if (phase->learning_rate > 0)
        own.learning_rate = phase->learning_rate;
    if (phase->image_height > 0) {
        own.image_height = phase->image_height;
        own.image_width = phase->image_width;
    }
    TY_CHECK(ty_question_open(&own, watch, &inputs, error), status, done);
    if (first != NULL)
        TY_CHECK(pins_of(question, phase, first,
                         own.global_batch > 0 ? own.global_batch : inputs.workload->global_batch,
                         ty_cluster_device_count(inputs.cluster), &pins, error),
                 status, done);
    else if (phase->fix != NULL && question->fix != NULL)
        ty_text_addf(&pins, "%s,%s", question->fix, phase->fix);
    else if (phase->fix != NULL)
        ty_text_add(&pins, phase->fix);
    TY_CHECK(ty_text_check(&pins, error), status, done);
    if (pins.length > 0)
        own.fix = pins.data;
    TY_CHECK(ty_question_plan(&own, &inputs, watch, &out->plans[index], error), status, done);
    TY_CHECK(set_momentum(phase, out->plans[index], error), status, done);
    if (first != NULL && check_carried(first, out->plans[index], &detail) != TY_OK) {
        status = ty_fail(error, TY_EINVAL, "found \"%.60s\", expected %.200s",
                         out->plans[index]->strategy, detail.message);
        goto done;
    }
    steps = round(phase->epochs * (double)phases->samples / out->plans[index]->global_batch);
    if (phase->steps == 0 && !(steps >= 1 && steps <= MOST_STEPS))
        status = ty_fail(error, TY_EINVAL,
                         "found %g epochs of %llu samples in batches of %u, expected 1 to %u steps",
                         phase->epochs, (unsigned long long)phases->samples,
                         out->plans[index]->global_batch, MOST_STEPS);
    else
        out->steps[index] = phase->steps > 0 ? phase->steps : (uint32_t)steps;
done:
    ty_text_clear(&pins);
    ty_question_inputs_clear(&inputs);
    return status;
}

ty_status ty_phased_plan_make(const ty_question *question, const ty_phases *phases,
                              const ty_watch *watch, ty_phased_plan **out, ty_error *error)
{
    ty_phased_plan *plan = NULL;
    ty_error detail = {0};
    ty_status status = phased_new(phases->count, &plan, error);

    for (uint32_t p = 0; p < phases->count && status == TY_OK; p++) {
        status = plan_phase(question, phases, p, watch, plan, &detail);
        if (status != TY_OK)
            status = ty_fail(error, status, "phase %u: %.240s", p + 1, detail.message);
    }
    if (status != TY_OK) {
        ty_phased_plan_free(plan);
        return status;
    }
    *out = plan;
    return TY_OK;
}

/* ---- Documents ---------------------------------------------------------------------------------
 */

bool ty_phased_plan_resizes(const ty_phased_plan *plan)
{
    const ty_shape *first = &plan->plans[0]->workload->input;
    bool is_other = false;

    for (uint32_t p = 1; p < plan->count; p++)
        for (uint32_t d = 1; d < first->dimension_count; d++)
            is_other =
                is_other || plan->plans[p]->workload->input.dimensions[d] != first->dimensions[d];
    return is_other;
}

void ty_phased_plan_to_json(const ty_phased_plan *plan, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "schema", PLAN_SCHEMA);
    ty_json_open(writer, "phases", '[');
    for (uint32_t p = 0; p < plan->count; p++) {
        ty_json_open(writer, NULL, '{');
        ty_json_put_uint(writer, "steps", plan->steps[p]);
        ty_json_put_number(writer, "time_s",
                           plan->steps[p] * ty_plan_summary(plan->plans[p])->step_time_s);
        ty_plan_to_json(plan->plans[p], writer, "plan");
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

ty_status ty_phased_plan_save(const ty_phased_plan *plan, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_status status = TY_OK;

    for (uint32_t p = 0; p < plan->count; p++)
        TY_CHECK(ty_plan_check(plan->plans[p], path, error), status, done);
    ty_phased_plan_to_json(plan, &writer);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);
done:
    ty_text_clear(&text);
    return status;
}

ty_status ty_phased_plan_load(const char *path, ty_phased_plan **out, ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *root, *list, *value;
    ty_phased_plan *plan = NULL;
    ty_error detail = {0};
    double time_s, step_s;
    ty_status status;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, PLAN_SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "phases", 1, TY_MOST_TRAINING_PHASES, &list, error), status,
             cleanup);
    TY_CHECK(phased_new((uint32_t)ty_json_size(list), &plan, error), status, cleanup);
    for (uint32_t p = 0; p < plan->count; p++) {
        const ty_json *object = ty_json_at(list, p);
        TY_CHECK(ty_json_uint32(object, "steps", 1, MOST_STEPS, &plan->steps[p], error), status,
                 cleanup);
        TY_CHECK(ty_json_number(object, "time_s", 0, HUGE_VAL, &time_s, error), status, cleanup);
        TY_CHECK(ty_json_object(object, "plan", &value, error), status, cleanup);
        TY_CHECK(ty_plan_from_json(value, &plan->plans[p], error), status, cleanup);
        TY_CHECK(ty_json_end(object, error), status, cleanup);
        step_s = ty_plan_summary(plan->plans[p])->step_time_s;
        if (fabs(time_s - plan->steps[p] * step_s) > 1e-9 * time_s) {
            status = ty_json_fail(object, error, "a time_s of its %u steps of %.6g s",
                                  plan->steps[p], step_s);
            goto cleanup;
        }
        if (check_carried(plan->plans[0], plan->plans[p], &detail) != TY_OK) {
            status = ty_json_fail(ty_json_at(list, p), error, "%s", detail.message);
            goto cleanup;
        }
    }
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    *out = plan;
    plan = NULL; /* ownership moved */
cleanup:
    ty_phased_plan_free(plan);
    ty_json_free(document);
    return status;
}

bool ty_is_phased_plan(const char *path)
{
    char head[HEAD_BYTES + 1];
    struct stat what;
    FILE *file;
    size_t length;

    if (stat(path, &what) != 0 || !S_ISREG(what.st_mode) || (file = fopen(path, "re")) == NULL)
        return false;
    length = fread(head, 1, HEAD_BYTES, file);
    (void)fclose(file);
    head[length] = '\0';
    return strstr(head, "\"" PLAN_SCHEMA "\"") != NULL;
}
