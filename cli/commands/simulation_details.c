/* Results of trainyard simulate in addition to the step time: shares of time, utilization of
 * devices and links, memory, and the critical path. */
#include "cli.h"

#include <math.h>
#include <string.h>

enum {
    BUSIEST_LINKS = 8,
    TIME_BINS = 50,
    MOST_TRAFFIC = 1024,
    MOST_PARTS = 2000,
    MOST_CURVES = 32,
    MOST_KINDS = 32
};
#define NEARLY 0.99 /* share of the fullest link's utilization that counts as equally full */

void simulation_details_clear(simulation_details *d)
{
    ty_free(d->loads);
    ty_free(d->busy);
    ty_free(d->traffic);
    ty_free(d->parts);
    for (uint32_t c = 0; d->curves != NULL && c < d->curve_count; c++)
        ty_free(d->curves[c].points);
    ty_free(d->curves);
    ty_link_history_clear(&d->history);
    *d = (simulation_details){0};
}

/* ---- Computing ----------------------------------------------------------------------------- */

/* Memory of the first stage replica of each pipeline rank. */
static ty_status find_memory(simulation_details *d, const ty_plan_inputs *in,
                             const ty_timeline *timeline, ty_error *error)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(in->plan);
    const uint32_t count = pipeline_size < MOST_CURVES ? pipeline_size : MOST_CURVES;
    ty_status status = TY_OK;

    if (in->plan->memory == NULL)
        return TY_OK;
    d->curves = ty_alloc(count, sizeof *d->curves);
    TY_TRY(ty_check_memory(d->curves != NULL, error));
    for (; status == TY_OK && d->curve_count < count; d->curve_count++) {
        simulation_curve *curve = &d->curves[d->curve_count];
        curve->stage_replica = ty_plan_first_replica(in->plan, d->curve_count);
        status = ty_memory_curve(in->plan, in->program, timeline, curve->stage_replica,
                                 &curve->points, &curve->count, error);
    }
    return status;
}

ty_status simulation_details_find(const ty_plan_inputs *in, const ty_timeline *timeline,
                                  double step_time_s, bool is_all, simulation_details *d,
                                  ty_error *error)
{
    uint32_t links[BUSIEST_LINKS], count = 0;

    d->step_time_s = step_time_s;
    d->busy = ty_alloc(timeline->stage_replica_count, sizeof *d->busy);
    TY_TRY(ty_check_memory(d->busy != NULL, error));
    TY_TRY(ty_timeline_breakdown(in->plan, in->program, in->costs, timeline, d->shares, d->busy,
                                 error));
    TY_TRY(ty_link_loads(in->plan, in->program, in->costs, in->cluster, &d->loads, &d->load_count,
                         error));
    TY_TRY(ty_critical_parts(in->plan, in->program, timeline, &d->parts, &d->part_count, error));
    if (!is_all)
        return TY_OK;
    for (; count < BUSIEST_LINKS && count < d->load_count; count++)
        links[count] = 2 * d->loads[count].link + d->loads[count].is_backward;
    TY_TRY(ty_link_history_of(in->plan, in->program, in->costs, in->cluster, timeline, links, count,
                              TIME_BINS, &d->history, error));
    TY_TRY(ty_traffic_matrix(in->plan, in->program, in->costs, in->cluster, TY_BETWEEN_HOSTS,
                             &d->traffic, &d->traffic_count, error));
    return find_memory(d, in, timeline, error);
}

/* ---- Links --------------------------------------------------------------------------------- */

static const ty_link_edge *link_of(const ty_plan_inputs *in, const ty_link_load *load)
{
    return ty_cluster_link(in->cluster, load->link);
}

static const char *end_of(const ty_plan_inputs *in, const ty_link_load *load, bool is_target)
{
    const ty_link_edge *link = link_of(in, load);
    return ty_cluster_vertex_name(in->cluster,
                                  load->is_backward == is_target ? link->from : link->to);
}

/* Counts links of the fullest one's kind that are equally full. */
static uint32_t count_fullest(const simulation_details *d, const ty_plan_inputs *in)
{
    uint32_t count = 0;

    for (uint32_t l = 0; l < d->load_count && d->loads[l].busy_s >= NEARLY * d->loads[0].busy_s;
         l++)
        count += strcmp(link_of(in, &d->loads[l])->kind, link_of(in, &d->loads[0])->kind) == 0;
    return count;
}

static void write_link(const simulation_details *d, const ty_plan_inputs *in, uint32_t index,
                       ty_json_writer *w)
{
    const ty_link_load *load = &d->loads[index];
    const double full = link_of(in, load)->bandwidth_bytes_per_s * d->history.bin_s;

    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "from", end_of(in, load, false));
    ty_json_put_string(w, "to", end_of(in, load, true));
    ty_json_put_string(w, "kind", link_of(in, load)->kind);
    ty_json_put_number(w, "bandwidth_bytes_per_s", link_of(in, load)->bandwidth_bytes_per_s);
    ty_json_put_number(w, "step_bytes", load->bytes);
    ty_json_put_number(w, "utilisation", load->busy_s / d->step_time_s);
    ty_json_open_flat(w, "utilisation_over_time", '[');
    for (uint32_t b = 0; b < d->history.bin_count; b++)
        ty_json_put_number(w, NULL, d->history.curves[index].bytes[b] / full);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

/* Mean and peak utilization of every kind of link that is used. */
static void write_kinds(const simulation_details *d, const ty_plan_inputs *in, ty_json_writer *w)
{
    const char *kinds[MOST_KINDS];
    uint32_t count = 0;

    ty_json_open(w, "link_kinds", '[');
    for (uint32_t l = 0; l < d->load_count; l++) {
        const char *kind = link_of(in, &d->loads[l])->kind;
        double sum = 0.0;
        uint32_t links = 0, k = 0;
        while (k < count && strcmp(kinds[k], kind) != 0)
            k++;
        if (k < count || count == MOST_KINDS)
            continue;
        kinds[count++] = kind;
        for (uint32_t m = l; m < d->load_count; m++)
            if (strcmp(link_of(in, &d->loads[m])->kind, kind) == 0) {
                sum += d->loads[m].busy_s;
                links++;
            }
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "kind", kind);
        ty_json_put_uint(w, "links", links);
        ty_json_put_number(w, "mean_utilisation", sum / links / d->step_time_s);
        ty_json_put_number(w, "peak_utilisation", d->loads[l].busy_s / d->step_time_s);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

static void write_links(const simulation_details *d, const ty_plan_inputs *in, ty_json_writer *w)
{
    ty_json_put_uint(w, "links_used", d->load_count);
    if (d->load_count > 0) {
        ty_json_open(w, "bottleneck", '{');
        ty_json_put_string(w, "from", end_of(in, &d->loads[0], false));
        ty_json_put_string(w, "to", end_of(in, &d->loads[0], true));
        ty_json_put_string(w, "kind", link_of(in, &d->loads[0])->kind);
        ty_json_put_uint(w, "links", count_fullest(d, in));
        ty_json_put_number(w, "utilisation", d->loads[0].busy_s / d->step_time_s);
        ty_json_close(w, '}');
    }
    write_kinds(d, in, w);
    ty_json_put_number(w, "time_bin_s", d->history.bin_s);
    ty_json_open(w, "busiest_links", '[');
    for (uint32_t l = 0; l < d->history.curve_count; l++)
        write_link(d, in, l, w);
    ty_json_close(w, ']');
    ty_json_open(w, "traffic", '[');
    for (uint32_t t = 0; t < d->traffic_count && t < MOST_TRAFFIC; t++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "from", ty_cluster_host_name(in->cluster, d->traffic[t].from));
        ty_json_put_string(w, "to", ty_cluster_host_name(in->cluster, d->traffic[t].to));
        ty_json_put_number(w, "step_bytes", d->traffic[t].bytes);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

/* ---- Time, devices, memory ----------------------------------------------------------------- */

static void write_memory(const simulation_details *d, ty_json_writer *w)
{
    ty_json_open(w, "memory_over_time", '[');
    for (uint32_t c = 0; c < d->curve_count; c++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_uint(w, "stage_replica", d->curves[c].stage_replica);
        ty_json_open_flat(w, "time_s", '[');
        for (uint32_t i = 0; i < d->curves[c].count; i++)
            ty_json_put_number(w, NULL, d->curves[c].points[i].time_s);
        ty_json_close(w, ']');
        ty_json_open_flat(w, "bytes", '[');
        for (uint32_t i = 0; i < d->curves[c].count; i++)
            ty_json_put_uint(w, NULL, d->curves[c].points[i].bytes);
        ty_json_close(w, ']');
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

/* ---- Critical path ------------------------------------------------------------------------- */

static double sum_by_op(const simulation_details *d, const ty_plan_inputs *in,
                        double seconds[TY_OP_COUNT])
{
    double total = 0.0;

    for (uint32_t i = 0; i < d->part_count; i++) {
        const ty_critical_part *part = &d->parts[i];
        const uint32_t stage = ty_plan_stage_of_replica(in->plan, part->stage_replica);
        seconds[in->program->stages[stage].instructions[part->instruction].op] +=
            part->to_s - part->from_s;
        total += part->to_s - part->from_s;
    }
    return total;
}

static void write_critical(const simulation_details *d, const ty_plan_inputs *in, ty_json_writer *w)
{
    double seconds[TY_OP_COUNT] = {0};
    const double total = sum_by_op(d, in, seconds);
    const uint32_t first = d->part_count > MOST_PARTS ? d->part_count - MOST_PARTS : 0;

    ty_json_open(w, "critical_path", '{');
    ty_json_open(w, "shares", '{');
    for (int op = 0; op < TY_OP_COUNT; op++)
        if (seconds[op] > 0.0)
            ty_json_put_number(w, ty_op_name((ty_op)op), seconds[op] / total);
    ty_json_close(w, '}');
    ty_json_open(w, "parts", '[');
    for (uint32_t i = first; i < d->part_count; i++) {
        const ty_critical_part *part = &d->parts[i];
        ty_json_open_flat(w, NULL, '[');
        ty_json_put_uint(w, NULL, part->stage_replica);
        ty_json_put_uint(w, NULL, part->step);
        ty_json_put_uint(w, NULL, part->instruction);
        ty_json_put_number(w, NULL, part->from_s);
        ty_json_put_number(w, NULL, part->to_s);
        ty_json_close(w, ']');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static void show_critical(const simulation_details *d, const ty_plan_inputs *in, ty_text *text)
{
    double seconds[TY_OP_COUNT] = {0};
    const double total = sum_by_op(d, in, seconds);
    bool is_first = true;

    if (total <= 0.0)
        return;
    ty_text_add(text, "critical    ");
    for (;;) {
        int most = 0;
        for (int op = 1; op < TY_OP_COUNT; op++)
            if (seconds[op] > seconds[most])
                most = op;
        if (seconds[most] < 0.005 * total)
            break;
        ty_text_addf(text, "%s%s %.0f %%", is_first ? "" : ", ", ty_op_name((ty_op)most),
                     100.0 * seconds[most] / total);
        seconds[most] = 0.0;
        is_first = false;
    }
    ty_text_add(text, "\n");
}

/* ---- Output -------------------------------------------------------------------------------- */

void simulation_details_show(const simulation_details *d, const ty_plan_inputs *in,
                             ty_json_writer *w, ty_text *text)
{
    if (w != NULL) {
        ty_json_open(w, "breakdown", '{');
        for (int k = 0; k < TY_TIME_KIND_COUNT; k++)
            ty_json_put_number(w, ty_time_kind_name((ty_time_kind)k), d->shares[k]);
        ty_json_close(w, '}');
        ty_json_open_flat(w, "stage_replica_utilisation", '[');
        for (uint32_t r = 0; r < ty_plan_stage_replica_count(in->plan); r++)
            ty_json_put_number(w, NULL, d->busy[r]);
        ty_json_close(w, ']');
        write_memory(d, w);
        write_critical(d, in, w);
        write_links(d, in, w);
        return;
    }
    show_critical(d, in, text);
    if (d->load_count == 0)
        return;
    ty_text_addf(text, "busiest     %s to %s (%s), %.1f %% of the step",
                 end_of(in, &d->loads[0], false), end_of(in, &d->loads[0], true),
                 link_of(in, &d->loads[0])->kind, 100.0 * d->loads[0].busy_s / d->step_time_s);
    if (count_fullest(d, in) > 1)
        ty_text_addf(text, "; %u like it", count_fullest(d, in) - 1);
    ty_text_add(text, "\n");
}
