/* Traces, read back event by event. */
#include "scene.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#define MOST 20000

typedef struct found {
    uint32_t slices, process_names, thread_names, flows;
    uint32_t begins[MOST], ends[MOST]; /* by flow id */
    double begin_us[MOST], end_us[MOST];
    bool is_named[64];
} found;

static double number(const ty_json *event, const char *key)
{
    double value = NAN;
    ty_error error = {0};
    cr_assert_eq(ty_json_number(event, key, 0, HUGE_VAL, &value, &error), TY_OK, "%s",
                 error.message);
    return value;
}

static const char *string(const ty_json *object, const char *key)
{
    const char *value = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_json_string(object, key, &value, &error), TY_OK, "%s", error.message);
    return value;
}

static void read_event(const ty_json *event, found *f)
{
    const char *phase = string(event, "ph");
    uint32_t process = (uint32_t)number(event, "pid");

    cr_assert_lt(process, 64);
    if (strcmp(phase, "X") == 0) {
        f->slices++;
        number(event, "ts"); /* both >= 0 */
        number(event, "dur");
        cr_expect(f->is_named[process], "process %u is named before it works", process);
    } else if (strcmp(phase, "M") == 0) {
        const ty_json *arguments;
        cr_assert_eq(ty_json_object(event, "args", &arguments, NULL), TY_OK);
        if (strcmp(string(event, "name"), "process_name") == 0) {
            f->process_names++;
            f->is_named[process] = true;
            cr_expect(strstr(string(arguments, "name"), "stage replica") != NULL);
        } else {
            f->thread_names++;
        }
    } else {
        uint32_t id = (uint32_t)number(event, "id");
        cr_assert_lt(id, MOST);
        if (strcmp(phase, "s") == 0) {
            f->begins[id]++;
            f->begin_us[id] = number(event, "ts");
        } else {
            cr_assert_str_eq(phase, "f");
            cr_expect_str_eq(string(event, "bp"), "e");
            f->ends[id]++;
            f->end_us[id] = number(event, "ts");
        }
        f->flows += f->begins[id] + f->ends[id] == 1;
    }
}

static void read_trace(const ty_text *text, found *f)
{
    ty_json_document *document = NULL;
    const ty_json *events;
    ty_error error = {0};

    cr_assert_eq(ty_json_parse(text->data, text->length, "trace", &document, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_json_array(ty_json_root(document), "traceEvents", 1, SIZE_MAX, &events, &error),
                 TY_OK);
    for (size_t i = 0; i < ty_json_size(events); i++)
        read_event(ty_json_at(events, i), f);
    ty_json_free(document);
}

static uint32_t receives_of(const scene *s)
{
    uint32_t count = 0;

    for (uint32_t stage = 0; stage < s->plan->stage_count; stage++)
        for (uint32_t i = 0; i < s->program->stages[stage].instruction_count; i++)
            count += (s->program->stages[stage].instructions[i].op == TY_OP_RECEIVE) *
                     s->plan->stages[stage].replicas;
    return count;
}

Test(trace, events_are_complete)
{
    static found f;

    for (size_t i = 0; i < toy_spec_count; i++) {
        scene s = scene_of(toy_specs[i].name);
        ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
        ty_timeline *measured = scene_timeline(&s, 3, scene_slowing);
        uint32_t stage_replicas = ty_plan_stage_replica_count(s.plan);
        for (int with_measured = 0; with_measured < 2; with_measured++) {
            uint32_t steps = with_measured ? 5 : 2,
                     processes = stage_replicas * (1 + with_measured);
            ty_text text = {0};
            ty_error error = {0};
            memset(&f, 0, sizeof f);
            cr_assert_eq(ty_trace_write(s.plan, s.program, predicted,
                                        with_measured ? measured : NULL, &text, &error),
                         TY_OK, "%s", error.message);
            read_trace(&text, &f);
            cr_expect_eq(f.slices, steps * ty_program_event_count(s.plan, s.program), "%s",
                         toy_specs[i].name);
            cr_expect_eq(f.process_names, processes);
            cr_expect_eq(f.thread_names, processes * TY_STREAM_COUNT);
            cr_expect_eq(f.flows, steps * receives_of(&s));
            for (uint32_t id = 0; id < MOST; id++) {
                cr_expect(f.begins[id] == f.ends[id] && f.begins[id] <= 1, "flow %u", id);
                cr_expect(f.begins[id] == 0 || f.begin_us[id] < f.end_us[id], "flow %u", id);
            }
            ty_text_clear(&text);
        }
        ty_timeline_free(predicted);
        ty_timeline_free(measured);
        scene_clear(&s);
    }
}

/* A shortened name must not end inside a character: JSON would be invalid. */
Test(trace, long_names_in_other_scripts)
{
    for (int shift = 0; shift < 4; shift++) {
        scene s = scene_of("alone");
        ty_timeline *predicted = scene_timeline(&s, 1, scene_two_ms);
        ty_text text = {0}, name = {0};
        ty_error error = {0};
        static found f;
        for (int i = 0; i < shift; i++)
            ty_text_add(&name, "x");
        for (int i = 0; i < 60; i++)
            ty_text_add(&name, i % 2 == 0 ? "層" : "é");
        ty_free(s.plan->workload->layers[0].name);
        cr_assert_eq(ty_text_take(&name, &s.plan->workload->layers[0].name, NULL), TY_OK);
        cr_assert_eq(ty_trace_write(s.plan, s.program, predicted, NULL, &text, &error), TY_OK,
                     "%d: %s", shift, error.message);
        memset(&f, 0, sizeof f);
        read_trace(&text, &f);
        ty_text_clear(&text);
        ty_timeline_free(predicted);
        scene_clear(&s);
    }
}

Test(trace, others_timelines_are_refused)
{
    scene s = scene_of("pipeline"), other = scene_of("hybrid");
    ty_timeline *own = scene_timeline(&s, 1, scene_two_ms);
    ty_timeline *foreign = scene_timeline(&other, 1, scene_two_ms);
    ty_text text = {0};
    ty_error error = {0};

    cr_expect_eq(ty_trace_write(s.plan, s.program, foreign, NULL, &text, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "predicted:/stage_replica_count") != NULL, "%s", error.message);
    cr_expect_eq(ty_trace_write(s.plan, s.program, own, foreign, &text, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "measured:/stage_replica_count") != NULL, "%s", error.message);
    cr_expect_null(text.data);
    ty_timeline_free(own);
    ty_timeline_free(foreign);
    scene_clear(&s);
    scene_clear(&other);
}

Test(trace, survives_failing_allocations)
{
    scene s = scene_of("hybrid tied");
    ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status == TY_ENOMEM; n++) {
        ty_text text = {0};
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_trace_write(s.plan, s.program, predicted, NULL, &text, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        ty_text_clear(&text);
    }
    cr_expect_gt(n, 10);
    ty_timeline_free(predicted);
    scene_clear(&s);
}
