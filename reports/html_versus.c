/* Two plans side by side: what they are, what a step of each is made of, memory and cost. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One of the two. */
typedef struct side {
    const char *path;
    const ty_plan *plan;
    const ty_cluster *cluster;
    const ty_step_summary *prediction;
    page_bill bill;
    ty_memory_use fullest; /* of the device with most memory in use; 0: not counted */
} side;

static side side_of(const char *path, const ty_plan *plan, const ty_cluster *cluster,
                    const ty_step_summary *prediction, const page_bill *bill)
{
    side s = {path, plan, cluster, prediction, *bill, {0}};

    for (uint32_t i = 0; plan->memory != NULL && i < plan->stage_count; i++)
        if (ty_memory_use_total(&plan->memory[i]) > ty_memory_use_total(&s.fullest))
            s.fullest = plan->memory[i];
    return s;
}

/* ---- Configuration ------------------------------------------------------------------------- */

static void write_workload(const side *s, ty_text *out)
{
    ty_text_add(out, s->plan->workload->name);
}
static void write_cluster(const side *s, ty_text *out)
{
    ty_text_add(out, s->plan->cluster_name);
}
static void write_stack(const side *s, ty_text *out)
{
    ty_text_add(out, s->plan->stack != NULL ? s->plan->stack->name : "–");
}
static void write_strategy(const side *s, ty_text *out)
{
    ty_text_add(out, s->plan->strategy);
}
static void write_devices(const side *s, ty_text *out)
{
    ty_text_addf(out, "%u", ty_plan_process_count(s->plan));
}
static void write_element(const side *s, ty_text *out)
{
    ty_text_add(out, ty_precision_name(s->plan->workload->precision));
}
static void write_schedule(const side *s, ty_text *out)
{
    ty_text_add(out,
                s->plan->stage_count > 1 ? ty_schedule_name(s->plan->schedule) : "no pipeline");
}
static void write_stages(const side *s, ty_text *out)
{
    ty_text_addf(out, "%u", s->plan->stage_count);
    if (ty_plan_interleave(s->plan) > 1)
        ty_text_addf(out, ", %u a device", ty_plan_interleave(s->plan));
}
static void write_lanes(const side *s, ty_text *out)
{
    static const char *const names[] = {"tensor", "context", "expert"};
    const ty_lane_kind kinds[] = {TY_TENSOR_LANES, TY_CONTEXT_LANES, TY_EXPERT_LANES};

    if (ty_plan_width(s->plan) == 1)
        ty_text_add(out, "none");
    for (int i = 0, shown = 0; i < 3; i++)
        if (ty_plan_lanes(s->plan, kinds[i]) > 1)
            ty_text_addf(out, "%s%s %u", shown++ > 0 ? ", " : "", names[i],
                         ty_plan_lanes(s->plan, kinds[i]));
    if (s->plan->sequence_parallel)
        ty_text_add(out, ", sequence parallel");
    if (s->plan->table_shard != TY_TABLES_WHOLE)
        ty_text_addf(out, ", tables by %s", ty_table_shard_name(s->plan->table_shard));
}
static void write_replicas(const side *s, ty_text *out)
{
    const uint32_t positions = ty_plan_position_count(s->plan);
    bool is_equal = true;

    for (uint32_t i = 1; i < positions; i++)
        is_equal = is_equal && s->plan->stages[i].replicas == s->plan->stages[0].replicas;
    for (uint32_t i = 0; i < (is_equal ? 1 : positions); i++)
        ty_text_addf(out, "%s%u", i > 0 ? "+" : "", s->plan->stages[i].replicas);
}
static void write_zero(const side *s, ty_text *out)
{
    ty_text_addf(out, "%u", s->plan->zero);
}
static void write_batch(const side *s, ty_text *out)
{
    ty_text_addf(out, "%u in ", s->plan->global_batch);
    ty_print_micro_batches(s->plan, out);
}
static void write_recompute(const side *s, ty_text *out)
{
    ty_recompute_text(s->plan->stages[0].recompute, s->plan->stages[0].recompute_blocks, out);
}
static void write_buckets(const side *s, ty_text *out)
{
    ty_text_addf(out, "%u, ", s->plan->bucket_count);
    if (s->plan->bucket_count > 0)
        ty_compression_text(&s->plan->buckets[0].compression, out);
}

static const struct choice {
    const char *name;
    void (*write)(const side *s, ty_text *out);
} choices[] = {
    {"workload", write_workload},
    {"cluster", write_cluster},
    {"devices", write_devices},
    {"stack", write_stack},
    {"strategy", write_strategy},
    {"stages of the pipeline", write_stages},
    {"schedule", write_schedule},
    {"replicas of a stage", write_replicas},
    {"devices of a replica", write_lanes},
    {"ZeRO", write_zero},
    {"recompute", write_recompute},
    {"samples a step", write_batch},
    {"numbers of", write_element},
    {"gradient buckets, compression", write_buckets},
};

static void put_choices(page *p, const side sides[2])
{
    ty_page_table(p, "<configuration|<A|<B|<B against A");
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        ty_text text[2] = {{0}, {0}};
        for (int k = 0; k < 2; k++)
            choices[i].write(&sides[k], &text[k]);
        if (text[0].failed != TY_OK || text[1].failed != TY_OK) {
            p->html->failed = TY_ENOMEM;
        } else {
            ty_page_row(p);
            ty_page_text(p, choices[i].name);
            for (int k = 0; k < 2; k++)
                ty_page_text(p, text[k].data != NULL ? text[k].data : "–");
            ty_page_text(p, text[0].data != NULL && text[1].data != NULL &&
                                    strcmp(text[0].data, text[1].data) == 0
                                ? "the same"
                                : "differs");
            ty_page_end_row(p);
        }
        ty_text_clear(&text[0]);
        ty_text_clear(&text[1]);
    }
    ty_page_end_table(p);
}

/* ---- Figures ------------------------------------------------------------------------------- */

static void put_figures(page *p, const char *name, page_unit unit, double a, double b)
{
    char cell[40];

    if (!isfinite(a) && !isfinite(b))
        return;
    ty_page_row(p);
    ty_page_text(p, name);
    ty_page_format(unit, a, cell);
    ty_page_number(p, cell);
    ty_page_format(unit, b, cell);
    ty_page_number(p, cell);
    if (a > 0 && b >= 3 * a)
        ty_page_format(PAGE_FACTOR, b / a, cell);
    else if (a > 0 && isfinite(b))
        snprintf(cell, sizeof cell, "%+.1f %%", (b / a - 1) * 100);
    else
        snprintf(cell, sizeof cell, "–");
    ty_page_number(p, cell);
    ty_page_end_row(p);
}

static double known(double value)
{
    return value > 0 ? value : (double)NAN;
}

static void put_step(page *p, const side sides[2])
{
    const ty_step_summary *a = sides[0].prediction, *b = sides[1].prediction;

    ty_page_table(p, "<a step, predicted|A|B|B against A");
    put_figures(p, "step time", PAGE_SECONDS, a->step_time_s, b->step_time_s);
    for (int i = 0; i < PAGE_PART_COUNT; i++)
        put_figures(p, ty_page_parts[i].name, PAGE_SECONDS,
                    ty_page_parts[i].share(a) * a->step_time_s,
                    ty_page_parts[i].share(b) * b->step_time_s);
    put_figures(p, "samples a second", PAGE_COUNT, a->samples_per_s, b->samples_per_s);
    put_figures(p, "tokens a second", PAGE_COUNT, known(a->tokens_per_s), known(b->tokens_per_s));
    ty_page_end_table(p);
}

static void put_memory(page *p, const side sides[2])
{
    const ty_memory_use *a = &sides[0].fullest, *b = &sides[1].fullest;

    ty_page_table(p, "<memory of the fullest device|A|B|B against A");
    put_figures(p, "together", PAGE_MEMORY, known((double)ty_memory_use_total(a)),
                known((double)ty_memory_use_total(b)));
    put_figures(p, "that the device has", PAGE_MEMORY,
                known(ty_page_capacity(sides[0].plan, sides[0].cluster)),
                known(ty_page_capacity(sides[1].plan, sides[1].cluster)));
    for (int i = 0; i < PAGE_PURPOSE_COUNT; i++)
        put_figures(p, ty_page_purposes[i].name, PAGE_MEMORY, (double)ty_page_purposes[i].bytes(a),
                    (double)ty_page_purposes[i].bytes(b));
    ty_page_end_table(p);
}

static void put_cost(page *p, const side sides[2])
{
    const page_bill *a = &sides[0].bill, *b = &sides[1].bill;
    double seconds[2];

    if (!isfinite(a->usd_per_hour) && !isfinite(b->usd_per_hour) && !isfinite(a->power_w) &&
        !isfinite(b->power_w)) {
        ty_page_note(p, "Of neither plan's devices a price or a power is known.");
        return;
    }
    for (int k = 0; k < 2; k++)
        seconds[k] = 1e6 / sides[k].prediction->samples_per_s;
    ty_page_table(p, "<cost and energy|A|B|B against A");
    put_figures(p, "money an hour", PAGE_USD, a->usd_per_hour, b->usd_per_hour);
    put_figures(p, "money for a million samples", PAGE_USD, ty_page_usd(a, seconds[0]),
                ty_page_usd(b, seconds[1]));
    put_figures(p, "power", PAGE_POWER, a->power_w, b->power_w);
    put_figures(p, "energy for a million samples", PAGE_ENERGY, ty_page_energy_j(a, seconds[0]),
                ty_page_energy_j(b, seconds[1]));
    ty_page_end_table(p);
}

/* ---- Pictures ------------------------------------------------------------------------------ */

static const char *const bar_names[2] = {"A", "B"};

/* A stacked bar of each plan; `plot` says what differs. */
static void put_bars(page *p, page_plot plot)
{
    plot.x_name = "plan";
    plot.categories = bar_names;
    plot.count = 2;
    plot.is_stacked = true;
    ty_page_plot(p, &plot);
}

static void put_step_chart(page *p, const side sides[2])
{
    double values[PAGE_PART_COUNT][2];
    page_series series[PAGE_PART_COUNT];

    for (int i = 0; i < PAGE_PART_COUNT; i++) {
        for (int k = 0; k < 2; k++)
            values[i][k] =
                ty_page_parts[i].share(sides[k].prediction) * sides[k].prediction->step_time_s;
        series[i] = (page_series){
            .name = ty_page_parts[i].name, .values = values[i], .colour = ty_page_parts[i].colour};
    }
    put_bars(p, (page_plot){.id = "versus-step",
                            .caption = "What a step of each is made of",
                            .alternative = "Two stacked bars of the parts of a step in seconds; "
                                           "the table below has the figures",
                            .unit = PAGE_SECONDS,
                            .y_name = "seconds of a step",
                            .series = series,
                            .series_count = PAGE_PART_COUNT});
}

static void put_memory_chart(page *p, const side sides[2])
{
    double values[PAGE_PURPOSE_COUNT][2];
    page_series series[PAGE_PURPOSE_COUNT];

    if (ty_memory_use_total(&sides[0].fullest) == 0 || ty_memory_use_total(&sides[1].fullest) == 0)
        return;
    for (int i = 0; i < PAGE_PURPOSE_COUNT; i++) {
        for (int k = 0; k < 2; k++)
            values[i][k] = (double)ty_page_purposes[i].bytes(&sides[k].fullest);
        series[i] = (page_series){.name = ty_page_purposes[i].name, .values = values[i]};
    }
    put_bars(p, (page_plot){.id = "versus-memory",
                            .caption = "Memory of the fullest device of each",
                            .alternative = "Two stacked bars of memory by purpose; the table below "
                                           "has the figures",
                            .unit = PAGE_MEMORY,
                            .y_name = "bytes of a device",
                            .series = series,
                            .series_count = PAGE_PURPOSE_COUNT});
}

/* ---- The answer ---------------------------------------------------------------------------- */

static void put_names(page *p, const side sides[2])
{
    for (int k = 0; k < 2; k++) {
        ty_text_addf(p->html, "<p><strong>%s</strong> is ", bar_names[k]);
        ty_html_escape(p->html, sides[k].path);
        ty_text_add(p->html, ": ");
        ty_html_escape(p->html, sides[k].plan->workload->name);
        ty_text_add(p->html, " on ");
        ty_html_escape(p->html, sides[k].plan->cluster_name);
        ty_text_add(p->html, ", ");
        ty_html_escape(p->html, sides[k].plan->strategy);
        ty_text_add(p->html, ".</p>\n");
    }
}

static void put_answer(page *p, const side sides[2])
{
    const ty_step_summary *a = sides[0].prediction, *b = sides[1].prediction;
    const double ratio = b->samples_per_s / a->samples_per_s;
    const page_bill *bills[2] = {&sides[0].bill, &sides[1].bill};
    char times[2][32], money[2][40];

    ty_format_seconds(a->step_time_s, times[0]);
    ty_format_seconds(b->step_time_s, times[1]);
    ty_text_addf(p->html, "<p class=\"verdict\">A takes %s a step, B %s. ", times[0], times[1]);
    if (fabs(ratio - 1) < 0.0005)
        ty_text_add(p->html, "They train as many samples a second.");
    else
        ty_text_addf(p->html, "<strong>%s trains %.1f %% more samples a second</strong> than %s.",
                     ratio > 1 ? "B" : "A", (fmax(ratio, 1 / ratio) - 1) * 100,
                     ratio > 1 ? "A" : "B");
    if (isfinite(bills[0]->usd_per_hour) && isfinite(bills[1]->usd_per_hour)) {
        ty_page_format(PAGE_USD, ty_page_usd(bills[0], 1e6 / a->samples_per_s), money[0]);
        ty_page_format(PAGE_USD, ty_page_usd(bills[1], 1e6 / b->samples_per_s), money[1]);
        ty_text_addf(p->html, " A million samples cost %s with A, %s with B.", money[0], money[1]);
    }
    ty_text_add(p->html, "</p>\n");
    if (strcmp(sides[0].plan->workload_digest.hex, sides[1].plan->workload_digest.hex) != 0)
        ty_page_note(p, "The plans are of different workloads: a sample is not the same work.");
    if (sides[0].plan->global_batch != sides[1].plan->global_batch)
        ty_page_note(p, "The plans have different global batches: a step is not the same work.");
}

void ty_page_versus(page *p)
{
    const ty_report_other *other = p->in->other;
    const ty_report_document *own = ty_page_document(p, "trainyard.plan/1");
    const page_bill bill = other != NULL ? ty_page_bill(other->score) : (page_bill){NAN, NAN};
    side sides[2];

    if (other == NULL || p->in->plan == NULL)
        return;
    ty_page_section(p, "versus", "Two plans side by side");
    sides[0] = side_of(own != NULL ? own->path : "the first plan", p->in->plan, p->in->cluster,
                       p->prediction, &p->bill);
    sides[1] = side_of(other->path, other->plan, other->cluster, p->other_prediction, &bill);
    put_names(p, sides);
    if (!(sides[0].prediction->step_time_s > 0) || !(sides[1].prediction->step_time_s > 0)) {
        ty_page_note(p, "Not both have a prediction: only what they are can be compared.");
        put_choices(p, sides);
        return;
    }
    put_answer(p, sides);
    put_step(p, sides);
    put_step_chart(p, sides);
    put_choices(p, sides);
    put_memory(p, sides);
    put_memory_chart(p, sides);
    put_cost(p, sides);
    ty_page_note(p, "All that follows is about A.");
}
