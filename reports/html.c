/* The HTML report: fills the template with style, script, their hashes and the JSON document. */
#include "html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ty_report_schemas[] = {
    "trainyard.plan/1",
    "trainyard.run/2",
    "trainyard.simulation/2",
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

/* ---- The document ------------------------------------------------------------------------ */

/* Prediction of a plan: its simulation, else the one made for the report, else its estimate. */
static ty_status put_prediction(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *simulated, ty_json_writer *w,
                                ty_step_summary *out, ty_error *error)
{
    *out = *ty_plan_summary(plan);
    if (!(plan->simulation.step_time_s > 0) && simulated != NULL)
        TY_TRY(ty_timeline_summarize(plan, program, simulated, out, error));
    ty_step_summary_to_json(out, w, "prediction");
    ty_json_put_bool(w, "is_simulated", plan->simulation.step_time_s > 0 || simulated != NULL);
    return TY_OK;
}

static ty_status put_other(const ty_report_other *other, ty_json_writer *w, ty_error *error)
{
    ty_step_summary summary;
    ty_status status;

    ty_json_open(w, "other", '{');
    ty_json_put_string(w, "path", other->path);
    ty_report_put_plan(other->plan, other->cluster, w, "plan");
    status = put_prediction(other->plan, other->program, other->simulated, w, &summary, error);
    if (other->score != NULL)
        ty_report_put_copy(w, "score", other->score);
    ty_json_close(w, '}');
    return status;
}

static ty_status put_plan(const ty_report_input *in, ty_json_writer *w, ty_error *error)
{
    ty_step_summary summary;
    ty_text busy = {0};

    ty_report_put_plan(in->plan, in->cluster, w, "plan");
    if (in->comparison != NULL) {
        ty_comparison_to_json(in->plan, in->comparison, w, "comparison");
        if (ty_comparison_is_busy(in->comparison))
            ty_print_busy(in->comparison, " ", &busy);
        ty_report_put_taken(w, "busy", &busy);
        summary = in->comparison->predicted;
        ty_step_summary_to_json(&summary, w, "prediction");
        ty_json_put_bool(w, "is_simulated", true);
    } else {
        TY_TRY(put_prediction(in->plan, in->program, in->simulated, w, &summary, error));
    }
    if (in->other != NULL)
        TY_TRY(put_other(in->other, w, error));
    if (in->run != NULL)
        ty_report_put_run(in->run, w);
    TY_TRY(ty_report_put_timeline(in, w, error));
    return ty_report_put_network(in, summary.step_time_s, w, error);
}

static ty_status put_document(const ty_report_input *in, ty_text *text, ty_error *error)
{
    ty_json_writer w = ty_json_writer_compact_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.report/1");
    ty_report_put_text(&w, "title", in->title);
    ty_report_put_text(&w, "date", in->date);
    ty_report_put_text(&w, "version", in->version);
    ty_report_put_text(&w, "command", in->command);
    if (in->plan != NULL)
        TY_TRY(put_plan(in, &w, error));
    TY_TRY(ty_report_put_documents(in, &w, error));
    ty_json_put_string(&w, "glossary", ty_report_glossary);
    ty_json_close(&w, '}');
    return ty_text_check(text, error);
}

/* ---- The page ---------------------------------------------------------------------------- */

/* Writes 'sha256-...' of a script or style, as a content security policy names it. */
static void add_hash(ty_text *html, const char *content)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const ty_digest digest = ty_digest_of(content, strlen(content));
    unsigned char bytes[33] = {0}; /* 32 bytes of the digest, padded to groups of three */
    char text[45];

    for (size_t i = 0; i < 32; i++) {
        const char pair[3] = {digest.hex[2 * i], digest.hex[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    for (size_t group = 0; group < 11; group++) {
        const unsigned three = (unsigned)bytes[3 * group] << 16 |
                               (unsigned)bytes[3 * group + 1] << 8 | bytes[3 * group + 2];
        for (size_t i = 0; i < 4; i++)
            text[4 * group + i] = letters[three >> (18 - 6 * i) & 63];
    }
    text[43] = '=';
    text[44] = '\0';
    ty_text_addf(html, "'sha256-%s'", text);
}

/* Replaces each character of `from` by its entry of `to`. */
static void add_escaped(ty_text *html, const char *text, const char *from, const char *const *to)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, from);
        ty_text_append(html, text, length);
        text += length;
        if (*text != '\0')
            ty_text_add(html, to[strchr(from, *text++) - from]);
    }
}

static void add_part(const ty_report_input *in, const ty_text *document, const char *name,
                     size_t length, ty_text *html)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;"};
    static const char *const json[] = {"\\u003c"}; /* without "<" nothing ends the script */
    const char *title = in->title != NULL ? in->title : "Trainyard report";

    if (strncmp(name, "TITLE", length) == 0)
        add_escaped(html, title, "&<>", entities);
    else if (strncmp(name, "STYLE", length) == 0)
        ty_text_add(html, ty_report_style);
    else if (strncmp(name, "SCRIPT", length) == 0)
        ty_text_add(html, ty_report_script);
    else if (strncmp(name, "STYLE_HASH", length) == 0)
        add_hash(html, ty_report_style);
    else if (strncmp(name, "SCRIPT_HASH", length) == 0)
        add_hash(html, ty_report_script);
    else
        add_escaped(html, document->data, "<", json);
}

ty_status ty_report_html(const ty_report_input *in, ty_text *html, ty_error *error)
{
    ty_text document = {0};
    ty_status status;

    TY_CHECK(put_document(in, &document, error), status, done);
    for (const char *at = ty_report_template; *at != '\0';) {
        const size_t before = strcspn(at, "@");
        ty_text_append(html, at, before);
        at += before;
        if (*at == '@') {
            const size_t length = strcspn(at + 1, "@");
            add_part(in, &document, at + 1, length, html);
            at += length + 2;
        }
    }
    status = ty_text_check(html, error);
done:
    ty_text_clear(&document);
    return status;
}
