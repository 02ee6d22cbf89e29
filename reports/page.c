/* Sections, tables and charts of the HTML report. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ty_html_escape(ty_text *html, const char *text)
{
    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        const char *entity = *c == '&'    ? "&amp;"
                             : *c == '<'  ? "&lt;"
                             : *c == '>'  ? "&gt;"
                             : *c == '"'  ? "&quot;"
                             : *c == '\'' ? "&#39;"
                                          : NULL;
        if (entity != NULL)
            ty_text_add(html, entity);
        else
            ty_text_append(html, c, 1);
    }
}

/* ---- Sections ------------------------------------------------------------------------------ */

void ty_page_end_section(page *p)
{
    if (p->is_open)
        ty_text_add(p->html, "</section>\n");
    p->is_open = false;
}

static void add_section(page *p, const char *id, const char *title, const char *filled_by)
{
    if (p->section_count < PAGE_MOST_SECTIONS)
        p->sections[p->section_count++] = (page_section){id, title, filled_by};
}

void ty_page_section(page *p, const char *id, const char *title)
{
    ty_page_end_section(p);
    add_section(p, id, title, NULL);
    ty_text_addf(p->html, "<section id=\"%s\"><h2>%s</h2>\n", id, title);
    p->is_open = true;
}

void ty_page_missing(page *p, const char *title, const char *filled_by)
{
    add_section(p, NULL, title, filled_by);
}

void ty_page_note(page *p, const char *text)
{
    ty_text_add(p->html, "<p class=\"faint\">");
    ty_html_escape(p->html, text);
    ty_text_add(p->html, "</p>\n");
}

/* ---- Tables -------------------------------------------------------------------------------- */

void ty_page_table(page *p, const char *headings)
{
    ty_text_add(p->html, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
    while (*headings != '\0') {
        const size_t length = strcspn(headings, "|");
        const bool is_text = headings[0] == '<';
        char cell[160];
        snprintf(cell, sizeof cell, "%.*s", (int)length - is_text, headings + is_text);
        ty_text_add(p->html, is_text ? "<th class=\"text\">" : "<th>");
        ty_html_escape(p->html, cell);
        ty_text_add(p->html, "</th>");
        headings += length + (headings[length] == '|');
    }
    ty_text_add(p->html, "</tr></thead><tbody>\n");
}

void ty_page_row(page *p)
{
    ty_text_add(p->html, "<tr>");
}

void ty_page_text(page *p, const char *text)
{
    ty_text_add(p->html, strlen(text) > 48 ? "<td class=\"why\">" : "<td class=\"text\">");
    ty_html_escape(p->html, text);
    ty_text_add(p->html, "</td>");
}

void ty_page_number(page *p, const char *text)
{
    ty_text_add(p->html, "<td>");
    ty_html_escape(p->html, text);
    ty_text_add(p->html, "</td>");
}

void ty_page_end_row(page *p)
{
    ty_text_add(p->html, "</tr>\n");
}

void ty_page_end_table(page *p)
{
    ty_text_add(p->html, "</tbody></table></div>\n");
}

/* ---- Figures ------------------------------------------------------------------------------- */

#define JOULES_IN_WH 3600.0

static const char *unit_name(page_unit unit)
{
    static const char *const names[] = {
        [PAGE_SECONDS] = "s",   [PAGE_BYTES] = "bytes",   [PAGE_MEMORY] = "memory",
        [PAGE_COUNT] = "count", [PAGE_SHARE] = "share",   [PAGE_USD] = "usd",
        [PAGE_RATE] = "rate",   [PAGE_ENERGY] = "energy", [PAGE_FACTOR] = "factor",
        [PAGE_POWER] = "power",
    };
    return names[unit];
}

/* Watts and watt hours in thousands: "1.58 MWh". */
static void format_watts(double value, const char *unit, char out[40])
{
    static const char *const prefixes[] = {"", "k", "M", "G"};
    size_t power = 0;

    for (; fabs(value) >= 999.5 && power < 3; power++)
        value /= 1000;
    snprintf(out, 40, "%.3g %s%s", value, prefixes[power], unit);
}

void ty_page_format(page_unit unit, double value, char out[40])
{
    static void (*const formats[])(double value, char out[32]) = {
        [PAGE_SECONDS] = ty_format_seconds, [PAGE_BYTES] = ty_format_bytes,
        [PAGE_MEMORY] = ty_format_memory,   [PAGE_COUNT] = ty_format_count,
        [PAGE_RATE] = ty_format_bandwidth,
    };

    if (!isfinite(value))
        snprintf(out, 40, "–");
    else if (unit == PAGE_SHARE)
        snprintf(out, 40, "%.1f %%", value * 100);
    else if (unit == PAGE_FACTOR)
        snprintf(out, 40, "x %.3g", value);
    else if (unit == PAGE_ENERGY)
        format_watts(value / JOULES_IN_WH, "Wh", out);
    else if (unit == PAGE_POWER)
        format_watts(value, "W", out);
    else if (unit == PAGE_USD)
        snprintf(out, 40, "$%.*f", value >= 100 ? 0 : value >= 1 ? 2 : 4, value);
    else
        formats[unit](value, out);
}

/* ---- Charts -------------------------------------------------------------------------------- */

void ty_page_chart(page *p, const char *id, const char *kind, const char *caption,
                   const char *alternative)
{
    ty_text_addf(p->html, "<figure class=\"chart\" id=\"chart-%s\"><figcaption>", id);
    ty_html_escape(p->html, caption);
    ty_text_add(p->html, "</figcaption>\n");
    if (p->has_charts) {
        ty_text_addf(p->html,
                     "<div class=\"plot\" data-chart=\"%s\" role=\"img\" tabindex=\"0\" "
                     "aria-label=\"",
                     id);
        ty_html_escape(p->html, alternative);
        ty_text_add(p->html, "\"></div>\n");
    }
    ty_json_open_flat(&p->json, id, '{');
    ty_json_put_string(&p->json, "kind", kind);
}

void ty_page_chart_table(page *p, const char *summary)
{
    ty_json_close(&p->json, '}');
    ty_text_add(p->html, "<details open><summary>");
    ty_html_escape(p->html, summary);
    ty_text_add(p->html, "</summary>");
}

void ty_page_end_chart(page *p)
{
    ty_text_add(p->html, "</details></figure>\n");
}

/* Six digits are more than a picture shows. */
static void put_short(page *p, double value)
{
    char digits[32];

    if (!isfinite(value)) {
        ty_json_put_null(&p->json, NULL);
        return;
    }
    snprintf(digits, sizeof digits, "%.6g", value);
    ty_json_put_raw(&p->json, NULL, digits);
}

/* Numbers as an array; NaN becomes null. */
static void put_numbers(page *p, const char *key, const double *values, size_t count)
{
    ty_json_open(&p->json, key, '[');
    for (size_t i = 0; i < count; i++)
        put_short(p, values[i]);
    ty_json_close(&p->json, ']');
}

static void put_strings(page *p, const char *key, const char *const *values, size_t count)
{
    ty_json_open(&p->json, key, '[');
    for (size_t i = 0; i < count; i++)
        ty_json_put_string(&p->json, NULL, values[i]);
    ty_json_close(&p->json, ']');
}

static void put_plot_data(page *p, const page_plot *plot)
{
    ty_json_put_string(&p->json, "unit", unit_name(plot->unit));
    ty_json_put_string(&p->json, "xUnit", unit_name(plot->x_unit));
    ty_json_put_string(&p->json, "xName", plot->x_name);
    ty_json_put_string(&p->json, "yName", plot->y_name != NULL ? plot->y_name : "");
    ty_json_put_bool(&p->json, "stacked", plot->is_stacked);
    ty_json_put_bool(&p->json, "logX", plot->is_log_x);
    ty_json_put_bool(&p->json, "logY", plot->is_log_y);
    if (plot->categories != NULL)
        put_strings(p, "categories", plot->categories, plot->count);
    else
        put_numbers(p, "x", plot->x, plot->count);
    if (plot->limit > 0) {
        ty_json_put_number(&p->json, "limit", plot->limit);
        ty_json_put_string(&p->json, "limitName", plot->limit_name);
    }
    ty_json_open(&p->json, "series", '[');
    for (uint32_t s = 0; s < plot->series_count; s++) {
        const page_series *series = &plot->series[s];
        ty_json_open(&p->json, NULL, '{');
        ty_json_put_string(&p->json, "name", series->name);
        put_numbers(p, "values", series->values, plot->count);
        if (series->low != NULL) {
            put_numbers(p, "low", series->low, plot->count);
            put_numbers(p, "high", series->high, plot->count);
        }
        if (series->colour != NULL)
            ty_json_put_string(&p->json, "colour", series->colour);
        ty_json_put_bool(&p->json, "dashed", series->is_dashed);
        ty_json_close(&p->json, '}');
    }
    ty_json_close(&p->json, ']');
}

#define MOST_PLOT_ROWS 200

static void put_plot_table(page *p, const page_plot *plot)
{
    const size_t stride = plot->count / MOST_PLOT_ROWS + 1;
    char cell[40];

    ty_text_add(p->html, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th "
                         "class=\"text\">");
    ty_html_escape(p->html, plot->x_name);
    ty_text_add(p->html, "</th>");
    for (uint32_t s = 0; s < plot->series_count; s++) {
        ty_text_add(p->html, "<th>");
        ty_html_escape(p->html, plot->series[s].name);
        ty_text_add(p->html, plot->series[s].low != NULL ? "</th><th>band</th>" : "</th>");
    }
    ty_text_add(p->html, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < plot->count; i += stride) {
        ty_page_row(p);
        if (plot->categories == NULL)
            ty_page_format(plot->x_unit, plot->x[i], cell);
        ty_page_text(p, plot->categories != NULL ? plot->categories[i] : cell);
        for (uint32_t s = 0; s < plot->series_count; s++) {
            const page_series *series = &plot->series[s];
            ty_page_format(plot->unit, series->values[i], cell);
            ty_page_number(p, cell);
            if (series->low != NULL) {
                char low[40], band[96];
                ty_page_format(plot->unit, series->low[i], low);
                ty_page_format(plot->unit, series->high[i], cell);
                snprintf(band, sizeof band, "%s to %s", low, cell);
                ty_page_number(p, band);
            }
        }
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
    if (stride > 1)
        ty_text_addf(p->html, "<p class=\"faint\">One row of %zu is shown.</p>\n", stride);
}

void ty_page_plot(page *p, const page_plot *plot)
{
    ty_page_chart(p, plot->id, plot->is_line ? "lines" : "bars", plot->caption, plot->alternative);
    put_plot_data(p, plot);
    ty_page_chart_table(p, "The figures");
    put_plot_table(p, plot);
    if (plot->limit > 0) {
        char limit[40];
        ty_page_format(plot->is_line ? plot->x_unit : plot->unit, plot->limit, limit);
        ty_text_add(p->html, "<p class=\"faint\">");
        ty_html_escape(p->html, plot->limit_name);
        ty_text_addf(p->html, ": %s.</p>\n", limit);
    }
    ty_page_end_chart(p);
}

/* ---- What everybody asks ------------------------------------------------------------------- */

const ty_report_document *ty_page_document(const page *p, const char *schema)
{
    for (uint32_t i = 0; i < p->in->document_count; i++)
        if (strcmp(p->in->documents[i].schema, schema) == 0)
            return &p->in->documents[i];
    return NULL;
}

page_bill ty_page_bill(const ty_json *score)
{
    page_bill bill = {NAN, NAN};
    const ty_json *power;

    if (score == NULL)
        return bill;
    if (ty_json_has(score, "price_usd_per_hour") &&
        ty_json_number(score, "price_usd_per_hour", 0, 1e300, &bill.usd_per_hour, NULL) != TY_OK)
        bill.usd_per_hour = NAN;
    if (ty_json_has(score, "power_w") &&
        (ty_json_object(score, "power_w", &power, NULL) != TY_OK ||
         ty_json_number(power, "expected", 0, 1e300, &bill.power_w, NULL) != TY_OK))
        bill.power_w = NAN;
    return bill;
}

double ty_page_usd(const page_bill *bill, double seconds)
{
    return seconds / 3600 * bill->usd_per_hour;
}

double ty_page_energy_j(const page_bill *bill, double seconds)
{
    return seconds * bill->power_w;
}

uint64_t ty_page_peak_bytes(const ty_plan *plan)
{
    uint64_t peak = 0;

    for (uint32_t s = 0; plan->memory != NULL && s < plan->stage_count; s++)
        if (ty_memory_use_total(&plan->memory[s]) > peak)
            peak = ty_memory_use_total(&plan->memory[s]);
    return peak;
}

static uint32_t layers_at(const ty_plan *plan, uint32_t position)
{
    uint32_t layers = 0;

    for (uint32_t s = position; s < plan->stage_count; s += ty_plan_position_count(plan))
        layers += plan->stages[s].layer_count;
    return layers;
}

static bool is_same_use(const ty_memory_use *a, const ty_memory_use *b)
{
    for (int i = 0; i < PAGE_PURPOSE_COUNT; i++)
        if (ty_page_purposes[i].bytes(a) != ty_page_purposes[i].bytes(b))
            return false;
    return true;
}

uint32_t ty_page_alike_position(const ty_plan *plan, uint32_t position)
{
    const ty_plan_stage *stage = &plan->stages[position];

    for (uint32_t p = 0; p < position; p++)
        if (plan->stages[p].replicas == stage->replicas &&
            plan->stages[p].recompute == stage->recompute &&
            plan->stages[p].recompute_blocks == stage->recompute_blocks &&
            layers_at(plan, p) == layers_at(plan, position) &&
            (plan->memory == NULL || is_same_use(&plan->memory[p], &plan->memory[position])))
            return p;
    return position;
}

double ty_page_capacity(const ty_plan *plan, const ty_cluster *cluster)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t s = 0; cluster != NULL && s < plan->stage_count; s++)
        for (uint32_t d = 0; d < plan->stages[s].replicas * ty_plan_width(plan); d++) {
            const ty_device_type *type =
                ty_cluster_device_type(cluster, plan->stages[s].devices[d]);
            if (ty_device_usable_bytes(type) < least)
                least = ty_device_usable_bytes(type);
        }
    return least == UINT64_MAX ? 0 : (double)least;
}
