#include "scene.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

scene scene_of(const char *spec)
{
    scene s = {.plan = toy_plan_named(spec)};

    s.program = toy_program(s.plan);
    return s;
}

void scene_clear(scene *s)
{
    ty_program_free(s->program);
    ty_plan_free(s->plan);
}

double scene_two_ms(uint32_t stage_replica, uint32_t step, uint32_t index, const ty_instruction *in)
{
    (void)stage_replica, (void)step, (void)index, (void)in;
    return 2e-3;
}

double scene_slowing(uint32_t stage_replica, uint32_t step, uint32_t index,
                     const ty_instruction *in)
{
    (void)index, (void)in;
    return 1e-3 * (1 + stage_replica + step);
}

static double usual_start(uint32_t step, uint32_t index)
{
    return step + 0.01 * index;
}

/* The send of a receive, found from the definition of a match. */
static double sent_at(const scene *s, uint32_t stage_replica, uint32_t step,
                      const ty_instruction *receive)
{
    const ty_plan *plan = s->plan;
    uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica), peer = receive->peer_stage;
    uint32_t replica = stage_replica - ty_plan_first_replica(plan, stage);
    uint32_t global = receive->micro_batch * plan->stages[stage].replicas + replica;

    for (uint32_t i = 0; i < s->program->stages[peer].instruction_count; i++) {
        const ty_instruction *in = &s->program->stages[peer].instructions[i];
        if (in->op == TY_OP_SEND && in->peer_stage == stage &&
            in->micro_batch == global / plan->stages[peer].replicas)
            return usual_start(step, i);
    }
    cr_assert_fail("a receive without a send");
    return NAN;
}

static double arrival(const scene *s, uint32_t stage_replica, uint32_t step, uint32_t index)
{
    return usual_start(step, index) + 1e-3 * (ty_plan_stage_replica_count(s->plan) - stage_replica);
}

/* Time at which the last member of a bucket reaches its collective. */
static double met_at(const scene *s, uint32_t step, uint32_t bucket, uint32_t phase)
{
    const uint32_t stages[2] = {s->plan->buckets[bucket].stage,
                                s->plan->buckets[bucket].tied_stage};
    double last_s = 0;

    for (int k = 0; k < 2 && stages[k] != TY_NO_STAGE; k++)
        for (uint32_t i = 0; i < s->program->stages[stages[k]].instruction_count; i++) {
            const ty_instruction *in = &s->program->stages[stages[k]].instructions[i];
            uint32_t first = ty_plan_first_replica(s->plan, stages[k]); /* the last of its stage */
            if (in->op == TY_OP_COLLECTIVE && in->bucket == bucket && in->phase == phase)
                last_s = fmax(last_s, arrival(s, first, step, i));
        }
    return last_s;
}

ty_timeline *scene_timeline(const scene *s, uint32_t steps, scene_rule rule)
{
    uint32_t stage_replicas = ty_plan_stage_replica_count(s->plan);
    ty_timeline *timeline = NULL;

    cr_assert_eq(ty_timeline_new(s->plan, steps, &timeline, NULL), TY_OK);
    for (uint32_t step = 0; step < steps; step++)
        for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++) {
            const ty_stage_program *program =
                &s->program->stages[ty_plan_stage_of_replica(s->plan, stage_replica)];
            for (uint32_t i = 0; i < program->instruction_count; i++) {
                const ty_instruction *in = &program->instructions[i];
                double start_s = usual_start(step, i), from_s = start_s;
                if (in->op == TY_OP_RECEIVE) {
                    start_s = step;
                    from_s = sent_at(s, stage_replica, step, in);
                } else if (in->op == TY_OP_COLLECTIVE) {
                    start_s = arrival(s, stage_replica, step, i);
                    from_s = met_at(s, step, in->bucket, in->phase);
                }
                toy_event(timeline, step, stage_replica, i, start_s,
                          from_s + rule(stage_replica, step, i, in));
            }
        }
    ty_timeline_sort(timeline);
    return timeline;
}

ty_run *scene_run(const scene *s, ty_timeline *timeline)
{
    ty_run *run = ty_alloc(1, sizeof *run);
    ty_error error = {0};

    run->backend = ty_strdup("cpu");
    run->machine = ty_strdup("a machine");
    run->versions = ty_strdup("some libraries");
    run->date = ty_strdup("2024-06-07T08:09:10Z");
    run->stage_replica_count = ty_plan_stage_replica_count(s->plan);
    run->step_count = 10;
    run->losses = ty_alloc(run->step_count, sizeof *run->losses);
    for (uint32_t i = 0; i < run->step_count; i++)
        run->losses[i] = 2.5 / (1 + i);
    run->wall_s = 10;
    run->peak_memory_bytes = ty_alloc(run->stage_replica_count, sizeof *run->peak_memory_bytes);
    for (uint32_t r = 0; r < run->stage_replica_count; r++)
        run->peak_memory_bytes[r] = (100 + r) << 20;
    run->timeline = timeline;
    if (timeline != NULL)
        cr_assert_eq(ty_timeline_summarize(s->plan, s->program, timeline, &run->summary, &error),
                     TY_OK, "%s", error.message);
    run->evaluation_count = 1;
    run->evaluations = ty_alloc(1, sizeof *run->evaluations);
    run->evaluations[0] = (ty_evaluation){.step = 10, .seconds = 10, .accuracy = 0.5, .loss = 1.25};
    return run;
}

static ty_candidate candidate(const char *name, double step_time_s, double simulated_s,
                              const char *reason)
{
    return (ty_candidate){.name = ty_strdup(name),
                          .step_time_s = step_time_s,
                          .simulated_step_time_s = simulated_s,
                          .peak_memory_bytes = 123456789,
                          .reason = ty_strdup(reason)};
}

void scene_predict(scene *s)
{
    ty_plan *plan = s->plan;

    plan->has_prediction = true;
    plan->prediction = (ty_step_summary){
        .step_time_s = 0.0125,
        .samples_per_s = plan->global_batch / 0.0125,
        .tokens_per_s = plan->global_batch * 3 / 0.0125,
        .compute_share = 0.5,
        .exposed_collective_share = 0.25,
        .exposed_transfer_share = 0.125,
        .bubble_share = 0.125,
        .limited_by = "gradient all-reduce 25 %, activation transfer 12 %",
    };
    plan->provenance = TY_DATASHEET;
    plan->memory = ty_alloc(plan->stage_count, sizeof *plan->memory);
    for (uint32_t i = 0; i < plan->stage_count; i++)
        plan->memory[i] = (ty_memory_use){.parameter_bytes = 1000000 * (i + 1),
                                          .gradient_bytes = 1000000,
                                          .optimizer_bytes = 2000000,
                                          .activation_bytes = 123456789,
                                          .communication_bytes = 4096,
                                          .workspace_bytes = 1u << 26};
    plan->candidates = ty_alloc(14, sizeof *plan->candidates);
    plan->candidates[0] = candidate(plan->strategy, 0.0125, 0.013, "chosen");
    plan->candidates[1] =
        candidate("gpipe 16 stages, replicas 1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16, 128 x 2, "
                  "256 KiB buckets, fp16",
                  0.02, 0.03,
                  "131 % slower: pipeline bubble 25 %, activation transfer 12 %, and a reason of "
                  "such length that it has to go on in a line of its own");
    plan->candidates[2] =
        candidate("1f1b 2 stages, 8 x 1", 0, 0, "does not fit: stage 1 misses 1.2 GiB a device");
    for (int i = 3; i < 14; i++)
        plan->candidates[i] = candidate("data parallel 4, 4 x 2, 25 MiB buckets", 0.05, 0,
                                        "about 300 % slower, not estimated");
    plan->candidate_count = 14;
}

/* ---- Reports ------------------------------------------------------------------------------- */

uint32_t scene_count(const char *text, const char *part)
{
    uint32_t count = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

scene_page scene_page_of(const ty_report_input *input)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    scene_page page = {0};
    ty_text text = {0};
    ty_error error = {0};
    const char *data, *end;

    cr_assert_eq(ty_report_html(input, &text, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_text_take(&text, &page.html, &error), TY_OK);
    cr_expect_eq(strncmp(page.html, "<!doctype html>\n", 16), 0);
    data = strstr(page.html, begin);
    cr_assert_not_null(data);
    data += strlen(begin);
    end = strstr(data, "</script>");
    cr_expect_null(memchr(data, '<', (size_t)(end - data)));
    cr_assert_eq(ty_json_parse(data, (size_t)(end - data), "report", &page.parsed, &error), TY_OK,
                 "%s", error.message);
    cr_expect_eq(ty_json_schema(ty_json_root(page.parsed), "trainyard.report/1", &error), TY_OK);
    /* One document and one script, each closed once; one style; one policy. */
    cr_expect_eq(scene_count(page.html, "<script"), 2);
    cr_expect_eq(scene_count(page.html, "</script>"), 2);
    cr_expect_eq(scene_count(page.html, "</style>"), 1);
    cr_expect_eq(scene_count(page.html, "</title>"), 1);
    cr_expect_eq(scene_count(page.html, "'sha256-"), 2);
    return page;
}

void scene_page_clear(scene_page *page)
{
    ty_free(page->html);
    ty_json_free(page->parsed);
}

const ty_json *scene_at(const scene_page *page, const char *path)
{
    const ty_json *value = ty_json_root(page->parsed);

    for (size_t length; value != NULL && *path != '\0'; path += length + (path[length] == '/')) {
        const ty_json *found = NULL;
        length = strcspn(path, "/");
        for (size_t i = 0; i < ty_json_size(value) && found == NULL; i++) {
            char index[24];
            const ty_json *member = ty_json_at(value, i);
            const char *key = ty_json_key(member);
            snprintf(index, sizeof index, "%zu", i);
            key = ty_json_is_array(value) ? index : key;
            if (strlen(key) == length && strncmp(key, path, length) == 0)
                found = member;
        }
        value = found;
    }
    return value;
}

double scene_number(const scene_page *page, const char *path)
{
    const ty_json *value = scene_at(page, path);
    double number = NAN;

    return value != NULL && ty_json_is_number(value) &&
                   ty_json_as_number(value, -1e300, 1e300, &number, NULL) == TY_OK
               ? number
               : (double)NAN;
}

const char *scene_text(const scene_page *page, const char *path)
{
    const ty_json *value = scene_at(page, path);
    const char *text = "";

    return value != NULL && ty_json_is_string(value) &&
                   ty_json_as_string(value, &text, NULL) == TY_OK
               ? text
               : "";
}
