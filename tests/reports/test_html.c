/* The report of a plan and its run: the content of its document, hostile names, missing inputs. */
#include "scene.h"

#include "html.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct story {
    scene s;
    ty_timeline *estimated, *simulated;
    ty_run *run;
    ty_comparison *comparison;
} story;

static story tell(const char *spec)
{
    story t = {.s = scene_of(spec)};

    scene_predict(&t.s);
    t.estimated = scene_timeline(&t.s, 2, scene_two_ms);
    t.simulated = scene_timeline(&t.s, 3, scene_two_ms);
    t.run = scene_run(&t.s, scene_timeline(&t.s, 3, scene_slowing));
    cr_assert_eq(ty_compare(t.s.plan, t.s.program, t.simulated, t.run, &t.comparison, NULL), TY_OK);
    return t;
}

static void story_clear(story *t)
{
    ty_comparison_free(t->comparison);
    ty_run_free(t->run);
    ty_timeline_free(t->simulated);
    ty_timeline_free(t->estimated);
    scene_clear(&t->s);
}

static ty_report_input whole(const story *t)
{
    return (ty_report_input){.title = "A title",
                             .plan = t->s.plan,
                             .program = t->s.program,
                             .estimated = t->estimated,
                             .simulated = t->simulated,
                             .run = t->run,
                             .comparison = t->comparison,
                             .command = "trainyard report"};
}

/* Every combination of missing inputs. */
Test(html, parts_may_be_missing)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        story t = tell(toy_specs[i].name);
        for (unsigned missing = 0; missing < 64; missing++) {
            ty_report_input in = whole(&t);
            scene_page page;
            in.title = missing & 1 ? NULL : in.title;
            in.estimated = missing & 2 ? NULL : in.estimated;
            in.simulated = missing & 4 ? NULL : in.simulated;
            in.run = missing & 8 ? NULL : in.run;
            in.comparison = missing & 16 ? NULL : in.comparison;
            in.command = missing & 32 ? NULL : in.command;
            page = scene_page_of(&in);
            cr_expect_eq(scene_at(&page, "timeline") != NULL, (missing & 6) != 6);
            cr_expect_eq(scene_at(&page, "comparison") != NULL, (missing & 16) == 0);
            cr_expect_eq(scene_at(&page, "run/losses") != NULL, (missing & 8) == 0);
            cr_expect_eq(scene_at(&page, "title") != NULL, (missing & 1) == 0);
            scene_page_clear(&page);
        }
        story_clear(&t);
    }
}

/* Instructions of one step that do not end before its first computation: those that ranks show. */
static uint32_t shown_of(const scene *s, const ty_timeline *timeline)
{
    uint64_t count = ty_program_event_count(s->plan, s->program);
    uint32_t shown = 0;
    double first_s = HUGE_VAL;

    for (int pass = 0; pass < 2; pass++)
        for (uint64_t e = 0; e < count; e++) {
            const ty_event *event = &timeline->events[e];
            uint32_t stage = ty_plan_stage_of_replica(s->plan, event->stage_replica);
            if (pass == 1)
                shown += event->end_s > first_s;
            else if (s->program->stages[stage].instructions[event->instruction].stream ==
                     TY_STREAM_COMPUTE)
                first_s = fmin(first_s, event->start_s);
        }
    return shown;
}

/* Items of the timeline that are predicted or measured, and the number of those that waited. */
static uint32_t items_of(const scene_page *page, double is_measured, uint32_t *waiting)
{
    const ty_json *items = scene_at(page, "timeline/items");
    uint32_t count = 0;

    *waiting = 0;
    for (size_t i = 0; i < ty_json_size(items); i++) {
        double item[9];
        for (size_t k = 0; k < 9; k++)
            cr_assert_eq(
                ty_json_as_number(ty_json_at(ty_json_at(items, i), k), -1, 1e300, &item[k], NULL),
                TY_OK);
        cr_expect(item[5] <= item[6] && item[6] <= item[7], "item %zu", i);
        if (item[1] > is_measured || item[1] < is_measured)
            continue;
        count++;
        *waiting += item[6] > item[5];
    }
    return count;
}

Test(html, predicted_and_measured_instructions)
{
    story t = tell("hybrid");
    ty_report_input in = whole(&t);
    scene_page page = scene_page_of(&in);
    const uint32_t instructions =
        shown_of(&t.s, t.simulated); /* of at most 8 stage replicas: all */
    uint32_t waiting;

    /* Every instruction has a duration, so each has its bar in both. */
    cr_expect_gt(instructions, 20);
    cr_expect_eq(items_of(&page, 0, &waiting), instructions);
    cr_expect_gt(waiting, 0);
    cr_expect_eq(items_of(&page, 1, &waiting), shown_of(&t.s, t.run->timeline));
    scene_page_clear(&page);
    in.run = NULL;
    page = scene_page_of(&in);
    cr_expect_eq(items_of(&page, 0, &waiting), instructions);
    cr_expect_eq(items_of(&page, 1, &waiting), 0);
    scene_page_clear(&page);
    story_clear(&t);
}

/* The shares of every stage replica's step add up to the step. */
Test(html, stage_parts_cover_the_step)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        story t = tell(toy_specs[i].name);
        ty_report_input in = whole(&t);
        scene_page page;
        const ty_json *stages;
        double length_s;

        in.run = NULL;
        in.comparison = NULL;
        page = scene_page_of(&in);
        stages = scene_at(&page, "timeline/stage_parts");
        length_s = scene_number(&page, "timeline/length_us") * 1e-6;
        cr_expect_gt(ty_json_size(stages), 0);
        for (size_t r = 0; r < ty_json_size(stages); r++) {
            double total_s = 0;
            for (int k = 0; k < 8; k++) {
                char path[64];
                snprintf(path, sizeof path, "timeline/stage_parts/%zu/seconds/%d", r, k);
                total_s += scene_number(&page, path);
            }
            cr_expect_lt(fabs(total_s / length_s - 1), 1e-5, "%s, stage replica %zu: %g of %g s",
                         toy_specs[i].name, r, total_s, length_s);
        }
        scene_page_clear(&page);
        story_clear(&t);
    }
}

#define HOSTILE "</script><b>\"'&</title><img src=x onerror=alert(1)>"

static void spoil(char **text)
{
    ty_free(*text);
    *text = ty_strdup(HOSTILE);
}

Test(html, hostile_names)
{
    static const char *const paths[] = {
        "title",
        "command",
        "plan/workload",
        "plan/workload_source",
        "plan/cluster",
        "plan/strategy",
        "plan/candidates/0/0",
        "plan/candidates/0/4",
        "run/machine",
        "run/versions",
        "run/date",
        "comparison/measured/limited_by",
    };
    story t = tell("hybrid");
    ty_report_input in = whole(&t);
    ty_plan *plan = t.s.plan;
    scene_page page;

    spoil(&plan->workload->name);
    spoil(&plan->workload->source);
    spoil(&plan->workload->layers[0].name);
    spoil(&plan->workload->layers[1].name);
    spoil(&plan->cluster_name);
    spoil(&plan->strategy);
    spoil(&plan->candidates[0].name);
    spoil(&plan->candidates[0].reason);
    spoil(&t.run->machine);
    spoil(&t.run->versions);
    spoil(&t.run->date);
    snprintf(t.comparison->measured.limited_by, sizeof t.comparison->measured.limited_by, "%s",
             HOSTILE);
    in.title = in.command = HOSTILE;
    page = scene_page_of(&in); /* checks that no content ends a script, style or title early */
    cr_expect_eq(scene_count(page.html, "<img"), 0);
    cr_expect_eq(scene_count(page.html, "&lt;/script&gt;&lt;b&gt;"), 2, "title and heading");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        cr_expect_str_eq(scene_text(&page, paths[i]), HOSTILE, "%s", paths[i]);
    scene_page_clear(&page);
    story_clear(&t);
}

/* A plan without prediction, a run that diverged, one without recorded data. */
Test(html, missing_figures)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    scene_page page;

    for (uint32_t s = 3; s < t.run->step_count; s++)
        t.run->losses[s] = s % 2 == 0 ? NAN : INFINITY;
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "run/losses/0"), 2.5);
    cr_expect(isnan(scene_number(&page, "run/losses/4")));
    cr_expect(isnan(scene_number(&page, "run/last_loss")));
    cr_expect_eq(ty_json_size(scene_at(&page, "run/losses")), 10);
    scene_page_clear(&page);

    ty_timeline_free(t.run->timeline);
    t.run->timeline = NULL;
    t.run->summary = (ty_step_summary){0};
    t.s.plan->has_prediction = false;
    t.s.plan->prediction = (ty_step_summary){0};
    ty_free(t.s.plan->memory);
    t.s.plan->memory = NULL;
    in.comparison = NULL;
    in.simulated = NULL;
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "prediction/step_time_s"), 0);
    cr_expect_null(scene_at(&page, "plan/stages/0/bytes"));
    scene_page_clear(&page);
    story_clear(&t);
}

/* A plan without a simulation has the step time of the one made for the report. */
Test(html, one_step_time)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    ty_step_summary summary;
    scene_page page;

    in.run = NULL;
    in.comparison = NULL;
    t.s.plan->simulation = (ty_step_summary){0};
    t.s.plan->prediction.step_time_s = 123;
    cr_assert_eq(ty_timeline_summarize(t.s.plan, t.s.program, t.simulated, &summary, NULL), TY_OK);
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "prediction/step_time_s"), summary.step_time_s);
    cr_expect_eq(scene_count(page.html, ":123,"), 0, "the estimate next to the simulation");
    scene_page_clear(&page);
    in.simulated = NULL;
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "prediction/step_time_s"), 123);
    scene_page_clear(&page);
    story_clear(&t);
}

/* Each of two plans has its own figures. A plan without a simulation has those of the timeline made
 * for it. */
Test(html, two_plans)
{
    story t = tell("pipeline"), other = tell("hybrid");
    ty_report_input in = whole(&t);
    ty_report_other second = {
        .path = "b<.json", .plan = other.s.plan, .program = other.s.program, .cluster = NULL};
    ty_step_summary summary;
    scene_page page;

    in.run = NULL;
    in.comparison = NULL;
    in.other = &second;
    t.s.plan->simulation = (ty_step_summary){.step_time_s = 0.5, .samples_per_s = 100};
    other.s.plan->simulation = (ty_step_summary){.step_time_s = 0.25, .samples_per_s = 125};
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "prediction/step_time_s"), 0.5);
    cr_expect_eq(scene_number(&page, "other/prediction/step_time_s"), 0.25);
    cr_expect_str_eq(scene_text(&page, "other/path"), "b<.json");
    cr_expect_str_eq(scene_text(&page, "other/plan/strategy"), other.s.plan->strategy);
    scene_page_clear(&page);
    other.s.plan->simulation = other.s.plan->prediction = (ty_step_summary){0};
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "other/prediction/step_time_s"), 0);
    scene_page_clear(&page);
    second.simulated = other.simulated;
    cr_assert_eq(
        ty_timeline_summarize(second.plan, second.program, other.simulated, &summary, NULL), TY_OK);
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, "other/prediction/step_time_s"), summary.step_time_s);
    scene_page_clear(&page);
    story_clear(&t);
    story_clear(&other);
}

/* Stages with equal layers, replicas and memory refer to the first of them. */
Test(html, stages_that_are_alike)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    ty_plan *plan = t.s.plan;
    const uint32_t last = plan->stage_count - 1;
    scene_page page = scene_page_of(&in);
    char path[48];

    cr_assert_gt(plan->stage_count, 1);
    snprintf(path, sizeof path, "plan/stages/%u/like", last);
    cr_expect_eq(scene_number(&page, path), last);
    scene_page_clear(&page);
    for (uint32_t s = 1; s < plan->stage_count; s++) {
        plan->memory[s] = plan->memory[0];
        plan->stages[s].layer_count = plan->stages[0].layer_count;
    }
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, path), 0);
    scene_page_clear(&page);
    plan->memory[last].activation_bytes++;
    page = scene_page_of(&in);
    cr_expect_eq(scene_number(&page, path), last);
    cr_expect_eq(scene_number(&page, "plan/stages/0/bytes/3"), 123456789);
    scene_page_clear(&page);
    story_clear(&t);
}

/* No style or script loads anything; the SVG namespace is an address that is not loaded. A hash
 * names the script that may run. */
Test(html, template_is_self_contained)
{
    static const char *const parts[] = {ty_report_template, ty_report_style, ty_report_script};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        cr_expect_eq(scene_count(parts[i], "://"), scene_count(parts[i], "://www.w3.org/2000/svg"));
        cr_expect_eq(scene_count(parts[i], "url("), scene_count(parts[i], "url(#"));
        cr_expect_eq(scene_count(parts[i], "@import"), 0);
        cr_expect_eq(scene_count(parts[i], "innerHTML") + scene_count(parts[i], "outerHTML") +
                         scene_count(parts[i], "insertAdjacent") + scene_count(parts[i], "eval("),
                     0, "text that becomes markup or code");
        cr_expect_eq(scene_count(parts[i], "fetch(") + scene_count(parts[i], "XMLHttpRequest") +
                         scene_count(parts[i], "import("),
                     0);
    }
    cr_expect_eq(scene_count(ty_report_script, "</script") + scene_count(ty_report_style, "</"), 0);
    cr_expect_eq(scene_count(ty_report_template, "default-src 'none'; base-uri 'none';"), 1);
    cr_expect_eq(scene_count(ty_report_template, "unsafe"), 0);
    cr_expect_eq(scene_count(ty_report_template, "<link"),
                 scene_count(ty_report_template, "<link rel=\"icon\" href=\"data:,\">"));
}

Test(html, others_timelines_are_refused)
{
    story t = tell("pipeline"), other = tell("hybrid");
    ty_report_input in = whole(&t);
    ty_text text = {0};
    ty_error error = {0};

    in.simulated = other.simulated;
    cr_expect_eq(ty_report_html(&in, &text, &error), TY_EPARSE);
    ty_text_clear(&text);
    in.simulated = t.simulated;
    in.run = other.run;
    cr_expect_eq(ty_report_html(&in, &text, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "run:/timeline:/stage_replica_count") != NULL, "%s",
              error.message);
    ty_text_clear(&text);
    story_clear(&t);
    story_clear(&other);
}

Test(html, survives_failing_allocations)
{
    story t = tell("hybrid tied");
    ty_report_input in = whole(&t);
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status == TY_ENOMEM; n++) {
        ty_text text = {0};
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_report_html(&in, &text, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        ty_text_clear(&text);
    }
    cr_expect_gt(n, 10);
    story_clear(&t);
}
