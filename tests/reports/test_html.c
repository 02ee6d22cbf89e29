/* The HTML page: well-formed, self-contained, hostile names, missing parts. */
#include "scene.h"

#include "page.h"

#include <criterion/criterion.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A small checker --------------------------------------------------------------------- */

#define MOST_OPEN 64

typedef struct checker {
    const char *at;
    char open[MOST_OPEN][32];
    int depth;
    uint32_t elements;
} checker;

static size_t name_length(const char *c)
{
    size_t length = 0;
    while (isalnum((unsigned char)c[length]) || c[length] == '-')
        length++;
    return length;
}

static bool is_void(const char *name)
{
    static const char *const names[] = {"meta", "link", "br", "hr", "img", "input"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* What an attribute may not do: fetch, or run. */
static void check_attribute(const char *name, const char *value)
{
    static const char *const fetching[] = {"src",  "href",   "xlink:href", "action",
                                           "data", "poster", "srcset"};

    cr_expect(strncmp(name, "on", 2) != 0, "a handler in an attribute: %s", name);
    cr_expect_null(strstr(value, "://"), "%s=\"%s\"", name, value);
    for (size_t i = 0; i < sizeof fetching / sizeof *fetching; i++)
        cr_expect(strcmp(name, fetching[i]) != 0 || value[0] == '#' ||
                      strncmp(value, "data:", 5) == 0,
                  "%s=\"%s\" is not on this page", name, value);
}

/* name="value", quoted; leaves `at` behind it. */
static void read_attribute(checker *p)
{
    char name[64] = "", value[4096] = "";
    size_t length = 0;

    while (strchr(" \n=/>", *p->at) == NULL && length + 1 < sizeof name)
        name[length++] = *p->at++;
    cr_assert_gt(length, 0, "near %.60s", p->at);
    if (*p->at == '=') {
        const char *end;
        cr_assert_eq(p->at[1], '"', "an attribute without quotes near %.60s", p->at);
        end = strchr(p->at + 2, '"');
        cr_assert_not_null(end);
        length = (size_t)(end - p->at - 2);
        memcpy(value, p->at + 2, length < sizeof value - 1 ? length : sizeof value - 1);
        for (const char *c = p->at + 2; c < end; c++)
            cr_assert(*c != '<' && *c != '>', "near %.60s", p->at);
        p->at = end + 1;
    }
    check_attribute(name, value);
}

/* The raw content of a style or script, which ends with its closing tag. */
static void skip_raw(checker *p, const char *name)
{
    char closing[40];
    const char *end;

    snprintf(closing, sizeof closing, "</%s>", name);
    end = strstr(p->at, closing);
    cr_assert_not_null(end);
    for (const char *c = p->at; c < end; c++) {
        cr_expect(strncmp(c, "url(", 4) != 0, "style fetches: %.40s", c);
        cr_expect(strncmp(c, "@import", 7) != 0, "style fetches: %.40s", c);
        /* The name of SVG, which is an address, is never fetched. */
        cr_expect(strncmp(c, "://", 3) != 0 || strncmp(c, "://www.w3.org/", 14) == 0, "near %.40s",
                  c - 10);
    }
    p->at = end;
}

static void open_element(checker *p)
{
    char *name = p->open[p->depth];
    size_t length = name_length(p->at);
    bool is_closed = false;

    cr_assert(length > 0 && length < 32, "a stray < near %.60s", p->at - 1);
    memcpy(name, p->at, length);
    name[length] = '\0';
    p->at += length;
    p->elements++;
    while (*p->at != '>') {
        cr_assert_neq(*p->at, '\0');
        if (*p->at == ' ' || *p->at == '\n') {
            p->at++;
        } else if (*p->at == '/') {
            is_closed = true;
            p->at++;
        } else {
            read_attribute(p);
        }
    }
    p->at++;
    if (is_closed || is_void(name))
        return;
    p->depth++;
    cr_assert_lt(p->depth, MOST_OPEN);
    if (strcmp(name, "style") == 0 || strcmp(name, "script") == 0)
        skip_raw(p, name);
}

static void close_element(checker *p)
{
    size_t length = name_length(p->at);

    cr_assert_gt(p->depth, 0, "nothing is open near %.60s", p->at);
    p->depth--;
    cr_expect(strlen(p->open[p->depth]) == length && strncmp(p->open[p->depth], p->at, length) == 0,
              "</%.*s> closes <%s> near %.60s", (int)length, p->at, p->open[p->depth],
              p->at + length);
    p->at += length;
    cr_assert_eq(*p->at, '>');
    p->at++;
}

static void check_entity(const char *at)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (strncmp(at, entities[i], strlen(entities[i])) == 0)
            return;
    cr_assert_fail("a stray & near %.60s", at);
}

static uint32_t expect_well_formed(const char *html)
{
    checker p = {.at = html};

    cr_assert_eq(strncmp(p.at, "<!doctype html>\n", 16), 0);
    p.at += 16;
    while (*p.at != '\0') {
        if (p.at[0] == '<' && p.at[1] == '/') {
            p.at += 2;
            close_element(&p);
        } else if (p.at[0] == '<') {
            p.at++;
            open_element(&p);
        } else {
            cr_assert_neq(*p.at, '>', "a stray > near %.60s", p.at);
            if (*p.at == '&')
                check_entity(p.at);
            p.at++;
        }
    }
    cr_expect_eq(p.depth, 0, "<%s> is not closed", p.depth > 0 ? p.open[p.depth - 1] : "");
    return p.elements;
}

/* Outside of style and script there is no number that is none. */
static void expect_finite(const char *html)
{
    char *body = ty_strdup(strstr(html, "<body>"));
    char *script = strstr(body, "<script>");

    *script = '\0';
    for (char *c = body; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    for (const char *c = body; (c = strstr(c, "nan")) != NULL; c++)
        cr_expect(isalpha((unsigned char)c[-1]) || isalpha((unsigned char)c[3]), "%.40s", c - 20);
    for (const char *c = body; (c = strstr(c, "inf")) != NULL; c++)
        cr_expect(isalpha((unsigned char)c[-1]) || isalpha((unsigned char)c[3]), "%.40s", c - 20);
    ty_free(body);
}

static uint32_t count_of(const char *html, const char *part)
{
    uint32_t count = 0;
    for (; (html = strstr(html, part)) != NULL; html++)
        count++;
    return count;
}

/* ---- Pages ------------------------------------------------------------------------------- */

static char *page_of(const ty_report_input *input)
{
    ty_text text = {0};
    char *html = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_report_html(input, &text, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_text_take(&text, &html, &error), TY_OK);
    cr_expect_gt(expect_well_formed(html), 30);
    expect_finite(html);
    cr_expect_eq(count_of(html, "http-equiv=\"Content-Security-Policy\" content=\"default-src "
                                "'none';"),
                 1);
    return html;
}

/* The same with its charts, whose scripts the checker does not read. */
static char *page_of_charts(const ty_report_input *input)
{
    ty_text text = {0};
    char *html = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_report_html(input, &text, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_text_take(&text, &html, &error), TY_OK);
    return html;
}

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
                             .without_charts = true,
                             .command = "trainyard report"};
}

/* Every combination of what may be missing. */
Test(html, parts_may_be_missing)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        story t = tell(toy_specs[i].name);
        for (unsigned missing = 0; missing < 64; missing++) {
            ty_report_input in = whole(&t);
            char *html;
            in.title = missing & 1 ? NULL : in.title;
            in.estimated = missing & 2 ? NULL : in.estimated;
            in.simulated = missing & 4 ? NULL : in.simulated;
            in.run = missing & 8 ? NULL : in.run;
            in.comparison = missing & 16 ? NULL : in.comparison;
            in.command = missing & 32 ? NULL : in.command;
            html = page_of(&in);
            cr_expect_eq(count_of(html, "id=\"timeline\""), (missing & 6) != 6);
            cr_expect_eq(count_of(html, "id=\"errors\""), (missing & 16) == 0);
            cr_expect_eq(count_of(html, "<section id=\"loss\">"), (missing & 8) == 0);
            ty_free(html);
        }
        story_clear(&t);
    }
}

/* Instructions of one step that are not over before its first computation: what lanes show. */
static uint32_t shown_of(const scene *s, const ty_timeline *timeline)
{
    uint64_t count = ty_program_event_count(s->plan, s->program);
    uint32_t shown = 0;
    double first_s = HUGE_VAL;

    for (int pass = 0; pass < 2; pass++)
        for (uint64_t e = 0; e < count; e++) {
            const ty_event *event = &timeline->events[e];
            uint32_t stage = ty_plan_stage_of_rank(s->plan, event->rank);
            if (pass == 1)
                shown += event->end_s > first_s;
            else if (s->program->stages[stage].instructions[event->instruction].stream ==
                     TY_STREAM_COMPUTE)
                first_s = fmin(first_s, event->start_s);
        }
    return shown;
}

Test(html, predicted_and_measured_bars)
{
    story t = tell("hybrid");
    ty_report_input in = whole(&t);
    char *html = page_of(&in);
    uint32_t instructions = shown_of(&t.s, t.simulated); /* at most 8 ranks: of all */

    /* Every instruction takes some time, so each has its bar in both. */
    cr_expect_gt(instructions, 20);
    cr_expect_eq(count_of(html, "<title>predicted: "), instructions);
    cr_expect_eq(count_of(html, "<title>measured: "), shown_of(&t.s, t.run->timeline));
    cr_expect_gt(count_of(html, "<title>waiting: "), 0);
    cr_expect_eq(count_of(html, ">predicted compute: "), 1);
    cr_expect_eq(count_of(html, ">measured compute: "), 1);
    ty_free(html);
    in.run = NULL;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "<title>predicted: "), instructions);
    cr_expect_eq(count_of(html, "<title>measured: "), 0);
    ty_free(html);
    story_clear(&t);
}

#define HOSTILE "</script><b>\"'&</title><img src=x onerror=alert(1)>"

static void spoil(char **text)
{
    ty_free(*text);
    *text = ty_strdup(HOSTILE);
}

Test(html, hostile_names)
{
    story t = tell("hybrid");
    ty_report_input in = whole(&t);
    ty_plan *plan = t.s.plan;
    char *html;

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
    html = page_of(&in);
    cr_expect_eq(count_of(html, "<b>\""), 0);
    cr_expect_eq(count_of(html, "<img"), 0);
    cr_expect_eq(count_of(html, "</script>"), 1);
    cr_expect_eq(count_of(html, "</title>"), 1 + count_of(html, "<title>predicted") +
                                                 count_of(html, "<title>measured") +
                                                 count_of(html, "<title>waiting"));
    cr_expect_geq(count_of(html, "&lt;/script&gt;&lt;b&gt;&quot;&#39;&amp;"), 12);
    ty_free(html);
    story_clear(&t);
}

/* A plan without prediction, a run that diverged, one that recorded nothing. */
Test(html, sorry_figures)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    char *html;

    for (uint32_t s = 3; s < t.run->step_count; s++)
        t.run->losses[s] = s % 2 == 0 ? NAN : INFINITY;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "2.5000 at the first step, not finite at step 10"), 1);
    ty_free(html);
    t.run->losses[0] = NAN;
    html = page_of(&in);
    ty_free(html);

    ty_timeline_free(t.run->timeline);
    t.run->timeline = NULL;
    t.run->summary = (ty_step_summary){0};
    html = page_of(&in);
    cr_expect_eq(count_of(html, "<title>measured: "), 0);
    ty_free(html);

    t.s.plan->has_prediction = false;
    t.s.plan->prediction = (ty_step_summary){0};
    ty_free(t.s.plan->memory);
    t.s.plan->memory = NULL;
    in.comparison = NULL;
    in.simulated = NULL;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "Nothing was predicted."), 1);
    ty_free(html);
    in.simulated = t.simulated;
    in.comparison = t.comparison;
    t.comparison->rows[0].measured_s = t.comparison->rows[0].error = 0;
    html = page_of(&in);
    ty_free(html);
    story_clear(&t);
}

/* Who made the page, when, and of whose software it speaks. */
Test(html, says_when_and_by_what_it_was_made)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    char *html;

    in.date = "2026-01-02 03:04 UTC";
    in.version = "9.8.7<";
    html = page_of(&in);
    cr_expect_eq(count_of(html, "Made 2026-01-02 03:04 UTC by trainyard 9.8.7&lt;. "), 1);
    ty_free(html);
    story_clear(&t);
}

/* A plan that came without a simulation is spoken of by the one that was made for the page:
 * everywhere the same step time. */
Test(html, one_step_time)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    ty_step_summary summary;
    char time[32], card[128], *html;

    in.run = NULL;
    in.comparison = NULL;
    t.s.plan->simulation = (ty_step_summary){0};
    t.s.plan->prediction.step_time_s = 123;
    cr_assert_eq(ty_timeline_summarize(t.s.plan, t.s.program, t.simulated, &summary, NULL), TY_OK);
    ty_format_seconds(summary.step_time_s, time);
    html = page_of(&in);
    snprintf(card, sizeof card, "predicted step time</span><b>%s</b>", time);
    cr_expect_eq(count_of(html, card), 1, "%s", card);
    cr_expect_eq(count_of(html, "2.05 min"), 0, "the estimate beside the simulation");
    ty_free(html);
    in.simulated = NULL;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "predicted step time</span><b>2.05 min</b>"), 1);
    ty_free(html);
    story_clear(&t);
}

/* The plan beside another one: both named, each with its own figures. */
Test(html, two_plans_side_by_side)
{
    story t = tell("pipeline"), other = tell("hybrid");
    ty_report_input in = whole(&t);
    ty_report_other beside = {
        .path = "b<.json", .plan = other.s.plan, .program = other.s.program, .cluster = NULL};
    const ty_step_summary made[2] = {
        {.step_time_s = 0.5, .samples_per_s = 100, .compute_share = 0.75, .bubble_share = 0.25},
        {.step_time_s = 0.4,
         .samples_per_s = 125,
         .compute_share = 0.5,
         .exposed_collective_share = 0.5}};
    char *html;

    in.run = NULL;
    in.comparison = NULL;
    in.other = &beside;
    t.s.plan->simulation = made[0];
    other.s.plan->simulation = made[1];
    html = page_of(&in);
    cr_expect_eq(count_of(html, "<section id=\"versus\">"), 1);
    cr_expect_eq(count_of(html, "<strong>B</strong> is b&lt;.json: "), 1);
    cr_expect_eq(count_of(html, "A takes 500 ms a step, B 400 ms. <strong>B trains 25.0 % more "
                                "samples a second</strong> than A."),
                 1);
    cr_expect_eq(count_of(html, "step time</td><td>500 ms</td><td>400 ms</td><td>-20.0 %</td>"), 1);
    cr_expect_eq(count_of(html, "compute</td><td>375 ms</td><td>200 ms</td><td>-46.7 %</td>"), 1);
    cr_expect_eq(count_of(html, "pipeline bubble</td><td>125 ms</td><td>0 s</td>"), 1);
    cr_expect_eq(count_of(html, "exposed gradient exchange</td><td>0 s</td><td>200 ms</td>"), 1);
    cr_expect_eq(count_of(html, "strategy</td><td class=\"text\">"), 1);
    ty_free(html);
    /* One that was not simulated has its figures from the timeline that was made for it. */
    other.s.plan->simulation = other.s.plan->prediction = (ty_step_summary){0};
    html = page_of(&in);
    cr_expect_eq(count_of(html, "only what they are can be compared"), 1);
    ty_free(html);
    beside.simulated = other.simulated;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "A takes 500 ms a step, B "), 1);
    ty_free(html);
    in.other = NULL;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "id=\"versus\""), 0);
    ty_free(html);
    story_clear(&t);
    story_clear(&other);
}

/* Whoever looks faster than the chosen plan is named with its reason; one that was only estimated
 * is no point of the front. */
Test(html, who_looks_faster_has_a_reason)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    ty_candidate *c = &t.s.plan->candidates[3];
    char *html = page_of(&in);

    cr_expect_eq(count_of(html, "shown as faster than the chosen plan"), 0);
    ty_free(html);
    c->step_time_s = 0.0127; /* the chosen one: estimated 12.5 ms, simulated 13 ms */
    c->peak_memory_bytes = 1000;
    html = page_of(&in);
    cr_expect_eq(count_of(html, "<td>12.7 ms</td><td class=\"text\">estimate</td><td "
                                "class=\"why\">about 300 % slower, not estimated; it was not "
                                "simulated, and the chosen plan's own estimate is 12.5 ms"),
                 1);
    ty_free(html);
    in.without_charts = false;
    if (ty_report_has_charts()) {
        html = page_of_charts(&in);
        cr_expect_eq(count_of(html, "[0.0127, 1000, 3,"), 1, "on the front");
        ty_free(html);
    }
    c->simulated_step_time_s = 0.0126;
    html = page_of_charts(&in);
    if (ty_report_has_charts())
        cr_expect_eq(count_of(html, "[0.0126, 1000, 1,"), 1, "not on the front");
    cr_expect_eq(count_of(html, "<td class=\"text\">simulation</td>"), 1);
    ty_free(html);
    story_clear(&t);
}

/* Stages that are alike in layers, replicas and memory are one bar and one row. */
Test(html, stages_that_are_alike_are_one)
{
    story t = tell("pipeline");
    ty_report_input in = whole(&t);
    ty_plan *plan = t.s.plan;
    char *html = page_of(&in);

    cr_assert_gt(plan->stage_count, 1);
    cr_expect_eq(count_of(html, "<td class=\"text\">stage 0</td>"), 2, "a row and a bar");
    cr_expect_eq(count_of(html, "<td class=\"text\">stage 1</td>"), 2);
    ty_free(html);
    for (uint32_t s = 1; s < plan->stage_count; s++) {
        plan->memory[s] = plan->memory[0];
        plan->stages[s].layer_count = plan->stages[0].layer_count;
    }
    cr_expect_eq(ty_page_alike_position(plan, plan->stage_count - 1), 0);
    plan->memory[1].activation_bytes++;
    cr_expect_eq(ty_page_alike_position(plan, 1), 1);
    plan->memory[1].activation_bytes--;
    plan->stages[1].layer_count++;
    cr_expect_eq(ty_page_alike_position(plan, 1), 1);
    story_clear(&t);
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
    cr_expect(strstr(error.message, "run:/timeline:/rank_count") != NULL, "%s", error.message);
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
