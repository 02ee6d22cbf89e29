/* What stands behind the report's pictures: the critical path, documents, the policy of
 * scripts. */
#include "scene.h"

#include "critical_path.h"
#include "html.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- The critical path --------------------------------------------------------------------- */

static double rule_by_index(uint32_t rank, uint32_t step, uint32_t index, const ty_instruction *in)
{
    (void)step, (void)in;
    return 1e-3 * (1 + (index * 7 + rank * 3) % 5);
}

/* Its links lie end to end from the last computation's end back to the start, whatever the plan. */
Test(critical_path, covers_the_step)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        scene s = scene_of(toy_specs[i].name);
        ty_timeline *timeline = scene_timeline(&s, 1, rule_by_index);
        partners *p = NULL;
        critical_path path = {0};
        double end_s = 0, at_s;

        for (uint64_t e = 0; e < timeline->event_count; e++) {
            const ty_event *event = &timeline->events[e];
            uint32_t stage = ty_plan_stage_of_rank(s.plan, event->rank);
            if (s.program->stages[stage].instructions[event->instruction].stream ==
                TY_STREAM_COMPUTE)
                end_s = fmax(end_s, event->end_s);
        }
        cr_assert_eq(ty_partners_new(s.plan, s.program, &p, NULL), TY_OK);
        cr_assert_eq(ty_critical_path_find(s.plan, s.program, timeline, p, 0, 0, &path, NULL),
                     TY_OK);
        cr_assert_gt(path.count, 1, "%s", toy_specs[i].name);
        at_s = end_s;
        for (uint32_t k = 0; k < path.count; k++) {
            cr_expect_eq(path.links[k].to_s, at_s, "%s, link %u", toy_specs[i].name, k);
            cr_expect_leq(path.links[k].from_s, path.links[k].to_s);
            at_s = path.links[k].from_s;
        }
        cr_expect_eq(at_s, 0, "%s: the path ends at %g s", toy_specs[i].name, at_s);
        cr_expect(ty_critical_path_has(&path, path.links[0].rank, path.links[0].instruction));
        ty_critical_path_clear(&path);
        ty_partners_free(p);
        ty_timeline_free(timeline);
        scene_clear(&s);
    }
}

/* ---- Clusters and costs --------------------------------------------------------------------- */

static ty_cluster *cluster_for(const ty_plan *plan)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    uint32_t most = 0;
    char line[64];

    for (uint32_t r = 0; r < ty_plan_rank_count(plan); r++)
        for (uint32_t l = 0; l < ty_plan_width(plan); l++)
            if (ty_plan_device_of_lane(plan, r, l) > most)
                most = ty_plan_device_of_lane(plan, r, l);
    snprintf(line, sizeof line, "host:%u gpu:2 @h100-sxm nvlink4 ndr400", most / 2 + 1);
    cr_assert_eq(ty_cluster_open(line, NULL, &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

/* Every ring edge carries 1000 bytes here. */
static ty_costs *costs_for(const scene *s)
{
    ty_costs *costs = NULL;

    cr_assert_eq(ty_costs_new(s->plan, s->program, &costs, NULL), TY_OK);
    for (uint32_t i = 0; i < s->program->stage_count; i++)
        for (uint32_t k = 0; k < s->program->stages[i].instruction_count; k++)
            costs->instructions[i][k].edge_bytes = 1000;
    return costs;
}

/* ---- Documents ----------------------------------------------------------------------------- */

typedef struct given {
    ty_json_document *parsed;
    ty_report_document document;
} given;

static given give(const char *text)
{
    given g = {0};
    ty_error error = {0};

    cr_assert_eq(ty_json_parse(text, strlen(text), "given.json", &g.parsed, &error), TY_OK, "%s",
                 error.message);
    g.document = (ty_report_document){.path = "given.json", .root = ty_json_root(g.parsed)};
    cr_assert_eq(ty_json_string(g.document.root, "schema", &g.document.schema, NULL), TY_OK);
    g.document.digest = ty_digest_of(text, strlen(text));
    return g;
}

static ty_status report_of(const given *g, bool without_charts, ty_text *html, ty_error *error)
{
    return ty_report_html(&(ty_report_input){.documents = &g->document,
                                             .document_count = 1,
                                             .without_charts = without_charts},
                          html, error);
}

static const struct document_case {
    const char *text, *shown[4];
} document_cases[] = {
    {"{\"schema\":\"trainyard.infeasible/1\",\"workload\":\"w<1>\",\"cluster\":\"c\",\"reason\":"
     "\"misses 2 GiB\"}",
     {"No plan fits.", "w&lt;1&gt; on c: misses 2 GiB"}},
    {"{\"schema\":\"trainyard.whatif/1\",\"question\":{\"workload\":\"w\",\"cluster\":\"c\"},"
     "\"vary\":[{\"key\":\"hosts\",\"values\":[\"1\",\"2\"]}],\"rows\":["
     "{\"values\":{\"hosts\":\"2\"},\"reason\":\"too large\"},"
     "{\"values\":{\"hosts\":\"1\"},\"devices\":8,\"step_time_s\":0.5,\"samples_per_s\":64,"
     "\"estimated_step_time_s\":0.4,\"limited_by\":\"compute\",\"plan\":\"dp\"}]}",
     {"Of 2 combinations 1 has a plan, 1 has none. Fastest: <strong>64 samples/s</strong> with "
      "<strong>hosts=1</strong>.</p>",
      "<td class=\"why\">hosts=2</td><td class=\"text\">too large</td>", "<td>500 ms</td>",
      "<td>64 to 80</td>"}},
    {"{\"schema\":\"trainyard.whatif/"
     "1\",\"vary\":[{\"key\":\"pp\",\"values\":[\"1\",\"2\",\"4\"]}],"
     "\"rows\":[{\"values\":{\"pp\":\"1\"},\"step_time_s\":1,\"samples_per_s\":2},"
     "{\"values\":{\"pp\":\"2\"},\"step_time_s\":1,\"samples_per_s\":8}]}",
     {"Of 3 combinations 2 have a plan, 1 is not done. Fastest: <strong>8 samples/s</strong> with "
      "<strong>pp=2</strong>, 4 times as fast as the slowest, pp=1."}},
    {"{\"schema\":\"trainyard.validation/1\",\"sources\":[{\"source\":\"s\",\"rows\":3,"
     "\"median_error\":0.125,\"p90_error\":null}]}",
     {"<section id=\"validation\">", "<td>12.5 %</td>"}},
    {"{\"schema\":\"trainyard.score/1\",\"time_to_target_s\":{\"low\":60,\"expected\":90,"
     "\"high\":100},\"convergence_provenance\":\"prior\"}",
     {"<section id=\"loss\">", "<td>90 s</td>", "Convergence is prior."}},
    {"{\"schema\":\"trainyard.simulation/1\",\"memory_over_time\":[{\"rank\":3,\"time_s\":[0,2],"
     "\"bytes\":[1024,3072]}]}",
     {"Memory of a device over the simulated time", "<th>rank 3</th>", "<td>1 KiB</td>",
      "<td>3 KiB</td>"}},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"slurm\",\"next\":\"sbatch "
     "job.sh\",\"files\":[{\"name\":\"job.sh\",\"bytes\":90000,\"text\":\"#!/bin/sh\\nsrun "
     "<x>\"}]},{\"target\":\"horovod\",\"reason\":\"it has no <pipelines>\"}]}",
     {"<section id=\"launch\">", "<code>sbatch job.sh</code>", "srun &lt;x&gt;",
      "90 kB; trainyard export writes it whole."}},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"horovod\",\"reason\":\"it has "
     "no <pipelines>\"}]}",
     {"<td class=\"why\">it has no &lt;pipelines&gt;</td>"}},
    {"{\"schema\":\"trainyard.compression/1\",\"bandwidths_bytes_per_s\":[1e9,1e10],"
     "\"ring_bandwidth_bytes_per_s\":3e9,\"curves\":["
     "{\"compression\":\"fp16\",\"seconds\":[0.25,0.125]}]}",
     {"<section id=\"compression\">", "<td>250 ms</td>", "10 GB/s", "narrowest ring: 3 GB/s"}},
};

Test(documents, are_shown)
{
    for (size_t i = 0; i < sizeof document_cases / sizeof document_cases[0]; i++) {
        const struct document_case *c = &document_cases[i];
        given g = give(c->text);
        ty_text html = {0};
        ty_error error = {0};

        cr_assert_eq(report_of(&g, true, &html, &error), TY_OK, "%s", error.message);
        for (int k = 0; k < 4 && c->shown[k] != NULL; k++)
            cr_expect(strstr(html.data, c->shown[k]) != NULL, "case %zu lacks %s", i, c->shown[k]);
        cr_expect(strstr(html.data, g.document.digest.hex) != NULL);
        cr_expect(strstr(html.data, "<section id=\"left-out\">") != NULL);
        cr_expect_null(strstr(html.data, "<section id=\"timeline\">"));
        ty_text_clear(&html);
        ty_json_free(g.parsed);
    }
}

/* A page explains the words of the glossary that it uses, in the plural and by any of a row's
 * names, and no others; code is code. */
Test(documents, have_their_words_explained)
{
    static const char shown[] =
        "{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"horovod\",\"reason\":"
        "\"Bubbles of 16 micro-batches, ZeRO 3 and a reduce-scatter; spineless, astep\"}]}";
    static const char *const rows[] = {"bubble", "micro-batch", "ZeRO (1, 2, 3)",
                                       "all-reduce, reduce-scatter, all-gather"};
    static const char *const others[] = {"leaf, spine", "server", "Pareto front"};
    given g = give(shown);
    ty_text html = {0};
    const char *section;

    cr_assert_eq(report_of(&g, true, &html, NULL), TY_OK);
    section = strstr(html.data, "<section id=\"words\">");
    cr_assert_not_null(section);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char cell[80];
        snprintf(cell, sizeof cell, "<dfn>%s</dfn></td><td class=\"why\">", rows[i]);
        cr_expect_not_null(strstr(section, cell), "%s", rows[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char cell[80];
        snprintf(cell, sizeof cell, "<dfn>%s</dfn>", others[i]);
        cr_expect_null(strstr(section, cell), "%s", others[i]);
    }
    cr_expect_not_null(strstr(section, "<code>16 x 32</code>"));
    ty_text_clear(&html);
    ty_json_free(g.parsed);
}

static const struct bad_document {
    const char *text, *message;
} bad_documents[] = {
    {"{\"schema\":\"trainyard.whatif/1\",\"rows\":[]}", "given.json:/vary"},
    {"{\"schema\":\"trainyard.whatif/1\",\"vary\":[{\"key\":\"a\",\"values\":[\"1\"]}],\"rows\":["
     "{\"values\":{\"a\":\"2\"},\"reason\":\"r\"}]}",
     "given.json:/rows/0/values"},
    {"{\"schema\":\"trainyard.whatif/1\",\"vary\":[{\"key\":\"a\",\"values\":[\"1\"]}],\"rows\":["
     "{\"values\":{\"a\":\"1\"},\"step_time_s\":-1}]}",
     "given.json:/rows/0/step_time_s"},
    {"{\"schema\":\"trainyard.validation/1\"}", "given.json:/sources"},
    {"{\"schema\":\"trainyard.simulation/1\",\"memory_over_time\":[{\"rank\":0,\"time_s\":[0],"
     "\"bytes\":[1,2]}]}",
     "given.json:/memory_over_time/0/bytes"},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{}]}", "given.json:/targets/0/target"},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"a\",\"files\":[{\"name\":\"b\","
     "\"bytes\":-1}]}]}",
     "given.json:/targets/0/files/0/bytes"},
    {"{\"schema\":\"trainyard.compression/1\",\"bandwidths_bytes_per_s\":[1],\"curves\":["
     "{\"compression\":\"a\",\"seconds\":[1,2]}]}",
     "given.json:/curves/0/seconds"},
};

Test(documents, bad_ones_are_refused)
{
    for (size_t i = 0; i < sizeof bad_documents / sizeof bad_documents[0]; i++) {
        given g = give(bad_documents[i].text);
        ty_text html = {0};
        ty_error error = {0};

        cr_expect_eq(report_of(&g, true, &html, &error), TY_EPARSE, "case %zu", i);
        cr_expect(strstr(error.message, bad_documents[i].message) != NULL, "%s", error.message);
        cr_expect_eq(html.length, 0, "half a page");
        ty_text_clear(&html);
        ty_json_free(g.parsed);
    }
}

/* Without memory every document is refused as such, and nothing of the page remains. */
Test(documents, survive_failing_allocations)
{
    for (size_t i = 0; i < sizeof document_cases / sizeof document_cases[0]; i++) {
        given g = give(document_cases[i].text);
        ty_status status = TY_ENOMEM;
        long n;

        for (n = 1; status == TY_ENOMEM && n < 5000; n++) {
            ty_text html = {0};
            ty_error error = {0};
            ty_memory_fail_after(n);
            status = report_of(&g, true, &html, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n,
                      error.message);
            ty_text_clear(&html);
        }
        cr_expect_eq(status, TY_OK, "case %zu", i);
        cr_expect_gt(n, 3);
        ty_json_free(g.parsed);
    }
}

/* A whole report with network and cost, at every lack of memory. */
Test(network, survives_failing_allocations)
{
    scene s = scene_of("hybrid");
    ty_cluster *cluster = cluster_for(s.plan);
    ty_costs *costs = costs_for(&s);
    ty_timeline *timeline = NULL;
    ty_status status = TY_ENOMEM;
    given g = give("{\"schema\":\"trainyard.score/1\",\"price_usd_per_hour\":7.2,\"power_w\":{"
                   "\"low\":1,\"expected\":2,\"high\":3},\"notes\":[\"money: by the <hour>\"]}");
    long n;

    scene_predict(&s);
    timeline = scene_timeline(&s, 2, scene_two_ms);
    for (n = 1; status == TY_ENOMEM && n < 100000; n++) {
        ty_text html = {0};
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_report_html(&(ty_report_input){.plan = s.plan,
                                                   .program = s.program,
                                                   .simulated = timeline,
                                                   .cluster = cluster,
                                                   .costs = costs,
                                                   .documents = &g.document,
                                                   .document_count = 1,
                                                   .without_charts = true},
                                &html, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        if (status == TY_OK) {
            cr_expect(strstr(html.data, "The cluster costs $7.20 an hour.") != NULL);
            cr_expect(strstr(html.data, "<li>money: by the &lt;hour&gt;</li>") != NULL);
            cr_expect(strstr(html.data, "<section id=\"network\">") != NULL);
            cr_expect(strstr(html.data, "<section id=\"traffic\">") != NULL);
            cr_expect(strstr(html.data, "<section id=\"cost\">") != NULL);
        }
        ty_text_clear(&html);
    }
    cr_expect_eq(status, TY_OK);
    ty_json_free(g.parsed);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_cluster_free(cluster);
    scene_clear(&s);
}

/* Many hosts are drawn as levels: one vertex for each kind of what is in them, and the links. */
Test(network, hosts_are_folded_into_levels)
{
    static const char *const levels[] = {
        "\"128 devices from ",
        "\"64 hosts from ",
        "\"device\", 0, 128]",
        "\"host\", 2, 64]",
    };
    scene s = scene_of("hybrid");
    ty_cluster *cluster = NULL;
    ty_costs *costs = costs_for(&s);
    ty_text html = {0};
    ty_error error = {0};

    scene_predict(&s);
    cr_assert_eq(ty_cluster_open("host:64 gpu:2 @h100-sxm nvlink4 ndr400", NULL, &cluster, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_report_html(
                     &(ty_report_input){
                         .plan = s.plan, .program = s.program, .cluster = cluster, .costs = costs},
                     &html, &error),
                 TY_OK, "%s", error.message);
    for (size_t i = 0; ty_report_has_charts() && i < sizeof levels / sizeof levels[0]; i++)
        cr_expect(strstr(html.data, levels[i]) != NULL, "no %s", levels[i]);
    ty_text_clear(&html);
    ty_costs_free(costs);
    ty_cluster_free(cluster);
    scene_clear(&s);
}

/* ---- Scripts ------------------------------------------------------------------------------- */

static uint32_t count_of(const char *html, const char *what)
{
    uint32_t count = 0;
    for (const char *c = html; (c = strstr(c, what)) != NULL; c += strlen(what))
        count++;
    return count;
}

/* What has no order is not joined by lines; a quantity is what lines go along, if there is one. */
Test(documents, names_are_not_joined_by_lines)
{
    static const struct {
        const char *vary, *values, *kind;
    } cases[] = {
        {"{\"key\":\"cluster\",\"values\":[\"2x dgx-a100\",\"4x dgx-h100\"]}",
         "{\"cluster\":\"2x dgx-a100\"}", "\"kind\": \"bars\""},
        {"{\"key\":\"schedule\",\"values\":[\"1f1b\",\"gpipe\"]}", "{\"schedule\":\"gpipe\"}",
         "\"kind\": \"bars\""},
        {"{\"key\":\"bandwidth.all\",\"values\":[\"x0.5\",\"100Gb/s\"]}",
         "{\"bandwidth.all\":\"x0.5\"}", "\"kind\": \"lines\""},
        {"{\"key\":\"cluster\",\"values\":[\"a\",\"b\",\"c\"]},"
         "{\"key\":\"hosts\",\"values\":[\"1\",\"2\"]}",
         "{\"cluster\":\"b\",\"hosts\":\"2\"}", "\"kind\": \"lines\""},
    };

    for (size_t i = 0; ty_report_has_charts() && i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        ty_text html = {0};
        ty_error error = {0};
        given g;

        snprintf(text, sizeof text,
                 "{\"schema\":\"trainyard.whatif/1\",\"vary\":[%s],\"rows\":[{\"values\":%s,"
                 "\"devices\":8,\"step_time_s\":1,\"samples_per_s\":2}]}",
                 cases[i].vary, cases[i].values);
        g = give(text);
        cr_assert_eq(report_of(&g, false, &html, &error), TY_OK, "%s", error.message);
        cr_expect(strstr(html.data, cases[i].kind) != NULL, "case %zu", i);
        ty_text_clear(&html);
        ty_json_free(g.parsed);
    }
}

/* One hash for each script that runs and each style, no other way in; data cannot end its script.
 */
Test(scripts, policy_and_data)
{
    given g = give(document_cases[1].text);
    ty_text html = {0};
    ty_error error = {0};
    const char *policy, *end;

    cr_assert_eq(report_of(&g, false, &html, &error), TY_OK, "%s", error.message);
    policy = strstr(html.data, "Content-Security-Policy");
    end = strchr(policy, '>');
    cr_expect_eq(count_of(html.data, "'sha256-"), ty_report_has_charts() ? 3 : 2);
    cr_expect_null(strstr(html.data, "unsafe-inline"));
    cr_expect(strstr(policy, "default-src 'none'") < end);
    cr_expect_eq(count_of(html.data, "style=\""), count_of(ty_charts_js, "style=\""),
                 "a style that the policy forbids");
    cr_expect_eq(count_of(html.data, "</script>"), ty_report_has_charts() ? 3 : 1);
    if (ty_report_has_charts())
        cr_expect(strstr(html.data, "Apache License") != NULL, "no licence of the charts");
    ty_text_clear(&html);
    ty_json_free(g.parsed);
}
