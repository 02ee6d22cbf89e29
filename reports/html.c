/* The HTML report as a whole: its sections in order, its scripts and who may run. */
#include "html.h"
#include "page.h"

#include <stdio.h>
#include <string.h>

const char *const ty_report_schemas[] = {
    "trainyard.plan/1",
    "trainyard.run/1",
    "trainyard.simulation/1",
    "trainyard.estimate/1",
    "trainyard.whatif/1",
    "trainyard.infeasible/1",
    "trainyard.validation/1",
    "trainyard.score/1",
    "trainyard.launch/1",
    "trainyard.compression/1",
    "trainyard.phased-plan/1",
    "trainyard.phased-score/1",
    NULL,
};

bool ty_report_has_charts(void)
{
    return ty_charts_js[0] != '\0';
}

/* ---- Who may run --------------------------------------------------------------------------- */

static unsigned digit_of(char hex)
{
    return (unsigned)(hex <= '9' ? hex - '0' : hex - 'a' + 10);
}

/* 'sha256-...' of a script or style, as a content security policy names it. */
static void add_hash(ty_text *html, const char *content)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const ty_digest digest = ty_digest_of(content, strlen(content));
    unsigned char bytes[33] = {0}; /* 32 of the digest, one to make groups of three */
    char text[45];

    for (size_t i = 0; i < 32; i++)
        bytes[i] =
            (unsigned char)(digit_of(digest.hex[2 * i]) << 4 | digit_of(digest.hex[2 * i + 1]));
    for (size_t group = 0; group < 11; group++) {
        const unsigned three = (unsigned)bytes[3 * group] << 16 |
                               (unsigned)bytes[3 * group + 1] << 8 | bytes[3 * group + 2];
        for (size_t i = 0; i < 4; i++)
            text[4 * group + i] = letters[three >> (18 - 6 * i) & 63];
    }
    text[43] = '=';
    text[44] = '\0';
    ty_text_addf(html, " 'sha256-%s'", text);
}

/* When and by what the page was made, and whose software it speaks of. */
static void put_origin(const ty_report_input *in, ty_text *html)
{
    const ty_stack *stack = in->plan != NULL ? in->plan->stack : NULL;

    if (in->date == NULL && in->version == NULL && stack == NULL)
        return;
    ty_text_add(html, "<p class=\"faint origin\">");
    if (in->date != NULL || in->version != NULL)
        ty_text_add(html, "Made");
    if (in->date != NULL) {
        ty_text_add(html, " ");
        ty_html_escape(html, in->date);
    }
    if (in->version != NULL) {
        ty_text_add(html, " by trainyard ");
        ty_html_escape(html, in->version);
    }
    if (in->date != NULL || in->version != NULL)
        ty_text_add(html, ". ");
    if (stack != NULL) {
        ty_text_add(html, "Stack: ");
        ty_html_escape(html, stack->name);
        ty_text_add(html, ", ");
        ty_html_escape(html, stack->title);
        ty_text_add(html, ".");
    }
    ty_text_add(html, "</p>\n");
}

static void put_head(const ty_report_input *in, bool has_charts, ty_text *html)
{
    const char *title = in->title != NULL ? in->title : "Trainyard report";

    ty_text_add(html, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
                      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "base-uri 'none'; form-action 'none'; style-src");
    add_hash(html, ty_page_css);
    ty_text_add(html, "; script-src");
    if (has_charts)
        add_hash(html, ty_charts_js);
    add_hash(html, ty_page_js);
    ty_text_add(html, "; img-src data:\">\n<meta name=\"viewport\" content=\"width=device-width, "
                      "initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    ty_html_escape(html, title);
    ty_text_add(html, "</title>\n<style>");
    ty_text_add(html, ty_page_css);
    ty_text_add(html, "</style></head><body>\n<header><h1>");
    ty_html_escape(html, title);
    ty_text_add(
        html, "</h1><button type=\"button\" id=\"theme\" hidden>Dark</button></header>\n<main>\n");
    put_origin(in, html);
}

/* ---- Sections ------------------------------------------------------------------------------ */

static ty_status put_sections(page *p, ty_error *error)
{
    const ty_report_document *score = ty_page_document(p, "trainyard.score/1");
    ty_status status = TY_OK;

    ty_page_versus(p);
    ty_page_breakdown(p);
    TY_CHECK(ty_page_timeline(p, error), status, done);
    ty_page_errors(p);
    ty_page_memory(p);
    TY_CHECK(ty_page_memory_curves(p, error), status, done);
    TY_CHECK(ty_page_network(p, error), status, done);
    ty_page_search(p);
    TY_CHECK(ty_page_whatif(p, error), status, done);
    ty_page_loss(p, score != NULL ? score->root : NULL);
    ty_page_cost(p, score != NULL ? score->root : NULL);
    TY_CHECK(ty_page_documents(p, error), status, done);
    ty_page_provenance(p);
done:
    return status;
}

static void put_left_out(page *p)
{
    bool is_any = false;

    for (uint32_t i = 0; i < p->section_count; i++)
        is_any = is_any || p->sections[i].filled_by != NULL;
    if (!is_any)
        return;
    ty_page_section(p, "left-out", "What this report does not have");
    ty_page_table(p, "<section|<what would fill it");
    for (uint32_t i = 0; i < p->section_count; i++) {
        if (p->sections[i].filled_by == NULL)
            continue;
        ty_page_row(p);
        ty_page_text(p, p->sections[i].title);
        ty_page_text(p, p->sections[i].filled_by);
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
}

static void put_notices(page *p)
{
    if (!p->has_charts)
        return;
    ty_text_add(p->html, "<details class=\"notices\"><summary>Licences of the scripts in this "
                         "page</summary><pre tabindex=\"0\">");
    ty_html_escape(p->html, ty_charts_notices);
    ty_text_add(p->html, "</pre></details>\n");
}

static void put_contents(const page *p, ty_text *html)
{
    ty_text_add(html, "<nav aria-label=\"Sections\"><ul>");
    for (uint32_t i = 0; i < p->section_count; i++)
        if (p->sections[i].filled_by == NULL)
            ty_text_addf(html, "<li><a href=\"#%s\">%s</a></li>", p->sections[i].id,
                         p->sections[i].title);
    ty_text_add(html, "</ul></nav>\n");
}

/* JSON inside a page: no character that could end the script. */
static void put_data(const ty_text *data, ty_text *html)
{
    ty_text_add(html, "<script type=\"application/json\" id=\"data\">");
    for (size_t at = 0; at < data->length;) {
        const size_t length = strcspn(data->data + at, "<");
        ty_text_append(html, data->data + at, length);
        at += length;
        if (at < data->length) {
            ty_text_add(html, "\\u003c");
            at++;
        }
    }
    ty_text_add(html, "</script>\n");
}

static void put_scripts(const page *p, const ty_text *data, ty_text *html)
{
    if (p->has_charts) {
        put_data(data, html);
        ty_text_add(html, "<script>");
        ty_text_add(html, ty_charts_js);
        ty_text_add(html, "</script>\n");
    }
    ty_text_add(html, "<script>");
    ty_text_add(html, ty_page_js);
    ty_text_add(html, "</script>\n</body></html>\n");
}

/* The one prediction of a plan: its simulation, or where it has none the one that was made for the
 * page, or its estimate. */
static ty_status predict(const ty_plan *plan, const ty_program *program,
                         const ty_timeline *simulated, ty_step_summary *own,
                         const ty_step_summary **out, ty_error *error)
{
    ty_status status = TY_OK;

    *out = ty_plan_summary(plan);
    if (*out == &plan->simulation || simulated == NULL)
        return TY_OK;
    status = ty_timeline_summarize(plan, program, simulated, own, error);
    *out = own;
    return status;
}

static ty_status predict_all(page *p, ty_error *error)
{
    const ty_report_input *in = p->in;
    const ty_report_document *score = ty_page_document(p, "trainyard.score/1");
    ty_status status = TY_OK;

    p->bill = ty_page_bill(score != NULL ? score->root : NULL);
    if (in->plan == NULL)
        return TY_OK;
    if (in->comparison != NULL)
        p->prediction = &in->comparison->predicted;
    else
        TY_CHECK(
            predict(in->plan, in->program, in->simulated, &p->simulated[0], &p->prediction, error),
            status, done);
    if (in->other != NULL)
        TY_CHECK(predict(in->other->plan, in->other->program, in->other->simulated,
                         &p->simulated[1], &p->other_prediction, error),
                 status, done);
done:
    return status;
}

ty_status ty_report_html(const ty_report_input *in, ty_text *html, ty_error *error)
{
    ty_status status;
    ty_text verdict = {0}, body = {0}, data = {0};
    page p = {.in = in,
              .html = &verdict,
              .json = ty_json_writer_on(&data),
              .has_charts = !in->without_charts && ty_report_has_charts()};

    TY_CHECK(predict_all(&p, error), status, done);
    ty_json_open_flat(&p.json, NULL, '{');
    TY_CHECK(ty_page_verdict(&p, error), status, done);
    p.html = &body;
    TY_CHECK(put_sections(&p, error), status, done);
    put_left_out(&p);
    TY_CHECK(ty_page_glossary(&p, &verdict, error), status, done);
    ty_page_end_section(&p);
    put_notices(&p);
    ty_json_close(&p.json, '}');
    TY_CHECK(ty_text_check(&verdict, error), status, done);
    TY_CHECK(ty_text_check(&body, error), status, done);
    TY_CHECK(ty_text_check(&data, error), status, done);

    put_head(in, p.has_charts, html);
    ty_text_append(html, verdict.data, verdict.length);
    put_contents(&p, html);
    ty_text_append(html, body.data, body.length);
    ty_text_add(html, "</main>\n");
    put_scripts(&p, &data, html);
    status = ty_text_check(html, error);
done:
    ty_text_clear(&verdict);
    ty_text_clear(&body);
    ty_text_clear(&data);
    return status;
}
